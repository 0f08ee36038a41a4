"""The chunked transfer coding of HTTP/1.1, taken off a copy of the bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import add, eq

import httptools

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MAX_SIZE = 8  # digits of a chunk's size
SHORT = 1024  # bytes of a chunk: where they are fewer, to search all chunks costs less than to look for each
LAST = b"0\r\n\r\n"
_SIZE = re.compile(rb"[1-9A-Fa-f][0-9A-Fa-f]{0,7}")
_CUT_SIZE = re.compile(rb"[1-9A-Fa-f][0-9A-Fa-f]{0,7}\r?")


class Dechunker:
    """Chunked bytes → body bytes. `complete` when the last chunk and its trailers have come.

    Plain chunks are read here, since a parser that calls back costs more; anything else about them, such as their
    extensions, trailers and faults, is the parser's.
    """

    def __init__(self) -> None:
        self.complete = False
        self.broken = False
        self._left = 0  # bytes to come of the chunk that has begun and of the line end after it; 0 between chunks
        self._cut = b""  # what came of a size or of a line end that was cut, for the next read
        self._parts: list[bytes] = []
        self._parser: httptools.HttpResponseParser | None = None  # most bodies need none
        self._is_parsed = False  # whether the parser is inside of something

    def on_chunk_header(self) -> None:
        self._is_parsed = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_chunk_complete(self) -> None:
        self._is_parsed = False

    def on_message_complete(self) -> None:
        self.complete = True

    def feed(self, data: bytes) -> bytes:
        """The body bytes in `data`; nothing after the end or once the coding is broken."""
        parts = self.feed_parts(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def feed_parts(self, data: bytes) -> list[bytes]:
        """The same, each chunk by itself as far as that costs nothing; no part is empty."""
        if self.complete or self.broken:
            return []
        if self._is_parsed:
            return self._parse(data)
        if self._cut:
            data, self._cut = self._cut + data, b""
        elif not self._left:
            # Most reads are exactly one chunk.
            line, _, body = data.partition(b"\r\n")
            if len(line) <= MAX_SIZE and _size_of(line) == len(body) - 2 and body[-2:] == b"\r\n":
                return [body[:-2]]
        parts, at = self._plain_chunks(data)
        if at < len(data):
            rest = data[at:] if at else data
            if rest == LAST and not self._left:
                self.complete = True
            elif not self._left and _CUT_SIZE.fullmatch(rest):
                self._cut = rest
            else:
                parts += self._parse(rest)
        return parts

    @property
    def is_between(self) -> bool:
        """Whether a chunk may begin with the next byte."""
        return not (self._left or self._cut or self._is_parsed or self.complete or self.broken)

    def whole_chunks(self, reads: Sequence[bytes]) -> list[bytes]:
        """The body bytes of the first reads, as far as each is exactly one chunk. They need not be fed any more."""
        if not self.is_between:
            return []
        lines = list(map(line_of, map(len, reads)))
        if not all(lines):
            del lines[lines.index(b"") :]
        bodies = [read[start:-2] for read, start in zip(reads, map(len, lines), strict=False)]
        if len(bodies) == len(reads) and b"\r\n".join([*map(add, lines, bodies), b""]) == b"".join(reads):
            return bodies  # most: the same bytes, and of the same lengths
        for index, (read, line) in enumerate(zip(reads, lines, strict=False)):
            if read[-2:] != b"\r\n" or not read.startswith((line, line.upper())):
                return bodies[:index]
        return bodies

    def _plain_chunks(self, data: bytes) -> tuple[list[bytes], int]:
        """The bytes of the chunks that data begins with, as far as they are plain, and where something else begins."""
        parts: list[bytes] = []
        at, size, left = 0, len(data), self._left
        is_first = True
        while at < size:
            if not left:
                line_end = data.find(b"\r\n", at, at + MAX_SIZE + 2)
                length = _size_of(data[at:line_end]) if line_end > at else None
                if length is None:
                    break
                if is_first and length < SHORT:
                    is_first = False
                    more, taken = _chunks_of_one_line(data[at:])
                    parts += more
                    at += taken
                    continue
                at, left = line_end + 2, length + 2
            end = at + left - 2
            if size <= end:
                parts.append(data[at:])
                left, at = end + 2 - size, size
            elif data[end : end + 2] == b"\r\n":
                parts.append(data[at:end])
                at, left = end + 2, 0
            elif data[end:] == b"\r":
                parts.append(data[at:end])
                self._cut = b"\r"
                at, left = size, 2
            else:
                break
        self._left = left
        if parts and not parts[0]:  # of the chunk that had begun, only the line end came
            del parts[0]
        return parts, at

    def _parse(self, data: bytes) -> list[bytes]:
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
            self._parser.feed_data(HEAD)
        if self._left:  # in a chunk of which the parser knows nothing: one begins for it
            self._parser.feed_data(b"%x\r\n." % (self._left - 1))
            self._parts.clear()
            self._left = 0
        self._is_parsed = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            # Bytes after the last chunk are the next message's fault, not this body's.
            self.broken = not self.complete
        if self.complete or self.broken:
            self._parser = None
        # The start of the next chunk's size may have come already.
        self._is_parsed = self._is_parsed or not data.endswith(b"\r\n")
        parts, self._parts = self._parts, []
        return parts


def _chunks_of_one_line(data: bytes) -> tuple[list[bytes], int]:
    """The bytes of the chunks that `data` begins with, as far as none has a line end in it, and the bytes of these."""
    lines = data.split(b"\r\n")
    sizes, bodies = lines[:-1:2], lines[1:-1:2]
    if not bodies or max(map(len, sizes)) > MAX_SIZE:
        return [], 0
    fits = list(map(eq, map(_size_of, sizes), map(len, bodies)))
    if not all(fits):
        del bodies[fits.index(False) :]
    return bodies, sum(map(len, sizes[: len(bodies)])) + sum(map(len, bodies)) + 4 * len(bodies)


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
