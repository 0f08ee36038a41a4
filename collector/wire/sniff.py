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
    "application/jsonlines": "ndjson",
    "application/stream+json": "ndjson",
    "application/vnd.amazon.eventstream": "eventstream",
    "application/x-claude-token-stream": "length_prefixed",
}
READABLE = frozenset({"", "text/plain", "application/octet-stream"})  # say nothing: look at the bytes
LOOK = 256  # bytes looked at before giving up


def media_type(head: ResponseHead) -> str:
    """The media type without parameters, lower-cased; empty when there is none."""
    return (head.headers.first("content-type") or "").split(";", 1)[0].strip().lower()


class Sniffer:
    """Decides once enough bytes have come. `mismatch` when the bytes are not what the header says."""

    def __init__(self, head: ResponseHead) -> None:
        self.mismatch = False
        kind = media_type(head)
        self._declared: Transport = BY_TYPE.get(kind, "opaque")
        if kind == "application/json" or kind.endswith("+json"):
            self._declared = BY_TYPE.get(kind, "json")
        self._silent = kind in READABLE
        self._fixed: Transport | None = None
        if head.status == 101:
            self._fixed = "websocket"
        elif self._declared not in ("sse", "json") and not self._silent:
            self._fixed = self._declared

    def decide(self, start: bytes, ended: bool = False) -> Transport | None:
        """The transport of a body that starts so, or None while that could still be several."""
        if self._fixed is not None:
            return self._fixed
        looked = start.removeprefix(BOM).lstrip()[:LOOK]
        found: Transport | None = None
        if looked[:1] in (b"{", b"["):
            found = "json"
        elif looked.startswith(SSE_STARTS):
            found = "sse"
        elif not ended and len(start) < LOOK and any(word.startswith(looked) for word in (*SSE_STARTS, BOM)):
            return None
        if found is None:
            return self._declared
        self.mismatch = found != self._declared and not self._silent
        return found
