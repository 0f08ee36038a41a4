"""A running sidecar's spans, log records and exemplars, at a real receiver, beside the client's own trace."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ..exporters.otlp_receiver import OtlpReceiver, Received  # noqa: TID252 - tests are no package of ours
from .conftest import Sidecar, Simulator, call
from .load import requests

TRACE, CLIENT_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{CLIENT_SPAN}-01", "tracestate": "vendor=1"}
UNSAMPLED = {"traceparent": f"00-{TRACE[::-1]}-{CLIENT_SPAN}-00"}
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver()
    yield receiver
    receiver.close()


def otlp(receiver: OtlpReceiver, *more: str) -> tuple[str, ...]:
    settings = (f"exporters.otlp.endpoint={receiver.endpoint}", "exporters.otlp.interval=200ms", *more)
    return tuple(word for setting in settings for word in ("--set", setting))


def spans(requests: list[Received]) -> list[Any]:
    return [span for request in requests if request.signal == "traces" for span in request.spans()]


def told(span: Any) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value")) for attribute in span.attributes
    }


def test_each_exchange_is_a_span_under_the_clients_own(
    simulator: Simulator, start: Callable[..., Sidecar], receiver: OtlpReceiver
) -> None:
    sidecar = start("--upstream", simulator.base, *otlp(receiver))
    began = time.time()
    for number in range(5):
        path, body = requests(number)
        assert call(f"{sidecar.base}{path}", body, {**SAMPLED, "x-request-id": f"ours-{number}"}).status == 200
    assert call(f"{sidecar.base}/v1/chat/completions", {"model": "sim-large", "messages": []}, SAMPLED).status == 400
    assert sidecar.end() == 0
    records = {record["id"]: record for record in sidecar.logged()}
    found = spans(list(receiver.rest()))
    assert len(found) == len(records) == 6
    assert {span.trace_id.hex() for span in found} == {TRACE}
    assert {span.parent_span_id.hex() for span in found} == {CLIENT_SPAN}
    assert len({span.span_id for span in found}) == 6
    for span in found:
        attributes = told(span)
        record = records[attributes["semantic_health.exchange.id"]]
        assert span.name == f"chat {record['request_model']}"
        assert attributes["gen_ai.operation.name"] == "chat"
        assert attributes["server.address"] == "127.0.0.1"
        assert attributes["server.port"] == int(simulator.base.rpartition(":")[2])
        assert attributes["semantic_health.outcome"] == record["outcome"]
        assert began <= span.start_time_unix_nano / 1e9 <= span.end_time_unix_nano / 1e9 <= time.time()
        seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        assert seconds == pytest.approx(record["timing"]["duration"], abs=0.01)
        if record["outcome"] == "completed":
            assert attributes["gen_ai.usage.output_tokens"] == record["usage"]["output_tokens"]
            assert attributes["gen_ai.response.id"]
            assert "error.type" not in attributes
        else:
            assert attributes["error.type"]
            assert span.status.code == span.status.STATUS_CODE_ERROR
    judged = [event for span in found for event in span.events]
    assert {event.name for event in judged} == {"gen_ai.evaluation.result"}
    assert len(judged) == 2  # two of them ask for an answer by a schema; without an embedder nothing else is scored


def test_with_trace_parent_the_upstream_hangs_under_the_sidecars_span(
    start: Callable[..., Sidecar], upstream: Callable[..., Any], receiver: OtlpReceiver
) -> None:
    from .test_load_reports import BODY, respond

    server = upstream(lambda connection, head, body: respond(connection, BODY))
    sidecar = start("--upstream", server.base, *otlp(receiver, "proxy.trace_parent=true"))
    assert call(f"{sidecar.base}/v1/chat/completions", {"model": "made-up", "messages": []}, SAMPLED).status == 200
    assert sidecar.end() == 0
    [span] = spans(list(receiver.rest()))
    [seen] = re.findall(rb"(?i)\r\ntraceparent: 00-([0-9a-f]{32})-([0-9a-f]{16})-01", server.heads[0])
    assert seen == (TRACE.encode(), span.span_id.hex().encode())
    assert span.parent_span_id.hex() == CLIENT_SPAN


def test_findings_are_log_records_and_the_older_or_newer_names_are_used(
    faults: Simulator, start: Callable[..., Sidecar], receiver: OtlpReceiver
) -> None:
    sidecar = start(
        "--upstream", faults.base, *otlp(receiver), "--set", "findings.system_prompt_tokens=1",
        env={"OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental"},
    )  # fmt: skip
    path, body = requests(1)
    assert call(f"{sidecar.base}{path}", body, SAMPLED).status == 200
    assert sidecar.end() == 0
    received = list(receiver.rest())
    logs = [log for request in received if request.signal == "logs" for log in request.log_records()]
    [finding] = [log for log in logs if told(log).get("semantic_health.finding.rule") == "system_prompt_long"]
    [span] = spans(received)
    assert (finding.severity_text, finding.trace_id.hex(), finding.span_id) == ("WARN", TRACE, span.span_id)
    assert told(finding)["semantic_health.finding.limit"] == 1
    assert [log.event_name for log in logs].count("gen_ai.evaluation.result") == 1
    [durations] = [
        metric
        for metric in [
            metric
            for request in received
            if request.signal == "metrics"
            for metric in request.body.resource_metrics[0].scope_metrics[0].metrics
        ][-200:]
        if metric.name == "gen_ai.client.inference.duration"
    ][-1:]
    assert durations.histogram.data_points[0].count == 1


def test_exemplars_are_of_sampled_traces_only(simulator: Simulator, start: Callable[..., Sidecar]) -> None:
    sidecar = start("--upstream", simulator.base)
    path, body = requests(1)
    for headers in (SAMPLED, UNSAMPLED, {}):
        assert call(f"{sidecar.base}{path}", body, headers).status == 200
    sidecar.settled(3)
    told_to = call(f"{sidecar.admin}/metrics", headers=OPENMETRICS).body.decode()
    marked = {line.partition("{")[0] for line in told_to.splitlines() if f'# {{trace_id="{TRACE}"}}' in line}
    assert marked >= {
        "semantic_health_operation_duration_seconds_bucket", "semantic_health_stream_gap_stddev_seconds_bucket",
        "semantic_health_output_validations_total",
    }  # fmt: skip
    assert set(re.findall(r'trace_id="(\w+)"', told_to)) == {TRACE}
    assert "trace_id" not in sidecar.metrics().text


def test_a_receiver_that_never_answers_costs_nothing_but_counted_drops(
    simulator: Simulator, start: Callable[..., Sidecar], free_port: int
) -> None:
    import socket

    with socket.create_server(("127.0.0.1", free_port)):
        sidecar = start(
            "--upstream", simulator.base, "--set", f"exporters.otlp.endpoint=http://127.0.0.1:{free_port}",
            "--set", "exporters.otlp.interval=100ms", "--set", "exporters.otlp.timeout=500ms",
        )  # fmt: skip
        path, body = requests(0)
        for _ in range(20):
            assert call(f"{sidecar.base}{path}", body).status == 200
        dropped = "semantic_health_telemetry_dropped_total"
        sidecar.metrics_when(
            lambda m: m.total(dropped, signal="traces", reason="export_failed") > 0, "drops are counted"
        )
        began = time.monotonic()
        assert sidecar.end() == 0
        assert time.monotonic() - began < 8.0
    assert len(sidecar.logged()) == 20
