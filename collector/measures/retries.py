"""Does a client come back before the time it was told to wait has passed (R8)?

A retry storm makes the next limit all but certain. A request counts as come back early when, on the same route, an
answer that throttled (429, 503, 529) said how long to wait, and before that time has passed either the same body is
sent again, or a request says itself that it is a retry.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from collector.labels import UNKNOWN
from collector.model import Exchange, Reading

THROTTLING = frozenset({429, 503, 529})
MAX_WAITS = 1000  # throttled requests that are remembered; those whose wait ends first are forgotten first
LONGEST_WAIT = 3600.0  # seconds; a longer hint is remembered for this long

Key = tuple[str, int]  # route and hash of the body


class Wait(Struct, frozen=True, gc=False):
    """From when (the throttling answer) until when nobody should come back, in monotonic seconds."""

    since: float
    until: float


class Waits(Struct, frozen=True):
    """What has been told to wait: each request by its route and body, and the latest wait of each route."""

    requests: Mapping[Key, Wait] = {}
    routes: Mapping[str, Wait] = {}

    @property
    def is_known(self) -> bool:
        """Whether anybody was told to wait; else a request cannot come back too early."""
        return bool(self.routes)


def readings(waits: Waits, exchange: Exchange) -> tuple[Waits, tuple[Reading, ...]]:
    """The state after this exchange, and one reading where it came back early."""
    record = exchange.record
    if not waits.is_known and record.status not in THROTTLING:
        return waits, ()  # as mostly: nobody was told to wait
    key = None if exchange.body_hash is None else (record.route, exchange.body_hash)
    known = waits.requests.get(key) if key is not None else None
    same = known is not None and _covers(known, exchange.started)
    says_so = record.retry_attempt is not None and record.retry_attempt >= 1
    general = waits.routes.get(record.route) if says_so else None
    is_early = same or (general is not None and _covers(general, exchange.started))
    told: tuple[Reading, ...] = ()
    if is_early:
        told = (Reading("semantic_health_early_retries_total", 1.0, (record.route, record.provider or UNKNOWN)),)
    if record.status in THROTTLING and record.retry_after and exchange.answered is not None:
        until = exchange.answered + min(record.retry_after, LONGEST_WAIT)
        return _noted(waits, record.route, key, Wait(exchange.answered, until)), told
    if same and key is not None:  # it has come back, and was let in
        return Waits({each: wait for each, wait in waits.requests.items() if each != key}, waits.routes), told
    return waits, told


def _covers(wait: Wait, at: float) -> bool:
    return wait.since <= at < wait.until


def _noted(waits: Waits, route: str, key: Key | None, wait: Wait) -> Waits:
    # An exchange is seen when it ends, which may be long after it began: waits are kept for a while after their end.
    kept = {each: old for each, old in waits.requests.items() if old.until + LONGEST_WAIT > wait.since}
    if key is not None:
        kept.pop(key, None)
        if len(kept) >= MAX_WAITS:
            first = min(kept, key=lambda each: kept[each].until)
            del kept[first]
        kept[key] = wait
    before = waits.routes.get(route)
    if before is not None and before.until > wait.since:  # they run into one another
        wait = Wait(min(before.since, wait.since), max(before.until, wait.until))
    return Waits(kept, {**waits.routes, route: wait})
