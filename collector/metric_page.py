"""The metric catalogue as Markdown: what `semhealth metrics` prints and docs/metrics.md holds."""

from __future__ import annotations

from collections.abc import Iterator

from collector.catalogue import LABELS, METRICS, Metric, label_names, label_rules

WINDOWED = {"window_ratio": "ratio of the last 5 minutes", "window_median": "median of the last 5 minutes"}


def metrics_markdown() -> str:
    """Every metric with its type, labels and meaning, then every label."""
    return "\n".join([*_metrics(), "", *_labels(), ""])


def _metrics() -> Iterator[str]:
    yield "# Metrics"
    yield ""
    yield "Printed by `semhealth metrics`. Gauges of the last 5 minutes vanish when nothing was measured in them, and"
    yield "each has a gauge `…_observations` beside it that says how many values it stands on. Labels that a"
    yield "configuration adds (`labels`, `label_headers`) come with every metric that has a `route`."
    yield ""
    yield "| metric | type | labels | meaning |"
    yield "| --- | --- | --- | --- |"
    for metric in METRICS:
        labels = ", ".join(f"`{name}`" for name in label_names(metric)) or "–"
        yield f"| `{metric.name}` | {_type(metric)} | {labels} | {_meaning(metric)} |"
        if metric.kind in WINDOWED:
            yield f"| `{metric.name}_observations` | gauge | {labels} | How many values the metric above stands on. |"


def _type(metric: Metric) -> str:
    if metric.kind in WINDOWED:
        return f"gauge ({WINDOWED[metric.kind]})"
    if metric.kind == "gauge" and metric.lives is not None:
        return f"gauge (vanishes {metric.lives:g} s after it was last said)"
    return metric.kind


def _meaning(metric: Metric) -> str:
    if metric.otel is None:
        return metric.help
    return f"{metric.help} Over OTLP: `{metric.otel}`."


def _labels() -> Iterator[str]:
    yield "## Labels"
    yield ""
    yield "A label with no values listed keeps the first values it meets, up to its bound; later ones become `other`."
    yield ""
    yield "| label | of | meaning | values |"
    yield "| --- | --- | --- | --- |"
    used: dict[tuple[str, str], int] = {}
    for metric in METRICS:
        for name, rule in zip(label_names(metric), label_rules(metric), strict=True):
            used[name, rule.name] = used.get((name, rule.name), 0) + 1
    for (name, rule_name), metrics in used.items():
        rule = LABELS[rule_name]
        values = (
            ", ".join(f"`{value}`" for value in rule.values) if rule.values is not None else f"at most {rule.bound}"
        )
        yield f"| `{name}` | {metrics} metric{'s' if metrics > 1 else ''} | {rule.help} | {values} |"
