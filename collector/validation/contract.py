"""An answer against a route's contract: its schema, and its rules; and a contract's file, read and compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from collector.config import ConfigError, Problem
from collector.contracts.answer import Answer
from collector.contracts.reading import Contract, read_contract
from collector.contracts.rules import Rules, UnusableRuleError, compile_rule
from collector.model import RuleResult
from collector.validation.json_text import read
from collector.validation.judge import against
from collector.validation.schema import Schema, UnusableSchemaError, compile_schema

Verdict = tuple[str, str | None, tuple[RuleResult, ...]]

_UNUSABLE = {
    "schema_invalid": "not a valid JSON Schema of its draft, or with a pattern that cannot be read",
    "schema_unresolvable": "a $ref leads nowhere, or out of the file; nothing is fetched",
    "schema_recursion": "a $ref leads back to itself, or it is nested too deeply",
}


def judge_contract(
    text: str, schema: bytes | None, rules: Rules, compiled: Callable[[bytes], Schema] = compile_schema
) -> Verdict:
    """The result of the catalogue's VALIDITY_RESULTS, the failing keyword of the schema, and what each rule says.

    Without a schema, and with rules that speak of the text alone, any text will do. A broken schema goes before a
    broken rule, and either before what could not be evaluated (`contract_error`). Rules that do not count decide
    nothing. Never raises on any text but MemoryError; may take long, so it runs in a process that can be killed.
    """
    document = read(text)
    is_json = document.fault is None
    results = rules.results(Answer(text, document.value, is_json))
    if document.fault is not None:
        if schema is not None or rules.reads_output:
            return document.fault, None, results
        outcome, keyword = "valid", None
    else:
        outcome, keyword = against(document, schema, "contract", compiled)
    if outcome == "schema_violation":
        return "contract_violation", keyword, results
    told = {each.result for each in results if each.rule in rules.counting}
    if "broken" in told:
        return "contract_violation", None, results
    if outcome != "valid" or "not_evaluated" in told:
        return "contract_error", None, results
    return "valid", None, results


def usable_contract(path: Path) -> Contract:
    """A contract whose schema and rules all compile. Raises ConfigError with everything that is wrong with it."""
    contract = read_contract(path)
    problems = []
    if contract.schema is not None:
        try:
            compile_schema(contract.schema)
        except UnusableSchemaError as error:
            problems.append(Problem("", f"{path}: schema: {_UNUSABLE[error.fault]}"))
    for rule in contract.rules:
        try:
            compile_rule(rule)
        except UnusableRuleError as error:
            problems.append(Problem("", f"{path}: rule {rule.name}: {error}"))
    if problems:
        raise ConfigError(problems)
    return contract
