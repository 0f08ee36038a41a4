"""What grows while an exchange runs: its texts, and the rhythm of its stream."""

from __future__ import annotations

import hashlib
import hmac
import math
from array import array
from collections.abc import Callable
from typing import Protocol

from collector.model import ChunkGaps, TextFact

JOIN_PIECES = 64  # pieces of text are joined when there are so many
GAPS_LISTED = 64  # gaps kept for the record


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


class TextSum:
    """A text that comes in pieces: all of it counted and hashed, the first `cap` code points kept."""

    __slots__ = ("_digest", "_held", "_kept", "_pieces", "_room", "chars")

    def __init__(self, cap: int, new_digest: NewDigest) -> None:
        self.chars = 0
        self._room = cap
        self._kept: list[str] = []
        self._pieces: list[str] = []
        self._held = ""  # a high surrogate whose other half may follow
        self._digest = new_digest() if new_digest is not None else None

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        if len(self._pieces) >= JOIN_PIECES or len(piece) > 4096:
            self._join(last=False)

    @property
    def complete(self) -> bool:
        """Whether everything so far was kept."""
        self._join(last=False)
        return self._room >= 0

    def text(self) -> str:
        """What was kept."""
        self._join(last=True)
        return "".join(self._kept)

    def fact(self) -> TextFact:
        """Hash and length; no hash of no text."""
        self._join(last=True)
        hashed = self._digest.hexdigest() if self._digest is not None and self.chars else None
        return TextFact(hashed, self.chars)

    def _join(self, last: bool) -> None:
        if not self._pieces and not (last and self._held):
            return
        text = self._held + "".join(self._pieces)
        self._pieces.clear()
        self._held = ""
        if not last and text and 0xD800 <= ord(text[-1]) <= 0xDBFF:
            text, self._held = text[:-1], text[-1]
        text = well_formed(text)
        self.chars += len(text)
        if self._digest is not None:
            self._digest.update(text.encode())
        if self._room > 0:
            self._kept.append(text[: self._room])
        self._room -= len(text)


class Rhythm:
    """The gaps between content frames of one stream, in one pass.

    Times are monotonic seconds; `blocked` is the time so far that the client did not read, which is in no gap.
    Deadlines are met and missed as in Etalon (metric_utils.py, arXiv 2407.07000): early frames bank slack, a missed
    deadline costs one miss per interval, then deadlines start anew.
    """

    __slots__ = (
        "_blocked", "_gaps", "_last", "_m2", "_mean", "_rests", "_slack", "count", "first", "longest", "met", "missed",
        "stalls",
    )  # fmt: skip

    def __init__(self) -> None:
        self.first: float | None = None
        self._last = 0.0
        self._blocked = 0.0
        self._gaps = array("d")
        self._mean = self._m2 = 0.0
        self._slack = 0.0
        self._rests = False
        self.count = self.stalls = self.met = self.missed = 0
        self.longest: float | None = None

    @property
    def last(self) -> float | None:
        return None if self.first is None else self._last

    @property
    def span(self) -> float:
        """From the first to the last content frame, without the time the client blocked."""
        return self._mean * self.count

    def beat(self, at: float, blocked: float, stall: float, deadline: float) -> None:
        """A content frame came at `at`."""
        if self.first is None:
            self.first = self._last = at
            self._blocked = blocked
            return
        if self._rests:
            self._rests, self._slack = False, 0.0
            self._last, self._blocked = at, blocked
            return
        gap = at - self._last - (blocked - self._blocked)
        if gap < 0.0:  # noqa: PLR1730 - once per frame, and a call of max() costs ten times as much
            gap = 0.0
        self._last, self._blocked = at, blocked
        self.count = count = self.count + 1
        step = gap - self._mean
        self._mean = mean = self._mean + step / count
        self._m2 += step * (gap - mean)
        if self.longest is None or gap > self.longest:
            self.longest = gap
        if gap > stall:
            self.stalls += 1
        if count <= GAPS_LISTED:
            self._gaps.append(gap)
        if gap <= deadline + self._slack:
            self._slack += deadline - gap
            self.met += 1
        else:
            self._miss(gap - self._slack - deadline, deadline)

    def rest(self) -> None:
        """What comes next follows on nothing: the time up to it is no gap."""
        self._rests = True

    def wait(self, waited: float, deadline: float, token_deadline: float) -> None:
        """The first token came after `waited` seconds."""
        if waited <= deadline:
            self._slack = deadline - waited
            self.met += 1
        else:
            self._miss(waited - deadline, token_deadline)

    def _miss(self, late: float, interval: float) -> None:
        self.missed += 1 + (int(late / interval) if interval > 0 else 0)
        self._slack = 0.0

    def gaps(self) -> ChunkGaps:
        if not self.count:
            return ChunkGaps(0)
        deviation = math.sqrt(max(0.0, self._m2) / self.count) if self.count > 1 else None
        return ChunkGaps(self.count, self._mean, deviation, self.longest, tuple(self._gaps))
