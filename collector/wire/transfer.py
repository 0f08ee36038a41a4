"""The chunked transfer coding of HTTP/1.1, taken off a copy of the bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import httptools

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
_SIZE = re.compile(rb"[1-9A-Fa-f][0-9A-Fa-f]{0,7}")


class Dechunker:
    """Chunked bytes → body bytes. `complete` when the last chunk and its trailers have come."""

    def __init__(self) -> None:
        self.complete = False
        self.broken = False
        self._parts: list[bytes] = []
        self._parser: httptools.HttpResponseParser | None = None  # most bodies come in whole chunks, and need none
        self._between_chunks = True

    def on_chunk_header(self) -> None:
        self._between_chunks = False

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_chunk_complete(self) -> None:
        self._between_chunks = True

    def on_message_complete(self) -> None:
        self.complete = True

    def feed(self, data: bytes) -> bytes:
        """The body bytes in `data`; nothing after the end or once the coding is broken."""
        if self.complete or self.broken:
            return b""
        if self._between_chunks:
            # Most reads are exactly one chunk. Between chunks the parser need not see it.
            line, _, body = data.partition(b"\r\n")
            if len(line) <= 8 and _size_of(line) == len(body) - 2 and body[-2:] == b"\r\n":
                return body[:-2]
            if data == LAST:
                self.complete = True
                return b""
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
            self._parser.feed_data(HEAD)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            # Bytes after the last chunk are the next message's fault, not this body's.
            self.broken = not self.complete
        if self.complete or self.broken:
            self._parser = None
        # The start of the next chunk's size may have come already.
        self._between_chunks = self._between_chunks and data.endswith(b"\r\n")
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        return body

    def whole_chunks(self, reads: Sequence[bytes]) -> list[bytes]:
        """The body bytes of the first reads, as far as each is exactly one chunk. They need not be fed any more."""
        bodies: list[bytes] = []
        if not self._between_chunks or self.complete or self.broken:
            return bodies
        for data, line in zip(reads, map(line_of, map(len, reads)), strict=True):
            if not line or data[-2:] != b"\r\n" or not data.startswith((line, line.upper())):
                break
            bodies.append(data[len(line) : -2])
        return bodies


@lru_cache(maxsize=2048)  # lengths; most reads that are asked about are short
def line_of(length: int) -> bytes:
    """The first line of a chunk that is so long with it, as most write it; empty where no chunk is."""
    for digits in range(1, 9):
        size = length - digits - 4  # of the two ends of lines
        if size > 0 and len(f"{size:x}") == digits:
            return b"%x\r\n" % size
    return b""


@lru_cache(maxsize=1024)  # sizes; those of a stream's chunks are much the same
def _size_of(line: bytes) -> int | None:
    """The size that a chunk's first line states; None where it states 0, something odd, or more."""
    return int(line, 16) if _SIZE.fullmatch(line) else None
