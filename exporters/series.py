"""What the readings of one series become: a total, a spread over buckets, a last value, or a window of them."""

from __future__ import annotations

import random
import statistics
import sys
import threading
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import repeat
from math import isfinite, isnan
from operator import add, attrgetter
from typing import Protocol

from msgspec import Struct
from prometheus_client.samples import Exemplar

TRACE_ID = "trace_id"  # of an exemplar (opentelemetry-specification, compatibility with Prometheus)
SLICES = 60  # a window is this many slices of time
SLICE_READINGS = 100  # readings kept per slice for a median; above it a random sample of so many
LARGEST = sys.float_info.max

Take = Callable[[float], object]
Refuse = Callable[[int], None]  # counts readings that are no finite number, or that their metric does not take


class Moment(Struct, frozen=True, gc=False):
    """Monotonic and Unix seconds at which a reading is taken, and the sampled trace that it comes from."""

    monotonic: float
    wall: float
    trace_id: str | None = None


class Now:
    """The moment of the readings that are being taken. Those of one `Now` all have a trace, or none has."""

    __slots__ = ("is_traced", "moment")

    def __init__(self, moment: Moment) -> None:
        self.moment = moment
        self.is_traced = moment.trace_id is not None


class Series(Protocol):
    """`add` takes a value that fits; `taker` gives what takes values that may not, each at the moment that it is now.

    Neither loses a value, whichever threads call them.
    """

    def add(self, value: float, moment: Moment) -> None: ...
    def taker(self, now: Now) -> Take: ...


def _careful(series: Series, now: Now, refuse: Refuse) -> Take:
    """Adds what fits to the series, and refuses what is negative or no finite number."""

    def take(value: float) -> None:
        if 0.0 <= value <= LARGEST:
            series.add(value, now.moment)
        else:
            refuse(1)

    return take


class _Sum(ABC):
    """Values that wait to be summed up, which is cheaper for many than for each: whoever looks does so, under the
    registry's lock, and the registry every so often.
    """

    def __init__(self, has_exemplars: bool, refuse: Refuse) -> None:
        self._has_exemplars = has_exemplars
        self._refuse = refuse
        self.waiting: list[float] = []  # bounded by the registry's WAITING
        self.value = 0.0  # their sum, and nothing of what waits

    def add(self, value: float, moment: Moment) -> None:
        self.waiting.append(value)
        if self._has_exemplars and moment.trace_id is not None:
            self._keep(value, Exemplar({TRACE_ID: moment.trace_id}, value, moment.wall))

    def taker(self, now: Now) -> Take:
        if not (self._has_exemplars and now.is_traced):
            return self.waiting.append

        return _careful(self, now, self._refuse)

    def settle(self) -> None:
        """Sum up what waits; at least one value does."""
        values = self.waiting.copy()
        del self.waiting[: len(values)]  # and none that came meanwhile
        if not (min(values) >= 0.0 and max(values) <= LARGEST) or any(map(isnan, values)):
            come, values = len(values), [value for value in values if 0.0 <= value <= LARGEST]
            self._refuse(come - len(values))
        # One after another, as `sum` does not from Python 3.12 on: the total must not depend on when somebody looked.
        self.value = reduce(add, values, self.value)
        self._count(values)

    @abstractmethod
    def _keep(self, value: float, exemplar: Exemplar) -> None:
        """Keep the exemplar of a value."""

    @abstractmethod
    def _count(self, values: list[float]) -> None:
        """Values were added to the sum."""


_waiting = attrgetter("waiting")


def settle(sums: Iterable[_Sum]) -> None:
    """Sum up what waits on any of them; under the registry's lock."""
    for each in filter(_waiting, sums):
        each.settle()


class Total(_Sum):
    """A sum that grows. With exemplars, it keeps the last reading above 0 that came with a trace."""

    def __init__(self, has_exemplars: bool, refuse: Refuse) -> None:
        super().__init__(has_exemplars, refuse)
        self.exemplar: Exemplar | None = None

    def _keep(self, value: float, exemplar: Exemplar) -> None:
        if value > 0.0:
            self.exemplar = exemplar

    def _count(self, values: list[float]) -> None:
        pass


class Spread(_Sum):
    """How many readings are at most each bound, how many there are, and their sum.

    With exemplars, each bucket keeps its last reading that came with a trace; the last one is open.
    """

    def __init__(self, bounds: Sequence[float], has_exemplars: bool, refuse: Refuse) -> None:
        super().__init__(has_exemplars, refuse)
        self._bounds = bounds
        self._below = [0] * (len(bounds) + 1)
        self.exemplars: list[Exemplar | None] = [None] * (len(bounds) + 1)

    def read(self) -> tuple[list[int], float]:
        """The counts, each with those of the buckets before it, and the sum; under the registry's lock."""
        if self.waiting:
            self.settle()
        return self._below, self.value

    def _keep(self, value: float, exemplar: Exemplar) -> None:
        self.exemplars[bisect_left(self._bounds, value)] = exemplar

    def _count(self, values: list[float]) -> None:
        values.sort()
        *below, count = self._below
        self._below = [*map(add, below, map(bisect_right, repeat(values), self._bounds)), count + len(values)]


class Gauge:
    """The last value that is a number, and when it was set."""

    __slots__ = ("_refuse", "last")

    def __init__(self, refuse: Refuse) -> None:
        self.last: tuple[float, Moment] | None = None
        self._refuse = refuse

    def add(self, value: float, moment: Moment) -> None:
        self.last = (value, moment)

    def taker(self, now: Now) -> Take:
        def take(value: float) -> None:
            if isfinite(value):
                self.last = (value, now.moment)
            else:
                self._refuse(1)

        return take


class Slice:
    """Readings of one slice of time: their number, their sum, and those kept."""

    __slots__ = ("count", "kept", "number", "total")

    def __init__(self, number: int, count: int = 0, total: float = 0.0, kept: Iterable[float] = ()) -> None:
        self.number = number
        self.count = count
        self.total = total
        self.kept = array("d", kept)


class Window:
    """A rolling window: 60 slices, each with at most `keep` readings (for a median 6,000 readings, 48 KB).

    It reaches back by 59 to 60 slices. Count and sum are exact; of a slice with more than `keep` readings, those kept
    are a random sample. Values above `most` are refused.
    """

    def __init__(self, width: float, keep: int, most: float, refuse: Refuse) -> None:
        self._width = width
        self._keep = keep
        self._most = most
        self._refuse = refuse
        self._slices: deque[Slice] = deque()  # at most SLICES
        self._lock = threading.Lock()
        self._random = random.Random()  # noqa: S311 - a sample, not a secret

    def add(self, value: float, moment: Moment) -> None:
        if value > self._most:
            self._refuse(1)
            return
        with self._lock:
            number = self._prune(moment.monotonic)
            if not self._slices or self._slices[-1].number < number:
                self._slices.append(Slice(number))
            latest = self._slices[-1]
            latest.count += 1
            latest.total += value
            if len(latest.kept) < self._keep:
                latest.kept.append(value)
            elif self._keep > 0:
                place = int(self._random.random() * latest.count)
                if place < self._keep:
                    latest.kept[place] = value

    def taker(self, now: Now) -> Take:
        return _careful(self, now, self._refuse)

    def slices(self, now: float) -> list[Slice]:
        """Copies of the slices that the window covers at monotonic `now`, oldest first."""
        with self._lock:
            self._prune(now)
            return [Slice(piece.number, piece.count, piece.total, piece.kept) for piece in self._slices]

    def _prune(self, now: float) -> int:
        number = int(now // self._width)
        while self._slices and self._slices[0].number <= number - SLICES:
            self._slices.popleft()
        return number


def mean(slices: Sequence[Slice]) -> float:
    """Sum by count, over at least one reading."""
    return sum(piece.total for piece in slices) / sum(piece.count for piece in slices)


def median(slices: Sequence[Slice]) -> float:
    """The median of at least one reading, where a kept one stands for its slice's count by those kept.

    Exact where every reading was kept.
    """
    if all(piece.count == len(piece.kept) for piece in slices):
        return statistics.median([value for piece in slices for value in piece.kept])
    weighted = sorted((value, piece.count / len(piece.kept)) for piece in slices for value in piece.kept)
    half = sum(weight for _, weight in weighted) / 2.0
    below = 0.0
    for value, weight in weighted:
        below += weight
        if below >= half:
            return value
    return weighted[-1][0]
