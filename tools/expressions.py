"""PromQL for the dashboards, in which no metric, label or closed label value can be named that the catalogue lacks."""

from __future__ import annotations

from collector.catalogue import BY_NAME, Kind, Metric, label_names, label_rules

WINDOW = "$__rate_interval"
WHOLE_TIME = "$__range"  # all that is looked at, for tables
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
