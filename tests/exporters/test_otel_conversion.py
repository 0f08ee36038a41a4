"""The registry as OTLP metrics: names, units, attributes, kinds and totals."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Histogram, Metric, Sum
from prometheus_client.parser import text_string_to_metric_families

from collector.catalogue import BY_NAME, METRICS, label_names, label_rules
from collector.model import Reading
from exporters.otel_conversion import Conversion
from exporters.prometheus import PrometheusExporter

from .conftest import ManualClock

DURATION = "semantic_health_operation_duration_seconds"
CONTINUITY = "semantic_health_stream_continuity_index_seconds"
EXCHANGES = "semantic_health_exchanges_total"


def convert(exporter: PrometheusExporter, now: float = 2e9, latest: bool = False) -> dict[str, Metric]:
    conversion = Conversion(version="1.2.3", instance="i-1", started=exporter.started, latest=latest)
    metrics_data = conversion.metrics_data(exporter.registry.collect(), now)
    encode_metrics(metrics_data)  # what cannot be encoded is no OTLP
    return {m.name: m for m in metrics_data.resource_metrics[0].scope_metrics[0].metrics}


def record_all(exporter: PrometheusExporter) -> None:
    for metric in METRICS:
        labels = tuple(rule.values[0] if rule.values else "x" for rule in label_rules(metric))
        exporter.record(Reading(metric.name, 1.0, labels))


def test_every_metric_of_ours_keeps_its_name_and_labels(exporter: PrometheusExporter) -> None:
    record_all(exporter)
    converted = convert(exporter)
    for metric in METRICS:
        if metric.otel is None:
            point = converted[metric.name].data.data_points[0]
            assert tuple(sorted(point.attributes)) == tuple(sorted(label_names(metric)))
    assert f"{CONTINUITY}_observations" in converted


def test_names_and_units_translate_to_the_names_of_a_scrape(exporter: PrometheusExporter) -> None:
    # OpenTelemetry's rule: unit word and _total are appended unless the name has them (compatibility/prometheus).
    record_all(exporter)
    words = {"s": "seconds", "By": "bytes"}
    for metric in convert(exporter).values():
        name = re.sub(r"[^a-z0-9_]", "_", metric.name)
        if metric.unit and words[metric.unit] not in name.split("_"):
            name = f"{name}_{words[metric.unit]}"
        if isinstance(metric.data, Sum) and not name.endswith("_total"):
            name = f"{name}_total"
        assert name in BY_NAME or name.removesuffix("_observations") in BY_NAME or name.startswith("gen_ai_client_")


def test_the_conventions_metrics_have_the_conventions_names_units_and_attributes(exporter: PrometheusExporter) -> None:
    exporter.record(Reading(DURATION, 0.3, ("r", "openai", "gpt-4o", "chat")))
    exporter.record(Reading(DURATION, 0.3, ("r", "openai", "unknown", "chat")))
    metric = convert(exporter)["gen_ai.client.operation.duration"]
    assert metric.unit == "s"
    assert [dict(point.attributes) for point in metric.data.data_points] == [
        {
            "gen_ai.provider.name": "openai",
            "gen_ai.operation.name": "chat",
            "semantic_health.route": "r",
            "gen_ai.response.model": "gpt-4o",
        },
        {"gen_ai.provider.name": "openai", "gen_ai.operation.name": "chat", "semantic_health.route": "r"},
    ]
    assert DURATION not in convert(exporter)


def test_the_newer_names_speak_of_inference_only(exporter: PrometheusExporter) -> None:
    for operation in ("chat", "embeddings"):
        exporter.record(Reading(DURATION, 0.3, ("r", "openai", "gpt-4o", operation)))
    converted = convert(exporter, latest=True)
    operations = {
        name: [point.attributes["gen_ai.operation.name"] for point in converted[name].data.data_points]
        for name in ("gen_ai.client.inference.duration", "gen_ai.client.operation.duration")
    }
    assert operations == {
        "gen_ai.client.inference.duration": ["chat"],
        "gen_ai.client.operation.duration": ["embeddings"],
    }


def test_a_counter_is_a_monotonic_total_since_the_registry_was_made(
    exporter: PrometheusExporter, clock: ManualClock
) -> None:
    started = clock.wall()
    clock.pass_time(60)
    exporter.record(Reading(EXCHANGES, 2.0, ("r", "openai", "m", "chat", "completed")))
    data = convert(exporter, now=clock.wall())[EXCHANGES].data
    assert isinstance(data, Sum)
    assert data.is_monotonic
    assert data.aggregation_temporality is AggregationTemporality.CUMULATIVE
    by_outcome = {point.attributes["outcome"]: point for point in data.data_points}
    assert by_outcome["completed"].value == 2.0
    assert by_outcome["blocked"].value == 0.0
    assert by_outcome["completed"].start_time_unix_nano == int(started * 1e9)
    assert by_outcome["completed"].time_unix_nano == int(clock.wall() * 1e9)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 400), min_size=1, max_size=50))
def test_a_histogram_has_the_counts_between_its_bounds(seconds: list[float]) -> None:
    exporter = PrometheusExporter((), 300.0, 5_000, ManualClock())
    name = "semantic_health_time_to_first_token_seconds"
    for model in ("a", "b"):
        for number in seconds:
            exporter.record(Reading(name, number, ("r", model)))
    data = convert(exporter)[name].data
    assert isinstance(data, Histogram)
    assert len(data.data_points) == 2
    for point in data.data_points:
        edges = [float("-inf"), *BY_NAME[name].buckets, float("inf")]
        expected = [sum(low < n <= high for n in seconds) for low, high in pairwise(edges)]
        assert list(point.explicit_bounds) == list(BY_NAME[name].buckets)
        assert list(point.bucket_counts) == expected
        assert point.count == len(seconds)
        assert point.sum == pytest.approx(sum(seconds))


def test_gauges_are_gauges_and_vanish_with_their_window(exporter: PrometheusExporter, clock: ManualClock) -> None:
    exporter.record(Reading(CONTINUITY, 0.02, ("r", "m")))
    converted = convert(exporter)
    assert isinstance(converted[CONTINUITY].data, Gauge)
    assert converted[CONTINUITY].data.data_points[0].value == 0.02
    assert converted[CONTINUITY].unit == "s"
    clock.pass_time(300)
    assert CONTINUITY not in convert(exporter)


def test_the_environment_names_the_service(exporter: PrometheusExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    def resource() -> dict[str, object]:
        conversion = Conversion(version="1.2.3", instance="i-1", started=0.0, latest=False)
        return dict(conversion.metrics_data(exporter.registry.collect(), 1.0).resource_metrics[0].resource.attributes)

    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    assert resource()["service.name"] == "semhealth"
    assert resource()["service.version"] == "1.2.3"
    assert resource()["service.instance.id"] == "i-1"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=shop,deployment.environment.name=prod")
    assert (resource()["service.name"], resource()["deployment.environment.name"]) == ("shop", "prod")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop-llm")
    assert resource()["service.name"] == "shop-llm"


def test_a_scrape_and_otlp_tell_the_same_metrics_with_the_same_numbers(exporter: PrometheusExporter) -> None:
    """One name on every path: what the conventions name goes by its own name over OTLP, which the catalogue states."""
    record_all(exporter)
    scraped: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(exporter.render()[0].decode()):
        name = family.name if family.name in BY_NAME or family.type != "counter" else f"{family.name}_total"
        values = [one.value for one in family.samples if not one.name.endswith(("_bucket", "_sum"))]
        row = BY_NAME.get(name)
        scraped[row.otel if row is not None and row.otel is not None else name] = sorted(values)
    exported = {
        name: sorted(
            float(point.count if isinstance(metric.data, Histogram) else point.value)
            for point in metric.data.data_points
        )
        for name, metric in convert(exporter).items()
    }
    assert exported == scraped
    told = {metric.otel or metric.name for metric in METRICS}
    assert told <= exported.keys()
    assert {name.removesuffix("_observations") for name in exported.keys() - told} <= told
