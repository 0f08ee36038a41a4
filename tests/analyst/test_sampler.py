"""Tests of collector.analyst.sampler: what is thinned by how much, played at a clock of the test's own."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.analyst.sampler import MAX_STRATA, Sampler
from collector.embedding.budget import CpuBudget

SHARE = 0.25


class Played:
    """So many seconds of arrivals (exchanges a second by stratum), each at its cost in CPU seconds."""

    def __init__(self, rates: Mapping[str, float], costs: Mapping[str, float], seconds: float, seed: int = 1) -> None:
        rng = Random(seed)  # noqa: S311 - seeded draws are the point
        budget, sampler = CpuBudget(SHARE, 0.0), Sampler(SHARE, seed)
        due = [(rng.expovariate(rate), name) for name, rate in rates.items()]
        heapq.heapify(due)
        self.came, self.taken, self.refused = Counter[str](), Counter[str](), 0
        self.spent, self.quality = 0.0, Counter[str]()
        while due[0][0] < seconds:
            now, name = heapq.heappop(due)
            heapq.heappush(due, (now + rng.expovariate(rates[name]), name))
            self.came[name] += 1
            is_good = rng.random() < 0.7
            if not sampler.takes(name, budget.fill(now), now):
                continue
            if not budget.take(sampler.cost(name), now):
                self.refused += 1
                continue
            cost = costs[name] * rng.uniform(0.5, 1.5)
            budget.settle(sampler.cost(name), cost, now)
            sampler.learn(name, cost)
            self.taken[name] += 1
            self.quality[name] += is_good
            self.spent += cost

    def share(self, name: str) -> float:
        return self.taken[name] / self.came[name]


def test_below_the_budget_everything_is_taken() -> None:
    played = Played({"a": 2.0, "b": 0.1}, {"a": 0.05, "b": 0.05}, 300.0)
    assert played.taken == played.came
    assert played.refused == 0


@pytest.mark.parametrize("times", [1.5, 3.0, 10.0, 50.0])
def test_the_budget_is_used_and_held_however_much_more_comes(times: float) -> None:
    costs = {"large": 0.05, "middle": 0.02, "rare": 0.05}
    rates = {"large": 3.0 * times, "middle": 3.0 * times, "rare": 0.05}
    played = Played(rates, costs, 300.0)
    assert 0.9 * SHARE < played.spent / 300.0 < 1.1 * SHARE
    assert played.refused <= sum(rates.values()), "after the first second the sampler leaves out, not the budget"


def test_a_rare_stratum_is_scored_whole_beside_one_that_is_thinned() -> None:
    played = Played({"large": 50.0, "rare": 0.2}, {"large": 0.05, "rare": 0.05}, 600.0)
    assert played.share("rare") > 0.97
    assert played.share("large") < 0.12
    assert played.taken["large"] > 20 * played.taken["rare"]


def test_large_strata_get_the_same_number_each() -> None:
    played = Played({"a": 100.0, "b": 20.0, "c": 20.0}, {"a": 0.05, "b": 0.05, "c": 0.1}, 600.0)
    assert max(played.taken.values()) < 1.2 * min(played.taken.values())


def test_within_a_stratum_the_scored_are_like_the_others_and_weights_restore_the_whole() -> None:
    rates = {"a": 40.0, "b": 1.0}
    played = Played(rates, dict.fromkeys(rates, 0.05), 1200.0)
    for name in rates:
        assert played.quality[name] / played.taken[name] == pytest.approx(0.7, abs=0.04)
    weighted = sum(played.quality[name] * played.came[name] / played.taken[name] for name in rates)
    assert weighted / played.came.total() == pytest.approx(0.7, abs=0.04)


def test_when_the_load_falls_everything_is_taken_again_within_a_minute() -> None:
    sampler, now = Sampler(SHARE, 1), 0.0
    while now < 60.0:
        sampler.takes("a", 0.5, now)
        now += 0.02
    taken = [sampler.takes("a", 1.0, now + second) for second in range(0, 120, 2)]
    assert all(taken[30:])


@given(st.lists(st.tuples(st.integers(0, 700), st.floats(-3.0, 1.0), st.floats(0.0, 5.0)), max_size=300))
def test_any_arrivals_leave_a_bounded_state_and_a_chance_for_everyone(arrivals: list[tuple[int, float, float]]) -> None:
    sampler, now = Sampler(SHARE, 1), 0.0
    for stratum, fill, pause in arrivals:
        now += pause
        sampler.takes(stratum, fill, now)
        sampler.learn(stratum, pause / 10.0)
        assert sampler.cost(stratum) >= 0.0


def test_no_more_strata_are_known_than_the_bound() -> None:
    sampler = Sampler(SHARE, 1)
    for number in range(3 * MAX_STRATA):
        sampler.takes(number, 0.5, number / 1000.0)
        sampler.learn(number, 1.0)
    dear, first = sampler.cost(3 * MAX_STRATA - 1), sampler.cost(0)
    sampler.learn(0, 100.0)  # forgotten: only what is known of all changes
    assert sampler.cost(0) > first
    assert sampler.cost(3 * MAX_STRATA - 1) == dear
