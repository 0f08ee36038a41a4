"""Where a message's body ends in the bytes that arrive, however they are cut."""

from __future__ import annotations

from typing import Protocol

import httptools

from collector.proxy.heads import Framing

_OPENING = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
_END = b"\r\n\r\n"


class BodyError(Exception):
    """The chunked coding is broken; nothing after it can be told apart."""


class Body(Protocol):
    """Follows one body. `take` says how many of the given bytes belong to it; `done` is set at its last one."""

    done: bool

    def take(self, data: bytes) -> int: ...


class LengthBody:
    """A body of a stated length, in bytes; 0 is no body."""

    __slots__ = ("_left", "done")

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def take(self, data: bytes) -> int:
        size = len(data)
        if size < self._left:
            self._left -= size
            return size
        size, self._left = self._left, 0
        self.done = True
        return size


NO_BODY = LengthBody(0)


class EndlessBody:
    """A body that ends with its connection."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False

    def take(self, data: bytes) -> int:
        return len(data)


class _Completion:
    __slots__ = ("complete",)

    def __init__(self) -> None:
        self.complete = False

    def on_message_complete(self) -> None:
        self.complete = True


class _Pieces(_Completion):
    __slots__ = ("pieces",)

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)


class ChunkedBody:
    """A body in chunks, followed by llhttp. BodyError from `take` where the coding is broken.

    llhttp does not say at which byte a message ended. But a chunked body ends with an empty line, so it is fed up to
    each empty line, and asked.
    """

    __slots__ = ("_feed", "_seen", "_tail", "done")

    def __init__(self, seen: _Completion | None = None) -> None:
        self._seen = _Completion() if seen is None else seen
        self._feed = httptools.HttpRequestParser(self._seen).feed_data
        self._feed(_OPENING)
        self._tail = b"\n\r\n"  # the last three bytes before those that come
        self.done = False

    def take(self, data: bytes) -> int:
        found = data.find(_END)
        may_cross = data[:1] <= b"\r"  # an empty line may have begun in the bytes before
        try:
            if not may_cross and (found < 0 or found + 4 == len(data)):
                self._feed(data)
                taken = len(data)
            else:
                taken = self._take_by_empty_lines(data)
        except httptools.HttpParserError as error:
            raise BodyError(str(error)) from error
        self.done = self._seen.complete
        self._tail = data[-3:] if len(data) >= 3 else (self._tail + data)[-3:]
        return taken

    def _take_by_empty_lines(self, data: bytes) -> int:
        view = memoryview(data)
        joined = self._tail + data
        before = len(self._tail)
        at = 0
        while (found := joined.find(_END, at + before - 3)) >= 0:
            cut = found + 4 - before
            self._feed(view[at:cut])
            at = cut
            if self._seen.complete:
                return at
        self._feed(view[at:])
        return len(data)


class UnchunkedBody(ChunkedBody):
    """A chunked body whose content alone is wanted: `content` gives what came since it was last asked."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        pieces = _Pieces()
        super().__init__(pieces)
        self._pieces = pieces

    def content(self) -> bytes:
        pieces = self._pieces.pieces
        content = b"".join(pieces)
        pieces.clear()
        return content


def body_of(framing: Framing, length: int, begun: bytes = b"") -> tuple[Body, int]:
    """The follower for a body framed so, and how many of the bytes it begins with belong to it. BodyError as `take`."""
    if framing == "length" and len(begun) < length:
        return LengthBody(length - len(begun)), len(begun)
    if framing == "length" or framing == "none":  # noqa: PLR1714 - a set of two costs more than both comparisons
        return NO_BODY, length
    body: Body = ChunkedBody() if framing == "chunked" else EndlessBody()
    return body, body.take(begun) if begun else 0
