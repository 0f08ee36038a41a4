"""A route's contract, through the real sidecar: what rules say reaches metrics and records, and content does not."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from .conftest import Process, Script, Sidecar, Upstream, call, respond, wait_until

CONTRACT = """
schema: {type: object, required: [amount]}
rules:
  - {name: amount-fits-risk, cel: 'output.risk == "high" ? output.amount > 1000000 : true'}
  - {name: code, values: {at: code, list: [1A00, 1A01]}}
  - {name: private, no_personal_data: {kinds: [email, card]}}
"""
ANSWERS = [
    {"risk": "high", "amount": 2_000_000, "code": "1A00"},
    {"risk": "high", "amount": 5, "code": "1A00"},
    {"risk": "low", "amount": 5, "code": "ZZ-canary"},
    {"risk": "low", "amount": 5},
    {"risk": "low", "amount": 5, "code": "1A01", "mail": "canary.person@acme.io"},
]
BODY = {"model": "m", "messages": [{"role": "user", "content": "assess"}]}
RULES = "semantic_health_contract_rules_total"


def answering(texts: list[str]) -> Script:
    """Each request gets the next text; the last is repeated."""
    left = iter(texts)
    last = texts[-1]

    def answer(connection: socket.socket, _head: bytes, _body: bytes) -> None:
        choice = {"index": 0, "message": {"role": "assistant", "content": next(left, last)}, "finish_reason": "stop"}
        body = {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]}
        respond(connection, json.dumps(body).encode(), "200 OK", "Content-Type: application/json")

    return answer


def configured(directory: Path, upstream: Upstream, contract: str = CONTRACT) -> list[str]:
    (directory / "contract.yaml").write_text(contract)
    config = directory / "semhealth.yaml"
    config.write_text(f"routes:\n- {{name: claims, upstream: '{upstream.base}', contract: contract.yaml}}\n")
    return ["--config", str(config)]


def test_what_each_rule_said_is_counted_and_recorded_and_nothing_of_the_answers(
    start: Callable[..., Sidecar], upstream: Callable[[Script], Upstream], tmp_path: Path
) -> None:
    sidecar = start(*configured(tmp_path, upstream(answering([json.dumps(each) for each in ANSWERS]))))
    for _ in ANSWERS:
        assert call(f"{sidecar.base}/v1/chat/completions", BODY).status == 200
    metrics = sidecar.settled(len(ANSWERS))
    counts = {
        (rule, result): metrics.total(RULES, route="claims", model="m", rule=rule, result=result)
        for rule in ("amount-fits-risk", "code", "private")
        for result in ("kept", "broken", "not_evaluated", "skipped")
    }
    assert {key: count for key, count in counts.items() if count} == {
        ("amount-fits-risk", "kept"): 4,
        ("amount-fits-risk", "broken"): 1,
        ("code", "kept"): 3,
        ("code", "broken"): 1,
        ("code", "not_evaluated"): 1,
        ("private", "kept"): 4,
        ("private", "broken"): 1,
    }
    assert metrics.values("semantic_health_contract_loaded", route="claims") == [1.0]
    judged = [record["validity"] for record in sidecar.logged()]
    assert [(each["kind"], each["result"]) for each in judged] == [
        ("contract", "valid"),
        ("contract", "contract_violation"),
        ("contract", "contract_violation"),
        ("contract", "contract_error"),
        ("contract", "contract_violation"),
    ]
    assert {"rule": "private", "result": "broken", "reason": "email"} in judged[4]["judgements"][0]["rules"]
    everything = metrics.text + sidecar.log_path.read_text() + sidecar.stderr + json.dumps(sidecar.records())
    assert "canary" not in everything


def test_rules_hold_beside_the_schema_that_a_request_brings(
    start: Callable[..., Sidecar], upstream: Callable[[Script], Upstream], tmp_path: Path
) -> None:
    sidecar = start(*configured(tmp_path, upstream(answering([json.dumps(ANSWERS[1])]))))
    schema = {"type": "object", "required": ["amount"]}
    asked = {**BODY, "response_format": {"type": "json_schema", "json_schema": {"name": "claim", "schema": schema}}}
    assert call(f"{sidecar.base}/v1/chat/completions", asked, {"x-request-id": "with-schema"}).status == 200
    validity = sidecar.record_of("with-schema")["validity"]
    assert (validity["result"], validity["schema_id"]) == ("contract_violation", "claim")


def test_a_contract_that_breaks_after_the_start_keeps_nobody_from_coming_back(
    start: Callable[..., Sidecar], upstream: Callable[[Script], Upstream], tmp_path: Path
) -> None:
    sidecar = start(*configured(tmp_path, upstream(answering([json.dumps(ANSWERS[1])]))))
    (tmp_path / "contract.yaml").write_text("rules: [{name: a, cel: output.a >}]")
    os.kill(sidecar.pid("collector.app"), signal.SIGKILL)
    assert call(f"{sidecar.base}/v1/chat/completions", BODY).status == 200  # traffic does not wait for it
    metrics = sidecar.metrics_when(
        lambda told: told.values("semantic_health_contract_loaded", route="claims") == [0.0], "it says so"
    )
    assert metrics.total("semantic_health_process_restarts_total", process="analyst") == 1
    assert "route claims is judged without its contract" in sidecar.stderr
    assert call(f"{sidecar.base}/v1/chat/completions", BODY, {"x-request-id": "afterwards"}).status == 200
    assert sidecar.record_of("afterwards")["validity"] is None


def test_a_wrong_contract_is_refused_at_the_start(
    new_directory: Callable[[], Path], upstream: Callable[[Script], Upstream], tmp_path: Path
) -> None:
    arguments = configured(tmp_path, upstream(answering(["{}"])), "rules: [{name: a, cel: output.a >}]")
    process = Process([sys.executable, "-m", "collector.cli", "run", *arguments], new_directory())
    assert process.wait() == 2
    assert "rule a: cel: position 11" in process.stderr


def test_an_answer_that_takes_too_long_takes_no_other_along(
    start: Callable[..., Sidecar], upstream: Callable[[Script], Upstream], tmp_path: Path
) -> None:
    # Nine thousand steps, each along a list of nine thousand: within the steps that CEL may take, and beyond the time.
    slow = "rules: [{name: slow, cel: 'output.all(each, each in output)'}]"
    texts = [json.dumps([str(number) for number in range(9000)]), '["1"]']
    sidecar = start(*configured(tmp_path, upstream(answering(texts)), slow), "--set", "validator.timeout=250ms")
    for _ in texts:
        assert call(f"{sidecar.base}/v1/chat/completions", BODY).status == 200
    wait_until(lambda: len(sidecar.logged()) == 2, "both are recorded")
    first, second = (record["validity"] for record in sidecar.logged())
    assert second["result"] == "valid"
    [rule] = first["judgements"][0]["rules"]
    assert first["result"] == "validator_timeout"
    assert (rule["result"], rule["reason"]) == ("not_evaluated", "timeout")
