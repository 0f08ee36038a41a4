"""The share of a core that relevance may take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from collector.embedding.budget import BURST, FIRST, CpuBudget


def test_work_is_refused_once_the_burst_is_used_up_and_taken_again_as_time_passes() -> None:
    budget = CpuBudget(0.25, 0.0)
    assert budget.take(0.25 * BURST * FIRST, 0.0)
    assert not budget.take(0.001, 0.0)
    assert budget.take(0.001, 0.1)


def test_work_that_cost_more_than_expected_is_paid_for_later() -> None:
    budget = CpuBudget(0.5, 0.0)
    assert budget.take(0.01, 0.0)
    budget.settle(0.01, 0.5 * BURST * FIRST + 1.0, 0.0)
    assert not budget.take(0.01, 1.9)
    assert budget.take(0.01, 2.1)


@given(
    st.floats(0.01, 1.0),
    st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 0.5), st.floats(0.0, 2.0)), max_size=200),
)
def test_in_the_long_run_no_more_than_the_share_is_spent(share: float, work: list[tuple[float, float, float]]) -> None:
    budget = CpuBudget(share, 0.0)
    now = spent = dearest = 0.0
    for pause, expected, cost in work:
        now += pause
        if budget.take(expected, now):
            budget.settle(expected, cost, now)
            spent += cost
            dearest = max(dearest, cost)
    assert spent <= share * (now + BURST) + dearest + 1e-6


def test_how_full_the_allowance_is() -> None:
    budget = CpuBudget(0.25, 0.0)
    assert budget.fill(0.0) == FIRST
    assert budget.fill(1000.0) == 1.0
    budget.settle(0.0, 0.5 * BURST, 1000.0)
    assert budget.fill(1000.0) == -1.0
