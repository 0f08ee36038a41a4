"""Which transport a response is: by its headers, and by its first bytes where those say more."""

from __future__ import annotations

from typing import Literal

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


def media_type(head: ResponseHead) -> str:
    """The media type without parameters, lower-cased; empty when there is none."""
    return (head.headers.first("content-type") or "").split(";", 1)[0].strip().lower()


class Sniffer:
    """Decides once enough bytes have come. `mismatch` when the bytes are not what the header says.

    `fixed` is the transport where the head alone decides, else None.
    `path` is the request's: an array of JSON is a stream only where one was asked for.
    """

    def __init__(self, head: ResponseHead, path: str = "") -> None:
        self.mismatch = False
        kind = media_type(head)
        self._declared: Transport = BY_TYPE.get(kind, "opaque")
        if kind == "application/json" or kind.endswith("+json"):
            self._declared = BY_TYPE.get(kind, "json")
        self._silent = kind in READABLE
        self._arrays = head.status < 400 and path.endswith(ARRAY_STREAMS)
        self.fixed: Transport | None = None
        if head.status == 101:
            self.fixed = "websocket"
        elif self._declared not in ("sse", "json") and not self._silent:
            self.fixed = self._declared

    def decide(self, start: bytes, ended: bool = False) -> Transport | None:
        """The transport of a body that starts so, or None while that could still be several."""
        if self.fixed is not None or not (start or ended):
            return self.fixed
        if self._declared == "json" and start[:1] == b"{" and start.find(b"\n", 0, FIRST_LINE) < 0:
            # Most answers: an object on one line. Where it goes on, another may follow.
            return "json" if ended or len(start) >= FIRST_LINE else None
        looked = start[:LOOK].removeprefix(BOM).lstrip()
        found: Transport | None = None
        if looked.startswith(b"["):
            found = "json_array" if self._arrays else "json"
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
            return self._declared
        fits = found == self._declared or (self._declared == "json" and found == "json_array")
        self.mismatch = not fits and not self._silent
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
