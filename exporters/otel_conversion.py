"""Prometheus families → OTLP metrics by the OpenTelemetry SDK's own types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

from collector.catalogue import BY_NAME
from collector.labels import UNKNOWN

SERVICE = "semhealth"
UNITS = {"seconds": "s", "bytes": "By", "": ""}  # UCUM words for the units of the catalogue

# Attributes of the metrics that the GenAI conventions name (open-telemetry/semantic-conventions v1.41, gen-ai).
# Ours keep name, suffixes and labels whole: every translation to Prometheus then gives the name that a scrape gives.
ATTRIBUTES = {
    "provider": "gen_ai.provider.name",
    "model": "gen_ai.response.model",
    "operation": "gen_ai.operation.name",
    "route": "semantic_health.route",
}
SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"

# The newer names (open-telemetry/semantic-conventions-genai) speak of inference; other operations keep the older ones.
LATEST_NAMES = {
    "gen_ai.client.operation.duration": "gen_ai.client.inference.duration",
    "gen_ai.client.operation.time_to_first_chunk": "gen_ai.client.inference.time_to_first_chunk",
}
LATEST_SCHEMA_URL = "https://opentelemetry.io/schemas/gen-ai/1.42.0"
INFERENCE = frozenset({"chat", "text_completion", "generate_content"})

Labels = Mapping[str, str]


class Conversion:
    """Converts what a registry collects. Totals are cumulative since `started` (Unix seconds).

    `latest` takes the newer of the conventions' names.
    """

    def __init__(self, *, version: str, instance: str, started: float, latest: bool) -> None:
        self._latest = latest
        self._started = int(started * 1e9)
        self._scope = scope_of(version, latest)
        self._resource = resource_of(version, instance)

    def metrics_data(self, families: Iterable[Family], now: float) -> MetricsData:
        """Everything that has points, as of `now` (Unix seconds)."""
        metrics = [metric for family in families for metric in self._metrics(family, int(now * 1e9))]
        scope_metrics = ScopeMetrics(self._scope, metrics, self._scope.schema_url or "")
        return MetricsData([ResourceMetrics(self._resource, [scope_metrics], self._resource.schema_url)])

    def _metrics(self, family: Family, now: int) -> Iterator[Metric]:
        """One metric, or two where the newer names part inference from the rest; none without points."""
        name = f"{family.name}_total" if family.type == "counter" else family.name
        row = BY_NAME.get(name)  # None for a window's number of observations
        unit = UNITS[row.unit] if row is not None else ""
        by_name: dict[str, list[tuple[Labels, list[Sample]]]] = {}
        for labels, samples in groupby(family.samples, _labels_but_le):
            exported = self._name(row.otel, labels) if row is not None and row.otel is not None else name
            attributes = labels if exported == name else _conventional(labels)
            by_name.setdefault(exported, []).append((attributes, list(samples)))
        for exported, series in by_name.items():
            yield Metric(exported, family.documentation, unit, self._points(family.type, series, now))

    def _name(self, conventional: str, labels: Labels) -> str:
        if self._latest and labels.get("operation") in INFERENCE:
            return LATEST_NAMES.get(conventional, conventional)
        return conventional

    def _points(self, kind: str, series: Sequence[tuple[Labels, list[Sample]]], now: int) -> Sum | Gauge | Histogram:
        if kind == "histogram":
            histograms = [self._histogram(attributes, samples, now) for attributes, samples in series]
            return Histogram(histograms, AggregationTemporality.CUMULATIVE)
        if kind == "counter":
            totals = [NumberDataPoint(labels, self._started, now, one.value) for labels, (one,) in series]
            return Sum(totals, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        return Gauge([NumberDataPoint(labels, 0, now, one.value) for labels, (one,) in series])

    def _histogram(self, attributes: Labels, samples: Iterable[Sample], now: int) -> HistogramDataPoint:
        """From the lines of one series: buckets counting upwards, the last for +Inf, and a sum."""
        bounds: list[float] = []
        below = [0]
        total = 0.0
        for sample in samples:
            if sample.name.endswith("_bucket"):
                bounds.append(float(sample.labels["le"]))
                below.append(int(sample.value))
            elif sample.name.endswith("_sum"):
                total = sample.value
        counts = [after - before for before, after in pairwise(below)]
        least: Any = None  # neither least nor greatest: the registry keeps neither
        return HistogramDataPoint(
            attributes, self._started, now, below[-1], total, counts, bounds[:-1], min=least, max=least
        )


def _labels_but_le(sample: Sample) -> Labels:
    return {name: value for name, value in sample.labels.items() if name != "le"}


def _conventional(labels: Labels) -> Labels:
    """By the conventions an attribute that is not known is left out, but those that are required."""
    return {
        ATTRIBUTES.get(name, name): value
        for name, value in labels.items()
        if not (name == "model" and value == UNKNOWN)
    }


def resource_of(version: str, instance: str) -> Resource:
    """What all signals say of the sidecar. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over its own
    service.name, service.version and service.instance.id."""
    ours = {"service.name": SERVICE, "service.version": version, "service.instance.id": instance}
    return Resource.create(ours).merge(OTELResourceDetector().detect())


def scope_of(version: str, latest: bool) -> InstrumentationScope:
    """The scope of all signals, with the schema of the conventions' names."""
    return InstrumentationScope(SERVICE, version, LATEST_SCHEMA_URL if latest else SCHEMA_URL)
