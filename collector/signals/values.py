"""Header values → numbers, seconds and times, matched whole; anything else is unknown."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_NUMBER = re.compile(r"\d{1,18}(\.\d{1,12})?")
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,12})?(?:d|h|ms|m|s|us|µs|ns))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(d|h|ms|m|s|us|µs|ns)")
_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:?\d\d)")
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/+=\-]{0,127}")

EPOCH_SECONDS = 1e9  # a bare number from here on is a time in seconds
EPOCH_MILLISECONDS = 1e12  # and from here on in milliseconds


def number(text: str | None) -> float | None:
    """A plain number of 0 or more; `-1`, `inf`, `1e9` and words are not."""
    if text is None or not _NUMBER.fullmatch(text.strip()):
        return None
    return float(text)


def ratio(text: str | None) -> float | None:
    """A plain number from 0 to 1."""
    value = number(text)
    return value if value is not None and value <= 1.0 else None


def duration(text: str) -> float | None:
    """A Go duration (`6m0s`, `17.399999999s`, `120ms`, `1d2h`) in seconds."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(amount) * _UNITS[unit] for amount, unit in _PART.findall(text))


def moment(text: str) -> float | None:
    """An RFC 3339 time or an HTTP date in Unix seconds."""
    if _RFC3339.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper()).timestamp()
        except ValueError:
            return None
    if text[:3].isalpha() and "," in text[:10]:
        try:
            when = parsedate_to_datetime(text)
        except (ValueError, TypeError, OverflowError):
            return None
        return when.replace(tzinfo=when.tzinfo or UTC).timestamp()
    return None


def seconds_until(text: str | None, arrived: float | None, bare: str | None = "s") -> float | None:
    """Seconds from `arrived` (Unix seconds, None when unknown) until a reset, in any of the forms seen.

    `bare` is the unit of a bare number: `s`, `ms`, or None where it is unclear (then only 0 is known).
    """
    if text is None:
        return None
    text = text.strip()
    plain = number(text)
    if plain is not None:
        if plain >= EPOCH_SECONDS:
            at = plain / 1000.0 if plain >= EPOCH_MILLISECONDS else plain
            return max(0.0, at - arrived) if arrived is not None else None
        if plain == 0.0:
            return 0.0
        return plain * _UNITS[bare] if bare is not None else None
    told = duration(text)
    if told is not None:
        return told
    at_moment = moment(text)
    return max(0.0, at_moment - arrived) if at_moment is not None and arrived is not None else None


def identifier(text: str | None) -> str | None:
    """An id of at most 128 plain characters; recorders' placeholders and anything odd are unknown."""
    if text is None or not _IDENTIFIER.fullmatch(text.strip()):
        return None
    return text.strip()


def finite(value: object) -> float | None:
    """A finite number out of JSON, of 0 or more; booleans are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        plain = float(value)
    except OverflowError:
        return None
    return plain if math.isfinite(plain) and plain >= 0 else None
