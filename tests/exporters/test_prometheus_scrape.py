"""A real Prometheus scrapes the exporter and answers for the three headline metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.model import Reading
from exporters.prometheus import PrometheusExporter

from .conftest import ManualClock
from .prometheus_server import running_prometheus

VALIDITY = "semantic_health_model_output_validity_rate"
RELEVANCE = "semantic_health_context_relevance_score"
CONTINUITY = "semantic_health_stream_continuity_index_seconds"


def test_a_real_prometheus_answers_for_the_three_headline_metrics(
    make_exporter: Callable[..., PrometheusExporter],
    clock: ManualClock,
    serve: Callable[[PrometheusExporter], int],
    needs_binary: Callable[[str], str],
    tmp_path: Path,
) -> None:
    exporter = make_exporter(("team",))
    for valid, relevance, stddev in ((1.0, 0.9, 0.02), (1.0, 0.7, 0.03), (0.0, 0.8, 0.01), (1.0, 0.2, 0.5)):
        exporter.record(Reading(VALIDITY, valid, ("chat", "gpt"), ("search",)))
        exporter.record(Reading(RELEVANCE, relevance, ("chat", "gpt"), ("search",)))
        exporter.record(Reading(CONTINUITY, stddev, ("chat", "gpt"), ("search",)))
        exporter.record(Reading("semantic_health_stream_gap_stddev_seconds", stddev, ("chat", "gpt"), ("search",)))
    with running_prometheus(needs_binary("prometheus"), tmp_path, serve(exporter)) as prometheus:
        for name, expected in ((VALIDITY, 0.75), (RELEVANCE, 0.75), (CONTINUITY, 0.025)):
            [(labels, value)] = prometheus.wait_for(f'{name}{{route="chat",model="gpt",team="search"}}')
            assert value == pytest.approx(expected)
            assert labels["job"] == "semhealth"
            [(_, observations)] = prometheus.wait_for(f"{name}_observations")
            assert observations == 4
        [(_, p50)] = prometheus.wait_for(
            "histogram_quantile(0.5, sum by (le) (semantic_health_stream_gap_stddev_seconds_bucket))"
        )
        assert 0.015 <= p50 <= 0.025
        [(_, zero)] = prometheus.wait_for('semantic_health_unobserved_total{reason="queue_full"}')
        assert zero == 0

        clock.pass_time(300)  # nothing comes any more: the gauges end at the next scrape, the counters stay
        deadline = time.monotonic() + 30
        while prometheus.query(VALIDITY) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert prometheus.query(VALIDITY) == []
        assert prometheus.query(f"{CONTINUITY}_observations") == []
        assert prometheus.query("semantic_health_forwarded_total") != []


def test_the_first_failure_of_a_model_is_seen_by_increase(
    exporter: PrometheusExporter,
    serve: Callable[[PrometheusExporter], int],
    needs_binary: Callable[[str], str],
    tmp_path: Path,
) -> None:
    exporter.record(Reading("semantic_health_exchanges_total", 1.0, ("r", "openai", "gpt", "chat", "completed")))
    with running_prometheus(needs_binary("prometheus"), tmp_path, serve(exporter)) as prometheus:
        prometheus.wait_for('semantic_health_errors_total{provider="openai",kind="overloaded",source="upstream"}')
        exporter.record(Reading("semantic_health_errors_total", 1.0, ("r", "openai", "overloaded", "upstream")))
        [(labels, _)] = prometheus.wait_for("increase(semantic_health_errors_total[1m]) > 0")
        assert labels["kind"] == "overloaded"
