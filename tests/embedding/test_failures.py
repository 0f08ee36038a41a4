"""The breaker, as a table of times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from collector.embedding.failures import Breaker


def test_it_opens_after_some_failures_in_a_row_and_waits_twice_as_long_each_time() -> None:
    breaker = Breaker(3, 5.0, 30.0)
    for _ in range(2):
        breaker.failed(0.0)
    assert not breaker.is_open
    assert breaker.wait(0.0) == 0.0
    now = 100.0
    for wait in (5.0, 10.0, 20.0, 30.0, 30.0):
        breaker.failed(now)
        assert breaker.is_open
        assert breaker.wait(now) == wait
        assert breaker.wait(now + wait - 1.0) == 1.0
        now += wait
        assert breaker.wait(now) == 0.0  # one attempt


def test_a_success_closes_it_and_forgets() -> None:
    breaker = Breaker(2, 5.0, 30.0)
    for now in (0.0, 1.0, 10.0):
        breaker.failed(now)
    breaker.succeeded()
    assert not breaker.is_open
    breaker.failed(20.0)
    assert not breaker.is_open
    breaker.failed(21.0)
    assert breaker.wait(21.0) == 5.0


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=50), st.integers(1, 5))
def test_no_wait_is_longer_than_the_longest(steps: list[tuple[float, bool]], failures: int) -> None:
    breaker, now = Breaker(failures, 5.0, 60.0), 0.0
    for pause, works in steps:
        now += pause
        if works:
            breaker.succeeded()
        else:
            breaker.failed(now)
        assert 0.0 <= breaker.wait(now) <= 60.0
        assert breaker.is_open or breaker.wait(now) == 0.0
