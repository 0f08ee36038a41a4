"""Request and response heads: judged by llhttp, changed only line by line, every other byte kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import httptools
from msgspec import Struct

Framing = Literal["none", "length", "chunked", "close"]

END = b"\r\n\r\n"
MAX_LENGTH = (1 << 63) - 1  # bytes; servers that count in signed numbers read a longer one as another
PREFACE = b"PRI * HTTP/2.0\r\n"  # how an HTTP/2 connection opens (RFC 9113, 3.4)

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([^ \r\n]+) HTTP/([0-9])\.([0-9])\r\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n]*)?\r\n")
_AS_ASCII = bytes(range(128)) + b"x" * 128
_BARE_LF = re.compile(rb"(?<!\r)\n")
_ABSOLUTE = re.compile(rb"[a-zA-Z][a-zA-Z0-9+.\-]*://[^/?#]*")
_TRACE_LINE = re.compile(rb"(\r\ntraceparent:)([^\r]*)", re.IGNORECASE)
# A server that does not know a coding may pass over the whole line, and read no body (RFC 9112, 6.1 and 11.2).
_CODINGS = re.compile(
    rb"[ \t]*(?:(?:x-gzip|gzip|x-compress|compress|deflate)[ \t]*,[ \t]*)*chunked[ \t]*", re.IGNORECASE
)
_TRACE_PARENT = re.compile(rb"(\s*[0-9a-f]{2}-[0-9a-f]{32}-)[0-9a-f]{16}(-[0-9a-f]{2}.*)")
_HOST_LINE = re.compile(rb"\r\nhost:([^\r]*)", re.IGNORECASE)
_ANY_LINE = re.compile(rb"\r\n([^:\r\n]+):[^\r]*")

# The lines that a proxy has to look at; all others are passed on unread (RFC 9110, 7.6.1). A head that is split by
# them is text, name, value, text, name, value, ..., text, and joined again it is the head. The first letters stand
# ahead of the names since a set of bytes is tried in one step: without it the search takes three times as long.
_REQUEST_LINES = re.compile(
    rb"(\r\n(?=[chkptu])(?:host|con(?:tent-length|nection)|t(?:e|ransfer-encoding)|upgrade|keep-alive|"
    rb"proxy-(?:connection|authorization|authenticate)):)([^\r]*)",
    re.IGNORECASE,
)
_RESPONSE_LINES = re.compile(
    rb"(\r\n(?=[ckptu])(?:con(?:tent-length|nection)|t(?:e|railer|ransfer-encoding)|upgrade|keep-alive|"
    rb"proxy-(?:connection|authorization|authenticate)):)([^\r]*)",
    re.IGNORECASE,
)
# `Connection` may list a name to have it removed; these hold the message together and stay.
_NEVER_LISTED = frozenset({b"host", b"content-length", b"transfer-encoding", b"close", b"upgrade", b"keep-alive", b""})
# Load reports by ORCA, asked for and given in heads (vLLM: `orca_metrics`; Triton: "ORCA Metrics in the HTTP Header").
_LOAD_REQUEST = b"\r\nendpoint-load-metrics-format:"
_LOAD_REPORTS = re.compile(rb"\r\nendpoint-load-metrics(?:-bin)?:[^\r]*", re.IGNORECASE)

_NOTHING: frozenset[bytes] = frozenset()
_BODYLESS = frozenset({204, 304})
_NO_BODY: tuple[Framing, int] = ("none", 0)


class HeadError(Exception):
    """A head that is not forwarded: the status to answer, and why."""

    def __init__(self, status: int, reason: Literal["bad_request", "unsupported_protocol"], message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class ClientHead(Struct, frozen=True, gc=False):
    """A request head as far as forwarding needs it. `target` is path and query, byte for byte.

    `to_host` and `from_host` are the lines that are forwarded: up to and including `Host:`, and from the end of its
    value on.
    """

    raw: bytes
    method: bytes
    target: bytes
    is_http10: bool
    framing: Framing
    length: int
    wants_close: bool
    wants_upgrade: bool
    to_host: bytes
    from_host: bytes


class UpstreamHead(Struct, frozen=True, gc=False):
    """A response head as far as forwarding needs it; `forwarded` is what the client gets of it."""

    raw: bytes
    status: int
    framing: Framing
    length: int
    keeps_alive: bool
    forwarded: bytes


class _Completion:
    """What llhttp calls when a message is complete: after the head, that there is no body."""

    complete = False

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
    method, target, is_http10, line_end = _read_request_line(raw)
    is_bodyless = _validate_request(raw, method)
    parts = _REQUEST_LINES.split(raw)
    parts[0] = parts[0][line_end:]
    host = length = coding = 0
    connections: list[int] = []
    upgrades: list[int] = []
    for at in range(1, len(parts), 3):
        match parts[at].lower():
            case b"\r\nhost:":
                if host:
                    raise HeadError(400, "bad_request", "an HTTP/1.1 request has exactly one Host line")
                host = at
            case b"\r\ncontent-length:" if not length and not coding:
                length = at
            case b"\r\ntransfer-encoding:" if not length and not coding:
                coding = at
            case b"\r\ncontent-length:" | b"\r\ntransfer-encoding:":
                raise HeadError(400, "bad_request", "the request states its length more than once")
            case b"\r\nconnection:":
                connections.append(at)
            case b"\r\nupgrade:":
                upgrades.append(at)
            case _:
                parts[at] = parts[at + 1] = b""
    if not host and not is_http10:
        raise HeadError(400, "bad_request", "an HTTP/1.1 request has exactly one Host line")
    if coding:
        framing, size = _request_coding(parts[coding + 1], is_http10)
    else:
        framing, size = _sized(parts[length + 1], 400) if length else _NO_BODY
        if size > MAX_LENGTH:
            raise HeadError(400, "bad_request", "the request's length has more than 63 bits")
        if is_bodyless is not None and is_bodyless != (size == 0):
            raise HeadError(400, "bad_request", "the request's length is unclear")
    listed = _listed(parts, connections) if connections else _NOTHING
    # HTTP/2 by upgrade is an offer that a server may pass over (RFC 9110, 7.8); a tunnel of it could not be read.
    wants_upgrade = bool(upgrades) and not is_http10 and b"upgrade" in listed and not _offers_http2(parts, upgrades)
    if connections or upgrades:
        _cut_connection(parts, connections, upgrades, is_upgrade=wants_upgrade)
    if host:
        to_host, from_host = b"".join(parts[: host + 1]), b"".join(parts[host + 2 :])
    else:
        to_host, from_host = b"\r\nHost:", b"".join(parts)
    if not listed <= _NEVER_LISTED:
        to_host, from_host = _without_listed(to_host, listed), _without_listed(from_host, listed)
    return ClientHead(
        raw,
        method,
        target if target[0] == 0x2F else _origin_form(target),
        is_http10,
        framing,
        size,
        is_http10 or b"close" in listed,
        wants_upgrade,
        to_host,
        from_host,
    )


def _read_request_line(raw: bytes) -> tuple[bytes, bytes, bool, int]:
    """Method, target, whether it is HTTP/1.0, and where the line ends."""
    line = _REQUEST_LINE.match(raw)
    if line is None:
        raise HeadError(400, "bad_request", "the request line is not HTTP/1.1")
    method, target, major, minor = line.groups()
    if major != b"1":
        raise HeadError(505, "unsupported_protocol", "semhealth speaks HTTP/1.1 only: set the client to HTTP/1.1")
    if method == b"CONNECT":
        raise HeadError(405, "unsupported_protocol", "semhealth is a reverse proxy: CONNECT is not served")
    return method, target, minor == b"0", line.end() - 2


def client_host(raw: bytes) -> bytes | None:
    """The value of the Host line of a request head; None where it has none, or an empty one."""
    line = _HOST_LINE.search(raw)
    return None if line is None else line[1].strip(b" \t") or None


def load_request(orca_format: str) -> bytes:
    """The line that asks an upstream for its load, as `forwarded_request` adds it."""
    return b"%b %b" % (_LOAD_REQUEST, orca_format.encode())


def asks_for_load(head: ClientHead) -> bool:
    """Whether the client asks for the upstream's load by itself."""
    return _LOAD_REQUEST in head.raw.lower()


def has_trace_parent(head: ClientHead) -> bool:
    """Whether the head has one `traceparent`, of the form that is known (W3C Trace Context, 3.2)."""
    found = _TRACE_LINE.findall(head.to_host + head.from_host)
    return len(found) == 1 and _TRACE_PARENT.fullmatch(found[0][1]) is not None


def forwarded_request(
    head: ClientHead, target: bytes, host: bytes, span_id: bytes | None = None, added: bytes = b""
) -> bytes:
    """The head as the upstream gets it: another target, another Host, no hop-by-hop lines.

    With a `span_id` (16 hex digits) it becomes the parent of `traceparent`, if `has_trace_parent`. `added` is a line to
    put last, with the line end before it.
    """
    sent = b"%b %b HTTP/1.1%b %b%b" % (head.method, target, head.to_host, host, head.from_host)
    if span_id is not None and has_trace_parent(head):
        sent = _TRACE_LINE.sub(lambda line: line[1] + _TRACE_PARENT.sub(rb"\g<1>%b\2" % span_id, line[2]), sent)
    return sent[:-4] + added + END if added else sent


def read_response(raw: bytes, method: bytes, *, to_http10: bool = False) -> UpstreamHead:
    """Read a response head that ends with its empty line. HeadError where it is broken.

    For a client of HTTP/1.0 the lines that speak of chunks go too: the body is given to it without them.
    """
    line = _STATUS_LINE.match(raw)
    if line is None:
        raise HeadError(502, "bad_request", "the status line is not HTTP/1.1")
    version, digits = line.groups()
    status = int(digits)
    parts = _RESPONSE_LINES.split(raw)
    lengths: tuple[int, ...] = ()
    codings: tuple[int, ...] = ()
    connections: tuple[int, ...] = ()
    upgrades: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    for at in range(1, len(parts), 3):
        match parts[at].lower():
            case b"\r\ncontent-length:":
                lengths += (at,)
            case b"\r\ntransfer-encoding:":
                codings += (at,)
            case b"\r\nconnection:":
                connections += (at,)
            case b"\r\nupgrade:":
                upgrades += (at,)
            case b"\r\ntrailer:" if not to_http10:
                pass
            case _:
                others += (at,)
    forwarded = raw
    if len(lengths) + len(codings) < 2:
        is_bodyless = _validate_response(raw)
    else:
        lengths, codings = _say_framing_once(parts, lengths, codings)
        forwarded = b"".join(parts)
        is_bodyless = _validate_response(forwarded)
    framing, size = _response_framing(status, method, is_bodyless, parts, lengths, codings)
    listed = _listed(parts, connections) if connections else _NOTHING
    if codings and to_http10:
        others += codings + lengths
    if others or connections or upgrades:
        _cut(parts, others)
        _cut_connection(parts, connections, upgrades, is_upgrade=status == 101)
        forwarded = b"".join(parts)
        if not listed <= _NEVER_LISTED:
            forwarded = _without_listed(forwarded, listed)
    return UpstreamHead(
        raw,
        status,
        framing,
        size,
        version == b"1" and b"close" not in listed and framing != "close",
        forwarded,
    )


def forwarded_response(head: UpstreamHead, *, close: bool = False, hide_load: bool = False) -> bytes:
    """The head as the client gets it; with `close`, it is told that the connection ends after this answer.

    With `hide_load` it loses its load reports, for which the client did not ask.
    """
    sent = _LOAD_REPORTS.sub(b"", head.forwarded) if hide_load else head.forwarded
    return sent[:-4] + b"\r\nConnection: close" + END if close else sent


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
        line = raw[: raw.index(b"\r\n")]
        if isinstance(error, httptools.HttpParserInvalidURLError) and not line.isascii():
            # llhttp takes ASCII alone in a target. Bytes above it cannot part a message, and pass as they are.
            return _validate_request(line.translate(_AS_ASCII) + raw[len(line) :], method)
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


def _request_coding(value: bytes, is_http10: bool) -> tuple[Framing, int]:
    if is_http10:
        raise HeadError(400, "bad_request", "HTTP/1.0 knows no Transfer-Encoding (RFC 9112, 6.1)")
    if _CODINGS.fullmatch(value) is None:
        raise HeadError(400, "bad_request", "the transfer codings of a request are chunked, after registered ones")
    return "chunked", 0


def _response_framing(
    status: int,
    method: bytes,
    is_bodyless: bool,
    parts: list[bytes],
    lengths: Sequence[int],
    codings: Sequence[int],
) -> tuple[Framing, int]:
    if method == b"HEAD" or status < 200 or status in _BODYLESS:
        return _NO_BODY
    if codings:
        return ("chunked", 0) if _is_chunked(parts[codings[-1] + 1]) else ("close", 0)
    if lengths:
        return _sized(parts[lengths[0] + 1], 502)
    return _NO_BODY if is_bodyless else ("close", 0)


def _sized(value: bytes, refusal: int) -> tuple[Framing, int]:
    try:
        length = int(value)
    except ValueError as error:  # llhttp reads no further than the first empty line
        raise HeadError(refusal, "bad_request", "the length is no number") from error
    return ("length", length) if length else _NO_BODY


def _say_framing_once(
    parts: list[bytes], lengths: Sequence[int], codings: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Cut what repeats itself; with both, Transfer-Encoding counts and Content-Length goes (RFC 9112, 6.3).

    What is left of both.
    """
    lengths, codings = _cut_repeated(parts, lengths), _cut_repeated(parts, codings)
    if codings:
        _cut(parts, lengths)
    return lengths, codings


def _cut_repeated(parts: list[bytes], said: Sequence[int]) -> tuple[int, ...]:
    repeated = [at for at in said[1:] if parts[at + 1].strip(b" \t") == parts[said[0] + 1].strip(b" \t")]
    left = tuple(at for at in said if at not in repeated)
    _cut(parts, repeated)
    return left


def _is_chunked(value: bytes) -> bool:
    return value.rsplit(b",", 1)[-1].strip(b" \t").lower() == b"chunked"


def _origin_form(target: bytes) -> bytes:
    """Path and query of a target; an absolute one loses its scheme and authority (RFC 9112, 3.2.2)."""
    if target == b"*":
        return target
    authority = _ABSOLUTE.match(target)
    if authority is None:
        raise HeadError(400, "bad_request", "the request target is no path")
    rest = target[authority.end() :]
    return rest if rest[:1] == b"/" else b"/" + rest


def _listed(parts: list[bytes], names: Sequence[int]) -> frozenset[bytes]:
    """The words that these lines list, in lower case."""
    return _split(parts[names[0] + 1] if len(names) == 1 else b",".join([parts[at + 1] for at in names]))


@lru_cache(maxsize=256)
def _split(value: bytes) -> frozenset[bytes]:
    return frozenset([token.strip(b" \t").lower() for token in value.split(b",")])


def _offers_http2(parts: list[bytes], upgrades: Sequence[int]) -> bool:
    return any(token.startswith((b"h2", b"http/2")) for token in _listed(parts, upgrades))


def _cut_connection(
    parts: list[bytes], connections: Sequence[int], upgrades: Sequence[int], *, is_upgrade: bool
) -> None:
    """Cut the lines that speak of this hop; an upgrade keeps its own two words."""
    _cut(parts, connections)
    if not is_upgrade:
        _cut(parts, upgrades)
    elif connections:
        parts[connections[0]], parts[connections[0] + 1] = b"\r\nConnection:", b" Upgrade"


def _cut(parts: list[bytes], names: Sequence[int]) -> None:
    for at in names:
        parts[at] = parts[at + 1] = b""


def _without_listed(lines: bytes, listed: frozenset[bytes]) -> bytes:
    """Lines without those that `Connection` lists."""
    names = listed - _NEVER_LISTED
    return _ANY_LINE.sub(lambda line: b"" if line[1].lower() in names else line[0], lines)
