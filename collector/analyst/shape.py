"""Reads of a stream that are alike in every byte but those of the text in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import and_

import msgspec
from msgspec import Struct

from collector.wire.transfer import line_of

ANOTHER = "another text"  # put in the place of a text, to see that it is told in its stead
MAX_PLACES = 4  # in which a text is looked for

Tell = Callable[[list[bytes]], list[str]]  # bodies of events → the texts of the first, as far as each is plain text

_read_text = msgspec.json.Decoder(str).decode


class Shape(Struct, frozen=True):
    """What stands before and after the JSON string in reads that are one event of plain text each, with its quotes.

    Whatever string stands there, the rest of the event is the same JSON and says the same. So such a read need not be
    decoded but for its text.
    """

    start: bytes
    end: bytes
    most: int  # bytes of a read
    is_chunked: bool  # whether the size of its chunk stands before each

    def texts(self, reads: Sequence[bytes]) -> tuple[list[str], int]:
        """The texts of the first reads, as far as each has this shape, and the bytes of body in these."""
        start, stop = self.start, 1 - len(self.end)
        sizes = list(map(len, reads))
        lines = list(map(line_of, sizes)) if self.is_chunked else [b""] * len(reads)
        if max(sizes) > self.most or (self.is_chunked and not all(lines)):
            return [], 0
        begins = [line + start for line in lines]
        fits = list(map(and_, map(bytes.startswith, reads, begins), map(bytes.endswith, reads, repeat(self.end))))
        if not all(fits):
            reads = reads[: fits.index(False)]
        written = [read[begin - 1 : stop] for read, begin in zip(reads, map(len, begins), strict=False)]
        try:
            texts = list(map(_read_text, written))
        except (msgspec.MsgspecError, ValueError):
            return [], 0
        return (texts, self._size(written)) if all(texts) else ([], 0)  # a piece without text is none

    def is_told(self, tell: Tell) -> bool:
        """Whether an event of this shape says now what stands in it."""
        end = self.end[:-2] if self.is_chunked else self.end
        return tell([self.start + ANOTHER.encode() + end]) == [ANOTHER]

    def _size(self, written: list[bytes]) -> int:
        around = len(self.start) + len(self.end) - 2 - 2 * self.is_chunked
        return sum(map(len, written)) + around * len(written)


def shape_of(read: bytes, body: bytes, text: str, most: int, tell: Tell) -> Shape | None:
    """The shape of a read whose body, without its chunk's frame, is an event of this text; None where it has none.

    It is for reads of at most `most` bytes. `tell` gives the texts of bodies: what it says when another text is put
    there proves where the text stands.
    """
    written = b'"%b"' % text.encode("utf-8", "replace")
    is_chunked, at = len(read) != len(body), -1
    for _ in range(MAX_PLACES):
        at = body.find(written, at + 1)
        if at < 0:
            break
        start, end = body[: at + 1], body[at + len(written) - 1 :]
        shape = Shape(start, end + b"\r\n" if is_chunked else end, most, is_chunked)
        if shape.is_told(tell):
            return shape
    return None
