"""What rules say of an answer, and what follows for the judgement."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.catalogue import RULE_REASONS, RULE_RESULTS, VALIDITY_RESULTS
from collector.contracts import rules as rules_room
from collector.contracts.answer import Answer
from collector.contracts.rule import Bound, Cel, Personal, Rule, Values, rule_set
from collector.contracts.rules import RulesCache, compile_rules
from collector.validation.contract import judge_contract

RISK = Rule("risk", Cel('output.risk == "high" ? output.amount > 1000000 : true'))
CODE = Rule("code", Values("diagnoses[*].code", ("1A00", "1A01")))
SURE = Rule("sure", Bound("confidence", "floor", 0.85))
PRIVATE = Rule("private", Personal(("email", "card")))
SHORT = Rule("short", Cel("size(text) < 200"))
SCHEMA = b'{"type":"object","required":["risk"]}'
GOOD = '{"risk": "high", "amount": 2000000, "confidence": 0.9, "diagnoses": [{"code": "1A00"}]}'


def judged(text: str, *rules: Rule, schema: bytes | None = None) -> tuple[str, str | None, dict[str, str]]:
    """The result, the keyword, and what each rule says with its reason."""
    result, keyword, said = judge_contract(text, schema, compile_rules(rule_set(rules).text))
    return result, keyword, {each.rule: f"{each.result} {each.reason or ''}".strip() for each in said}


def test_an_answer_that_keeps_every_rule_is_valid() -> None:
    assert judged(GOOD, RISK, CODE, SURE, PRIVATE, schema=SCHEMA) == (
        "valid", None, {"risk": "kept", "code": "kept", "sure": "kept", "private": "kept"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "rule", "expected"),
    [
        ('{"risk": "high", "amount": 5}', RISK, "broken"),
        ('{"risk": "low", "amount": 5}', RISK, "kept"),
        ('{"risk": "high"}', RISK, "not_evaluated missing"),
        ('{"risk": "high", "amount": "much"}', RISK, "not_evaluated type"),
        ('{"diagnoses": [{"code": "1A00"}, {"code": "ZZ"}]}', CODE, "broken"),
        ('{"diagnoses": []}', CODE, "kept"),
        ('{"diagnoses": [{"code": null}]}', CODE, "not_evaluated type"),
        ('{"diagnoses": [{"code": null}, {"code": "ZZ"}]}', CODE, "broken"),  # one that is surely wrong
        ('{"diagnoses": [{}]}', CODE, "not_evaluated missing"),
        ('{"confidence": 0.85}', SURE, "broken"),
        ('{"confidence": 0.851}', SURE, "kept"),
        ('{"confidence": true}', SURE, "not_evaluated type"),
        ('{"n": 1}', Rule("n", Bound("n", "at_least", 1.0)), "kept"),
        ('{"n": 1}', Rule("n", Bound("n", "at_most", 0.5)), "broken"),
        ('{"n": 12}', Rule("n", Values("n", ("12", "true"))), "kept"),
        ('{"n": true}', Rule("n", Values("n", ("12", "true"))), "kept"),
        ('{"mail": "bob\\u0040acme.io"}', PRIVATE, "broken email"),
        ('{"mail": "on file"}', PRIVATE, "kept"),
        ("no json", RISK, "not_evaluated not_json"),
        ("mail bob@acme.io", PRIVATE, "broken email"),
        ("no json", SHORT, "kept"),
        ("x" * 300, SHORT, "broken"),
        ('{"n": 1}', Rule("n", Bound("n", "at_least", 5.0), when='output.kind == "big"'), "not_evaluated missing"),
        ('{"n": 1, "kind": "big"}', Rule("n", Bound("n", "at_least", 5.0), when='output.kind == "big"'), "broken"),
        ('{"n": 1, "kind": "x"}', Rule("n", Bound("n", "at_least", 5.0), when='output.kind == "big"'), "skipped"),
        ("{}", Rule("bad", Cel("output.a >")), "not_evaluated unusable"),
        ("{}", Rule("bad", Values("x[", ("1",))), "not_evaluated unusable"),
    ],
)
def test_a_rule_is_kept_broken_skipped_or_not_evaluated(text: str, rule: Rule, expected: str) -> None:
    _, _, said = judged(text, rule)
    assert said == {rule.name: expected}


@pytest.mark.parametrize(
    ("text", "rules", "schema", "expected"),
    [
        ('{"risk": "high", "amount": 5}', (RISK,), SCHEMA, ("contract_violation", None)),
        ('{"amount": 5}', (SURE,), SCHEMA, ("contract_violation", "required")),  # the schema goes first
        ('{"risk": "high"}', (RISK,), SCHEMA, ("contract_error", None)),
        ('{"risk": "high", "confidence": 0.1}', (RISK, SURE), SCHEMA, ("contract_violation", None)),
        ('{"risk": "high"}', (SHORT,), b'{"type":12}', ("contract_error", None)),
        ("x" * 300, (SHORT,), b'{"type":12}', ("not_json", None)),
        ('{"risk":"low","pad":"' + "x" * 300 + '"}', (SHORT,), b'{"type":12}', ("contract_violation", None)),
        ("no json", (RISK,), None, ("not_json", None)),  # a rule speaks of JSON, so JSON is wanted
        ("no json", (SHORT,), None, ("valid", None)),  # text is as good
        ("mail bob@acme.io", (PRIVATE,), None, ("contract_violation", None)),
        ("mail bob@acme.io", (PRIVATE,), SCHEMA, ("not_json", None)),
        ('```json\n{"risk": "low"}\n```', (RISK,), None, ("fenced", None)),
        ('{"risk": "high", "amount": 5}', (msgspec.structs.replace(RISK, counts=False),), SCHEMA, ("valid", None)),
        ('{"risk": "high"}', (msgspec.structs.replace(RISK, counts=False),), SCHEMA, ("valid", None)),
    ],
)
def test_what_follows_for_the_judgement(
    text: str, rules: tuple[Rule, ...], schema: bytes | None, expected: tuple[str, str | None]
) -> None:
    result, keyword, said = judged(text, *rules, schema=schema)
    assert (result, keyword) == expected
    assert set(said) == {rule.name for rule in rules}


def test_a_library_that_fails_takes_no_other_rule_along(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Personal) -> Any:
        def find(_: str) -> str:
            raise ZeroDivisionError

        return find

    monkeypatch.setattr(rules_room, "finder", broken)
    _, _, said = judged(GOOD, PRIVATE, SURE)
    assert said == {"private": "not_evaluated failed", "sure": "kept"}


def test_compiled_rules_are_kept_within_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = RulesCache()
    first = rule_set((SURE,)).text
    assert cache(first) is cache(first)
    kept = cache(first)
    monkeypatch.setattr(RulesCache, "CONTRACTS", 2)
    for number in range(3):
        cache(rule_set((Rule(f"r{number}", Cel("true")),)).text)
    assert cache(first) is not kept
    assert len(cache._compiled) == 2
    monkeypatch.setattr(RulesCache, "BYTES", 10)
    cache(rule_set((RISK,)).text)
    assert cache._compiled == {}
    assert cache._bytes == 0


def test_what_is_no_rule_set_says_nothing() -> None:
    assert RulesCache()(b"junk").results(Answer("x")) == ()


EVERY = compile_rules(rule_set((RISK, CODE, SURE, PRIVATE, SHORT, Rule("bad", Cel("x")))).text)
MEMBERS = st.sampled_from(["risk", "amount", "confidence", "diagnoses", "code"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS | st.text(max_size=3), inner, max_size=4),
    max_leaves=15,
)


@given(JSON.map(lambda value: msgspec.json.encode(value).decode()) | st.text(max_size=80))
def test_any_answer_is_judged(text: str) -> None:
    result, _, said = judge_contract(text, SCHEMA, EVERY)
    assert result in VALIDITY_RESULTS
    assert [each.rule for each in said] == ["risk", "code", "sure", "private", "short", "bad"]
    for each in said:
        assert each.result in RULE_RESULTS
        assert each.reason is None or each.reason in RULE_REASONS
        found = (each.rule, each.result) == ("private", "broken")
        assert (each.reason is not None) == (found or each.result == "not_evaluated")
