"""What can a head say at all, as far as its names tell?

An upstream's heads have the same names from answer to answer, and most say little. So what they cannot say is found out
once for each set of names.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from collector.model import Names
from collector.signals.rate_limits import unknown_names
from collector.signals.retry import RETRY_COUNTS, RETRY_HINTS
from collector.signals.timeout import TIMEOUT_HEADERS
from collector.signals.upstream import CLIENT_IDS, MODEL_HEADERS, TELLING, WARNINGS, passes_on


class Said(Struct, frozen=True, gc=False):
    """Of a response's head: whether it may hint at when to retry, name the served model, warn, or report load, whether
    it passes on what another said, and the names that speak of limits in a way that is not read."""

    passes_on: bool
    unknown: tuple[str, ...]
    retry_hint: bool
    model: bool
    warning: bool
    load: bool


@lru_cache(maxsize=512)
def said(names: Names) -> Said:
    """By the names of a response's head."""
    told = names.places.keys()
    return Said(
        passes_on(names),
        unknown_names(names),
        not RETRY_HINTS.isdisjoint(told),
        not MODEL_HEADERS.isdisjoint(told),
        not WARNINGS.isdisjoint(told),
        not TELLING.isdisjoint(told),
    )


@lru_cache(maxsize=512)
def identifies(names: Names) -> bool:
    """Whether a request's head may tell who sent it: a trace, an id, an attempt or a time-out of the client."""
    wanted = {"traceparent", *CLIENT_IDS, *RETRY_COUNTS, *TIMEOUT_HEADERS}
    return not wanted.isdisjoint(names.places)
