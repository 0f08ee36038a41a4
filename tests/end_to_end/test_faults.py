"""Every fault of the simulated API, switched on alone, shows as what it is and as nothing else."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from collector.catalogue import FINDING_RULE
from collector.findings.levels import ENOUGH
from collector.simulator.faults import FAULT_NAMES, OF_TRAFFIC
from collector.simulator.traffic import Shares, query

from .conftest import ROOT, Sidecar, Simulator, call, wait_until

ORDINARY = ENOUGH + 2  # answers before a fault, so that there is a usual level
JITTER = 0.02  # seconds of deviation: the fast simulation keeps below, `stutter` is above
SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "number"}, "currency": {"type": "string"}},
    "required": ["total", "currency"],
}
STRUCTURED = {"response_format": {"type": "json_schema", "json_schema": {"name": "invoice", "schema": SCHEMA}}}
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
NOT_JSON = {f"validity:{result}" for result in ("not_json", "fenced", "trailing_text")}


class Fault(NamedTuple):
    """A fault as it is switched, the requests it is tried on, and the signs it may show; some of them it must."""

    setting: dict[str, object]
    signs: set[str]
    body: Mapping[str, object] = STREAMED
    headers: Mapping[str, str] = MappingProxyType({})
    requests: int = 3
    pause: float = 0.0  # seconds between two


FAULTS: dict[str, Fault] = {
    "invalid_json": Fault({}, NOT_JSON, STRUCTURED),
    "schema_drift": Fault({}, {"validity:schema_violation"}, STRUCTURED),
    "stutter": Fault({"seconds": 1.0}, {"jitter"}),
    "stall": Fault({"seconds": 30.0}, {"finding:stream_stalls", "jitter"}, requests=2),
    "truncation cut": Fault({"mode": "cut"}, {"outcome:truncated"}),
    "truncation length": Fault({"mode": "length"}, {"outcome:incomplete", "finding:cut_by_length"}),
    "overload gateway": Fault({"mode": "gateway"}, {"outcome:upstream_error"}),
    "downgrade": Fault({}, {"finding:model_downgrade"}),
    "cold_start": Fault({}, {"finding:cold_start"}),
    "error_event": Fault({}, {"outcome:error_event"}),
    "loop": Fault({}, {"finding:answer_repeats"}),
    "empty": Fault({}, {"finding:answer_empty"}),
    "no_usage": Fault({}, {"finding:usage_missing"}),
    "correction": Fault({}, {"finding:text_corrected"}),
    "cache_loss": Fault({}, {"finding:cache_hit_collapse"}, requests=4),
    "diagnostic": Fault({}, {"finding:diagnostic_mode"}),
    "wrong_region": Fault({}, {"finding:wrong_region"}, headers={"X-Data-Residency": "eu"}),
    "deprecation": Fault({}, {"finding:deprecation"}),
    "drain": Fault({}, {"finding:quota_running_out"}, requests=15, pause=1.0),
    "load high": Fault({"mode": "high"}, {"finding:overload_coming"}, requests=9, pause=0.5),
    # Last, since the load that it leaves behind falls over seconds.
    "overload model": Fault(
        {"mode": "model"}, {"outcome:upstream_error", "finding:overload_coming"}, requests=9, pause=0.5
    ),
}


@pytest.fixture(scope="module")
def routed(simulator: Simulator, new_directory: Callable[[], Path]) -> Iterator[Sidecar]:
    """A sidecar with a route for each fault, so that each has levels of its own, and one for other requests."""
    directory = new_directory()
    routes = [
        {"name": name.replace(" ", "_"), "prefix": f"/{name.replace(' ', '_')}", "upstream": simulator.base}
        for name in [*FAULTS, "traffic", "slow", "retries"]
    ]
    requests = {"name": "requests", "prefix": "/requests", "upstream": simulator.base, "provider": "vllm",
                "findings": {"profile": "strict", "checked_headers": ["X-Tenant"]}}  # fmt: skip
    config = {
        "routes": [*routes, requests],
        "analysis": {"stall_threshold": "500ms"},
        "embedder": {"kind": "none"},
        "exporters": {"max_series": 50_000},
    }
    path = directory / "semhealth.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    sidecar = Sidecar(new_directory(), "--config", str(path))
    yield sidecar
    assert sidecar.end() == 0, sidecar.stderr


_sent = iter(range(1_000_000))


def send(sidecar: Sidecar, route: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
    """One chat request that no other is like; what comes back does not matter."""
    question = f"What is due on invoice {next(_sent)}, and when?"
    asked = {"model": "sim-large", "messages": [{"role": "user", "content": question}], **body}
    try:
        call(f"{sidecar.base}/{route}/v1/chat/completions", asked, headers)
    except OSError:
        return
    except Exception as cut:
        if type(cut).__name__ != "IncompleteRead":
            raise


def records_of(sidecar: Sidecar, route: str, number: int) -> list[dict[str, Any]]:
    """So many records of a route, the newest first."""
    return wait_until(
        lambda: found if len(found := sidecar.records(f"&route={route}")) >= number else None,
        f"{number} records of {route}",
    )


def signs(records: list[dict[str, Any]]) -> set[str]:
    """What is not as it should be in these records."""
    found = {f"outcome:{each['outcome']}" for each in records if each["outcome"] != "completed"}
    found |= {
        f"validity:{each['validity']['result']}"
        for each in records
        if each["validity"] is not None and each["validity"]["result"] != "valid"
    }
    found |= {f"finding:{finding['rule']}" for each in records for finding in each["findings"]}
    jitter = [gaps["stddev"] for each in records if (gaps := each["timing"]["chunk_gaps"])["stddev"] is not None]
    if jitter and statistics.median(jitter) > JITTER:
        found.add("jitter")
    return found


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_shows_as_what_it_is_and_as_nothing_else(name: str, routed: Sidecar, faults: Simulator) -> None:
    fault, route = FAULTS[name], name.replace(" ", "_")
    for _ in range(ORDINARY):
        send(routed, route, fault.body, fault.headers)
    assert signs(records_of(routed, route, ORDINARY)) == set(), "before the fault"
    faults.switch(**{name.split(" ", maxsplit=1)[0]: {"share": 1.0, **fault.setting}})
    for _ in range(fault.requests):
        send(routed, route, fault.body, fault.headers)
        time.sleep(fault.pause)
    faults.clear()
    records = records_of(routed, route, ORDINARY + fault.requests)[: fault.requests]
    shown = signs(records)
    assert shown
    assert shown <= fault.signs
    if fault.signs is not NOT_JSON:
        assert shown >= fault.signs - {"jitter"}
    metrics = routed.metrics_when(
        lambda told: told.total("semantic_health_exchanges_total", route=route) >= ORDINARY + fault.requests, name
    )
    counted = {rule for rule in FINDING_RULE if metrics.total("semantic_health_findings_total", route=route, rule=rule)}
    assert {f"finding:{rule}" for rule in counted} == {sign for sign in shown if sign.startswith("finding:")}


def test_every_fault_of_the_api_is_tried() -> None:
    assert {name.split(" ", maxsplit=1)[0] for name in FAULTS} == set(FAULT_NAMES) - set(OF_TRAFFIC)


def test_ordinary_traffic_makes_no_finding(routed: Sidecar) -> None:
    command = [
        sys.executable, "-m", "collector.simulator.traffic", "--base", f"{routed.base}/traffic", "--rate", "25",
        "--duration", "6",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, timeout=60)
    records = records_of(routed, "traffic", 80)
    # Some of its streams do not ask for their usage.
    assert {finding["rule"] for each in records for finding in each["findings"]} <= {"include_usage_missing"}


SYSTEM = "You answer questions about invoices. " * 20
REQUESTS: list[tuple[str, dict[str, Any], dict[str, str], set[str]]] = [
    ("plain", STREAMED, {}, set()),
    ("long", {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "What is due?"}]}, {},
     {"system_prompt_long"}),
    ("comment", {"messages": [{"role": "system", "content": "<!-- v2 -->\r\nBe brief."},
                              {"role": "user", "content": "What is due?"}]}, {}, {"markup_comments", "cr_lf"}),
    ("no-usage", {"stream": True}, {}, {"include_usage_missing"}),
    ("header", {}, {"X-Tenant": "a b"}, {"invalid_header_value"}),
    ("schema", {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {
        "type": "object", "properties": {"total": {"type": "number"}}, "patternProperties": {"^x_": {}}}}}}, {},
     {"schema_feature_refused"}),
    ("limit", {"max_tokens": 60, "messages": [
        {"role": "user", "content": "What is due?"}, {"role": "assistant", "content": "The invoice is due. " * 20},
        {"role": "user", "content": "And when?"}]}, {}, {"max_tokens_low"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "headers", "rules"), REQUESTS, ids=[name for name, *_ in REQUESTS])
def test_what_is_wrong_with_a_request_is_told(
    name: str, body: dict[str, Any], headers: dict[str, str], rules: set[str], routed: Sidecar
) -> None:
    identity = f"request-{name}"
    send(routed, "requests", body, {**headers, "X-Client-Request-Id": identity})
    record = routed.record_of(identity)
    assert {finding["rule"] for finding in record["findings"]} - {"cut_by_length"} == rules
    severities = {finding["rule"]: finding["severity"] for finding in record["findings"]}
    assert severities == {rule: FINDING_RULE[rule].severity for rule in severities}


def test_a_timeout_that_is_too_short_is_told_with_the_one_that_would_do(routed: Sidecar) -> None:
    for _ in range(12):
        send(routed, "slow", {}, {"X-Stainless-Read-Timeout": "600"})
    send(routed, "slow", {}, {"X-Stainless-Read-Timeout": "0.001", "X-Client-Request-Id": "hasty"})
    [finding] = routed.record_of("hasty")["findings"]
    assert finding["rule"] == "client_timeout_short"
    assert finding["facts"]["recommended"] > 0.001
    others = [each for each in records_of(routed, "slow", 13) if each["client_request_id"] != "hasty"]
    assert signs(others) == set()


def test_retries_that_do_not_wait_are_told_and_become_a_storm(routed: Sidecar, faults: Simulator) -> None:
    faults.switch(overload={"share": 1.0, "mode": "gateway"})
    body = {"model": "sim-large", "messages": [{"role": "user", "content": "Again and again?"}]}
    for _ in range(7):
        assert call(f"{routed.base}/retries/v1/chat/completions", body).status == 429
    faults.clear()
    newest, *_, first = records_of(routed, "retries", 7)
    assert first["findings"] == []
    assert {finding["rule"] for finding in newest["findings"]} == {"early_retry", "retry_storm"}
    lines = wait_until(
        lambda: [line for line in routed.stderr.splitlines() if '"finding":"retry_storm"' in line], "log"
    )
    assert len(lines) == 1, "one line a minute"
    assert "Again and again" not in routed.stderr
    found = call(f"{routed.admin}/records?finding=retry_storm").json()["records"]
    assert {each["route"] for each in found} == {"retries"}


# Fault of the traffic → the score that falls: other passages are less relevant, and without its sentence the context
# bears the answer less.
SCORES = {"context_lost": "context_relevance", "context_cut": "groundedness"}


@pytest.mark.parametrize("name", SCORES)
def test_a_context_that_is_lost_or_cut_lowers_its_score_and_nothing_else(name: str, sidecar: Sidecar) -> None:
    ordinary, spoilt = _scores(sidecar, Shares(), "ordinary"), _scores(sidecar, Shares(**{name: 1.0}), name)
    score = SCORES[name]
    assert statistics.median(spoilt[score]) < statistics.median(ordinary[score]) - 0.1


def _scores(sidecar: Sidecar, shares: Shares, name: str) -> dict[str, list[float]]:
    """Scores of twenty questions of the corpus with their passages, as these shares spoil them."""
    wait_until(lambda: sidecar.summary()["totals"]["relevance_ready"], "the embedding model is loaded")
    found: dict[str, list[float]] = {"context_relevance": [], "groundedness": []}
    for number in range(20):
        asked = query(Random(number), shares)  # noqa: S311 - seeded draws are the point
        passages = "\n".join(f"<document>{title}: {passage}</document>" for title, passage in asked.passages)
        identity = f"{name}-{number}"
        body = {"model": "sim-large", "messages": [{"role": "user", "content": f"{passages}\n\n{asked.item.question}"}]}
        call(f"{sidecar.base}/v1/chat/completions", body, {"X-Client-Request-Id": identity})
        record = sidecar.record_of(identity)
        assert signs([record]) == set()
        for score, values in found.items():
            if record["relevance"].get(score) is not None:
                values.append(record["relevance"][score])
    return found
