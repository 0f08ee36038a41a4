"""Header values are matched whole, and anything else is unknown."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.signals.values import (
    duration,
    finite,
    identifier,
    is_reset,
    moment,
    number,
    ratio,
    seconds_until,
)

NOW = datetime(2026, 8, 19, 14, 34, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0.0), ("60", 60.0), (" 7 ", 7.0), ("1.5", 1.5), ("0.000", 0.0), ("", None), ("-1", None), ("+1", None),
        ("1e9", None), ("inf", None), ("nan", None), ("1_000", None), ("1,000", None), ("0x10", None), ("٣", None),
        ("5s", None), ("9" * 40, None), ("<REQUEST_ID>", None), (".5", None), ("5.", None), (None, None),
    ],
)  # fmt: skip
def test_a_number_is_plain_digits(text: str | None, expected: float | None) -> None:
    assert number(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6m0s", 360.0), ("1h30m", 5400.0), ("120ms", 0.12), ("1d2h", 93_600.0), ("17.399999999s", 17.399999999),
        ("20m52.666s", 1252.666), ("4h17m", 15_420.0), ("6ms", 0.006), ("2m59.56s", 179.56), ("500us", 5e-4),
        ("500µs", 5e-4), ("7ns", 7e-9), ("0s", 0.0),
        ("", None), ("abc", None), ("-1", None), ("1e9", None), ("60", None), ("-5s", None), ("1h 30m", None),
        ("6m0", None), ("s", None), ("5S", None), ("1.s", None), ("5s,", None),
    ],
)  # fmt: skip
def test_a_duration_is_as_go_writes_it(text: str, expected: float | None) -> None:
    found = duration(text)
    assert found is None if expected is None else found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-08-19T14:34:00Z", NOW), ("2026-08-19t14:34:00z", NOW), ("2026-08-19T16:34:00+02:00", NOW),
        ("2026-08-19 14:34:00.5Z", NOW + 0.5), ("2026-08-19T14:34:00.123456789Z", NOW + 0.123456),
        ("2026-08-19T14:34:00-0200", NOW + 7200), ("Wed, 19 Aug 2026 14:34:00 GMT", NOW),
        ("Wednesday, 19-Aug-26 14:34:00 GMT", NOW), ("Wed Aug 19 14:34:00 2026", NOW),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("2026-08-19", None), ("2026-08-19T14:34:00", None), ("2026-13-19T14:34:00Z", None),
        ("2026-08-19T14:34:61Z", None), ("0001-01-01T00:00:00Z", None), ("0001-01-01T00:00:00+23:00", None),
        ("Wed, 19 Foo 2026 14:34:00 GMT", None), ("Wed, 99 Aug 2026 14:34:00 GMT", None),
        ("Wed, 19 Aug 2026 14:34:00 GMT junk", None), ("Wed, 19 Aug 2026 14:34:00 CEST", None), ("tomorrow", None),
        ("", None), ("2026", None), ("９999-01-01T00:00:00Z", None),
    ],
)  # fmt: skip
def test_a_moment_is_an_rfc_3339_time_or_an_http_date(text: str, expected: float | None) -> None:
    found = moment(text)
    assert found is None if expected is None else found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("text", "bare", "expected"),
    [
        ("2026-08-19T14:34:30Z", "s", 30.0), ("2026-08-19T14:33:55Z", "s", 0.0), ("6m0s", "s", 360.0),
        (str(int(NOW) + 9), "s", 9.0), (str(int(NOW) - 9), "s", 0.0), (f"{int(NOW)}500", "s", 0.5),
        (f"{int(NOW)}500", None, 0.5), ("60", "s", 60.0), ("500", "ms", 0.5), ("500", None, None), ("0", None, 0.0),
        ("0", "ms", 0.0), ("12.5", "s", 12.5), ("-1", "s", None), ("inf", "s", None), ("abc", "s", None),
        ("", "s", None),
        (None, "s", None), (f"{int(NOW)}000000", "s", None), ("Wed, 19 Aug 2026 14:34:05 GMT", "s", 5.0),
    ],
)  # fmt: skip
def test_a_reset_comes_in_every_form_seen(text: str | None, bare: str | None, expected: float | None) -> None:
    found = seconds_until(text, NOW, bare)
    assert found is None if expected is None else found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("text", ["2026-08-19T14:34:30Z", str(int(NOW)), f"{int(NOW)}000"])
def test_a_time_means_nothing_without_an_arrival(text: str) -> None:
    assert seconds_until(text, None) is None
    assert is_reset(text)


def test_a_span_needs_no_arrival() -> None:
    assert seconds_until("6m0s", None) == 360.0
    assert seconds_until("0", None, None) == 0.0


@pytest.mark.parametrize(("text", "expected"), [("0", 0.0), ("1", 1.0), ("0.45", 0.45), ("1.01", None), ("-0.1", None)])
def test_a_ratio_is_from_0_to_1(text: str, expected: float | None) -> None:
    assert ratio(text) == expected


@pytest.mark.parametrize("text", ["req_abc", "4f1b-9", "Root=1-67/x", "a" * 128])
def test_an_identifier_is_kept(text: str) -> None:
    assert identifier(f" {text} ") == text


@pytest.mark.parametrize("text", [None, "", "<REQUEST_ID>", "a b", "pat@example.test", "a" * 129, "-x", "é"])
def test_anything_odd_is_no_identifier(text: str | None) -> None:
    assert identifier(text) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, 1.0), (0.5, 0.5), (-0.1, None), (math.nan, None), (math.inf, None), (True, None), ("1", None), (None, None),
     (10**400, None), ([], None)],
)  # fmt: skip
def test_a_finite_number_out_of_json(value: object, expected: float | None) -> None:
    assert finite(value) == expected


@given(st.timedeltas(timedelta(0), timedelta(days=40)))
def test_any_span_that_go_would_write_is_read(span: timedelta) -> None:
    seconds = span.total_seconds()
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    assert duration(f"{int(hours)}h{int(minutes)}m{rest:.6f}s") == pytest.approx(seconds, abs=1e-5)


@given(st.integers(86_400, 4_102_444_800))
def test_any_date_that_a_server_would_write_is_read(seconds: int) -> None:
    when = datetime.fromtimestamp(seconds, UTC)
    assert moment(when.strftime("%a, %d %b %Y %H:%M:%S GMT")) == when.timestamp()
    assert moment(when.isoformat().replace("+00:00", "Z")) == when.timestamp()


TEXTS = (
    st.text(max_size=40)
    | st.from_regex(r"\A[0-9.:TZ, GMTa-z+-]{0,40}\Z")
    | st.from_regex(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[+-][0-9]{2}:[0-9]{2}\Z")
)


@given(TEXTS, st.none() | st.floats(0, 4e9), st.sampled_from(["s", "ms", None]))
def test_any_text_is_unknown_or_finite_and_never_negative(text: str, arrived: float | None, bare: str | None) -> None:
    for value in (number(text), ratio(text), duration(text), moment(text), seconds_until(text, arrived, bare)):
        assert value is None or (math.isfinite(value) and value >= 0)


def test_a_span_or_a_time_without_end_is_none() -> None:
    assert duration("1s" * 64) == 64.0
    assert duration("1s" * 65) is None
    assert moment("2026-08-19T14:34:00Z" + " " * 100) is None
