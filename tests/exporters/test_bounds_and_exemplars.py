"""Histograms: a bound at every default threshold, and exemplars that lead from a bucket to a trace."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from collector.catalogue import BY_NAME, METRICS, label_rules
from collector.config import Analysis
from collector.model import Reading
from collector.objectives import STRICT
from exporters.prometheus import PrometheusExporter

from .conftest import ManualClock
from .prometheus_server import running_prometheus

TRACE, OTHER_TRACE = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"
DURATION, STDDEV = "semantic_health_operation_duration_seconds", "semantic_health_stream_gap_stddev_seconds"
VALIDATIONS = "semantic_health_output_validations_total"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
RULES = Path(__file__).resolve().parents[2] / "alerts" / "semhealth.rules.yml"

MEASURED = {
    "duration": DURATION,
    "first_token": "semantic_health_time_to_first_token_seconds",
    "jitter": STDDEV,
    "context_relevance": "semantic_health_context_relevance",
    "answer_relevance": "semantic_health_answer_relevance",
    "groundedness": "semantic_health_groundedness",
    "kv_cache_hit": "semantic_health_kv_cache_hit_ratio",
}
THRESHOLDS = [
    *(
        (MEASURED[each.measure], bound)
        for each in STRICT
        for bound in (each.at_most, each.at_least)
        if bound is not None
    ),
    ("semantic_health_stream_longest_gap_seconds", Analysis().stall_threshold),
    ("semantic_health_time_to_first_token_seconds", Analysis().first_token_deadline),
    ("semantic_health_time_per_output_token_seconds", Analysis().token_deadline),
    (STDDEV, 0.005),  # R3
    *(("semantic_health_context_relevance", score) for score in (0.63, 0.75, 0.81, 0.89)),  # R2
    *(("semantic_health_kv_cache_hit_ratio", share) for share in (0.7, 0.85)),  # R5
    *(
        (name, float(bound))
        for name, bound in re.findall(r"(semantic_health_\w+)_bucket\{[^}]*le=\"([0-9.]+)\"", RULES.read_text("utf-8"))
    ),
]


@pytest.mark.parametrize(("metric", "threshold"), THRESHOLDS)
def test_every_default_threshold_is_a_bound(metric: str, threshold: float) -> None:
    assert threshold in BY_NAME[metric].buckets


def test_there_is_a_threshold_of_the_rules_among_them() -> None:
    assert ("semantic_health_stream_longest_gap_seconds", 1.0) in THRESHOLDS[-20:]


# ---------------------------------------------------------------- exemplars


def exemplars(exporter: PrometheusExporter, name: str) -> dict[str, tuple[str, float]]:
    """Trace id and value of each exemplar of a series, by its bound, or by `total`."""
    text = exporter.render(OPENMETRICS)[0].decode()
    return {
        sample.labels.get("le", "total"): (sample.exemplar.labels["trace_id"], sample.exemplar.value)
        for family in parse_openmetrics(text)
        for sample in family.samples
        if sample.exemplar is not None and sample.name.removesuffix("_bucket") == name
    }


def test_a_bucket_keeps_the_last_trace_that_fell_into_it(exporter: PrometheusExporter, clock: ManualClock) -> None:
    labels = ("r", "openai", "gpt", "chat")
    exporter.record(Reading(DURATION, 0.045, labels), OTHER_TRACE)
    exporter.record(Reading(DURATION, 0.041, labels), TRACE)
    exporter.record(Reading(DURATION, 0.043, labels))
    exporter.record(Reading(DURATION, 9000.0, labels), OTHER_TRACE)
    assert exemplars(exporter, DURATION) == {"0.05": (TRACE, 0.041), "+Inf": (OTHER_TRACE, 9000.0)}
    assert f'# {{trace_id="{TRACE}"}} 0.041 {clock.unix}' in exporter.render(OPENMETRICS)[0].decode()


def test_a_counter_of_a_headline_keeps_its_last_trace(exporter: PrometheusExporter) -> None:
    exporter.record(Reading(VALIDATIONS, 1.0, ("r", "gpt", "json", "not_json")), TRACE)
    assert exemplars(exporter, VALIDATIONS) == {"total": (TRACE, 1.0)}


def test_exemplars_are_in_openmetrics_only(exporter: PrometheusExporter) -> None:
    exporter.record(Reading(STDDEV, 0.01, ("r", "gpt")), TRACE)
    for accept in ("", "text/plain; version=0.0.4", "text/plain; version=1.0.0"):
        assert TRACE not in exporter.render(accept)[0].decode()
    assert TRACE in exporter.render(OPENMETRICS)[0].decode()


def test_the_headline_and_duration_metrics_have_exemplars_and_gauges_never(exporter: PrometheusExporter) -> None:
    having = {metric.name for metric in METRICS if metric.exemplars}
    assert having >= {
        DURATION, STDDEV, VALIDATIONS, "semantic_health_context_relevance",
        "semantic_health_time_to_first_token_seconds",
    }  # fmt: skip
    for metric in METRICS:
        labels = tuple(rule.values[0] if rule.values else "x" for rule in label_rules(metric))
        exporter.record(Reading(metric.name, 1.0, labels), TRACE)
    told = exporter.render(OPENMETRICS)[0].decode()
    for name in having:
        assert exemplars(exporter, name), name
    marked = {line.partition("{")[0] for line in told.splitlines() if "# {trace_id" in line}
    assert {name.removesuffix("_bucket") for name in marked} == having


def test_exemplars_do_not_grow_with_traces(exporter: PrometheusExporter) -> None:
    for number in range(5000):
        exporter.record(Reading(STDDEV, number / 5000, ("r", "gpt")), f"{number:032x}")
    assert len(exemplars(exporter, STDDEV)) <= len(BY_NAME[STDDEV].buckets) + 1


def test_a_real_prometheus_stores_the_exemplars(
    exporter: PrometheusExporter,
    clock: ManualClock,
    serve: Callable[[PrometheusExporter], int],
    needs_binary: Callable[[str], str],
    tmp_path: Path,
) -> None:
    clock.unix = time.time()
    exporter.record(Reading(STDDEV, 0.012, ("r", "gpt")), TRACE)
    binary, feature = needs_binary("prometheus"), "--enable-feature=exemplar-storage"
    with running_prometheus(binary, tmp_path, serve(exporter), feature) as prometheus:
        prometheus.wait_for(f"{STDDEV}_count")
        [(labels, [exemplar])] = prometheus.exemplars(f"{STDDEV}_bucket", clock.unix - 60, clock.unix + 60)
    assert labels["le"] == "0.015"
    assert exemplar["labels"] == {"trace_id": TRACE}
