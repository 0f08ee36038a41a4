"""Rules with a memory: time series on which they hold, and ones on which they do not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from collector.findings import trends
from collector.findings.judge import TREND_RULES, Findings
from collector.findings.levels import ENOUGH, Level
from collector.findings.policy import Policy
from collector.model import Exchange, RateLimit, RequestFacts, Timing, UpstreamFacts, Usage

from .conftest import made


def play(exchanges: list[Exchange], early: bool = False, policy: Policy | None = None) -> list[dict[str, dict]]:
    """Findings of each exchange, in their order, by rule."""
    findings = Findings({"r": policy if policy is not None else Policy()})
    return [{found.rule: found.facts for found in findings.judge(each, early)} for each in exchanges]


def seen(played: list[dict[str, dict]]) -> set[str]:
    return set().union(*played)


def prefilled(
    seconds: float, at: float = 0.0, *, load: float = 0.4, inputs: int = 1000, loading: float | None = None
) -> Exchange:
    phases = {"prefill": seconds} if loading is None else {"prefill": seconds, "load": loading}
    return made(
        upstream=UpstreamFacts(model_load=load, phases=phases),
        usage=Usage(inputs, 50),
        answered=at,
    )


USUAL = [prefilled(0.2 + 0.01 * (number % 7), number) for number in range(40)]


def test_a_long_prefill_under_normal_load_is_a_cold_start():
    *before, last = play([*USUAL, prefilled(4.2, 41)])
    assert seen(before) == set()
    assert last == {"cold_start": {"prefill": 4.2, "usual": pytest.approx(0.23, abs=0.01)}}


@pytest.mark.parametrize(
    "last",
    [
        prefilled(4.2, load=0.95),  # busy, not cold
        prefilled(4.2, inputs=9000),  # a longer prompt
        prefilled(0.6),  # not far enough
    ],
)
def test_a_prefill_that_has_another_reason_is_none(last):
    assert "cold_start" not in seen(play([*USUAL, last]))


def test_too_few_answers_have_no_level():
    assert seen(play([*USUAL[: ENOUGH - 1], prefilled(9.0)])) == set()


def test_a_told_load_time_is_a_cold_start_at_once():
    [only] = play([prefilled(0.1, loading=3.8)])
    assert only == {"cold_start": {"prefill": 0.1, "load_time": 3.8}}
    assert play([prefilled(0.1, loading=0.14)]) == [{}]


def test_a_slower_upstream_becomes_the_usual_one():
    slower = [prefilled(1.2, 40 + number) for number in range(200)]
    assert "cold_start" not in seen(play([*USUAL, *slower])[-100:])


def hit(ratio: float, told: bool = True) -> Exchange:
    if told:
        return made(upstream=UpstreamFacts(kv_cache_hit_ratio=ratio))
    return made(usage=Usage(2000, 20, int(2000 * ratio)))


@pytest.mark.parametrize("told", [True, False])
def test_a_cache_that_is_no_more_hit_is_told_until_that_is_usual(told):
    played = play([hit(0.95, told)] * 30 + [hit(0.0, told)] * 100)
    assert seen(played[:31]) == set()
    assert seen(played[34:40]) == {"cache_hit_collapse"}
    assert seen(played[-10:]) == set()


def test_caches_that_never_helped_or_waver_are_no_collapse():
    dice = random.Random(7)  # noqa: S311 - seeded draws are the point
    assert seen(play([hit(0.1)] * 40 + [hit(0.0)] * 10)) == set()
    assert seen(play([hit(dice.uniform(0.7, 1.0)) for _ in range(300)])) == set()
    assert seen(play([made(usage=Usage(900, 20, 800))] * 40 + [made(usage=Usage(900, 20, 0))] * 10)) == set()


def loaded(load: float, at: float) -> Exchange:
    return made(upstream=UpstreamFacts(model_load=load), answered=at)


def test_a_load_that_stays_high_announces_an_overload():
    played = play([loaded(0.9, 10 + number) for number in range(6)])
    assert [set(found) for found in played] == [set()] * 4 + [{"overload_coming"}] * 2
    assert played[-1]["overload_coming"] == {"load": 0.9, "seconds": 5.0}


@pytest.mark.parametrize(
    "series",
    [
        [(0.9, number * 0.1) for number in range(20)],  # not for long enough
        [(0.9, 0.0), (0.9, 10.0), (0.9, 20.0), (0.9, 25.0)],  # too few
        [(0.9 if number % 4 else 0.5, number) for number in range(30)],  # it eases in between
        [(0.9, number * 40.0) for number in range(20)],  # nobody knows what was in between
        [(0.8, number) for number in range(20)],
    ],
)
def test_a_load_that_is_not_sustained_does_not(series):
    assert seen(play([loaded(*each) for each in series])) == set()


def test_the_limit_of_the_load_can_be_set():
    assert seen(play([loaded(0.9, number) for number in range(9)], policy=Policy(overload_load=0.95))) == set()


def allowed(remaining: float, at: float, reset: float | None = 50.0, limit: float = 1000.0) -> Exchange:
    return made(rate_limits=(RateLimit("requests", "minute", limit, remaining, None, reset),), answered=at)


def test_a_quota_that_runs_out_before_its_reset_is_told():
    played = play([allowed(900 - 40 * second, second, 60 - second) for second in range(20)])
    assert seen(played[:10]) == set()
    assert played[19]["quota_running_out"] == {
        "scope": "requests", "window": "minute", "remaining": 140, "limit": 1000.0, "seconds_left": 3.5,
        "reset_after": 41,
    }  # fmt: skip


@pytest.mark.parametrize(
    "series",
    [
        [allowed(900 - 40 * second, second, 3.0) for second in range(20)],  # it resets first
        [allowed(900 - 40 * second, second, None) for second in range(20)],  # nobody says when
        [allowed(900 - second, second, 60.0) for second in range(120)],  # slow
        [allowed(300.0, second, 60.0) for second in range(60)],  # it stands still
        [allowed(900 - 40 * (second % 10), second, 60.0) for second in range(60)],  # it fills in between
        [allowed(0.0, second, 60.0, limit=0.0) for second in range(60)],  # no allowance at all
    ],
)
def test_a_quota_that_lasts_is_not(series):
    assert seen(play(series)) == set()


def test_early_retries_are_told_and_many_within_a_minute_are_a_storm():
    retries = [made(status=429, outcome="upstream_error", started=float(number)) for number in range(6)]
    played = play(retries, early=True)
    assert [set(found) for found in played] == [{"early_retry"}] * 4 + [{"early_retry", "retry_storm"}] * 2
    assert played[-1]["retry_storm"] == {"early_retries": 5, "seconds": 4.0}
    slow = [replace(each, started=each.started * 30) for each in retries]
    assert seen(play(slow, early=True)) == {"early_retry"}


def timed(stream: bool, timeout: float | None = None, inputs: int = 1000, limit: int | None = None) -> Exchange:
    return made(
        stream=stream,
        timing=Timing(first_token=1.0, duration=6.0, time_per_output_token=0.05),
        usage=Usage(inputs, 100),
        request=RequestFacts(max_output_tokens=limit),
        client_timeout=timeout,
    )


@pytest.mark.parametrize(
    ("last", "recommended"),
    [
        (timed(True, 1.7), 1.8),  # 1 s until the first token
        (timed(False, 10.7), 10.8),  # 1 s, and 100 tokens of 0.05 s
        (timed(False, 3.5, limit=20), 3.6),  # no more than its limit
        (timed(True, 5.3, inputs=3000), 5.4),  # three times the usual prompt
    ],
)
def test_a_timeout_below_what_the_model_needs_is_told(last, recommended):
    played = play([timed(True)] * 12 + [last])
    assert seen(played[:-1]) == set()
    assert played[-1]["client_timeout_short"] == {"timeout": last.client_timeout, "recommended": recommended}
    patient = replace(last, client_timeout=recommended + 0.1)
    assert seen(play([timed(True)] * 12 + [patient])) == set()
    assert seen(play([timed(True)] * 9 + [last])) == set()


def test_where_no_first_token_is_seen_the_duration_counts():
    whole = made(timing=Timing(duration=4.0))
    played = play([whole] * 12 + [replace(whole, client_timeout=7.0)])
    assert played[-1] == {"client_timeout_short": {"timeout": 7.0, "recommended": 7.2}}


def test_a_recommended_timeout_is_told_every_few_seconds():
    findings = Findings()
    exchange = timed(True)
    told = []
    for second in range(30):
        findings.judge(exchange)
        told += [(second, round(each.value, 6)) for each in findings.readings(exchange.record, float(second))]
    assert told == [(10, 10.8), (15, 10.8), (20, 10.8), (25, 10.8)]


def test_every_rule_with_a_memory_is_tried_here():
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(f'"{rule}"' in text for rule in TREND_RULES)


def test_a_rule_that_is_off_holds_nowhere():
    policy = Policy(off=TREND_RULES)
    assert seen(play([*USUAL, prefilled(9.0)], policy=policy)) == set()
    assert seen(play([made()] * 9, early=True, policy=policy)) == set()


def test_the_memory_is_bounded():
    findings = Findings()
    for number in range(3 * trends.MAX_PAIRS):
        limits = (RateLimit(f"scope{number}", None, 10.0, 5.0, None, 60.0),)
        findings.judge(made(response_model=f"m{number}", route=f"r{number}", rate_limits=limits, answered=1.0), True)
    kept = findings._trends
    assert len(kept._pairs) == trends.MAX_PAIRS
    assert len(kept._allowances) == trends.MAX_ALLOWANCES
    assert len(kept._retries) == trends.MAX_ROUTES


def test_a_level_is_the_mean_first_and_follows_slowly_then():
    level = Level()
    for value in (1.0, 2.0, 3.0):
        level.observe(value)
    assert level.slow == pytest.approx(2.0)
    for _ in range(100):
        level.observe(2.0)
    level.observe(10.0)
    assert level.slow == pytest.approx(2.16, abs=0.01)
    assert level.fast == pytest.approx(4.4, abs=0.01)
