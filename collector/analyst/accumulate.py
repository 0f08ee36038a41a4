"""What grows while an exchange runs: its texts, and the rhythm of its stream."""

from __future__ import annotations

import hashlib
import hmac
import math
from array import array
from collections.abc import Callable
from itertools import accumulate, repeat
from operator import mul, sub
from typing import Protocol

from collector.model import ChunkGaps, TextFact

JOIN_PIECES = 64  # pieces of text are joined when there are so many,
JOIN_CHARS = 64  # or when one is longer: what waits to be joined is in no bound
GAPS_LISTED = 64  # gaps kept for the record
BATCH = 64  # gaps worked off at once
ROUNDING = 1e-9  # seconds of slack below which deadlines are looked at one by one


class Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


NewDigest = Callable[[], Digest] | None


def digest_of(text_hash: str, key: bytes) -> NewDigest:
    """How texts are told apart: `sha256`, `hmac` (SHA-256 with `key`), or None for `none`."""
    match text_hash:
        case "sha256":
            return hashlib.sha256
        case "hmac":
            return lambda: hmac.new(key, digestmod=hashlib.sha256)
    return None


def well_formed(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates as U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def fact_of(text: str, new_digest: NewDigest) -> TextFact:
    """Hash and length of a text that is well-formed; no hash of no text."""
    if new_digest is None or not text:
        return TextFact(None, len(text))
    digest = new_digest()
    digest.update(text.encode())
    return TextFact(digest.hexdigest(), len(text))


class Room:
    """How many code points several texts may still keep together."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class TextSum:
    """A text that comes in pieces: all of it counted and hashed, its beginning kept while there is room."""

    __slots__ = ("_complete", "_digest", "_held", "_kept", "_pieces", "_room", "chars")

    def __init__(self, room: Room, new_digest: NewDigest) -> None:
        self.chars = 0
        self._room = room
        self._complete = True
        self._kept: list[str] = []
        self._pieces: list[str] = []
        self._held = ""  # a high surrogate whose other half may follow
        self._digest = new_digest() if new_digest is not None else None

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        if len(self._pieces) >= JOIN_PIECES or len(piece) > JOIN_CHARS:
            self._join(last=False)

    def add_all(self, pieces: list[str]) -> None:
        """Takes several pieces, to the same end as one by one."""
        room = JOIN_PIECES - len(self._pieces)
        if len(pieces) >= JOIN_PIECES or max(map(len, pieces)) > JOIN_CHARS:
            self._pieces += pieces
            self._join(last=False)
        elif len(pieces) < room:
            self._pieces += pieces
        else:
            self._pieces += pieces[:room]
            self._join(last=False)
            self._pieces += pieces[room:]

    @property
    def complete(self) -> bool:
        """Whether everything so far was kept."""
        if self._pieces:
            self._join(last=False)
        return self._complete

    def text(self) -> str:
        """What was kept."""
        self._join(last=True)
        return self._kept[0] if len(self._kept) == 1 else "".join(self._kept)

    def fact(self) -> TextFact:
        """Hash and length; no hash of no text."""
        self._join(last=True)
        hashed = self._digest.hexdigest() if self._digest is not None and self.chars else None
        return TextFact(hashed, self.chars)

    def _join(self, last: bool) -> None:
        pieces, held = self._pieces, self._held
        if not pieces and not (last and held):
            return
        text = pieces[0] if len(pieces) == 1 and not held else held + "".join(pieces)
        pieces.clear()
        if not text.isascii():
            self._held = ""
            if not last and 0xD800 <= ord(text[-1]) <= 0xDBFF:
                text, self._held = text[:-1], text[-1]
            text = well_formed(text)
        self.chars += len(text)
        if self._digest is not None:
            self._digest.update(text.encode())
        if text and self._complete:
            room = self._room
            if len(text) <= room.left:
                room.left -= len(text)
                self._kept.append(text)
            else:
                self._complete = False
                self._kept.append(text[: room.left])
                room.left = 0


class Rhythm:
    """The gaps between content frames of one stream, in one pass.

    Times are monotonic seconds; `blocked` is the time so far that the client did not read, which is in no gap. A gap of
    more than `stall` seconds is a stall. Deadlines, `deadline` seconds apart, are met and missed as in Etalon
    (metric_utils.py, arXiv 2407.07000): early frames bank slack, a missed deadline costs one miss per interval, then
    deadlines start anew. Gaps are worked off BATCH at a time, which costs a third of doing so one by one.
    """

    __slots__ = (
        "_count", "_deadline", "_flows", "_fresh", "_last", "_listed", "_longest", "_m2", "_mean", "_met", "_missed",
        "_slack", "_stall", "_stalls", "first",
    )  # fmt: skip

    def __init__(self, stall: float = 1.0, deadline: float = 0.1) -> None:
        self.first: float | None = None
        self._stall, self._deadline = stall, deadline
        self._flows = False  # whether the next frame follows on one
        self._last = 0.0  # when the last frame came, without the time blocked up to then
        self._fresh = array("d")  # gaps not worked off; at most BATCH
        self._listed = array("d")
        self._mean = self._m2 = self._slack = 0.0
        self._count = self._stalls = self._met = self._missed = 0
        self._longest: float | None = None

    def beat(self, at: float, blocked: float) -> None:
        """A content frame came at `at`."""
        flowed = at - blocked
        if self._flows:
            gap = flowed - self._last
            self._last = flowed
            self._fresh.append(max(0.0, gap))
            if len(self._fresh) >= BATCH:
                self._settle()
        else:
            self._flows, self._last = True, flowed
            if self.first is None:
                self.first = at

    def beats(self, flowed: list[float]) -> None:
        """Content frames came, not the first ones, at these times less the time blocked up to then."""
        gaps = list(map(sub, flowed, [self._last, *flowed]))
        if not self._flows:
            self._flows = True
            del gaps[0]
        self._last = flowed[-1]
        if gaps and min(gaps) < 0.0:
            gaps = [max(0.0, gap) for gap in gaps]
        fresh = self._fresh
        while len(fresh) + len(gaps) >= BATCH:
            room = BATCH - len(fresh)
            fresh.fromlist(gaps[:room])
            del gaps[:room]
            self._settle()
        fresh.fromlist(gaps)

    def rest(self) -> None:
        """What comes next follows on nothing: the time up to it is no gap."""
        self._settle()
        self._flows, self._slack = False, 0.0

    def wait(self, waited: float, deadline: float) -> None:
        """The first token came after `waited` seconds."""
        if waited <= deadline:
            self._slack = deadline - waited
            self._met += 1
        else:
            self._miss(waited - deadline)

    @property
    def span(self) -> float:
        """From the first to the last content frame, without rests and the time the client blocked."""
        self._settle()
        return self._mean * self._count

    @property
    def stalls(self) -> int:
        self._settle()
        return self._stalls

    @property
    def deadlines(self) -> tuple[int, int]:
        """Those met, and those missed."""
        self._settle()
        return self._met, self._missed

    def gaps(self) -> ChunkGaps:
        self._settle()
        if not self._count:
            return ChunkGaps(0)
        deviation = math.sqrt(self._m2 / self._count) if self._count > 1 else None
        return ChunkGaps(self._count, self._mean, deviation, self._longest, tuple(self._listed))

    def _settle(self) -> None:
        """Works off the fresh gaps."""
        fresh = self._fresh
        if not fresh:
            return
        self._listed.extend(fresh[: GAPS_LISTED - len(self._listed)])
        self._take_moments(fresh)
        longest = max(fresh)
        if self._longest is None or longest > self._longest:
            self._longest = longest
        if longest > self._stall:
            self._stalls += sum(gap > self._stall for gap in fresh)
        slacks = list(accumulate(map(sub, repeat(self._deadline), fresh), initial=self._slack))
        if min(slacks) > ROUNDING:  # every deadline is met, as is usual
            self._slack = slacks[-1]
            self._met += len(fresh)
        else:
            for gap in fresh:
                self._meet(gap)
        del fresh[:]

    def _take_moments(self, fresh: array[float]) -> None:
        """Mean and sum of squared deviations of all gaps (Chan, Golub and LeVeque, 1979)."""
        count, first = len(fresh), fresh[0]
        apart = list(map(sub, fresh, repeat(first)))  # from the first, so that the squares stay small
        total = sum(apart)
        mean = total / count
        step = first + mean - self._mean
        before, self._count = self._count, self._count + count
        self._mean += step * count / self._count
        squares = max(0.0, sum(map(mul, apart, apart)) - total * mean)
        self._m2 += squares + step * step * before * count / self._count

    def _meet(self, gap: float) -> None:
        if gap <= self._deadline + self._slack:
            self._slack += self._deadline - gap
            self._met += 1
        else:
            self._miss(gap - self._slack - self._deadline)

    def _miss(self, late: float) -> None:
        self._missed += 1 + (int(late / self._deadline) if self._deadline > 0 else 0)
        self._slack = 0.0
