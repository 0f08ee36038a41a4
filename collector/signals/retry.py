"""When may the client come back, and is this already another attempt?"""

from __future__ import annotations

from collector.model import Headers
from collector.signals.values import number, seconds_until

RETRY_COUNTS = ("x-stainless-retry-count", "x-retry-count", "x-retry-attempt")
RETRY_HINTS = frozenset({"retry-after-ms", "x-ms-retry-after-ms", "retry-after"})


def retry_after(headers: Headers, arrived: float | None) -> float | None:
    """Seconds to wait as the upstream says; a header in milliseconds wins. A date counts from `arrived` (Unix seconds).

    Beside the seconds and dates of RFC 9110, the other forms of resets are read, since some send them here.
    """
    if RETRY_HINTS.isdisjoint(headers.shared.places):
        return None
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        millis = number(headers.first(name))
        if millis is not None:
            return millis / 1000.0
    told = headers.first("retry-after")
    return seconds_until(told, arrived) if told is not None else None


def retry_attempt(headers: Headers) -> int | None:
    """Which retry this request is, as client libraries count: 0 is the first try."""
    for name in filter(headers.shared.places.__contains__, RETRY_COUNTS):
        value = number(headers.first(name))
        if value is not None and value == int(value) and value < 1000:
            return int(value)
    return None


def limiter(headers: Headers) -> str | None:
    """What `X-RateLimit-Source` says limited, as a bounded word (R8)."""
    word = (headers.first("x-ratelimit-source") or "").strip().lower()
    return word if word and len(word) <= 40 and word.replace("-", "").replace("_", "").isalnum() else None
