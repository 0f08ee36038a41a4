"""Header values → numbers, seconds and times, matched whole; anything else is unknown."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")
_DURATION = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,18})?(?:d|h|ms|m|s|us|µs|ns))+")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(d|h|ms|m|s|us|µs|ns)")
_LAST_LETTERS = "smhd"  # of units; no number and no date ends in one of them
_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})"
)
# The three dates of RFC 9110, 5.6.7.
_HTTP_DATE = re.compile(
    r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT"
    r"|[A-Z][a-z]{5,8}, [0-9]{2}-[A-Z][a-z]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2} [0-9]{4}"
)
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/+=\-]{0,127}")

MAX_DIGITS = 18  # of a whole number
_WHOLE_DIGITS = 9  # of a whole number in a span
MAX_DURATION = 128  # characters of a span
LEAST_MOMENT = 20  # characters of a time: 1970-01-01T00:00:00Z
MOST_MOMENT = 64  # Wednesday, 31-Dec-69 23:59:59 GMT has 33
EPOCH_SECONDS = 1e9  # a bare number from here on is a time in seconds,
EPOCH_MILLISECONDS = 1e12  # from here on in milliseconds,
EPOCH_END = 1e14  # and from here on nothing that is known


def number(text: str | None) -> float | None:
    """A plain number of 0 or more; `-1`, `inf`, `1e9` and words are not."""
    if text is None or not _NUMBER.fullmatch(text.strip()):
        return None
    return float(text)


def plain_counts(texts: list[str]) -> list[float] | None:
    """The numbers of texts that are digits alone, as counts are mostly written; None where one is anything else."""
    together = "".join(texts)
    if not texts or (together.isdecimal() and together.isascii() and all(texts) and max(map(len, texts)) <= MAX_DIGITS):
        return list(map(float, texts))
    return None


def ratio(text: str | None) -> float | None:
    """A plain number from 0 to 1."""
    value = number(text)
    return value if value is not None and value <= 1.0 else None


def duration(text: str) -> float | None:
    """A Go duration (`6m0s`, `17.399999999s`, `120ms`, `1d2h`) in seconds."""
    digits = text[:-2]
    if text[-2:] == "ms" and digits.isdecimal() and digits.isascii() and len(digits) <= _WHOLE_DIGITS:  # as many are
        return float(digits) * 1e-3
    return _duration(text) if len(text) <= MAX_DURATION else None


@lru_cache(maxsize=1024)  # what one upstream says is much the same from answer to answer
def _duration(text: str) -> float | None:
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(amount) * _UNITS[unit] for amount, unit in _PART.findall(text))


def moment(text: str) -> float | None:
    """An RFC 3339 time or an HTTP date in Unix seconds; None before 1970, where only placeholders lie."""
    return _moment(text) if LEAST_MOMENT <= len(text) <= MOST_MOMENT else None


@lru_cache(maxsize=1024)  # the limits of one answer are mostly full again at the same time
def _moment(text: str) -> float | None:
    try:
        if _RFC3339.fullmatch(text):
            at = datetime.fromisoformat(text.upper()).timestamp()
        elif _HTTP_DATE.fullmatch(text):
            when = parsedate_to_datetime(text)
            at = when.replace(tzinfo=when.tzinfo or UTC).timestamp()
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return at if at >= 0 else None


def seconds_until(text: str | None, arrived: float | None, bare: str | None = "s") -> float | None:
    """Seconds from `arrived` (Unix seconds, None when unknown) until a reset, in any of the forms seen.

    `bare` is the unit of a bare number: `s`, `ms`, or None where it is unclear (then only 0 is known).
    """
    text = (text or "").strip()
    if text[-1:] in _LAST_LETTERS and text:
        return duration(text)
    plain = number(text) if text[-1:].isdigit() else None  # else it has a unit, or is a date
    if plain is not None and plain < EPOCH_SECONDS:
        if plain == 0.0:
            return 0.0
        return plain * _UNITS[bare] if bare is not None else None
    if plain is not None:
        at = None
        if plain < EPOCH_END:
            at = plain / 1000.0 if plain >= EPOCH_MILLISECONDS else plain
    else:
        at = moment(text)
    if at is not None:
        return max(0.0, at - arrived) if arrived is not None else None
    return duration(text)


def is_reset(text: str) -> bool:
    """Whether this is a time, a span or a number, be its unit clear or not."""
    text = text.strip()
    return number(text) is not None or duration(text) is not None or moment(text) is not None


def identifier(text: str | None) -> str | None:
    """An id of at most 128 plain characters; recorders' placeholders and anything odd are unknown."""
    plain = "" if text is None else text.strip()
    return plain if _IDENTIFIER.fullmatch(plain) else None


def finite(value: object) -> float | None:
    """A finite number out of JSON, of 0 or more; booleans are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        plain = float(value)
    except OverflowError:
        return None
    return plain if math.isfinite(plain) and plain >= 0 else None
