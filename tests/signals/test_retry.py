"""When to come back, and which attempt this is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Headers
from collector.signals.retry import limiter, retry_after, retry_attempt
from collector.signals.values import moment

DATE = "Wed, 19 Aug 2026 14:34:00 GMT"
NOW = moment(DATE)


def headers(**lines: str) -> Headers:
    return Headers(tuple((name.replace("_", "-"), value) for name, value in lines.items()))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ({"retry_after": "7"}, 7.0), ({"retry_after": "0"}, 0.0), ({"retry_after": "1.5"}, 1.5),
        ({"x_ms_retry_after_ms": "2500", "retry_after": "7"}, 2.5),
        ({"retry_after_ms": "1500", "x_ms_retry_after_ms": "9"}, 1.5),
        ({"retry_after_ms": "1500", "retry_after": "7"}, 1.5), ({"retry_after_ms": "soon", "retry_after": "7"}, 7.0),
        ({"retry_after": "Wed, 19 Aug 2026 14:34:09 GMT"}, 9.0), ({"retry_after": DATE}, 0.0),
        ({"retry_after": "Wed, 19 Aug 2026 14:33:00 GMT"}, 0.0), ({"retry_after": "2m0s"}, 120.0),
        ({"retry_after": "-1"}, None), ({"retry_after": "soon"}, None), ({"retry_after": ""}, None), ({}, None),
    ],
)  # fmt: skip
def test_the_wait_is_in_seconds(lines: dict[str, str], expected: float | None) -> None:
    assert retry_after(headers(**lines), NOW) == expected


def test_a_date_means_nothing_without_an_arrival() -> None:
    assert retry_after(headers(retry_after=DATE), None) is None
    assert retry_after(headers(retry_after="3"), None) == 3.0


@pytest.mark.parametrize(
    ("lines", "expected"),
    [({"x_stainless_retry_count": "0"}, 0), ({"x_stainless_retry_count": "2"}, 2), ({"x_retry_attempt": "1"}, 1),
     ({"x_stainless_retry_count": "1.5"}, None), ({"x_stainless_retry_count": "5000"}, None), ({}, None)],
)  # fmt: skip
def test_the_attempt_is_as_client_libraries_count(lines: dict[str, str], expected: int | None) -> None:
    assert retry_attempt(headers(**lines)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Gateway", "gateway"),
        ("model-service", "model-service"),
        ("a b", None),
        ("", None),
        ("x" * 41, None),
        ("<x>", None),
    ],
)
def test_the_limiter_is_a_bounded_word(text: str, expected: str | None) -> None:
    assert limiter(headers(x_ratelimit_source=text)) == expected
    assert limiter(Headers()) is None


@given(st.text(max_size=30), st.none() | st.floats(0, 4e9))
def test_any_header_is_unknown_or_a_wait(text: str, arrived: float | None) -> None:
    for name in ("retry-after", "retry-after-ms", "x-stainless-retry-count", "x-ratelimit-source"):
        told = Headers(((name, text),))
        wait = retry_after(told, arrived)
        assert wait is None or (math.isfinite(wait) and wait >= 0)
        attempt = retry_attempt(told)
        assert attempt is None or 0 <= attempt < 1000
        assert len(limiter(told) or "") <= 40
