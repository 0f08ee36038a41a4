"""Each rule that needs one exchange alone fires on its case, tells what the catalogue says, and else keeps still."""

from __future__ import annotations

from typing import Any

import pytest

from collector.catalogue import FINDING_RULE
from collector.findings.judge import CLAIMS, Findings
from collector.findings.policy import Policy
from collector.model import (
    Choice,
    ChunkGaps,
    ErrorFact,
    Exchange,
    Expectation,
    Headers,
    PromptFacts,
    RequestFacts,
    Timing,
    ToolCall,
    UpstreamFacts,
    Usage,
)

from .conftest import made

PATTERNS = b'{"type":"object","patternProperties":{"^x":{"type":"string"}}}'
REFUSED = ErrorFact("invalid_request_error", None, "invalid_request", "upstream", None, False)
LOOP = "Here is the list. " + "and so it goes on and on, " * 40
STREAM = {"stream": True, "transport": "sse"}
STRICT = Policy(system_prompt_tokens=128, checked_headers=("x-request-id",))


def asked(**facts: Any) -> RequestFacts:
    return RequestFacts(model="gpt-4o", **facts)


def headed(*lines: tuple[str, str]) -> Headers:
    return Headers(lines)


# rule → exchanges on which it holds, each with the facts that it tells
HOLDS: list[tuple[str, Exchange, dict[str, object]]] = [
    ("system_prompt_long", made(request=asked(prompt=PromptFacts(129))), {"tokens": 129, "limit": 128}),
    ("markup_comments", made(request=asked(prompt=PromptFacts(10, system_comments=2))), {"comments": 2}),
    ("cr_lf", made(request=asked(prompt=PromptFacts(10, has_cr_lf=True))), {}),
    ("late_constraints", made(request=asked(prompt=PromptFacts(10, late_constraint="vague"))), {"kind": "vague"}),
    (
        "schema_feature_refused",
        made(provider=None, request=asked(expectation=Expectation("json_schema", PATTERNS))),
        {"feature": "patternProperties", "refused": False},
    ),
    (
        "schema_feature_refused",
        made(
            "", status=400, outcome="upstream_error", error=REFUSED, choices=(),
            request=asked(tool_schemas={"f": PATTERNS}),
        ),
        {"feature": "patternProperties", "refused": True},
    ),
    ("schema_feature_refused", made(provider="gcp.gemini", request=asked(tool_schemas={"f": PATTERNS})),
     {"feature": "patternProperties", "refused": False}),
    ("invalid_header_value", made(request_headers=headed(("x-request-id", "a b"))), {"header": "x-request-id"}),
    ("invalid_header_value", made(request_headers=headed(("x-request-id", "ok"), ("x-request-id", "ü"))),
     {"header": "x-request-id"}),
    ("include_usage_missing", made(**STREAM, usage=None, anomalies=("usage_missing",)), {"provider": "openai"}),
    ("max_tokens_low", made(request=asked(max_output_tokens=149, prompt=PromptFacts(longest_answer_tokens=100))),
     {"max_tokens": 149, "longest_answer_tokens": 100}),
    ("model_downgrade", made(response_model="gpt-4o-mini-2024-07-18"),
     {"asked": "gpt-4o", "served": "gpt-4o-mini-2024-07-18", "differs": "size"}),
    ("cut_by_length", made(finish="length", ending="incomplete", outcome="incomplete"),
     {"finish": "length", "output_tokens": 20}),
    ("cut_by_length", made(finish="MAX_TOKENS", ending="incomplete", outcome="incomplete", usage=None,
                           request=asked(max_output_tokens=7)), {"finish": "MAX_TOKENS", "max_tokens": 7}),
    ("cut_by_length", made(finish="incomplete", ending="incomplete", outcome="incomplete", dialect="openai.responses"),
     {"finish": "incomplete", "output_tokens": 20}),
    ("diagnostic_mode", made(upstream=UpstreamFacts("anthropic-internal-17")), {"prefix": "anthropic-internal-"}),
    ("answer_repeats", made(LOOP), {"period_chars": 26, "repeats": 40}),
    ("answer_empty", made("", usage=Usage(10, 3)), {"finish": "stop", "output_tokens": 3}),
    ("answer_empty", made("", usage=Usage(10, 300, reasoning_output_tokens=297)),
     {"finish": "stop", "output_tokens": 300}),
    ("stream_stalls", made(**STREAM, timing=Timing(stalls=2, chunk_gaps=ChunkGaps(9, max=3.21049))),
     {"stalls": 2, "longest_gap": 3.21}),
    ("usage_missing", made(usage=None, anomalies=("usage_missing",)), {"provider": "openai"}),
    ("wrong_region", made(upstream=UpstreamFacts(region="East US 2", residency_requested="eu")),
     {"asked": "eu", "served": "East US 2"}),
    ("deprecation", made(is_deprecated=True), {}),
    ("text_corrected", made(correction_ratio=0.17), {"correction_ratio": 0.17}),
]  # fmt: skip

# rule → exchanges that look like its case and are none
HOLDS_NOT: list[tuple[str, Exchange]] = [
    ("system_prompt_long", made(request=asked(prompt=PromptFacts(128)))),
    ("system_prompt_long", made()),
    ("markup_comments", made(request=asked(prompt=PromptFacts(10)))),
    ("schema_feature_refused", made(request=asked(expectation=Expectation("json_schema", PATTERNS)))),
    ("schema_feature_refused", made(provider="anthropic", request=asked(tool_schemas={"f": PATTERNS}))),
    ("schema_feature_refused", made(provider=None, request=asked(expectation=Expectation("json")))),
    ("invalid_header_value", made(request_headers=headed(("x-request-id", "a-Z_9"), ("x-other", "a b")))),
    ("include_usage_missing", made(**STREAM)),
    ("include_usage_missing", made(**STREAM, usage=None, request=asked(include_usage=True))),
    ("include_usage_missing", made(**STREAM, usage=None, dialect="anthropic.messages")),
    ("include_usage_missing", made(**STREAM, usage=None, dialect="openai.completions", provider="writer")),
    ("include_usage_missing", made(**STREAM, usage=None, outcome="client_disconnect")),
    ("usage_missing", made(**STREAM, usage=None, anomalies=("usage_missing",))),
    ("max_tokens_low", made(request=asked(max_output_tokens=150, prompt=PromptFacts(longest_answer_tokens=100)))),
    ("max_tokens_low", made(request=asked(max_output_tokens=5, prompt=PromptFacts(longest_answer_tokens=49)))),
    ("max_tokens_low", made(request=asked(prompt=PromptFacts(longest_answer_tokens=4000)))),
    ("model_downgrade", made(response_model="gpt-4o-mini", request=asked(fallback_models=("gpt-4o-mini",)))),
    ("model_downgrade", made(response_model=None)),
    ("cut_by_length", made(finish="pause_turn", ending="incomplete", outcome="incomplete")),
    ("cut_by_length", made(finish="incomplete", ending="incomplete", outcome="blocked", dialect="openai.responses")),
    ("diagnostic_mode", made(upstream=UpstreamFacts("req_internal-17"))),
    ("answer_repeats", made("A word. " * 10)),
    ("answer_repeats", made("| --- " * 200)),
    ("answer_empty", made("", choices=(Choice(0, "", True, "stop", "completed", refusal_chars=12),))),
    ("answer_empty", made("", usage=None, tool_calls=(ToolCall(0, 0, "f", "{}", True),))),
    ("answer_empty", made("", usage=Usage(10, 18))),
    ("answer_empty", made("", outcome="incomplete", ending="incomplete", finish="length")),
    ("answer_empty", made("", operation="embeddings")),
    ("stream_stalls", made(**STREAM, timing=Timing(stalls=0))),
    ("wrong_region", made(upstream=UpstreamFacts(region="West Europe", residency_requested="eu"))),
    ("wrong_region", made(upstream=UpstreamFacts(region="me-central-1", residency_requested="eu"))),
    ("text_corrected", made(correction_ratio=0.009)),
]


def rules(exchange: Exchange, policy: Policy = STRICT) -> dict[str, dict[str, Any]]:
    return {found.rule: found.facts for found in Findings({"r": policy}).judge(exchange)}


@pytest.mark.parametrize(("rule", "exchange", "facts"), HOLDS, ids=[rule for rule, *_ in HOLDS])
def test_a_rule_holds_and_tells_what_it_saw_and_no_other_does(rule, exchange, facts):
    assert rules(exchange) == {rule: facts}
    assert set(facts) <= set(FINDING_RULE[rule].facts)


@pytest.mark.parametrize(("rule", "exchange"), HOLDS_NOT, ids=[rule for rule, _ in HOLDS_NOT])
def test_what_only_looks_like_it_is_none(rule, exchange):
    assert rule not in rules(exchange)


def test_every_rule_of_one_exchange_has_its_case():
    assert {rule for rule, *_ in HOLDS} == {claim.__name__ for claim, _ in CLAIMS}


@pytest.mark.parametrize(("rule", "exchange", "facts"), HOLDS, ids=[rule for rule, *_ in HOLDS])
def test_a_rule_that_is_off_holds_nowhere(rule, exchange, facts):
    off = Policy(frozenset({rule}), STRICT.system_prompt_tokens, STRICT.checked_headers)
    assert rule not in rules(exchange, off)


def test_without_a_limit_and_names_the_rules_that_need_them_keep_still():
    exchange = made(request=asked(prompt=PromptFacts(9999)), request_headers=headed(("x-request-id", "a b")))
    assert rules(exchange, Policy()) == {}


def test_an_alias_is_no_downgrade_and_prefixes_can_be_set():
    policy = Policy(aliases=frozenset({("gpt-4o", "gpt-4o-mini")}), diagnostic_prefixes=("test-",))
    assert rules(made(response_model="gpt-4o-mini"), policy) == {}
    assert rules(made(upstream=UpstreamFacts("internal-1")), policy) == {}
    assert rules(made(upstream=UpstreamFacts("test-1")), policy) == {"diagnostic_mode": {"prefix": "test-"}}


def test_an_ordinary_exchange_has_no_finding():
    assert rules(made()) == {}
