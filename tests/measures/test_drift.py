"""Tests of collector.measures.drift, with logits drawn from a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.catalogue import BY_NAME, RELEVANCE_SCORES
from collector.measures.drift import ENOUGH, MAX_PAIRS, Drift, Level, Levels
from collector.model import RawRelevance, Relevance

LASTING = 300.0  # seconds that the alert rule waits
Draw = Callable[[Random], float]


def alarms(drift: Drift | None) -> bool:
    """As alerts/semhealth.rules.yml has it."""
    return drift is not None and drift.errors < -4.0 and (drift.ratio < -0.04 or drift.logits < -0.69)


def seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - seeded draws are the point


def gauss(rng: Random) -> float:
    return rng.gauss(1.5, 1.0)


def two_humped(rng: Random) -> float:
    return rng.gauss(4.0, 1.0) if rng.random() < 0.9 else rng.gauss(-2.0, 1.0)


def heavy(rng: Random) -> float:
    return 1.6 + rng.gauss(0.0, 1.0) / math.sqrt(rng.gammavariate(1.5, 1 / 1.5))


def played(draw: Draw, rate: float, number: int, seed: int) -> Iterator[tuple[float, bool]]:
    """(seconds, whether it alarms) after each of so many exchanges, of which `rate` come a second."""
    rng, level, now = seeded(seed), Level(), 0.0
    for _ in range(number):
        now += rng.expovariate(rate)
        level.observe(draw(rng), now)
        yield now, alarms(level.drift())


def lasting(told: Iterator[tuple[float, bool]]) -> int:
    """Alarms that held for as long as the rule waits."""
    since, count = None, 0
    for now, is_alarm in told:
        if not is_alarm:
            since = None
        elif since is None:
            since = now
        elif since >= 0 and now - since >= LASTING:
            count, since = count + 1, -math.inf
    return count


@pytest.mark.parametrize("draw", [gauss, two_humped, heavy])
@pytest.mark.parametrize("rate", [0.05, 0.5, 5.0])
def test_noise_gives_no_alarm(draw: Draw, rate: float) -> None:
    # 2 in 1.8 million exchanges were seen over longer runs; here 20,000 each.
    assert sum(lasting(played(draw, rate, 5000, seed)) for seed in range(4)) == 0


@pytest.mark.parametrize(
    ("before", "spread", "fall", "rate", "within"),
    [
        (1.5, 0.5, 0.05, 0.5, 700),
        (1.5, 1.0, 0.10, 0.5, 500),
        (1.5, 1.0, 0.20, 5.0, 250),
        (4.5, 1.5, 0.05, 0.5, 200),  # saturated: 0.99 → 0.94
        (4.5, 1.5, 0.05, 5.0, 300),
    ],
)
def test_a_step_down_is_seen_within_so_many_exchanges(
    before: float, spread: float, fall: float, rate: float, within: int
) -> None:
    score = (1.0 - fall) / (1.0 + math.exp(-before))
    after = math.log(score / (1.0 - score))
    for seed in range(5):
        level, rng, now, seen = Level(), seeded(seed), 0.0, None
        for number in range(3000 + within):
            now += rng.expovariate(rate)
            level.observe(rng.gauss(before if number < 3000 else after, spread), now)
            if number < 3000:
                continue
            if alarms(level.drift()):
                seen = number - 3000
                break
        assert seen is not None, f"seed {seed}"


def test_a_small_fall_of_a_saturated_score_is_seen_in_its_logit() -> None:
    level = Level()
    for number in range(1000):
        level.observe(6.0 + (number % 3 - 1) * 0.5, number * 2.0)
    for number in range(1000, 1200):
        level.observe(4.5 + (number % 3 - 1) * 0.5, number * 2.0)
    drift = level.drift()
    assert drift is not None
    assert drift.ratio > -0.04
    assert drift.logits < -0.69
    assert alarms(drift)


def test_a_fall_of_five_per_cent_is_told_as_one() -> None:
    level = Level()
    for number in range(7200):
        level.observe(1.5, float(number))
    low = 0.95 / (1.0 + math.exp(-1.5))
    for number in range(7200, 7900):
        level.observe(math.log(low / (1.0 - low)), float(number))
    drift = level.drift()
    assert drift is not None
    assert drift.ratio == pytest.approx(-0.05, abs=0.01)


def test_a_level_that_lasts_becomes_the_usual_one() -> None:
    level = Level()
    for number in range(30_000):
        level.observe(3.0 if number < 2000 else 1.0, number * 2.0)
    drift = level.drift()
    assert drift is not None
    assert abs(drift.logits) < 0.05


def test_thin_traffic_is_compared_by_number_and_not_by_the_last_exchange() -> None:
    rng, level = seeded(3), Level()
    for number in range(2000):
        level.observe(rng.gauss(1.5, 1.0), number * 3600.0)
    level.observe(-2.0, 2001 * 3600.0)
    assert not alarms(level.drift())


def scored(context: float | None, answer: float | None = None, grounded: float | None = None) -> Relevance:
    return Relevance(scored=True, context_relevance=0.9, raw=RawRelevance(context, answer, grounded))


def test_after_a_start_it_is_unknown_whether_anything_moved() -> None:
    levels = Levels()
    for number in range(ENOUGH - 1):
        assert list(levels.readings(scored(1.0 + number % 2), ("r", "m"), float(number))) == []
    told = list(levels.readings(scored(1.0), ("r", "m"), float(ENOUGH)))
    assert {(each.metric, each.labels) for each in told} == {
        (f"semantic_health_relevance_drift_{what}", ("r", "m", "context_relevance"))
        for what in ("ratio", "logits", "errors")
    }
    assert all(each.metric in BY_NAME for each in told)


def test_each_score_of_each_route_and_model_has_a_level_of_its_own() -> None:
    levels = Levels()
    for number in range(2 * ENOUGH):
        list(levels.readings(scored(1.0, 2.0, 3.0), ("r", "a"), float(number)))
        list(levels.readings(scored(-1.0, None, None), ("r", "b"), float(number)))
    told = list(levels.readings(scored(1.0, 2.0, 3.0), ("r", "a"), 2.0 * ENOUGH))
    assert {each.labels[2] for each in told} == set(RELEVANCE_SCORES)
    assert all(each.value == pytest.approx(0.0) for each in told)


def test_what_was_not_scored_says_nothing_and_moves_nothing() -> None:
    levels = Levels()
    assert list(levels.readings(Relevance(scored=False, reason="budget"), ("r", "m"), 1.0)) == []
    assert list(levels.readings(Relevance(scored=True, raw=None), ("r", "m"), 1.0)) == []
    assert len(levels) == 0


def test_no_more_pairs_are_known_than_the_bound() -> None:
    levels = Levels()
    for number in range(MAX_PAIRS + 50):
        list(levels.readings(scored(1.0), ("r", f"m{number}"), float(number)))
    assert len(levels) == MAX_PAIRS


@given(st.lists(st.tuples(st.floats(-1e300, 1e300), st.floats(-10.0, 1e7)), min_size=ENOUGH, max_size=ENOUGH + 60))
def test_any_logits_at_any_times_give_finite_readings(seen: list[tuple[float, float]]) -> None:
    levels, now = Levels(), 0.0
    for logit, passed in seen:
        now += passed
        for reading in levels.readings(scored(logit), ("r", "m"), now):
            assert math.isfinite(reading.value)
