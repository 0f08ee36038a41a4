"""Readings → one Prometheus registry, built from the catalogue and rendered as text or OpenMetrics."""

from __future__ import annotations

import math
import random
import re
import statistics
import sys
import threading
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate, product, takewhile
from typing import Protocol, TypeVar

from msgspec import Struct
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from collector.catalogue import LABELS, METRICS, Label, Metric, label_names, label_rules
from collector.model import Clock, Reading
from exporters.exposition import EOF, after, heads, number, prefix

OTHER = "other"  # a value beyond its label's bound, or beyond the bound on series
INVALID = "invalid"  # a value that is no printable text
UNKNOWN = "unknown"  # a value that was not given
TRACE_ID = "trace_id"  # of an exemplar (opentelemetry-specification, compatibility with Prometheus)

LABEL_BYTES = 128  # a longer label value is cut
EXTRA_BOUND = 100  # values kept of each label that the user configured
ZERO_COMBINATIONS = 64  # closed label sets up to this size start at 0 together
SLICES = 60  # a window is this many slices of time
SLICE_READINGS = 100  # readings kept per slice for a median; above it a random sample of so many

LARGEST = sys.float_info.max
LABEL_NAME = re.compile(r"^[a-zA-Z_][a-zA-Z0-9_]*$")

OPENMETRICS = "application/openmetrics-text; version=1.0.0"

RATE_LIMITS = "semantic_health_rate_limit_"
RESET = "semantic_health_rate_limit_reset_timestamp_seconds"
DROPPED = "semantic_health_readings_dropped_total"
OVERFLOW = "semantic_health_label_overflow_total"

Values = tuple[str, ...]
At = tuple[float, float]  # monotonic and Unix seconds at which a reading is taken
Take = Callable[[float, str | None, At], None]  # a value, the trace that it comes from, and when
Takers = dict[tuple[str, Values], Take]  # by metric and labels, as readings say them
Lock = AbstractContextManager[bool]
_NO_TAKERS: Takers = {}


class PrometheusExporter:
    """The one registry. Any thread may record; `render` and `registry.collect()` may run beside it in another.

    `extra_labels` are added to every metric that has a route; `window` is the seconds of the headline gauges.
    `max_series` bounds the exposed series, a histogram counting once per line. Near it, open label values become
    `other`, for which room is kept; with none left a reading is dropped. Both are counted.

    Raises ValueError for a label that Prometheus or the catalogue does not allow, and for a window that is no time.
    """

    def __init__(self, extra_labels: tuple[str, ...], window: float, max_series: int, clock: Clock) -> None:
        _check_labels(extra_labels)
        if not window > 0.0:
            raise ValueError(f"window: expected seconds above 0, got {window!r}")
        self.registry = CollectorRegistry()
        self.started = clock.wall()  # Unix seconds: every counter was 0 then
        self._clock = clock
        self._lock = threading.RLock()  # around all readings of one call, and each look at more than one number
        self._extra = tuple(Label(name, "configured label", bound=EXTRA_BOUND) for name in extra_labels)
        self._resets: dict[Values, float] = {}  # when each rate limit is full again; bounded by the series
        self._sources: list[_Source] = []  # one per metric of the catalogue
        self._families = {metric.name: self._family(metric, window, clock) for metric in METRICS}
        self._related = {name: tuple(self._counters_beside(family)) for name, family in self._families.items()}
        self._known: dict[str, set[str]] = {}  # values kept of each open label, bounded by Label.bound
        self._series: dict[tuple[str, Values], Take] = {}  # by what is exported; bounded by max_series
        self._takers: dict[Values, Takers] = {}  # by the values of configured labels; twice max_series in all at most
        self._zeroed: set[tuple[str, Values]] = set()  # bounded by the series that caused them
        self._unsettled: list[BoundSeries] = []  # with counts that are in no total yet
        self._count = 0
        self._max_series = max_series
        # Kept free: every metric once with `other` in each open label, and its two counters of what was refused.
        kept = 2 * len(METRICS)
        for family in self._families.values():
            kept += family.cost * math.prod(len(rule.values or (OTHER,)) for rule in family.rules)
        self._room = max_series - min(kept, max_series // 2)
        for family in self._families.values():
            if family.metric.kind in {"counter", "histogram"} and all(rule.values for rule in family.rules):
                for values in product(*(rule.values or () for rule in family.rules)):
                    self._create(family, values)

    def record(self, reading: Reading, trace_id: str | None = None) -> None:
        """Take one reading. What is not a finite number, or negative where that cannot be, is dropped and counted.

        `trace_id` becomes an exemplar of the metrics that have some; give only such as are sampled.
        """
        self.record_all((reading,), reading.extra, trace_id)

    def record_all(self, readings: Iterable[Reading], extra: Values = (), trace_id: str | None = None) -> None:
        """Take readings of one moment, each as `record` does, with `extra` as the values of the configured labels."""
        taker_of = self._takers.get(extra, _NO_TAKERS).get
        at = (self._clock.monotonic(), self._clock.wall())
        with self._lock:
            for reading in readings:
                value = reading.value
                take = taker_of((reading.metric, reading.labels))
                if take is not None and 0.0 <= value <= LARGEST:
                    take(value, trace_id, at)
                else:
                    self._record_with_care(reading, extra, trace_id, at)

    def bind(self, steady: Sequence[Reading], varying: Sequence[Reading], extra: Values = ()) -> BoundSeries | None:
        """Series that were recorded before, to be recorded together. `steady` are counts."""
        takers = self._takers.get(extra, _NO_TAKERS)
        told = (*steady, *varying)
        found = (takers.get((reading.metric, reading.labels)) for reading in told)
        takes = [take for take in found if take is not None]
        is_known = len(takes) == len(told) and all(map(_counts_up, takes[: len(steady)]))
        return BoundSeries(self, told, extra, takes, len(steady)) if is_known else None

    def take_bound(self, series: BoundSeries, values: Sequence[float]) -> None:
        """What `series` was told, all of it finite and none below 0."""
        at = (self._clock.monotonic(), self._clock.wall())
        with self._lock:
            if series.take(values, at) == 1:
                self._unsettled.append(series)

    def add(self, metric: str, amount: float = 1.0, labels: tuple[str, ...] = ()) -> None:
        """Record one reading, for counts that no exchange brings."""
        self.record(Reading(metric, amount, labels))

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The body of /metrics and its content type, as the `Accept` header of a scrape asks."""
        try:
            encode, content_type = choose_encoder(accept)
        except TypeError:  # a version that is no version
            return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4
        is_openmetrics = content_type.startswith(OPENMETRICS)
        if not (is_openmetrics or content_type.startswith("text/plain")):
            return encode(self.registry), content_type
        lines = [line for source in self._sources for line in source.lines(is_openmetrics)]
        if is_openmetrics:
            lines.append(EOF)
        return "".join(lines).encode(), content_type

    # ------------------------------------------------------------ readings of series not met before

    def _record_with_care(self, reading: Reading, extra: Values, trace_id: str | None, at: At) -> None:
        family = self._families.get(reading.metric)
        if family is None:
            self._count_one(DROPPED, OTHER, at)
            return
        fits = family.lowest <= reading.value <= LARGEST and len(reading.labels) == len(family.metric.labels)
        take = self._admit(family, reading.labels, extra, at) if fits else None
        if take is None:
            self._count_one(DROPPED, reading.metric, at)
        else:
            take(reading.value, trace_id, at)

    def _admit(self, family: _Family, labels: Values, extra: Values, at: At) -> Take | None:
        """The series of these labels, made when new; None when there is no room."""
        name = family.metric.name
        given = extra if family.has_extra else ()
        padded = tuple(given[i] if i < len(given) else UNKNOWN for i in range(len(family.rules) - len(labels)))
        said = labels + padded
        cleaned = tuple(clean_label(value) for value in said)
        bounded = tuple(self._bound(rule, value) for rule, value in zip(family.rules, cleaned, strict=True))
        take = self._series.get((name, bounded))
        if take is None and self._count + family.cost <= self._room:
            take = self._create(family, bounded)
            self._start_siblings(family, bounded)
        if take is None:
            bounded = tuple(OTHER if r.values is None else v for r, v in zip(family.rules, bounded, strict=True))
            take = self._series.get((name, bounded))
            if take is None and self._count + family.cost <= self._max_series:
                take = self._create(family, bounded)
        if take is None or bounded != cleaned:
            self._count_one(OVERFLOW, name, at)
        elif cleaned == said and extra in ((), padded):
            # Only what the label sets bound is remembered: raw values have no end.
            self._takers.setdefault(extra, {})[name, labels] = take
        return take

    def _bound(self, rule: Label, value: str) -> str:
        if rule.values is not None:
            return value if value in rule.values else OTHER
        known = self._known.setdefault(rule.name, set())
        if value in known:
            return value
        if len(known) >= rule.bound:
            return OTHER
        known.add(value)
        return value

    def _create(self, family: _Family, labels: Values) -> Take:
        self._count += family.cost
        take = family.series(labels)
        self._series[family.metric.name, labels] = take
        if family.metric.name not in {DROPPED, OVERFLOW}:
            self._start_at_zero(DROPPED, family.metric.name)
            if any(rule.values is None for rule in family.rules):
                self._start_at_zero(OVERFLOW, family.metric.name)
        return take

    def _start_at_zero(self, counter: str, label: str) -> None:
        if (counter, (label,)) not in self._series and self._count < self._room:
            self._create(self._families[counter], (label,))

    def _start_siblings(self, family: _Family, labels: Values) -> None:
        """Counters that these labels make possible start at 0: a counter that appears at 1 hides its first event."""
        if family.metric.kind == "counter":
            self._start_combinations(family, labels)
        for target, positions in self._related[family.metric.name]:
            values = tuple(labels[i] if i >= 0 else "" for i in positions)
            if (target.metric.name, values) not in self._zeroed:
                self._zeroed.add((target.metric.name, values))
                self._start_combinations(target, values)

    def _start_combinations(self, family: _Family, labels: Values) -> None:
        choices: list[Values] = [(value,) for value in labels]
        for position in family.together:
            choices[position] = family.rules[position].values or ()
        for values in product(*choices):
            if (family.metric.name, values) not in self._series and self._count + family.cost <= self._room:
                self._create(family, values)

    def _count_one(self, counter: str, label: str, at: At) -> None:
        take = self._series.get((counter, (label,)))
        if take is None:
            take = self._create(self._families[counter], (label,))  # as many as the catalogue has metrics
        take(1.0, None, at)

    # ------------------------------------------------------------ from the catalogue

    def _family(self, metric: Metric, window: float, clock: Clock) -> _Family:
        has_extra = "route" in metric.labels
        rules = label_rules(metric) + (self._extra if has_extra else ())
        names = label_names(metric) + tuple(label.name for label in self._extra if has_extra)
        source: _Source
        match metric.kind:
            case "counter":
                source = _Counters(metric, names, self._settle)
            case "histogram":
                source = _Histograms(metric, names, self._lock)
            case "gauge":
                source = _Gauges(metric, names, clock, self._resets if metric.name.startswith(RATE_LIMITS) else None)
            case "window_ratio" | "window_median":
                source = _Windows(metric, names, window, clock, self._refuse)
        self.registry.register(source)
        self._sources.append(source)
        return _Family(metric, rules, has_extra, source.cost, source.lowest, source.series, _start_together(rules))

    def _counters_beside(self, family: _Family) -> Iterator[tuple[_Family, tuple[int, ...]]]:
        """Counters whose open labels `family` has too, and where each is found there (-1: a closed one)."""
        place = {rule.name: i for i, rule in enumerate(family.rules) if rule.values is None}
        for other in self._families.values():
            is_small = all(i in other.together for i, rule in enumerate(other.rules) if rule.values is not None)
            opens = {rule.name for rule in other.rules if rule.values is None}
            if other.metric.kind == "counter" and other.has_extra and is_small and opens <= place.keys():
                yield other, tuple(place.get(rule.name, -1) for rule in other.rules)

    def _settle(self) -> None:
        with self._lock:
            for series in self._unsettled:
                series.settle()
            self._unsettled.clear()

    def _refuse(self, metric: str, at: At) -> None:
        with self._lock:
            self._count_one(DROPPED, metric, at)


def clean_label(value: str) -> str:
    """A label value that every format can carry: printable, at most 128 bytes of UTF-8, never empty."""
    if not isinstance(value, str) or not value.isprintable():  # lone surrogates and controls are not printable
        return INVALID
    if len(value) > LABEL_BYTES // 4:
        value = value.encode()[:LABEL_BYTES].decode(errors="ignore")
    return value if value != "" else UNKNOWN  # to Prometheus an empty label is no label


class _Family(Struct, frozen=True):
    """One metric as exported. `cost` is in lines; `together` are the closed labels that start at 0 as a set."""

    metric: Metric
    rules: tuple[Label, ...]
    has_extra: bool
    cost: int
    lowest: float
    series: Callable[[Values], Take]
    together: tuple[int, ...]


def _start_together(rules: Sequence[Label]) -> tuple[int, ...]:
    """Positions of closed labels, from the last, as long as their combinations stay few."""
    positions: list[int] = []
    combinations = 1
    for position in reversed(range(len(rules))):
        values = rules[position].values
        if values is not None and combinations * len(values) <= ZERO_COMBINATIONS:
            combinations *= len(values)
            positions.append(position)
    return tuple(positions)


def _check_labels(names: Sequence[str]) -> None:
    taken = {name for metric in METRICS if "route" in metric.labels for name in label_names(metric)} | LABELS.keys()
    for i, name in enumerate(names):
        if not LABEL_NAME.match(name) or name.startswith("__") or name == "le":
            raise ValueError(f"label {name!r}: expected letters, digits and _, and none of Prometheus' own names")
        if name in taken or name in names[:i]:
            raise ValueError(f"label {name!r}: the name is taken; choose another")


# ---------------------------------------------------------------- where the numbers are


class _Source(Collector, Protocol):
    """The series of one metric. `series` gives what takes readings of these labels; `lowest` is what it can take.

    `lines` are what prometheus-client makes of what `collect` gives.
    """

    cost: int
    lowest: float

    def series(self, labels: Values) -> Take: ...
    def lines(self, is_openmetrics: bool) -> Iterable[str]: ...


class _Counters:
    cost = 1
    lowest = 0.0

    def __init__(self, metric: Metric, names: Values, settle: Callable[[], None]) -> None:
        """`settle` is called before totals are looked at."""
        self._metric = metric
        self._names = names
        self._settle = settle
        self._heads = heads(self._new_family())
        self._totals: dict[Values, Total] = {}  # by admitted series
        self._prefixes: dict[Values, str] = {}

    def _new_family(self) -> CounterMetricFamily:
        metric = self._metric
        return CounterMetricFamily(metric.name, metric.help, labels=self._names, unit=metric.unit)

    def series(self, labels: Values) -> Take:
        self._prefixes[labels] = prefix(self._metric.name, self._names, labels)
        total = self._totals[labels] = Total(self._metric.exemplars)
        return total.add

    def collect(self) -> Iterable[Family]:
        family = self._new_family()
        self._settle()
        for labels, total in self._totals.copy().items():
            family.add_metric(labels, total.value, exemplar=total.exemplar)
        yield family

    def lines(self, is_openmetrics: bool) -> Iterable[str]:
        yield self._heads[is_openmetrics]
        self._settle()
        for labels, total in self._totals.copy().items():
            end = after(total.exemplar) if is_openmetrics else "\n"
            yield self._prefixes[labels] + number(total.value) + end


class Total:
    """A sum that grows, under the registry's lock. (prometheus-client's own takes three times as long to do so.)

    Where it `has_exemplar`, it keeps the last reading above 0 that came with a trace.
    """

    __slots__ = ("_has_exemplar", "exemplar", "value")

    def __init__(self, has_exemplar: bool) -> None:
        self.value = 0.0
        self.exemplar: Exemplar | None = None
        self._has_exemplar = has_exemplar

    def add(self, value: float, trace_id: str | None, at: At) -> None:
        self.value += value
        if trace_id is not None and self._has_exemplar and value > 0.0:
            self.exemplar = Exemplar({TRACE_ID: trace_id}, value, at[1])


class BoundSeries:
    """Series that are told of together. Counts that grow by the same each time are counted once for all of them, and
    added up before anybody looks. It is quickest where counts come first, and then gauges."""

    __slots__ = (
        "_counts", "_exporter", "_extra", "_gauges", "_others", "_set", "_steady", "_times", "_told", "_totals",
    )  # fmt: skip

    def __init__(
        self, exporter: PrometheusExporter, told: Sequence[Reading], extra: Values, takes: Sequence[Take], steady: int
    ) -> None:
        """`told` are readings as they would be recorded one by one, the first `steady` of them such counts."""
        owners = [getattr(take, "__self__", None) for take in takes]
        self._exporter = exporter
        self._told, self._extra = told, extra
        counts = zip(owners[:steady], told, strict=False)
        self._steady = [(total, reading.value) for total, reading in counts if isinstance(total, Total)]
        self._totals = _first_of(owners[steady:], Total)
        counted = len(self._totals)
        self._gauges = [(last.values, last.labels) for last in _first_of(owners[steady + counted :], Last)]
        self._counts, self._set = counted, counted + len(self._gauges)
        self._others = takes[steady + self._set :]
        self._times = 0  # that it was told and not yet added up

    def record(self, values: Sequence[float], trace_id: str | None = None) -> None:
        if trace_id is None and min(values) >= 0.0 and sum(values) <= LARGEST:
            self._exporter.take_bound(self, values)
        else:  # for exemplars, and for what is no number
            self._exporter.record_all(self._readings(values), self._extra, trace_id)

    def take(self, values: Sequence[float], at: At) -> int:
        """How often it was told, this time too, since it was last settled; under the registry's lock."""
        # As many values as there are series; `strict` doubles the cost of a zip.
        for total, value in zip(self._totals, values):  # noqa: B905
            total.value += value
        for (last, labels), value in zip(self._gauges, values[self._counts : self._set]):  # noqa: B905
            last[labels] = (value, at)
        for take, value in zip(self._others, values[self._set :]):  # noqa: B905
            take(value, None, at)
        self._times += 1
        return self._times

    def settle(self) -> None:
        for total, amount in self._steady:
            total.value += amount * self._times
        self._times = 0

    def _readings(self, values: Sequence[float]) -> Iterator[Reading]:
        steady = len(self._told) - len(values)
        yield from self._told[:steady]
        for reading, value in zip(self._told[steady:], values, strict=True):
            yield Reading(reading.metric, value, reading.labels)


def _counts_up(take: Take) -> bool:
    """Whether a reading is added to a sum, and nothing else is done with it."""
    return isinstance(getattr(take, "__self__", None), Total)


Owner = TypeVar("Owner")


def _first_of(owners: Sequence[object], kind: type[Owner]) -> list[Owner]:
    """Those at the beginning that are of this kind."""
    return [owner for owner in takewhile(lambda each: isinstance(each, kind), owners) if isinstance(owner, kind)]


class _Histograms:
    lowest = 0.0

    def __init__(self, metric: Metric, names: Values, lock: Lock) -> None:
        self.cost = len(metric.buckets) + 3  # +Inf, sum and count
        self._lock = lock
        self._metric = metric
        self._names = names
        self._bounds = tuple(metric.buckets)
        bounds = (*metric.buckets, math.inf)
        self._told = tuple(floatToGoString(bound) for bound in bounds)  # type: ignore[no-untyped-call] # theirs
        self._heads = heads(self._new_family())
        self._spreads: dict[Values, Spread] = {}  # by admitted series
        self._prefixes: dict[Values, tuple[list[str], str, str]] = {}  # of each bucket, the count and the sum

    def _new_family(self) -> HistogramMetricFamily:
        metric = self._metric
        return HistogramMetricFamily(metric.name, metric.help, labels=self._names, unit=metric.unit)

    def series(self, labels: Values) -> Take:
        name, names = self._metric.name, self._names
        self._prefixes[labels] = (
            [prefix(f"{name}_bucket", (*names, "le"), (*labels, bound)) for bound in self._told],
            prefix(f"{name}_count", names, labels),
            prefix(f"{name}_sum", names, labels),
        )
        spread = self._spreads[labels] = Spread(self._bounds, self._metric.exemplars)
        return spread.add

    def collect(self) -> Iterable[Family]:
        family = self._new_family()
        for labels, spread in self._spreads.copy().items():
            with self._lock:
                counts, total = spread.read()
            # An exemplar comes as a third element; prometheus-client takes None for none.
            buckets = list(zip(self._told, map(float, accumulate(counts)), spread.exemplars, strict=True))
            family.add_metric(labels, buckets, total)  # type: ignore[arg-type] # None is no exemplar to it
        yield family

    def lines(self, is_openmetrics: bool) -> Iterable[str]:
        yield self._heads[is_openmetrics]
        for labels, spread in self._spreads.copy().items():
            buckets, count, whole = self._prefixes[labels]
            with self._lock:
                counts, total = spread.read()
            below = [number(float(each)) for each in accumulate(counts)]
            if is_openmetrics:
                for start, told, exemplar in zip(buckets, below, spread.exemplars, strict=True):
                    yield start + told + after(exemplar)
            else:
                for start, told in zip(buckets, below, strict=True):
                    yield f"{start}{told}\n"
            yield f"{count}{below[-1]}\n"
            yield f"{whole}{number(total)}\n"


class Spread:
    """How many readings lay in each bucket, the last one open, and their sum; under the registry's lock.

    Where it `has_exemplars`, each bucket keeps its last reading that came with a trace.
    """

    __slots__ = ("_bounds", "_counts", "_has_exemplars", "_total", "exemplars")

    def __init__(self, bounds: Sequence[float], has_exemplars: bool) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._has_exemplars = has_exemplars
        self.exemplars: list[Exemplar | None] = [None] * (len(bounds) + 1)

    def add(self, value: float, trace_id: str | None, at: At) -> None:
        place = bisect_left(self._bounds, value)
        self._counts[place] += 1
        self._total += value
        if trace_id is not None and self._has_exemplars:
            self.exemplars[place] = Exemplar({TRACE_ID: trace_id}, value, at[1])

    def read(self) -> tuple[list[int], float]:
        """The counts, none of them cumulative, and the sum."""
        return self._counts.copy(), self._total


class _Gauges:
    """Last values. A series is hidden once it has not been set for as long as it lives.

    A rate limit is hidden also when, since it was stated, the moment has passed at which it is full again.
    """

    cost = 1
    lowest = -LARGEST

    def __init__(self, metric: Metric, names: Values, clock: Clock, resets: dict[Values, float] | None) -> None:
        self._metric = metric
        self._names = names
        self._clock = clock
        self._resets = resets
        self._heads = heads(self._new_family())
        self._prefixes: dict[Values, str] = {}
        self._last: dict[Values, tuple[float, At]] = {}  # by admitted series

    def _new_family(self) -> GaugeMetricFamily:
        metric = self._metric
        return GaugeMetricFamily(metric.name, metric.help, labels=self._names, unit=metric.unit)

    def series(self, labels: Values) -> Take:
        self._prefixes[labels] = prefix(self._metric.name, self._names, labels)
        last = self._last
        resets = self._resets if self._metric.name == RESET else None

        if resets is None:
            return Last(last, labels).set

        def take(value: float, _: str | None, at: At) -> None:
            last[labels] = (value, at)
            resets[labels] = value

        return take

    def _shown(self) -> Iterator[tuple[Values, float]]:
        now, wall = self._clock.monotonic(), self._clock.wall()
        for labels, (value, (set_at, set_wall)) in self._last.copy().items():
            is_old = self._metric.lives is not None and now - set_at >= self._metric.lives
            reset = self._resets.get(labels) if self._resets is not None else None
            is_past = reset is not None and set_wall < reset <= wall
            if not (is_old or is_past):
                yield labels, value

    def collect(self) -> Iterable[Family]:
        family = self._new_family()
        for labels, value in self._shown():
            family.add_metric(labels, value)
        yield family

    def lines(self, is_openmetrics: bool) -> Iterable[str]:
        yield self._heads[is_openmetrics]
        for labels, value in self._shown():
            yield f"{self._prefixes[labels]}{number(value)}\n"


class Last:
    """Where the last value of one gauge is kept."""

    __slots__ = ("labels", "values")

    def __init__(self, values: dict[Values, tuple[float, At]], labels: Values) -> None:
        self.values = values
        self.labels = labels

    def set(self, value: float, _: str | None, at: At) -> None:
        self.values[self.labels] = (value, at)


class _Windows:
    """Ratios or medians of the last seconds, each with the number of its observations. Empty ones are hidden."""

    cost = 2
    lowest = 0.0

    def __init__(
        self, metric: Metric, names: Values, window: float, clock: Clock, refuse: Callable[[str, At], None]
    ) -> None:
        self._metric = metric
        self._names = names
        self._width = window / SLICES
        self._clock = clock
        self._refuse = refuse
        self._heads = [heads(family) for family in self._new_families()]
        self._windows: dict[Values, Window] = {}  # by admitted series
        self._prefixes: dict[Values, tuple[str, str]] = {}  # of the value and of the number of observations

    def _new_families(self) -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        metric = self._metric
        return (
            GaugeMetricFamily(metric.name, metric.help, labels=self._names, unit=metric.unit),
            GaugeMetricFamily(f"{metric.name}_observations", f"Observations behind {metric.name}.", labels=self._names),
        )

    def series(self, labels: Values) -> Take:
        name = self._metric.name
        self._prefixes[labels] = (
            prefix(name, self._names, labels),
            prefix(f"{name}_observations", self._names, labels),
        )
        is_ratio = self._metric.kind == "window_ratio"
        window = self._windows[labels] = Window(self._width, 0 if is_ratio else SLICE_READINGS)

        def take(value: float, _: str | None, at: At) -> None:
            if is_ratio and value > 1.0:
                self._refuse(self._metric.name, at)
            else:
                window.add(at[0], value)

        return take

    def _shown(self) -> Iterator[tuple[Values, float, float]]:
        """Labels, value and number of observations of each window that is not empty."""
        now = self._clock.monotonic()
        for labels, window in self._windows.copy().items():
            slices = window.slices(now)
            if slices:
                value = mean(slices) if self._metric.kind == "window_ratio" else median(slices)
                yield labels, value, float(sum(piece.count for piece in slices))

    def collect(self) -> Iterable[Family]:
        values, observations = self._new_families()
        for labels, value, count in self._shown():
            values.add_metric(labels, value)
            observations.add_metric(labels, count)
        yield values
        yield observations

    def lines(self, is_openmetrics: bool) -> Iterable[str]:
        shown = list(self._shown())
        of_values, of_observations = self._heads
        yield of_values[is_openmetrics]
        for labels, value, _ in shown:
            yield f"{self._prefixes[labels][0]}{number(value)}\n"
        yield of_observations[is_openmetrics]
        for labels, _, count in shown:
            yield f"{self._prefixes[labels][1]}{number(count)}\n"


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
    are a random sample.
    """

    def __init__(self, width: float, keep: int) -> None:
        self._width = width
        self._keep = keep
        self._slices: deque[Slice] = deque()  # at most SLICES
        self._lock = threading.Lock()
        self._random = random.Random()  # noqa: S311 - a sample, not a secret

    def add(self, now: float, value: float) -> None:
        """Take a reading at monotonic `now`."""
        with self._lock:
            number = self._prune(now)
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

    def slices(self, now: float) -> list[Slice]:
        """Copies of the slices that the window covers at `now`, oldest first."""
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
