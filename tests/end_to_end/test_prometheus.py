"""A real Prometheus and a real OTLP receiver get the numbers of a running sidecar."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from oteltap import OtelTapHttpProtobufReceiver, OtelTapHttpProtobufReceiverSettings
from prometheus_client.parser import text_string_to_metric_families

from collector.catalogue import METRICS, label_names

from ..exporters.prometheus_server import running_prometheus  # noqa: TID252 - tests are no package of ours
from .conftest import Metrics, Sidecar, Simulator, call
from .load import requests

VALIDITY = "semantic_health_model_output_validity_rate"
RELEVANCE = "semantic_health_context_relevance_score"
CONTINUITY = "semantic_health_stream_continuity_index_seconds"
HEADLINES = (VALIDITY, RELEVANCE, CONTINUITY)


@pytest.fixture(scope="module")
def busy(simulator: Simulator, new_directory: Callable[[], Path]) -> Iterator[Sidecar]:
    """A sidecar whose every headline metric has values, from both dialects and with one error."""
    sidecar = Sidecar(new_directory(), "--upstream", simulator.base, "--set", "embedder.cpu_share=1")
    sidecar.metrics_when(lambda m: m.total("semantic_health_relevance_ready") == 1, "the embedder is ready")
    for number in range(20):
        path, body = requests(number)
        assert call(f"{sidecar.base}{path}", body).status == 200
    assert call(f"{sidecar.base}/v1/chat/completions", {"model": "sim-large", "messages": []}).status == 400

    def all_there(metrics: Metrics) -> bool:
        return (
            all(metrics.values(name) for name in HEADLINES) and metrics.total("semantic_health_exchanges_total") == 21
        )

    sidecar.metrics_when(all_there, "every exchange is recorded")
    yield sidecar
    assert sidecar.end() == 0, sidecar.stderr


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_a_real_prometheus_answers_for_the_three_headline_metrics_of_a_running_sidecar(
    busy: Sidecar, needs_binary: Callable[[str], str], tmp_path: Path
) -> None:
    with running_prometheus(needs_binary("prometheus"), tmp_path, port_of(busy.admin)) as prometheus:
        [(labels, validity)] = prometheus.wait_for(f'{VALIDITY}{{route="default",model="sim-large"}}')
        assert labels["job"] == "semhealth"
        assert validity == 1.0
        [(_, relevance)] = prometheus.wait_for(f'{RELEVANCE}{{model="sim-opus"}}')
        assert 0.5 < relevance <= 1.0
        [(_, continuity)] = prometheus.wait_for(f'{CONTINUITY}{{model="sim-large"}}')
        assert 0.0 <= continuity < 1.0
        for name in HEADLINES:
            [(_, observations)] = prometheus.wait_for(f"sum({name}_observations)")
            assert observations > 0
        [(_, exchanges)] = prometheus.wait_for("sum(semantic_health_exchanges_total)")
        assert exchanges == 21
        # The gauge and the counters beside it tell the same.
        [(_, ratio)] = prometheus.wait_for(
            'sum(semantic_health_output_validations_total{model="sim-large",result="valid"})'
            ' / sum(semantic_health_output_validations_total{model="sim-large"})'
        )
        assert ratio == validity
        [(errors, _)] = prometheus.wait_for("semantic_health_errors_total > 0")
        assert errors["kind"] == "invalid_request"
        [(_, up)] = prometheus.wait_for('up{job="semhealth"}')
        assert up == 1


def test_promtool_finds_nothing_to_say_about_the_metrics(busy: Sidecar, needs_binary: Callable[[str], str]) -> None:
    checked = subprocess.run(
        [needs_binary("promtool"), "check", "metrics"],
        input=busy.metrics().text,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert checked.stdout + checked.stderr == ""
    assert checked.returncode == 0


def test_every_series_is_of_the_catalogue_with_its_labels(busy: Sidecar) -> None:
    known: dict[str, set[str]] = {}
    for metric in METRICS:
        names = set(label_names(metric))
        known[metric.name.removesuffix("_total")] = names
        if metric.kind.startswith("window"):
            known[f"{metric.name}_observations"] = names
    for family in text_string_to_metric_families(busy.metrics().text):
        if not family.name.startswith("semantic_health_"):
            continue
        labels = known[family.name.removesuffix("_total")]
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == labels, sample


@pytest.mark.parametrize("opt_in", ["", "gen_ai_latest_experimental"])
async def test_a_real_otlp_receiver_gets_the_metrics_of_a_running_sidecar(
    opt_in: str, simulator: Simulator, start: Callable[..., Sidecar], free_port: int
) -> None:
    duration = "gen_ai.client.inference.duration" if opt_in else "gen_ai.client.operation.duration"
    names = ("semantic_health_exchanges_total", VALIDITY, CONTINUITY, duration)
    async with OtelTapHttpProtobufReceiver(OtelTapHttpProtobufReceiverSettings(http_port=free_port)) as tap:
        waits = [
            asyncio.create_task(tap.await_metric(lambda m, name=name: m.name == name, timeout=60)) for name in names
        ]
        sidecar = await asyncio.to_thread(
            start,
            "--upstream",
            simulator.base,
            env={
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port}",
                "OTEL_METRIC_EXPORT_INTERVAL": "300",
                "OTEL_SEMCONV_STABILITY_OPT_IN": opt_in,
            },
        )
        for number in range(5):
            path, body = requests(number)
            answer = await asyncio.to_thread(call, f"{sidecar.base}{path}", body)
            assert answer.status == 200
        exchanges, validity, continuity, durations = await asyncio.gather(*waits)
        assert await asyncio.to_thread(sidecar.end) == 0
    assert exchanges.sum.is_monotonic
    assert [point.as_double for point in validity.gauge.data_points] == [1.0]
    assert all(point.as_double >= 0 for point in continuity.gauge.data_points)
    assert durations.unit == "s"
    keys = {attribute.key for point in durations.histogram.data_points for attribute in point.attributes}
    assert {"gen_ai.operation.name", "gen_ai.provider.name"} <= keys


async def test_the_last_numbers_reach_the_receiver_when_the_sidecar_stops(
    simulator: Simulator, start: Callable[..., Sidecar], free_port: int
) -> None:
    async with OtelTapHttpProtobufReceiver(OtelTapHttpProtobufReceiverSettings(http_port=free_port)) as tap:
        wait = asyncio.create_task(tap.await_metric(lambda m: m.name == "semantic_health_exchanges_total", timeout=60))
        sidecar = await asyncio.to_thread(
            start,
            "--upstream",
            simulator.base,
            "--set",
            f"exporters.otlp.endpoint=http://127.0.0.1:{free_port}",
            "--set",
            "exporters.otlp.interval=1h",
        )
        path, body = requests(2)
        await asyncio.to_thread(call, f"{sidecar.base}{path}", body)
        assert await asyncio.to_thread(sidecar.end) == 0
        exchanges = await wait
    assert sum(point.as_double for point in exchanges.sum.data_points) == 1
