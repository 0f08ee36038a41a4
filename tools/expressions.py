"""PromQL for the dashboards, in which no metric, label or closed label value can be named that the catalogue lacks."""

from __future__ import annotations

import re

from collector.catalogue import BY_NAME, Kind, Metric, label_names, label_rules

WINDOW = "$__rate_interval"
WHOLE_TIME = "$__range"  # all that is looked at, for tables
DAY = 86_400  # seconds
NEW_FOR = "10m"  # how long something that appeared counts as new
GHOSTS = "legacy_layer_.+"  # what deploy/prometheus.yml renames the series of a retired layer to (R22)
TARGET_LABELS = ("job", "instance")  # every scraped series has them
VARIABLES = ("job", "instance", "route", "model")  # dashboard variables of the labels with the same names
PARTS: dict[Kind, tuple[str, ...]] = {
    "counter": ("",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "window_ratio": ("", "_observations"),
    "window_median": ("", "_observations"),
}


class UnknownSeriesError(ValueError):
    """An expression names what the catalogue does not have, or uses it as what it is not."""


def metric_of(series: str) -> Metric:
    """The metric that a series name belongs to, such as a histogram's `_bucket`, or UnknownSeriesError."""
    for suffix in ("", "_bucket", "_sum", "_count", "_observations"):
        metric = BY_NAME.get(series.removesuffix(suffix)) if series.endswith(suffix) else None
        if metric is not None and suffix in PARTS[metric.kind]:
            return metric
    raise UnknownSeriesError(f"{series}: the catalogue has no such series")


def labels_of(series: str) -> tuple[str, ...]:
    """Label names of a series as Prometheus stores it."""
    buckets = ("le",) if series.endswith("_bucket") else ()
    return (*TARGET_LABELS, *label_names(metric_of(series)), *buckets)


def select(series: str, **wanted: str | tuple[str, ...]) -> str:
    """A selector that follows the dashboard's variables; `wanted` are label values, a tuple for any of several."""
    metric = metric_of(series)
    rules = dict(zip(label_names(metric), label_rules(metric), strict=True))
    matchers = [f'{name}=~"${name}"' for name in VARIABLES if name in labels_of(series)]
    for label, value in wanted.items():
        values = (value,) if isinstance(value, str) else value
        if label not in rules:
            raise UnknownSeriesError(f"{series}: it has no label {label}")
        known = rules[label].values
        if known is not None and not set(values) <= set(known):
            raise UnknownSeriesError(f"{series}: {label} is never {', '.join(sorted(set(values) - set(known)))}")
        matchers.append(f'{label}="{values[0]}"' if len(values) == 1 else f'{label}=~"{"|".join(values)}"')
    return f"{series}{{{', '.join(matchers)}}}"


def rate(series: str, *by: str, **wanted: str | tuple[str, ...]) -> str:
    """Growth a second, summed by labels."""
    return _summed("rate", series, by, wanted)


def increase(series: str, *by: str, **wanted: str | tuple[str, ...]) -> str:
    """Growth in the interval of one point, summed by labels."""
    return _summed("increase", series, by, wanted)


def events(counter: str, *by: str, **wanted: str | tuple[str, ...]) -> str:
    """How often something rare happened in the interval of one point, its first time included, by labels.

    `increase` does not see the first event of a series, which is there only from then on.
    """
    _demand(counter, by, "counter")
    series = select(counter, **wanted)
    return f"sum {_by(by)}(({series} unless {series} offset {WINDOW}) or increase({series}[{WINDOW}]))"


def most(number: int, series: str, *by: str) -> str:
    """The labels with the highest growth over the time that is looked at."""
    _demand(series, by, "counter")
    return f"topk({number}, sum {_by(by)}(increase({select(series)}[{WHOLE_TIME}])) > 0)"


def quantile(share: float, histogram: str, *by: str) -> str:
    """A quantile of a histogram, by labels."""
    return f"histogram_quantile({share:g}, {rate(f'{histogram}_bucket', *by, 'le')})"


def mean(histogram: str, *by: str) -> str:
    """The mean of a histogram, by labels; no series where nothing was observed."""
    return ratio(rate(f"{histogram}_sum", *by), rate(f"{histogram}_count", *by))


def weighted(window: str, *by: str) -> str:
    """A gauge of the last 5 minutes over several instances, each weighted by its observations."""
    _demand(window, by, "window_ratio", "window_median")
    observations = select(f"{window}_observations")
    labels = f"sum by ({', '.join(by)})"
    return f"{labels} ({select(window)} * {observations}) / {labels} ({observations})"


def latest(how: str, gauge: str, *by: str) -> str:
    """A gauge, or the observations of one, aggregated (`sum`, `max`, `min`) by labels."""
    _demand(gauge, by, "gauge", "window_ratio", "window_median")
    return f"{how} {_by(by)}({select(gauge)})"


def ratio(top: str, bottom: str) -> str:
    """A ratio that has no series, rather than NaN, where there is nothing below the line."""
    return f"{top} / ({bottom} > 0)"


def exhaustion(gauge: str, *by: str) -> str:
    """Seconds until a gauge reaches 0 at its present pace, the shortest by labels; none where it is a day off."""
    _demand(gauge, by, "gauge")
    series = select(gauge)
    return f"min {_by(by)}({series} / (-deriv({series}[{WINDOW}]) > 0)) < {DAY}"


def appeared(counter: str, group: str, member: str) -> str:
    """Members of a group that count now and did not 10 minutes before, when the group did count."""
    _demand(counter, (group, member), "counter")
    now = f"rate({select(counter)}[{WINDOW}])"
    then = f"rate({select(counter)}[{WINDOW}] offset {NEW_FOR})"
    fresh = f"sum by ({group}, {member}) ({now}) > 0 unless sum by ({group}, {member}) ({then}) > 0"
    return f"({fresh}) and on ({group}) sum by ({group}) ({then}) > 0"


def ghosts() -> str:
    """How many series each name of a retired layer still has, by target."""
    return f'count by (__name__, job, instance) ({{__name__=~"{GHOSTS}", job=~"$job", instance=~"$instance"}})'


def closed_values(expression: str, label: str) -> tuple[str, ...] | None:
    """The values that a label of an expression's only metric can have; None where they are open."""
    names = set(re.findall(r"\bsemantic_health_\w+", expression))
    metrics = {metric_of(name).name for name in names}
    if len(metrics) != 1:
        return None
    metric = BY_NAME[metrics.pop()]
    rules = dict(zip(label_names(metric), label_rules(metric), strict=True))
    return rules[label].values if label in rules else None


def has_exemplars(expression: str) -> bool:
    """Whether an expression reads a metric whose buckets, or total, carry trace ids."""
    return any(metric_of(name).exemplars for name in re.findall(r"\bsemantic_health_\w+", expression))


def _summed(function: str, series: str, by: tuple[str, ...], wanted: dict[str, str | tuple[str, ...]]) -> str:
    _demand(series, by, "counter", "histogram")
    return f"sum {_by(by)}({function}({select(series, **wanted)}[{WINDOW}]))"


def _by(labels: tuple[str, ...]) -> str:
    return f"by ({', '.join(labels)}) " if labels else ""


def _demand(series: str, by: tuple[str, ...], *kinds: Kind) -> None:
    metric = metric_of(series)
    if metric.kind not in kinds:
        raise UnknownSeriesError(f"{series}: a {metric.kind} cannot be used as a {' or '.join(kinds)}")
    for label in by:
        if label not in labels_of(series):
            raise UnknownSeriesError(f"{series}: it has no label {label}")
