"""The chunked transfer coding of HTTP/1.1, taken off a copy of the bytes."""

from __future__ import annotations

import httptools

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Dechunker:
    """Chunked bytes → body bytes. `complete` when the last chunk and its trailers have come."""

    def __init__(self) -> None:
        self.complete = False
        self.broken = False
        self._parts: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(HEAD)

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self.complete = True

    def feed(self, data: bytes) -> bytes:
        """The body bytes in `data`; nothing after the end or once the coding is broken."""
        if self.complete or self.broken:
            return b""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            # Bytes after the last chunk are the next message's fault, not this body's.
            self.broken = not self.complete
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        return body
