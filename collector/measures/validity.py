"""Is the answer what the schema asked for?"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import sha256

from msgspec import UNSET
from msgspec.structs import replace

from collector.catalogue import VALIDITY_CHECKED
from collector.model import (
    Choice,
    Exchange,
    Expectation,
    Judgement,
    Meters,
    RuleResult,
    RuleSet,
    ToolCall,
    ValidationTask,
    Validity,
)

# Outcomes after which nobody knows how the answer would have gone on.
CUT_OUTCOMES = frozenset({"truncated", "client_disconnect", "error_event"})
# Finish words of a choice that waits for the results of its tools.
TOOL_WORDS = frozenset({"tool_calls", "function_call", "tool_use", "TOOL_CALL"})
CLEAN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CHECKED = frozenset(VALIDITY_CHECKED)
ANY_OBJECT = b'{"type":"object"}'  # what JSON mode promises, as a schema


def tasks(
    exchange: Exchange, contract: bytes | None = None, rules: RuleSet | None = None
) -> tuple[ValidationTask, ...]:
    """What of an exchange is to be judged: a task per answer that a schema was asked for, and one per tool call.

    `contract` is the JSON Schema of the route, for requests that ask for no schema themselves; `rules`, of the same
    contract, are for every answer and make its judgement one of kind `contract`. Tasks that need no validator come
    back with their result: output that was cut, blocked, refused or never written is not invalid.
    No answer at all, and a tool the request does not describe, make no task.
    """
    if exchange.request.expectation is None and contract is None and rules is None and not exchange.tool_calls:
        return ()  # as most
    kind, expectation = _asked(exchange.request.expectation, contract)
    asked = expectation.schema
    if rules is not None:
        asked = ANY_OBJECT if kind == "json" and asked is None else asked
        kind = "contract"
    found: list[ValidationTask] = []
    called = {call.choice for call in exchange.tool_calls}
    if kind is not None:
        schema_id = _schema_id(expectation)
        for choice in exchange.choices:
            empty = not choice.text.strip()
            if choice.index in called and (empty or choice.finish in TOOL_WORDS):
                continue  # It answered with a tool call; text beside one is no final answer.
            decided = _undecidable(exchange, choice)
            if decided is None and empty:
                decided = "empty"
            if decided is None and not choice.text_complete:
                decided = "output_over_cap"
            text = json.dumps(choice.text) if expectation.is_text else choice.text
            found.append(ValidationTask(choice.index, None, kind, text, asked, schema_id, decided, rules))
    by_index = {choice.index: choice for choice in exchange.choices}
    for call in exchange.tool_calls:
        schema = None if call.name is None else exchange.request.tool_schemas.get(call.name)
        if schema is not None:
            schema_id = _schema_id(Expectation("json_schema", schema, call.name))
            decided = _undecidable(exchange, by_index.get(call.choice))
            if decided is None and not call.arguments_complete:
                decided = "output_over_cap"
            text = _arguments(call)
            found.append(ValidationTask(call.choice, call.index, "tool_arguments", text, schema, schema_id, decided))
    return tuple(found)


def _asked(expectation: Expectation | None, contract: bytes | None) -> tuple[str | None, Expectation]:
    if expectation is not None:
        return expectation.kind, expectation
    return (None if contract is None else "contract"), Expectation("json_schema", contract)


def _schema_id(expectation: Expectation) -> str | None:
    """The schema's name when it is short and plain, else the start of its hash; None without a schema."""
    if expectation.name is not None and CLEAN_NAME.fullmatch(expectation.name) is not None:
        return expectation.name
    return None if expectation.schema is None else sha256(expectation.schema).hexdigest()[:12]


def _undecidable(exchange: Exchange, choice: Choice | None) -> str | None:
    """Why an output cannot be blamed on the model, or None. What the choice itself says goes before the outcome."""
    outcome = exchange.record.outcome
    ending = None if choice is None else choice.ending
    if ending == "blocked" or (outcome == "blocked" and ending is None):
        return "blocked"
    if ending == "refusal" or (choice is not None and choice.refusal_chars > 0):
        return "refusal"
    if outcome in CUT_OUTCOMES or ending in ("incomplete", "error"):
        return "truncated"
    return None


def _arguments(call: ToolCall) -> str:
    # A tool without parameters is called with "" or "{}", as the provider likes.
    return call.arguments if call.arguments.strip() else "{}"


def judgement(
    task: ValidationTask, result: str, keyword: str | None = None, rules: tuple[RuleResult, ...] = ()
) -> Judgement:
    """The judgement that answers a task. Rules that nobody tried are `skipped`, or went down with the validator."""
    made = Judgement(task.choice, task.tool_index, task.kind, result, task.schema_id, keyword)
    if task.rules is None:
        return made
    untried = ("not_evaluated", "timeout") if result == "validator_timeout" else ("skipped", None)
    return replace(made, rules=rules or tuple(RuleResult(name, *untried) for name in task.rules.names))


def validity(judgements: Sequence[Judgement]) -> Validity | None:
    """All judgements of an exchange in one: the first failing, else the first unchecked, else valid. None of none."""
    if not judgements:
        return None
    deciding = next(
        (each for each in judgements if each.result in CHECKED and each.result != "valid"),
        next((each for each in judgements if each.result not in CHECKED), judgements[0]),
    )
    checked = deciding.result in CHECKED
    return Validity(
        checked=checked,
        valid=deciding.result == "valid" if checked else None,
        result=deciding.result,
        kind=deciding.kind,
        schema_id=deciding.schema_id,
        judgements=tuple(judgements),
        tool_arguments=_by_tool(judgements),
    )


def _by_tool(judgements: Sequence[Judgement]) -> dict[str, str]:
    """Results of tool calls by index; where choices called under one index, one that is not valid stays."""
    results: dict[str, str] = {}
    for each in judgements:
        if each.tool_index is not None and results.get(str(each.tool_index), "valid") == "valid":
            results[str(each.tool_index)] = each.result
    return results


def measure(judged: Validity, meters: Meters) -> None:
    """Each judgement by its result, what failed, and the share of those that say something of the model."""
    for each in judged.judgements:
        meters["semantic_health_output_validations_total", each.kind, each.result](1.0)
        if each.keyword is not None:
            meters["semantic_health_output_validation_failures_total", each.keyword](1.0)
        if each.rules is not UNSET:
            for rule in each.rules:
                meters["semantic_health_contract_rules_total", rule.rule, rule.result](1.0)
        if each.result in CHECKED:
            meters["semantic_health_model_output_validity_rate"](1.0 if each.result == "valid" else 0.0)
