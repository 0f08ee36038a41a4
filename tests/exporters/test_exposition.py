"""What is rendered is, byte for byte, what prometheus-client makes of the same registry."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.utils import floatToGoString

from collector.catalogue import METRICS, label_rules
from collector.model import Reading
from exporters.exposition import number
from exporters.prometheus import PrometheusExporter

from .conftest import ManualClock

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
TRACE = "0af7651916cd43dd8448eb211c80319c"


def assert_same(exporter: PrometheusExporter) -> None:
    assert exporter.render()[0] == generate_latest(exporter.registry)
    assert exporter.render(OPENMETRICS)[0] == generate_openmetrics(exporter.registry)


def test_an_empty_registry_is_rendered_alike(exporter: PrometheusExporter) -> None:
    assert_same(exporter)


@pytest.mark.parametrize("label", ["gpt-4o", 'a"b\\c', "模型 é", "x" * 200, "", "line\nbreak"])
def test_every_metric_is_rendered_alike(exporter: PrometheusExporter, label: str) -> None:
    for metric in METRICS:
        labels = tuple(rule.values[0] if rule.values else label for rule in label_rules(metric))
        for value in (0.0, 0.3, 1.0):
            exporter.record(Reading(metric.name, value, labels), TRACE)
    assert_same(exporter)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(METRICS),
            st.floats(allow_nan=False, allow_infinity=False),
            st.text(max_size=12),
            st.sampled_from([None, TRACE]),
        ),
        max_size=20,
    ),
    st.floats(0.0, 1e6),
)
def test_whatever_is_recorded_is_rendered_alike(readings: list, later: float) -> None:  # type: ignore[type-arg]
    clock = ManualClock()
    exporter = PrometheusExporter(("team",), 300.0, 5000, clock)
    for metric, value, label, trace in readings:
        labels = tuple(rule.values[-1] if rule.values else label for rule in label_rules(metric))
        exporter.record(Reading(metric.name, value, labels, (label,)), trace)
    assert_same(exporter)
    clock.pass_time(later)
    assert_same(exporter)


@given(st.floats(allow_nan=False))
def test_numbers_are_written_as_go_writes_them(value: float) -> None:
    assert number(value) == floatToGoString(value)


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text; version=2.0.0", "application/openmetrics-text; version=x", "*/*", "a;;b"]
)
def test_other_formats_are_prometheus_clients_own(exporter: PrometheusExporter, accept: str) -> None:
    body, _ = exporter.render(accept)
    assert b"semantic_health_forwarded_total 0.0" in body
