"""From a route's contract to tasks, judgements, readings, and the analyst that must come back without one."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from collector.app import analysed_routes
from collector.catalogue import BY_NAME, RULE_RESULTS, label_names
from collector.config import Route, Settings
from collector.contracts.rule import MAX_RULES, Cel, Rule, rule_set
from collector.measures.validity import ANY_OBJECT, judgement, measure, tasks, validity
from collector.model import (
    Choice,
    Exchange,
    Expectation,
    FrameCounts,
    Judgement,
    Record,
    Relevance,
    ReportedUsage,
    RequestFacts,
    RuleResult,
    TextFacts,
    Timing,
    UpstreamFacts,
    ValidationTask,
)

from ..measures.records import Heard  # noqa: TID252 - the root is not on the path of plain pytest

SCHEMA = b'{"type":"object"}'
RULES = rule_set((Rule("first", Cel("true")), Rule("second", Cel("true"))))


def exchange(choice: Choice, expectation: Expectation | None = None) -> Exchange:
    record = Record(
        id="1", started_at=None, route="default", method="POST", trace_id=None, client_request_id=None,
        retry_attempt=None, dialect="openai.chat", provider=None, operation=None, transport="json", stream=False,
        status=200, outcome="completed", phase=None, request_model="m", response_model="m", finish_reasons=(),
        usage=None, usage_reported=ReportedUsage(), text=TextFacts(None, 0), correction_ratio=None, tool_calls=(),
        error=None, frames=FrameCounts(), timing=Timing(), bytes_in=0, bytes_out=0, rate_limits=(), retry_after=None,
        upstream=UpstreamFacts(), validity=None, relevance=Relevance(False), findings=(), anomalies=(),
    )  # fmt: skip
    return Exchange(record, RequestFacts("m", expectation=expectation), (choice,), (), ended_at=0.0, monotonic=0.0)


def a_choice(text: str = "{}", ending: str = "completed") -> Choice:
    return Choice(0, text, True, "stop", ending)


@pytest.mark.parametrize(
    ("expectation", "contract", "schema"),
    [
        (None, None, None),
        (None, SCHEMA, SCHEMA),
        (Expectation("json_schema", b"{}", "own"), SCHEMA, b"{}"),  # the request's own schema, and the rules
        (Expectation("json"), SCHEMA, ANY_OBJECT),
    ],
)
def test_rules_are_for_every_answer_beside_the_schema_that_holds(
    expectation: Expectation | None, contract: bytes | None, schema: bytes | None
) -> None:
    [task] = tasks(exchange(a_choice(), expectation), contract, RULES)
    assert (task.kind, task.schema, task.rules, task.result) == ("contract", schema, RULES, None)


def test_without_rules_a_judgement_has_none() -> None:
    [task] = tasks(exchange(a_choice()), SCHEMA)
    assert judgement(task, "valid").rules is UNSET
    assert b"rules" not in msgspec.json.encode(judgement(task, "valid"))


@pytest.mark.parametrize(
    ("result", "rule"),
    [
        ("truncated", RuleResult("first", "skipped")),
        ("skipped", RuleResult("first", "skipped")),
        ("validator_timeout", RuleResult("first", "not_evaluated", "timeout")),
    ],
)
def test_rules_that_nobody_tried_are_told_all_the_same(result: str, rule: RuleResult) -> None:
    [task] = tasks(exchange(a_choice()), None, RULES)
    assert judgement(task, result).rules == (rule, msgspec.structs.replace(rule, rule="second"))


def test_a_truncated_answer_is_not_tried() -> None:
    [task] = tasks(exchange(a_choice('{"a', "incomplete")), None, RULES)
    assert task.result == "truncated"


def test_every_rule_is_counted_by_what_it_said() -> None:
    said = tuple(RuleResult(f"r{number}", result) for number, result in enumerate(RULE_RESULTS))
    judged = validity([judgement(ValidationTask(0, None, "contract", rules=RULES), "contract_violation", None, said)])
    assert judged is not None
    heard = Heard()
    measure(judged, heard)
    told = [each for each in heard.readings if each.metric == "semantic_health_contract_rules_total"]
    assert [each.labels for each in told] == [("main", "m-1", each.rule, each.result) for each in said]
    assert label_names(BY_NAME["semantic_health_contract_rules_total"]) == ("route", "model", "rule", "result")


def test_a_record_tells_rules_with_their_judgement() -> None:
    made = Judgement(0, None, "contract", "contract_violation", None, None, (RuleResult("first", "broken", "email"),))
    told = msgspec.json.decode(msgspec.json.encode(made))
    assert told["rules"] == [{"rule": "first", "result": "broken", "reason": "email"}]


# ---------------------------------------------------------------- routes


def settings(*contracts: Path) -> Settings:
    routes = tuple(
        Route(name=f"r{number}", prefix=f"/{number}", upstream="http://127.0.0.1:1", contract=str(path))
        for number, path in enumerate(contracts)
    )
    return Settings(routes=routes)


def test_a_route_brings_the_schema_and_the_rules_of_its_contract(tmp_path: Path) -> None:
    path = tmp_path / "contract.yaml"
    path.write_text("schema: {type: object}\nrules: [{name: a, cel: output.a > 1}]\n")
    route = analysed_routes(settings(path))["r0"]
    assert route.contract == b'{"type":"object"}'
    assert route.rules is not None
    assert route.rules.names == ("a",)
    assert route.contract_loaded is True


@pytest.mark.parametrize("text", [None, "rules: [{name: a, cel: output.a >}]", "rules: [", "schema: {type: 12}"])
def test_a_contract_that_broke_after_the_start_is_done_without(
    tmp_path: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "contract.yaml"
    if text is not None:
        path.write_text(text)
    with caplog.at_level(logging.ERROR):
        route = analysed_routes(settings(path))["r0"]
    assert (route.contract, route.rules, route.contract_loaded) == (None, None, False)
    assert "route r0 is judged without its contract" in caplog.text
    assert str(path) in caplog.text


def test_rule_names_are_bounded_over_all_routes(tmp_path: Path) -> None:
    from collector.config_file import check

    half = MAX_RULES // 2 + 1
    for file in ("a", "b"):
        rules = "".join(f"- {{name: {file}{number}, cel: 'true'}}\n" for number in range(half))
        (tmp_path / f"{file}.yaml").write_text("rules:\n" + rules)
    config = tmp_path / "semhealth.yaml"
    one = "routes:\n- {name: a, prefix: /a, upstream: 'http://a', contract: a.yaml}\n"
    config.write_text(one)
    assert check(config) == []
    config.write_text(one + "- {name: b, prefix: /b, upstream: 'http://b', contract: b.yaml}\n")
    assert f"their contracts name {2 * half} rules; at most {MAX_RULES}" in str(check(config)[0])
