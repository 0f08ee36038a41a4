"""Judging never fails and costs little; findings become counts, and settings policies."""

from __future__ import annotations

import json
import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from collector.app import analysed_routes, policy_of
from collector.catalogue import BY_NAME, FINDING_RULE, label_names
from collector.config import FindingSettings, ModelAlias, Route, Settings
from collector.findings.judge import CLAIMS, TREND_RULES, Findings
from collector.findings.policy import Policy
from collector.model import Finding, PromptFacts, RateLimit, RequestFacts, Timing, UpstreamFacts, Usage

from .conftest import made

numbers = st.none() | st.floats(0, 1e9)
counts = st.none() | st.integers(0, 10**12)
words = st.none() | st.text(max_size=20)
exchanges = st.builds(
    lambda text, finish, ending, status, outcome, usage, load, phases, limit, at, timing, model, facts, timeout: made(
        text if text is not None else "", finish, ending, status=status, outcome=outcome, usage=usage,
        upstream=UpstreamFacts(text, text, finish, model_load=load, kv_cache_hit_ratio=load, phases=phases),
        rate_limits=limit, answered=at, timing=timing, response_model=model, request=facts, client_timeout=timeout,
        stream=bool(finish), anomalies=("usage_missing",),
    ),
    words, words, st.sampled_from([None, "incomplete", "completed", "blocked"]),
    st.none() | st.integers(100, 599), st.sampled_from(["completed", "incomplete", "upstream_error", "truncated"]),
    st.none() | st.builds(Usage, counts, counts, counts, counts, counts), st.none() | st.floats(0, 1),
    st.dictionaries(st.sampled_from(["prefill", "decode", "load"]), st.floats(0, 1e6)),
    st.lists(st.builds(RateLimit, words.map(str), words, numbers, numbers, numbers, numbers), max_size=2).map(tuple),
    st.none() | st.floats(0, 1e9), st.builds(Timing, first_token=numbers, duration=numbers, stalls=counts),
    words, st.builds(RequestFacts, model=words, max_output_tokens=counts), numbers,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(exchanges, max_size=30), st.booleans())
def test_any_series_of_exchanges_is_judged(series, early):
    findings = Findings()
    for exchange in series:
        for found in findings.judge(exchange, early):
            rule = FINDING_RULE[found.rule]
            assert found.severity == rule.severity
            assert set(found.facts) <= set(rule.facts)
            assert len(json.dumps(found.facts)) < 2000
        list(findings.readings(exchange.record, exchange.monotonic))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(exchanges, st.booleans(), st.booleans(), st.none() | st.sampled_from(["eu", "us"]))
def test_no_rule_that_holds_is_passed_by(exchange, deprecated, prompted, residency):
    record = exchange.record
    is_cut = any(choice.ending == "incomplete" for choice in exchange.choices)
    record = replace(
        record,
        anomalies=("usage_missing",) if record.usage is None else (),
        outcome="incomplete" if is_cut and record.outcome == "completed" else record.outcome,
        correction_ratio=0.5 if deprecated else None,
        upstream=replace(record.upstream, residency_requested=residency, region="us-east-1"),
    )
    prompt = PromptFacts(10, 1, True, "vague", 10_000) if prompted else PromptFacts()
    asked = replace(exchange.request, prompt=prompt)
    exchange = replace(exchange, record=record, request=asked, is_deprecated=deprecated)
    policy = Policy(system_prompt_tokens=5)
    holding = [claim.__name__ for claim, _ in CLAIMS if claim(exchange, policy) is not None]
    found = [each.rule for each in Findings({record.route: policy}).judge(exchange)]
    assert [rule for rule in found if rule not in TREND_RULES] == holding


def test_a_finding_is_counted_by_route_model_rule_and_severity():
    record = replace(made().record, findings=(Finding("cr_lf", "info"), Finding("deprecation", "info")))
    told = list(Findings().readings(record, 0.0))
    assert [(each.metric, each.value, each.labels) for each in told] == [
        ("semantic_health_findings_total", 1.0, ("r", "gpt-4o-2024-11-20", "cr_lf", "info")),
        ("semantic_health_findings_total", 1.0, ("r", "gpt-4o-2024-11-20", "deprecation", "info")),
    ]
    assert label_names(BY_NAME["semantic_health_findings_total"]) == ("route", "model", "rule", "severity")


def test_judging_an_ordinary_exchange_costs_little():
    limits = (RateLimit("requests", "minute", 5000.0, 4900.0, None, 1.0),) * 2
    upstream = UpstreamFacts("req_1", model_load=0.4, kv_cache_hit_ratio=0.97, phases={"prefill": 0.1, "decode": 0.5})
    exchange = made(rate_limits=limits, upstream=upstream, answered=1.0, client_timeout=600.0,
                    timing=Timing(first_token=0.2, duration=1.0, time_per_output_token=0.02))  # fmt: skip
    findings, best = Findings({"r": Policy()}), 1.0
    for _ in range(50):
        began = time.perf_counter()
        for _ in range(100):
            findings.judge(exchange)
        best = min(best, (time.perf_counter() - began) / 100)
    assert best < 100e-6, "25 µs is what it may cost on a quiet machine"


def test_settings_become_policies():
    assert policy_of(FindingSettings()) == Policy()
    assert policy_of(FindingSettings(profile="strict")).system_prompt_tokens == 128
    assert policy_of(FindingSettings(profile="strict", system_prompt_tokens=500)).system_prompt_tokens == 500
    aliases = policy_of(FindingSettings(aliases=(ModelAlias(asked="a", served="b"),))).aliases
    assert aliases == {("a", "b")}


def test_a_route_has_its_own_findings_or_those_of_all():
    own = FindingSettings(off=("cr_lf",))
    settings = Settings(
        routes=(
            Route(name="a", upstream="http://a.test", prefix="/a"),
            Route(name="b", upstream="http://b.test", prefix="/b", findings=own),
        ),
        findings=FindingSettings(retry_storm=9),
    )
    routes = analysed_routes(settings)
    assert routes["a"].findings.retry_storm == 9
    assert routes["b"].findings == Policy(off=frozenset({"cr_lf"}))
