"""Does a client come back before the time it was told to wait has passed?"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.measures.retries import LONGEST_WAIT, MAX_WAITS, Waits, readings
from collector.model import (
    Exchange,
    RequestFacts,
)

from .records import RECORD


def exchange(
    started: float,
    body: int | None = 1,
    *,
    wait: float | None = None,
    status: int = 200,
    route: str = "main",
    attempt: int | None = None,
) -> Exchange:
    """One that was answered 0.1 s after it began; with `wait` it was told to wait."""
    status = 429 if wait is not None and status == 200 else status
    record = msgspec.structs.replace(RECORD, route=route, status=status, retry_after=wait, retry_attempt=attempt)
    return Exchange(record, RequestFacts(), (), (), 0.0, 0.0, started=started, answered=started + 0.1, body_hash=body)


def early(*exchanges: Exchange) -> list[bool]:
    """Of each, in order, whether it came back early."""
    state, found = Waits(), []
    for each in exchanges:
        state, told = readings(state, each)
        told = list(told)
        assert all(reading.metric == "semantic_health_early_retries_total" for reading in told)
        assert all(reading.labels == (each.record.route, "openai") for reading in told)
        found.append(bool(told))
    return found


def test_the_same_body_before_its_time_is_early() -> None:
    assert early(exchange(0.0, wait=10.0), exchange(5.0)) == [False, True]


def test_the_same_body_after_its_time_is_not() -> None:
    assert early(exchange(0.0, wait=10.0), exchange(10.2)) == [False, False]


def test_another_body_is_another_request_unless_it_says_it_is_a_retry() -> None:
    assert early(exchange(0.0, wait=10.0), exchange(5.0, 2), exchange(5.0, 2, attempt=0)) == [False, False, False]
    assert early(exchange(0.0, wait=10.0), exchange(5.0, 2, attempt=1)) == [False, True]
    assert early(exchange(0.0, wait=10.0), exchange(5.0, None, attempt=2)) == [False, True]


def test_another_route_is_not_told_to_wait() -> None:
    assert early(exchange(0.0, wait=10.0), exchange(5.0, route="other", attempt=1)) == [False, False]


def test_a_request_that_began_before_the_answer_is_no_retry() -> None:
    assert early(exchange(0.0, wait=10.0), exchange(0.05), exchange(0.0, attempt=1)) == [False, False, False]


def test_a_storm_counts_every_one_that_comes_back_early() -> None:
    storm = [exchange(float(second), wait=10.0) for second in range(6)]
    assert early(*storm, exchange(7.0), exchange(8.0)) == [False, *[True] * 5, True, False]


@pytest.mark.parametrize("status", [429, 503, 529])
def test_only_what_throttles_tells_to_wait(status: int) -> None:
    assert early(exchange(0.0, wait=9.0, status=status), exchange(1.0)) == [False, True]
    # Hints come on successes too (headers.md, retry-after on a 2xx); they throttle nobody.
    told = exchange(0.0)
    calm = msgspec.structs.replace(told, record=msgspec.structs.replace(told.record, retry_after=9.0))
    assert early(calm, exchange(1.0)) == [False, False]


@pytest.mark.parametrize("wait", [None, 0.0])
def test_no_hint_is_no_wait(wait: float | None) -> None:
    assert early(exchange(0.0, status=429, wait=wait), exchange(0.2)) == [False, False]


def test_the_wait_of_a_route_covers_all_of_its_waits() -> None:
    assert early(exchange(0.0, wait=20.0), exchange(1.0, 2, wait=2.0), exchange(15.0, 3, attempt=1)) == [
        False, False, True,
    ]  # fmt: skip


def test_what_is_remembered_is_bounded() -> None:
    state = Waits()
    for number in range(MAX_WAITS + 50):
        state, _ = readings(state, exchange(float(number) / 1000, number, wait=1e9))
    assert len(state.requests) == MAX_WAITS
    assert all(wait.until <= wait.since + LONGEST_WAIT for wait in state.requests.values())
    state, _ = readings(state, exchange(3 * LONGEST_WAIT, 1, wait=1.0))
    assert len(state.requests) == 1


EXCHANGES = st.builds(
    exchange,
    st.floats(0, 100),
    st.none() | st.integers(0, 3),
    wait=st.none() | st.floats(0, 1e12),
    status=st.sampled_from([200, 429, 503, 529, 500]),
    attempt=st.none() | st.integers(0, 3),
)


@given(st.lists(EXCHANGES, max_size=30))
def test_any_exchanges_leave_the_state_they_were_given_alone(exchanges: list[Exchange]) -> None:
    state = Waits()
    for each in exchanges:
        before = (dict(state.requests), dict(state.routes))
        after, told = readings(state, each)
        assert (state.requests, state.routes) == before
        assert len(list(told)) <= 1
        state = after
    assert len(state.requests) <= 3 + 1
    assert set(state.routes) <= {"main"}
