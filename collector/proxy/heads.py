"""Request and response heads: judged by llhttp, changed only line by line, every other byte kept."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

import httptools
from msgspec import Struct

Framing = Literal["none", "length", "chunked", "close"]

END = b"\r\n\r\n"
PREFACE = b"PRI * HTTP/2.0\r\n"  # how an HTTP/2 connection opens (RFC 9113, 3.4)

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([^ \r\n]+) HTTP/([0-9])\.([0-9])\r\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([0-9]{3})(?: [^\r\n]*)?\r\n")
_BARE_LF = re.compile(rb"(?<!\r)\n")
_ABSOLUTE = re.compile(rb"[a-zA-Z][a-zA-Z0-9+.\-]*://[^/?#]*")
_TRACE_PARENT = re.compile(rb"(\s*[0-9a-f]{2}-[0-9a-f]{32}-)[0-9a-f]{16}(-[0-9a-f]{2}.*)")
_ANY_LINE = re.compile(rb"\r\n([^:\r\n]+):[^\r]*")

# The lines that a proxy has to look at; all others are passed on unread (RFC 9110, 7.6.1).
_REQUEST_LINES = re.compile(
    rb"\r\n(connection|keep-alive|proxy-connection|te|upgrade|proxy-authorization|proxy-authenticate|"
    rb"transfer-encoding|content-length|host|traceparent):([^\r]*)",
    re.IGNORECASE,
)
_RESPONSE_LINES = re.compile(
    rb"\r\n(connection|keep-alive|proxy-connection|te|upgrade|proxy-authorization|proxy-authenticate|"
    rb"transfer-encoding|content-length|trailer):([^\r]*)",
    re.IGNORECASE,
)
# Load reports by ORCA, asked for and given in heads (vLLM: `orca_metrics`; Triton: "ORCA Metrics in the HTTP Header").
_LOAD_REQUEST = b"\r\nendpoint-load-metrics-format:"
_LOAD_REPORTS = re.compile(rb"\r\nendpoint-load-metrics(?:-bin)?:[^\r]*", re.IGNORECASE)
# `Connection` may list a name to have it removed; these hold the message together and stay.
_NEVER_LISTED = frozenset({b"host", b"content-length", b"transfer-encoding", b"close", b"upgrade", b"keep-alive", b""})

_NOTHING: frozenset[bytes] = frozenset()

Edit = tuple[int, int, bytes]  # from, to, and what stands there instead


class HeadError(Exception):
    """A head that is not forwarded: the status to answer, and why."""

    def __init__(self, status: int, reason: Literal["bad_request", "unsupported_protocol"], message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class ClientHead(Struct, frozen=True, gc=False):
    """A request head as far as forwarding needs it. `target` is path and query, byte for byte."""

    raw: bytes
    method: bytes
    target: bytes
    is_http10: bool
    framing: Framing
    length: int
    wants_close: bool
    wants_upgrade: bool
    line_end: int
    edits: tuple[Edit, ...]
    host: Edit | None
    trace_parent: Edit | None


class UpstreamHead(Struct, frozen=True, gc=False):
    """A response head as far as forwarding needs it."""

    raw: bytes
    status: int
    framing: Framing
    length: int
    keeps_alive: bool
    edits: tuple[Edit, ...]


class _Completion:
    """What llhttp calls when a message is complete: after the head, that there is no body."""

    __slots__ = ("complete",)

    def __init__(self) -> None:
        self.complete = False

    def on_message_complete(self) -> None:
        self.complete = True


def has_bare_line_feed(unfinished: bytes) -> bool:
    """Whether a head that is not complete yet can never become one: a LF without its CR."""
    return _BARE_LF.search(unfinished) is not None


def can_begin_request(first: int) -> bool:
    """Whether a byte may open a request line; a TLS greeting, for one, does not."""
    return 0x20 < first < 0x7F or first in b"\r\n"


def read_request(raw: bytes) -> ClientHead:
    """Read a request head that ends with its empty line. HeadError where it is not to be forwarded."""
    line = _REQUEST_LINE.match(raw)
    if line is None:
        raise HeadError(400, "bad_request", "the request line is not HTTP/1.1")
    method, target, major, minor = line.groups()
    if major != b"1":
        raise HeadError(505, "unsupported_protocol", "semhealth speaks HTTP/1.1 only: set the client to HTTP/1.1")
    if method == b"CONNECT":
        raise HeadError(405, "unsupported_protocol", "semhealth is a reverse proxy: CONNECT is not served")
    is_bodyless = _validate_request(raw, method)
    edits: list[Edit] = []
    connection: list[tuple[int, int, bytes]] = []
    upgrade: list[tuple[int, int, bytes]] = []
    hosts: list[Edit] = []
    lengths: list[bytes] = []
    transfer: list[bytes] = []
    trace: list[Edit] = []
    for found in _REQUEST_LINES.finditer(raw, line.end() - 2):
        name, value = found[1].lower(), found[2]
        span = (found.start(), found.end(), b"")
        if name == b"host":
            hosts.append((found.start(2), found.end(2), b""))
        elif name == b"content-length":
            lengths.append(value)
        elif name == b"transfer-encoding":
            transfer.append(value)
        elif name == b"traceparent":
            trace.append((found.start(2), found.end(2), value))
        elif name == b"connection":
            connection.append((span[0], span[1], value))
        elif name == b"upgrade":
            upgrade.append((span[0], span[1], value))
        else:
            edits.append(span)
    is_http10 = minor == b"0"
    if len(hosts) > 1 or (not hosts and not is_http10):
        raise HeadError(400, "bad_request", "an HTTP/1.1 request has exactly one Host line")
    if transfer and is_http10:
        raise HeadError(400, "bad_request", "HTTP/1.0 knows no Transfer-Encoding (RFC 9112, 6.1)")
    framing, length = _request_framing(is_bodyless, lengths, transfer)
    listed = _tokens(connection)
    # HTTP/2 by upgrade is an offer that a server may pass over (RFC 9110, 7.8); a tunnel of it could not be read.
    wants_upgrade = bool(upgrade) and not is_http10 and b"upgrade" in listed and not _offers_http2(upgrade)
    edits += _connection_edits(raw, connection, upgrade, listed, wants_upgrade)
    return ClientHead(
        raw=raw,
        method=method,
        target=_origin_form(target),
        is_http10=is_http10,
        framing=framing,
        length=length,
        wants_close=is_http10 or b"close" in listed,
        wants_upgrade=wants_upgrade,
        line_end=line.end() - 2,
        edits=tuple(edits),
        host=hosts[0] if hosts else None,
        trace_parent=trace[0] if len(trace) == 1 else None,
    )


def load_request(orca_format: str) -> bytes:
    """The line that asks an upstream for its load, as `forwarded_request` adds it."""
    return b"%b %b" % (_LOAD_REQUEST, orca_format.encode())


def asks_for_load(head: ClientHead) -> bool:
    """Whether the client asks for the upstream's load by itself."""
    return _LOAD_REQUEST in head.raw.lower()


def forwarded_request(
    head: ClientHead, target: bytes, host: bytes, span_id: bytes | None = None, added: bytes = b""
) -> bytes:
    """The head as the upstream gets it: another target, another Host, no hop-by-hop lines.

    With a `span_id` (16 hex digits) it becomes the parent of `traceparent`, if there is one. `added` is a line to put
    last, with the line end before it.
    """
    edits = list(head.edits)
    if head.host is None:
        edits.append((head.line_end, head.line_end, b"\r\nHost: " + host))
    else:
        edits.append((head.host[0], head.host[1], b" " + host))
    if span_id is not None and head.trace_parent is not None:
        start, end, value = head.trace_parent
        parts = _TRACE_PARENT.fullmatch(value)
        if parts is not None:
            edits.append((start, end, parts[1] + span_id + parts[2]))
    if added:
        at = len(head.raw) - len(END)
        edits.append((at, at, added))
    return b"%b %b HTTP/1.1%b" % (head.method, target, _edited(head.raw, head.line_end, edits))


def read_response(raw: bytes, method: bytes, *, to_http10: bool = False) -> UpstreamHead:
    """Read a response head that ends with its empty line. HeadError where it is broken.

    For a client of HTTP/1.0 the lines that speak of chunks go too: the body is given to it without them.
    """
    line = _STATUS_LINE.match(raw)
    if line is None:
        raise HeadError(502, "bad_request", "the status line is not HTTP/1.1")
    status = int(line[2])
    edits: list[Edit] = []
    connection: list[tuple[int, int, bytes]] = []
    upgrade: list[tuple[int, int, bytes]] = []
    lengths: list[tuple[int, int, bytes]] = []
    transfer: list[tuple[int, int, bytes]] = []
    for found in _RESPONSE_LINES.finditer(raw, line.end() - 2):
        name = found[1].lower()
        whole = (found.start(), found.end(), found[2])
        if name == b"connection":
            connection.append(whole)
        elif name == b"upgrade":
            upgrade.append(whole)
        elif name == b"content-length":
            lengths.append(whole)
        elif name == b"transfer-encoding":
            transfer.append(whole)
        elif name != b"trailer" or to_http10:
            edits.append((whole[0], whole[1], b""))
    # With both, Transfer-Encoding counts and Content-Length goes (RFC 9112, 6.3); what repeats itself is said once.
    surplus: list[Edit] = []
    if len(lengths) + len(transfer) > 1:
        surplus = [*_repeated(transfer), *(_without_value(lengths) if transfer else _repeated(lengths))]
    is_bodyless = _validate_response(_edited(raw, 0, surplus) if surplus else raw)
    if transfer and to_http10:
        surplus = [*_without_value(transfer), *_without_value(lengths)]
    listed = _tokens(connection)
    edits += surplus
    edits += _connection_edits(raw, connection, upgrade, listed, status == 101)
    framing, length = _response_framing(status, method, is_bodyless, lengths, transfer)
    return UpstreamHead(
        raw=raw,
        status=status,
        framing=framing,
        length=length,
        keeps_alive=line[1] == b"1" and b"close" not in listed and framing != "close",
        edits=tuple(edits),
    )


def forwarded_response(head: UpstreamHead, *, close: bool = False, hide_load: bool = False) -> bytes:
    """The head as the client gets it; with `close`, it is told that the connection ends after this answer.

    With `hide_load` it loses its load reports, for which the client did not ask.
    """
    if not close and not hide_load and not head.edits:
        return head.raw
    edits = list(head.edits)
    if hide_load:
        edits += [(found.start(), found.end(), b"") for found in _LOAD_REPORTS.finditer(head.raw)]
    if close:
        at = len(head.raw) - 4
        edits.append((at, at, b"\r\nConnection: close"))
    return _edited(head.raw, 0, edits)


def _validate_request(raw: bytes, method: bytes) -> bool | None:
    """Whether llhttp sees no body after the head, None if it does not say. HeadError where it refuses the head."""
    seen = _Completion()
    parser = httptools.HttpRequestParser(seen)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        return None  # llhttp stops at any offer of an upgrade
    except httptools.HttpParserError as error:
        if isinstance(error, httptools.HttpParserInvalidMethodError) and method != b"POST":
            # A method that llhttp does not know is no fault: judge the rest of the head under a name that it knows.
            return _validate_request(b"POST" + raw[len(method) :], b"POST")
        raise HeadError(400, "bad_request", f"malformed request head: {error}") from error
    return seen.complete


def _validate_response(raw: bytes) -> bool:
    seen = _Completion()
    try:
        httptools.HttpResponseParser(seen).feed_data(raw)
    except httptools.HttpParserUpgrade:
        return True
    except httptools.HttpParserError as error:
        if raw[9:12] == b"101":
            return True  # llhttp pauses at a 101 that names no protocol; the head itself was read
        raise HeadError(502, "bad_request", f"malformed response head: {error}") from error
    return seen.complete


def _request_framing(is_bodyless: bool | None, lengths: list[bytes], transfer: list[bytes]) -> tuple[Framing, int]:
    if len(lengths) + len(transfer) > 1:
        raise HeadError(400, "bad_request", "the request states its length more than once")
    if transfer:
        if not _is_chunked(transfer[-1]):
            raise HeadError(400, "bad_request", "the last transfer coding of a request is chunked (RFC 9112, 6.3)")
        return "chunked", 0
    length = int(lengths[0]) if lengths else 0
    if is_bodyless is not None and is_bodyless != (length == 0):
        raise HeadError(400, "bad_request", "the request's length is unclear")
    return ("length", length) if length else ("none", 0)


def _response_framing(
    status: int, method: bytes, is_bodyless: bool, lengths: list[Edit], transfer: list[Edit]
) -> tuple[Framing, int]:
    if method == b"HEAD" or status < 200 or status in (204, 304):
        return "none", 0
    if transfer:
        return ("chunked", 0) if _is_chunked(transfer[-1][2]) else ("close", 0)
    if lengths:
        length = int(lengths[0][2])
        return ("length", length) if length else ("none", 0)
    return ("none", 0) if is_bodyless else ("close", 0)


def _is_chunked(value: bytes) -> bool:
    return value.rsplit(b",", 1)[-1].strip(b" \t").lower() == b"chunked"


def _origin_form(target: bytes) -> bytes:
    """Path and query of a target; an absolute one loses its scheme and authority (RFC 9112, 3.2.2)."""
    if target[0] == 0x2F or target == b"*":
        return target
    authority = _ABSOLUTE.match(target)
    if authority is None:
        raise HeadError(400, "bad_request", "the request target is no path")
    rest = target[authority.end() :]
    return rest if rest[:1] == b"/" else b"/" + rest


def _tokens(lines: list[tuple[int, int, bytes]]) -> frozenset[bytes]:
    if not lines:
        return _NOTHING
    return _split(lines[0][2] if len(lines) == 1 else b",".join([value for _, _, value in lines]))


@lru_cache(maxsize=256)
def _split(value: bytes) -> frozenset[bytes]:
    return frozenset([token.strip(b" \t").lower() for token in value.split(b",")])


def _offers_http2(upgrade: list[tuple[int, int, bytes]]) -> bool:
    return any(token.startswith((b"h2", b"http/2")) for token in _tokens(upgrade))


def _connection_edits(
    raw: bytes,
    connection: list[tuple[int, int, bytes]],
    upgrade: list[tuple[int, int, bytes]],
    listed: frozenset[bytes],
    is_upgrade: bool,
) -> list[Edit]:
    """Cut the `Connection` lines and what they list; an upgrade keeps its own two words."""
    if not connection and not upgrade:
        return []
    edits = _without_value(connection)
    if not is_upgrade:
        edits += _without_value(upgrade)
    elif connection:
        edits[0] = (connection[0][0], connection[0][1], b"\r\nConnection: Upgrade")
    names = listed - _NEVER_LISTED
    if names:
        taken = {start for start, _, _ in edits}
        edits += [
            (found.start(), found.end(), b"")
            for found in _ANY_LINE.finditer(raw)
            if found[1].lower() in names and found.start() not in taken
        ]
    return edits


def _without_value(lines: list[Edit]) -> list[Edit]:
    return [(start, end, b"") for start, end, _ in lines]


def _repeated(lines: list[Edit]) -> list[Edit]:
    """Lines that say again what the first one said."""
    return [(start, end, b"") for start, end, value in lines[1:] if value.strip(b" \t") == lines[0][2].strip(b" \t")]


def _edited(raw: bytes, at: int, edits: list[Edit]) -> bytes:
    parts: list[bytes] = []
    for start, end, new in sorted(edits):
        if start < at:
            continue  # the same line, named twice
        parts.append(raw[at:start])
        parts.append(new)
        at = end
    parts.append(raw[at:])
    return b"".join(parts)
