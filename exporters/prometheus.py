"""Readings → one Prometheus registry, built from the catalogue and rendered as text or OpenMetrics."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import product
from typing import Protocol, TypeVar

from msgspec import Struct
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from collector.catalogue import LABELS, METRICS, Label, Metric, label_names, label_rules
from collector.labels import UNKNOWN, reading_of
from collector.model import Clock, Place, Reading
from exporters.exposition import EOF, after, heads, number, prefix
from exporters.series import (
    LARGEST,
    SLICE_READINGS,
    SLICES,
    Gauge,
    Moment,
    Now,
    Refuse,
    Series,
    Spread,
    Take,
    Total,
    Window,
    mean,
    median,
    settle,
)

OTHER = "other"  # a value beyond its label's bound, or beyond the bound on series
INVALID = "invalid"  # a value that is no printable text

LABEL_BYTES = 128  # a longer label value is cut
EXTRA_BOUND = 100  # values kept of each label that the user configured
ZERO_COMBINATIONS = 64  # closed label sets up to this size start at 0 together
WAITING = 500  # moments whose readings may wait to be summed up
REMEMBERED = 4  # ways to a series that are remembered, for each series that there may be

LABEL_NAME = re.compile(r"^[a-zA-Z_][a-zA-Z0-9_]*$")

OPENMETRICS = "application/openmetrics-text; version=1.0.0"

RATE_LIMITS = "semantic_health_rate_limit_"
RESET = "semantic_health_rate_limit_reset_timestamp_seconds"
DROPPED = "semantic_health_readings_dropped_total"
OVERFLOW = "semantic_health_label_overflow_total"

Values = tuple[str, ...]
Key = str | tuple[str, ...]  # of Meters
Lock = AbstractContextManager[bool]


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
        self._lock = threading.RLock()  # around `record_all`, what makes series, and each look at numbers
        self._extra = tuple(Label(name, "configured label", bound=EXTRA_BOUND) for name in extra_labels)
        self._resets: dict[Values, Gauge] = {}  # when each rate limit is full again; bounded by the series
        self._sources: list[_Source] = []  # one per metric of the catalogue
        self._families = {metric.name: self._family(metric, window, clock) for metric in METRICS}
        self._related = {name: tuple(self._counters_beside(family)) for name, family in self._families.items()}
        self._known: dict[str, set[str]] = {}  # values kept of each open label, bounded by Label.bound
        self._series: dict[tuple[str, Values], Series] = {}  # by what is exported; bounded by max_series
        self._sums: list[Total | Spread] = []  # those of them on which readings wait
        self._moments = 0  # whose readings may wait; at most WAITING
        # By place, configured labels and whether there is a trace; with all that they hold bounded by REMEMBERED.
        self._meters: dict[tuple[Place | None, Values, bool], _Meters] = {}
        self._remembered = 0
        self._zeroed: set[tuple[str, Values]] = set()  # bounded by the series that caused them
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
        with self._lock:
            meters = self.meters(None, extra, trace_id)
            for reading in readings:
                key = (reading.metric, *reading.labels)
                if 0.0 <= reading.value <= LARGEST:
                    meters[key](reading.value)
                else:
                    self._take_with_care(meters, key, reading.value)

    def meters(self, place: Place | None, extra: Values = (), trace_id: str | None = None) -> _Meters:
        """What takes the readings of this moment, as `record_all` does, without making one of each. `place` are values
        of labels that need not be said, and never are.

        Meters are for one thread, until these are asked for again.
        """
        self._moments += 1
        if self._moments >= WAITING:
            self._settle()
        moment = Moment(self._clock.monotonic(), self._clock.wall(), trace_id)
        key = (place, extra, trace_id is not None)
        meters = self._meters.get(key)
        if meters is None:
            meters = _Meters(self._take_with_care, place, extra, Now(moment))
            self._remember(self._meters, key, meters)
        meters.now.moment = moment
        return meters

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

    def _take_with_care(self, meters: _Meters, key: Key, value: float) -> None:
        """Take a reading of a series that these meters do not know, or that may not fit."""
        reading = reading_of(meters.place, key, value)
        family = self._families.get(reading.metric)
        with self._lock:
            if family is None:
                self._count_more(DROPPED, OTHER)
                return
            fits = family.lowest <= value <= LARGEST and len(reading.labels) == len(family.metric.labels)
            series, is_as_said = self._admit(family, reading.labels, meters.extra) if fits else (None, False)
            if series is None:
                self._count_more(DROPPED, reading.metric)
                return
            series.add(value, meters.now.moment)
            if is_as_said:
                # Only what the label sets bound is remembered: raw values have no end.
                self._remember(meters, key, series.taker(meters.now))

    def _admit(self, family: _Family, labels: Values, extra: Values) -> tuple[Series | None, bool]:
        """The series of these labels, made when new, and whether it has them as said; none when there is no room."""
        name = family.metric.name
        given = extra if family.has_extra else ()
        padded = tuple(given[i] if i < len(given) else UNKNOWN for i in range(len(family.rules) - len(labels)))
        said = labels + padded
        cleaned = tuple(clean_label(value) for value in said)
        bounded = tuple(self._bound(rule, value) for rule, value in zip(family.rules, cleaned, strict=True))
        series = self._series.get((name, bounded))
        if series is None and self._count + family.cost <= self._room:
            series = self._create(family, bounded)
            self._start_siblings(family, bounded)
        if series is None:
            bounded = tuple(OTHER if r.values is None else v for r, v in zip(family.rules, bounded, strict=True))
            series = self._series.get((name, bounded))
            if series is None and self._count + family.cost <= self._max_series:
                series = self._create(family, bounded)
        if series is None or bounded != cleaned:
            self._count_more(OVERFLOW, name)
        return series, bounded == said

    def _remember(self, where: dict[_Key, _Kept], key: _Key, kept: _Kept) -> None:
        if self._remembered >= REMEMBERED * self._max_series:
            self._meters.clear()
            self._remembered = 0
        self._remembered += 1
        where[key] = kept

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

    def _create(self, family: _Family, labels: Values) -> Series:
        self._count += family.cost
        series = family.series(labels)
        self._series[family.metric.name, labels] = series
        if isinstance(series, Total | Spread):
            self._sums.append(series)
        if family.metric.name not in {DROPPED, OVERFLOW}:
            self._start_at_zero(DROPPED, family.metric.name)
            if any(rule.values is None for rule in family.rules):
                self._start_at_zero(OVERFLOW, family.metric.name)
        return series

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

    def _count_more(self, counter: str, label: str, number: int = 1) -> None:
        with self._lock:
            series = self._series.get((counter, (label,)))
            if series is None:
                series = self._create(self._families[counter], (label,))  # as many as the catalogue has metrics
            series.add(float(number), _NO_MOMENT)

    def _settle(self) -> None:
        with self._lock:
            self._moments = 0
            settle(self._sums)

    # ------------------------------------------------------------ from the catalogue

    def _family(self, metric: Metric, window: float, clock: Clock) -> _Family:
        has_extra = "route" in metric.labels
        rules = label_rules(metric) + (self._extra if has_extra else ())
        names = label_names(metric) + tuple(label.name for label in self._extra if has_extra)
        refuse = partial(self._count_more, DROPPED, metric.name)
        source: _Source
        match metric.kind:
            case "counter":
                source = _Counters(metric, names, self._lock, refuse, self._settle if metric.name == DROPPED else None)
            case "histogram":
                source = _Histograms(metric, names, self._lock, refuse)
            case "gauge":
                resets = self._resets if metric.name.startswith(RATE_LIMITS) else {}
                source = _Gauges(metric, names, clock, resets, refuse)
            case "window_ratio" | "window_median":
                source = _Windows(metric, names, window, clock, refuse)
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


_Key = TypeVar("_Key", bound=Hashable)
_Kept = TypeVar("_Kept")
_NO_MOMENT = Moment(0.0, 0.0)  # for counts, which have none


class _Meters(dict[Key, Take]):
    """What takes the readings of one place, by metric and further labels; those not met before are taken with care."""

    __slots__ = ("_with_care", "extra", "now", "place")

    def __init__(
        self, with_care: Callable[[_Meters, Key, float], None], place: Place | None, extra: Values, now: Now
    ) -> None:
        super().__init__()
        self._with_care = with_care
        self.place = place
        self.extra = extra
        self.now = now

    def __missing__(self, key: Key) -> Take:
        return partial(self._with_care, self, key)


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
    series: Callable[[Values], Series]
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
    """The series of one metric. `series` makes one with these labels; `lowest` is the lowest value that it can take.

    `lines` are what prometheus-client makes of what `collect` gives.
    """

    cost: int
    lowest: float

    def series(self, labels: Values) -> Series: ...
    def lines(self, is_openmetrics: bool) -> Iterable[str]: ...


class _Counters:
    cost = 1
    lowest = 0.0

    def __init__(
        self, metric: Metric, names: Values, lock: Lock, refuse: Refuse, settle: Callable[[], None] | None
    ) -> None:
        """`settle` sums up what waits on all series, in which readings may be found that are to be counted here."""
        self._metric = metric
        self._names = names
        self._lock = lock
        self._refuse = refuse
        self._settle = settle
        self._heads = heads(self._new_family())
        self._totals: dict[Values, Total] = {}  # by admitted series
        self._prefixes: dict[Values, str] = {}

    def _new_family(self) -> CounterMetricFamily:
        metric = self._metric
        return CounterMetricFamily(metric.name, metric.help, labels=self._names, unit=metric.unit)

    def series(self, labels: Values) -> Series:
        self._prefixes[labels] = prefix(self._metric.name, self._names, labels)
        total = self._totals[labels] = Total(self._metric.exemplars, self._refuse)
        return total

    def _settled(self) -> dict[Values, Total]:
        if self._settle is not None:
            self._settle()
        with self._lock:
            settle(self._totals.values())
            return self._totals.copy()

    def collect(self) -> Iterable[Family]:
        family = self._new_family()
        for labels, total in self._settled().items():
            family.add_metric(labels, total.value, exemplar=total.exemplar)
        yield family

    def lines(self, is_openmetrics: bool) -> Iterable[str]:
        yield self._heads[is_openmetrics]
        for labels, total in self._settled().items():
            end = after(total.exemplar) if is_openmetrics else "\n"
            yield self._prefixes[labels] + number(total.value) + end


class _Histograms:
    lowest = 0.0

    def __init__(self, metric: Metric, names: Values, lock: Lock, refuse: Refuse) -> None:
        self.cost = len(metric.buckets) + 3  # +Inf, sum and count
        self._lock = lock
        self._refuse = refuse
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

    def series(self, labels: Values) -> Series:
        name, names = self._metric.name, self._names
        self._prefixes[labels] = (
            [prefix(f"{name}_bucket", (*names, "le"), (*labels, bound)) for bound in self._told],
            prefix(f"{name}_count", names, labels),
            prefix(f"{name}_sum", names, labels),
        )
        spread = self._spreads[labels] = Spread(self._bounds, self._metric.exemplars, self._refuse)
        return spread

    def collect(self) -> Iterable[Family]:
        family = self._new_family()
        for labels, spread in self._spreads.copy().items():
            with self._lock:
                counts, total = spread.read()
            # An exemplar comes as a third element; prometheus-client takes None for none.
            buckets = list(zip(self._told, map(float, counts), spread.exemplars, strict=True))
            family.add_metric(labels, buckets, total)  # type: ignore[arg-type] # None is no exemplar to it
        yield family

    def lines(self, is_openmetrics: bool) -> Iterable[str]:
        yield self._heads[is_openmetrics]
        for labels, spread in self._spreads.copy().items():
            buckets, every, whole = self._prefixes[labels]
            with self._lock:
                counts, total = spread.read()
            below = [number(float(count)) for count in counts]
            if is_openmetrics:
                for start, told, exemplar in zip(buckets, below, spread.exemplars, strict=True):
                    yield start + told + after(exemplar)
            else:
                for start, told in zip(buckets, below, strict=True):
                    yield f"{start}{told}\n"
            yield f"{every}{below[-1]}\n"
            yield f"{whole}{number(total)}\n"


class _Gauges:
    """Last values. A series is hidden once it has not been set for as long as it lives.

    A rate limit is hidden also when, since it was stated, the moment has passed at which it is full again.
    """

    cost = 1
    lowest = -LARGEST

    def __init__(
        self, metric: Metric, names: Values, clock: Clock, resets: dict[Values, Gauge], refuse: Refuse
    ) -> None:
        """`resets` are those of rate limits, which the metric that tells them puts there."""
        self._metric = metric
        self._names = names
        self._clock = clock
        self._resets = resets
        self._refuse = refuse
        self._heads = heads(self._new_family())
        self._prefixes: dict[Values, str] = {}
        self._gauges: dict[Values, Gauge] = {}  # by admitted series

    def _new_family(self) -> GaugeMetricFamily:
        metric = self._metric
        return GaugeMetricFamily(metric.name, metric.help, labels=self._names, unit=metric.unit)

    def series(self, labels: Values) -> Series:
        self._prefixes[labels] = prefix(self._metric.name, self._names, labels)
        gauge = self._gauges[labels] = Gauge(self._refuse)
        if self._metric.name == RESET:
            self._resets[labels] = gauge
        return gauge

    def _shown(self) -> Iterator[tuple[Values, float]]:
        now, wall = self._clock.monotonic(), self._clock.wall()
        for labels, gauge in self._gauges.copy().items():
            if gauge.last is None:
                continue
            value, told_at = gauge.last
            is_old = self._metric.lives is not None and now - told_at.monotonic >= self._metric.lives
            reset = self._resets.get(labels)
            is_past = reset is not None and reset.last is not None and told_at.wall < reset.last[0] <= wall
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


class _Windows:
    """Ratios or medians of the last seconds, each with the number of its observations. Empty ones are hidden."""

    cost = 2
    lowest = 0.0

    def __init__(self, metric: Metric, names: Values, window: float, clock: Clock, refuse: Refuse) -> None:
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

    def series(self, labels: Values) -> Series:
        name = self._metric.name
        self._prefixes[labels] = (
            prefix(name, self._names, labels),
            prefix(f"{name}_observations", self._names, labels),
        )
        is_ratio = self._metric.kind == "window_ratio"
        keep, most = (0, 1.0) if is_ratio else (SLICE_READINGS, LARGEST)
        window = self._windows[labels] = Window(self._width, keep, most, self._refuse)
        return window

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
