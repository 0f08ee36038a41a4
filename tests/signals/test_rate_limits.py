"""Every family of limit headers, in one normal form."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Headers, Names, RateLimit
from collector.signals.rate_limits import MAX_LIMITS, MAX_NAME, MAX_SCOPE, MAX_UNKNOWN, rate_limits, unknown_names
from collector.signals.values import moment

NOW = moment("2026-08-19T14:34:00Z")


def read(
    lines: dict[str, str] | list[tuple[str, str]], provider: str | None = None, arrived: float | None = NOW
) -> tuple[RateLimit, ...]:
    limits, unreadable = rate_limits(
        Headers(tuple(lines.items() if isinstance(lines, dict) else lines)), provider, arrived
    )
    assert not unreadable
    return limits


def test_openai_names_requests_and_tokens() -> None:
    assert read({
        "x-ratelimit-limit-requests": "14400", "x-ratelimit-remaining-requests": "14370",
        "x-ratelimit-reset-requests": "2m59.56s", "x-ratelimit-limit-tokens": "18000",
        "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6ms",
    }) == (
        RateLimit("requests", None, 14400, 14370, None, pytest.approx(179.56)),
        RateLimit("tokens", None, 18000, 0, None, pytest.approx(0.006)),
    )  # fmt: skip


def test_groq_counts_requests_by_the_day_and_tokens_by_the_minute() -> None:
    limits = read({"x-ratelimit-limit-requests": "1000", "x-ratelimit-limit-tokens": "6000"}, "groq")
    assert [(limit.scope, limit.window) for limit in limits] == [("requests", "day"), ("tokens", "minute")]


def test_anthropic_names_four_buckets_with_times() -> None:
    limits = read({
        "anthropic-ratelimit-requests-limit": "50", "anthropic-ratelimit-requests-reset": "2026-08-19T14:34:30Z",
        "anthropic-ratelimit-input-tokens-remaining": "399000", "anthropic-ratelimit-output-tokens-limit": "80000",
        "anthropic-ratelimit-output-tokens-reset": "2026-08-19T14:33:55Z", "anthropic-ratelimit-tokens-limit": "1",
    }, "anthropic")  # fmt: skip
    assert limits == (
        RateLimit("requests", "minute", 50, None, None, 30.0),
        RateLimit("input_tokens", "minute", None, 399000),
        RateLimit("output_tokens", "minute", 80000, None, None, 0.0),
        RateLimit("tokens", "minute", 1),
    )


def test_anthropic_unified_limits_are_a_used_share_and_a_time() -> None:
    limits = read({
        "anthropic-ratelimit-unified-5h-utilization": "0.25", "anthropic-ratelimit-unified-5h-reset": "1787150100",
        "anthropic-ratelimit-unified-7d-utilization": "0.5", "anthropic-ratelimit-unified-status": "allowed",
    })  # fmt: skip
    assert limits == (
        RateLimit("unified", "5h", used_ratio=0.25, reset_after=max(0.0, 1787150100 - (NOW or 0))),
        RateLimit("unified", "7d", used_ratio=0.5),
    )


@pytest.mark.parametrize(
    ("name", "scope", "window"),
    [
        ("x-ratelimit-limit", "requests", None), ("ratelimit-limit", "requests", None),
        ("x-rate-limit-limit", "requests", None), ("x_ratelimit_limit_tokens", "tokens", None),
        ("x-rate_limit-limit-requests", "requests", None),
        ("x-ratelimit-limit-tokens-minute", "tokens", "minute"), ("x-ratelimit-limit-requests-day", "requests", "day"),
        ("x-ratelimit-limit-req-10-second", "requests", "10s"), ("x-ratelimit-limit-req-minute", "requests", "minute"),
        ("x-ratelimitbysize-limit-minute", "size", "minute"), ("x-ms-ratelimit-limit-tokens", "tokens", None),
        ("x-endpoint-monthly-call-limit", "endpoint_call", "month"),
    ],
)  # fmt: skip
def test_names_differ_and_mean_the_same(name: str, scope: str, window: str | None) -> None:
    (limit,) = read({name: "7"})
    assert limit == RateLimit(scope, window, 7.0)


@pytest.mark.parametrize(
    "name", ["x-corporate-limit", "x-moderate-limit-remaining", "limit", "x-ratelimit-source", "ratelimited"]
)
def test_other_headers_are_no_limits(name: str) -> None:
    assert read({name: "7"}) == ()


def test_the_drafts_of_the_ietf_are_read() -> None:
    assert read({"ratelimit-policy": '"default";q=100;w=60', "ratelimit": '"default";r=50;t=30'}) == (
        RateLimit("requests", "minute", 100, 50, None, 30.0),
    )
    assert read({"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "0", "ratelimit-reset": "7"}) == (
        RateLimit("requests", None, 100, 0, None, 7.0),
    )


def test_azures_bare_resets_are_of_an_unclear_unit() -> None:
    lines = {"x-ratelimit-limit-requests": "120", "x-ratelimit-reset-requests": "500"}
    assert read(lines, "azure.ai.openai") == (RateLimit("requests", None, 120),)
    assert read({"x-ratelimit-reset-requests": "0"}, "azure.ai.openai") == (RateLimit("requests", reset_after=0.0),)
    assert read({**lines, "x-ratelimit-renewalperiod-requests": "60"}, "azure.ai.openai")[0].window == "minute"


def test_epochs_may_be_in_milliseconds() -> None:
    (limit,) = read({"x-ratelimit-reset": f"{int(NOW or 0)}500"})
    assert limit.reset_after == pytest.approx(0.5)


def test_of_two_lines_that_say_the_same_the_first_counts() -> None:
    assert read([("x-ratelimit-limit", "5"), ("x-ratelimit-limit", "9")]) == (RateLimit("requests", None, 5),)


def test_0_is_a_value_and_minus_one_is_none() -> None:
    assert read({"x-ratelimit-remaining": "0"}) == (RateLimit("requests", remaining=0),)
    assert read({"x-ratelimit-remaining": "-1", "x-ratelimit-limit": "unlimited", "x-ratelimit-reset": ""}) == ()


def test_a_time_without_an_arrival_is_unknown_and_not_unreadable() -> None:
    assert read({"x-ratelimit-reset": "2026-08-19T14:34:30Z"}, arrived=None) == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-ratelimit-limit", "many"), ("x-ratelimit-remaining", "inf"), ("x-ratelimit-limit", "<LIMIT>"),
        ("x-ratelimit-limit", "1e9"), ("x-ratelimit-limit", "40,000"), ("x-ratelimit-reset", "soon"),
        ("x-ratelimit-reset", "2026-99-19T14:34:30Z"), ("anthropic-ratelimit-unified-5h-utilization", "half"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_left_out_and_said(name: str, value: str) -> None:
    assert rate_limits(Headers(((name, value),)), None, NOW) == ((), True)


def test_limits_and_their_names_are_bounded() -> None:
    limits = read([(f"x-ratelimit-limit-{number}{'x' * 90}", "1") for number in range(500)])
    assert len(limits) == MAX_LIMITS
    assert all(len(limit.scope) <= MAX_SCOPE for limit in limits)


NAMES = st.lists(
    st.sampled_from(
        ["x", "ratelimit", "rate", "limit", "remaining", "reset", "tokens", "10", "second", "5h", "by", "é", ""]
    ),
    max_size=7,
).map("-".join) | st.sampled_from(["ratelimit", "ratelimit-policy"])
VALUES = st.text(max_size=20) | st.sampled_from(
    ['"a";r=1e9;t=-1', '"";q=9;w=1', "1" * 30, "9.99", "a;q=1;w=99999999999"]
)


@given(st.lists(st.tuples(NAMES, VALUES), max_size=8), st.none() | st.floats(0, 4e9))
def test_any_headers_give_finite_limits(lines: list[tuple[str, str]], arrived: float | None) -> None:
    limits, _ = rate_limits(Headers(tuple(lines)), "openai", arrived)
    for limit in limits:
        for value in (limit.limit, limit.remaining, limit.used_ratio, limit.reset_after):
            assert value is None or (math.isfinite(value) and value >= 0)


def test_the_priority_tier_of_anthropic_has_limits_of_its_own() -> None:
    assert read({
        "anthropic-priority-input-tokens-limit": "10000", "anthropic-priority-input-tokens-remaining": "9618",
        "anthropic-priority-input-tokens-reset": "2026-08-19T14:34:10Z",
    }) == (RateLimit("priority_input_tokens", None, 10000, 9618, None, 10.0),)  # fmt: skip


def test_codex_plans_state_a_used_share_of_a_window_in_minutes() -> None:
    assert read({
        "x-codex-primary-used-percent": "37.5", "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": str(int(NOW or 0) + 60), "x-codex-secondary-used-percent": "4",
        "x-codex-secondary-window-minutes": "10080", "x-codex-secondary-reset-after-seconds": "90",
        "x-codex-credits-has-credits": "True",
    }) == (
        RateLimit("codex_primary", "5h", used_ratio=0.375, reset_after=60.0),
        RateLimit("codex_secondary", "7d", used_ratio=0.04, reset_after=90.0),
    )  # fmt: skip


def test_livekit_states_what_was_used() -> None:
    assert read({
        "x-livekit-inference-rpm-limit": "100", "x-livekit-inference-rpm-used": "30",
        "x-livekit-inference-tpm-used": "9", "x-livekit-inference-credits-limit": "5",
        "x-livekit-inference-credits-used": "7",
    }) == (
        RateLimit("requests", "minute", 100.0, 70.0), RateLimit("tokens", "minute"),
        RateLimit("credits", None, 5.0, 0.0),
    )  # fmt: skip


KNOWN = [
    "x-ratelimit-limit-tokens", "ratelimit", "ratelimit-policy", "ratelimit-reset", "x-ratelimit-tokens-query-cost",
    "ratelimitbysize-query-cost", "x-ratelimit-abusepenalty-active", "x-ratelimit-source", "x-rate-limit-limit",
    "anthropic-ratelimit-unified-status", "anthropic-ratelimit-unified-representative-claim",
    "anthropic-ratelimit-unified-overage-in-use", "x-ratelimit-renewalperiod-tokens", "x-generate", "content-type",
]  # fmt: skip


def unknown(*names: str) -> tuple[str, ...]:
    return unknown_names(Names(names))


def test_names_that_are_read_or_known_to_be_no_limit_are_not_reported() -> None:
    assert unknown(*KNOWN) == ()


def test_new_names_are_reported_without_their_values() -> None:
    assert unknown(*KNOWN, "x-ratelimit-mood", "x-rate-limit", "x-ratelimitbymood") == (
        "x-rate-limit", "x-ratelimit-mood", "x-ratelimitbymood",
    )  # fmt: skip


def test_a_flood_of_new_names_is_bounded() -> None:
    found = unknown(*(f"x-ratelimit-{'n' * number}" for number in range(100)))
    assert len(found) == MAX_UNKNOWN
    assert all(len(name) <= MAX_NAME for name in found)


@given(st.lists(st.text(max_size=12).map(lambda text: f"x-ratelimit-{text}"), max_size=20))
def test_any_names_are_reported_as_plain_words(names: list[str]) -> None:
    for name in unknown(*names):
        assert name.isascii()
        assert name.replace("-", "").replace("_", "").isalnum()
