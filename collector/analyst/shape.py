"""Events of a stream that are alike in every byte but those of the text in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import add, and_

import msgspec
from msgspec import Struct

from collector.wire.transfer import line_of

ANOTHER = "another text"  # put in the place of a text, to see that it is told in its stead
MAX_PLACES = 4  # in which a text is looked for

Tell = Callable[[list[bytes]], list[str]]  # events → the texts of the first, as far as each is plain text

_read_text = msgspec.json.Decoder(str).decode
_read_texts = msgspec.json.Decoder(list[str]).decode


class Shape(Struct, frozen=True):
    """What stands before and after the JSON string in events that are plain text each, with its quotes.

    Whatever string stands there, the rest of the event is the same JSON and says the same. So such an event need not be
    decoded but for its text.
    """

    start: bytes
    end: bytes
    most: int  # bytes of an event

    def texts(self, events: Sequence[bytes]) -> list[str]:
        """The texts of the first events, as far as each has this shape."""
        start, end = self.start, self.end
        begin, stop = len(start) - 1, 1 - len(end)
        if max(map(len, events)) > self.most:
            return []
        if not events[-1].endswith(end):  # as the last one often is not whole
            events = events[:-1]
        written = [event[begin:stop] for event in events]
        # Cut and put together again they are the same bytes; for as many of the same lengths, that is so of each.
        if start[:-1] + (end[1:] + start[:-1]).join(written) + end[1:] != b"".join(events):
            starts = map(bytes.startswith, events, repeat(start))
            fits = list(map(and_, starts, map(bytes.endswith, events, repeat(end))))
            if not all(fits):
                del written[fits.index(False) :]
        texts = _texts_of(written)
        return texts if all(texts) else []  # a piece without text is none

    def texts_in_chunks(self, reads: Sequence[bytes]) -> tuple[list[str], int]:
        """The texts of reads that are one event of this shape each, in one chunk each, and the bytes of these events;
        none where one is not."""
        start, end = self.start[:-1], self.end[1:] + b"\r\n"
        sizes = list(map(len, reads))
        lines = list(map(line_of, sizes))
        if max(sizes) > self.most or not all(lines):
            return [], 0
        begins = list(map(add, lines, repeat(start)))
        stop = -len(end)
        written = [read[begin:stop] for read, begin in zip(reads, map(len, begins), strict=True)]
        if end.join([*map(add, begins, written), b""]) != b"".join(reads):  # see `texts`
            return [], 0
        texts = _texts_of(written)
        return (texts, sum(sizes) - sum(map(len, lines)) - 2 * len(lines)) if texts and all(texts) else ([], 0)

    def is_told(self, tell: Tell) -> bool:
        """Whether an event of this shape says now what stands in it."""
        return tell([self.start + ANOTHER.encode() + self.end]) == [ANOTHER]


def shape_of(event: bytes, text: str, most: int, tell: Tell) -> Shape | None:
    """The shape of an event of this text; None where it has none.

    It is for events of at most `most` bytes. `tell` gives the texts of events: what it says when another text is put
    there proves where the text stands.
    """
    written = b'"%b"' % text.encode("utf-8", "replace")
    at = -1
    for _ in range(MAX_PLACES):
        at = event.find(written, at + 1)
        if at < 0:
            break
        shape = Shape(event[: at + 1], event[at + len(written) - 1 :], most)
        if shape.is_told(tell):
            return shape
    return None


def _texts_of(written: list[bytes]) -> list[str]:
    """The texts that are written so, each between its quotes; none where one is no JSON string."""
    array = b"[%b]" % b",".join(written)
    try:
        # A quote after a backslash would not end its string. Where none of the last ones is such, an array of as many
        # strings as were written has no other quotes, so that each of its strings is one of them.
        if array.find(b'\\",') < 0 and array[-3:] != b'\\"]':
            texts = _read_texts(array)
            return texts if len(texts) == len(written) else []
        return list(map(_read_text, written))
    except (msgspec.MsgspecError, ValueError):
        return []
