"""Which transport a response is: by its headers, and by its first bytes where those say more."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from msgspec import Struct

from collector.model import ResponseHead

Transport = Literal["json", "sse", "ndjson", "json_array", "eventstream", "length_prefixed", "websocket", "opaque"]

STREAMS = frozenset({"sse", "ndjson", "json_array", "eventstream", "length_prefixed", "websocket"})
BOM = b"\xef\xbb\xbf"
SSE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
BY_TYPE: dict[str, Transport] = {
    "text/event-stream": "sse",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/x-jsonlines": "ndjson",
    "application/jsonlines": "ndjson",
    "application/json-lines": "ndjson",
    "application/stream+json": "ndjson",
    "application/vnd.amazon.eventstream": "eventstream",
    "application/x-claude-token-stream": "length_prefixed",
}
READABLE = frozenset({"", "text/plain", "application/octet-stream"})  # say nothing: look at the bytes
ARRAY_STREAMS = (":streamGenerateContent", ":serverStreamingPredict")  # Google's ways to ask for a stream as an array
LOOK = 256  # bytes looked at before giving up
FIRST_LINE = 16 * 1024  # bytes of a first line of JSON that is waited for, to see whether another follows


MAX_TYPE = 256  # characters of a content type that is remembered


class _Declared(Struct, frozen=True, gc=False):
    """What a content type says. `is_silent` where it says nothing, `is_final` where the bytes need not be looked at."""

    transport: Transport
    is_silent: bool
    is_final: bool


def media_type(said: str) -> str:
    """The media type that a content type names, without parameters and lower-cased; empty where it names none."""
    return said.split(";", 1)[0].strip().lower()


def _read_type(said: str) -> _Declared:
    kind = media_type(said)
    transport = BY_TYPE.get(kind, "opaque")
    if kind == "application/json" or kind.endswith("+json"):
        transport = BY_TYPE.get(kind, "json")
    is_silent = kind in READABLE
    return _Declared(transport, is_silent, transport not in ("sse", "json") and not is_silent)


_known_type = lru_cache(maxsize=128)(_read_type)


class Sniffer:
    """Decides once enough bytes have come. `mismatch` when the bytes are not what the header says.

    `fixed` is the transport where the head alone decides, else None.
    `path` is the request's: an array of JSON is a stream only where one was asked for.
    """

    mismatch = False
    fixed: Transport | None = None

    def __init__(self, head: ResponseHead, path: str = "") -> None:
        said = head.headers.first("content-type") or ""
        self._declared = _known_type(said) if len(said) <= MAX_TYPE else _read_type(said)
        self._status, self._path = head.status, path
        if head.status == 101:
            self.fixed = "websocket"
        elif self._declared.is_final:
            self.fixed = self._declared.transport

    def decide(self, start: bytes, ended: bool = False) -> Transport | None:
        """The transport of a body that starts so, or None while that could still be several."""
        if self.fixed is not None or not (start or ended):
            return self.fixed
        declared = self._declared
        if declared.transport == "json" and start[:1] == b"{" and start.find(b"\n", 0, FIRST_LINE) < 0:
            # Most answers: an object on one line. Where it goes on, another may follow.
            return "json" if ended or len(start) >= FIRST_LINE else None
        looked = start[:LOOK].removeprefix(BOM).lstrip()
        found: Transport | None = None
        if looked.startswith(b"["):
            found = "json_array" if self._status < 400 and self._path.endswith(ARRAY_STREAMS) else "json"
        elif looked.startswith(b"{"):
            line = start[:FIRST_LINE].removeprefix(BOM).lstrip()
            found = _lines_or_whole(line, ended or len(start) >= FIRST_LINE)
            if found is None:
                return None
        elif looked.startswith(SSE_STARTS):
            found = "sse"
        elif not ended and len(start) < LOOK and any(word.startswith(looked) for word in (*SSE_STARTS, BOM)):
            return None
        if found is None:
            return declared.transport
        fits = found == declared.transport or (declared.transport == "json" and found == "json_array")
        self.mismatch = not fits and not declared.is_silent
        return found


def _lines_or_whole(looked: bytes, last: bool) -> Transport | None:
    """Whether an object stands alone or is the first of many lines: then the next begins where its own line ends.

    None while more bytes could tell, unless these are the `last`.
    """
    line, newline, rest = looked.partition(b"\n")
    if newline and not line.rstrip().endswith(b"}"):
        return "json"
    following = rest.lstrip()[:1]
    if following:
        return "ndjson" if following == b"{" else "json"
    return "json" if last else None
