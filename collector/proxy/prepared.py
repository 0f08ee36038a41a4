"""A request that is ready to go on, remembered for the next of its connection: most differ in their length alone."""

from __future__ import annotations

import re
import secrets

from msgspec import Struct

from collector.proxy.heads import (
    ClientHead,
    Framing,
    asks_for_load,
    forwarded_request,
    has_trace_parent,
)
from collector.proxy.routes import Destination

LONGEST_REMEMBERED = 4096  # bytes of a head that a connection remembers
MOST_DIGITS = 18  # of a length that needs no second look: it has fewer than 63 bits

_NO_START = b"\n"  # no head begins so

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)[ \t]*\r\n", re.IGNORECASE)


class Prepared(Struct, frozen=True, gc=False):
    """A request head as it came (`raw`) and as the upstream gets it (`sent`).

    `span_id` is what `traceparent` was given as its parent, if it was rewritten. With `hides_load` the sidecar asks for
    the upstream's load and the client does not: then the report is not for the client.
    """

    raw: bytes
    sent: bytes
    destination: Destination
    method: bytes
    is_http10: bool
    framing: Framing
    length: int
    wants_close: bool
    wants_upgrade: bool
    hides_load: bool
    span_id: str | None


def prepare(head: ClientHead, destination: Destination, *, rewrites_trace: bool = False) -> Prepared:
    """Make a head ready for its destination."""
    hides_load = bool(destination.load_request) and not asks_for_load(head)
    span_id = secrets.token_hex(8) if rewrites_trace and has_trace_parent(head) else None
    sent = forwarded_request(
        head,
        destination.target(head.target),
        destination.host_line(head.raw) if destination.preserves_host else destination.host,
        None if span_id is None else span_id.encode(),
        destination.load_request if hides_load else b"",
    )
    return Prepared(
        head.raw,
        sent,
        destination,
        head.method,
        head.is_http10,
        head.framing,
        head.length,
        head.wants_close,
        head.wants_upgrade,
        hides_load,
        span_id,
    )


class Remembered(Struct, frozen=True, gc=False):
    """A prepared request, parted where its length stands: what came, and what was sent.

    A client of an API says the same head over and over but for the length. Such a head has been judged already: it is
    compared, which takes a tenth of the time of reading it.
    """

    prepared: Prepared
    before: bytes
    after: bytes
    sent_before: bytes
    sent_after: bytes

    def again(self, raw: bytes) -> Prepared | None:
        """A head that is the same but for the digits of its length, made ready; None for any other."""
        last = self.prepared
        if raw == last.raw:
            return last
        before, after = self.before, self.after
        if not (raw.startswith(before) and raw.endswith(after)):
            return None
        digits = raw[len(before) : len(raw) - len(after)]
        if not digits.isdigit() or len(digits) > MOST_DIGITS or not (length := int(digits)):
            return None
        return Prepared(
            raw,
            b"%b%b%b" % (self.sent_before, digits, self.sent_after),
            last.destination,
            last.method,
            last.is_http10,
            "length",
            length,
            last.wants_close,
            last.wants_upgrade,
            last.hides_load,
            None,
        )


def remembered(prepared: Prepared) -> Remembered | None:
    """What to compare the next head of the connection with; None where it has to be read in any case."""
    raw, sent = prepared.raw, prepared.sent
    if len(raw) > LONGEST_REMEMBERED or prepared.span_id is not None:
        return None
    came, goes = _LENGTH.search(raw), _LENGTH.search(sent)
    if prepared.framing != "length" or came is None or goes is None:
        return Remembered(prepared, _NO_START, b"", b"", b"")  # it has no length to differ in
    return Remembered(prepared, raw[: came.start(1)], raw[came.end(1) :], sent[: goes.start(1)], sent[goes.end(1) :])
