"""What did the exchange cost? Nothing is said where price or usage is not known."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.measures.cost import measure, parts, price_of
from collector.model import (
    ANY_PROVIDER,
    Price,
    Rates,
    Usage,
)

from . import records

RECORD = msgspec.structs.replace(records.RECORD, request_model="asked")

FULL = Price(Rates(2.0, 0.5, 2.5, 8.0), 1000, Rates(4.0, 1.0, 5.0, 12.0), 0.5)
TABLES = (
    {"openai": {"m-1": FULL, "thinks": Price(Rates(1.0, output=2.0, reasoning=3.0)), "embeds": Price(Rates(0.1))}},
    {ANY_PROVIDER: {"m-1": Price(Rates(100.0, output=100.0)), "cliff": Price(Rates(1.0, output=1.0), 10, Rates())}},
)


def cost(usage: Usage | None, tier: str | None = None, **facts: Any) -> dict[str, float] | None:
    record = msgspec.structs.replace(RECORD, usage=usage, **facts)
    found = parts(record, tier, TABLES)
    return None if found is None else {kind: pytest.approx(dollars * 1e6) for kind, dollars in found}


def test_each_kind_of_token_has_its_rate_and_none_is_paid_twice() -> None:
    assert cost(Usage(100, 50, 60, 10, 20)) == {
        "input": 30 * 2.0, "cache_read": 60 * 0.5, "cache_write": 10 * 2.5, "output": 30 * 8.0, "reasoning": 20 * 8.0,
    }  # fmt: skip


def test_without_a_rate_of_their_own_cached_tokens_are_input_and_reasoning_may_have_one() -> None:
    assert cost(Usage(100, 50, 60, 10, 20), response_model="thinks") == {
        "input": 30.0, "cache_read": 60.0, "cache_write": 10.0, "output": 60.0, "reasoning": 60.0,
    }  # fmt: skip


def test_a_long_request_has_other_rates_or_none() -> None:
    assert cost(Usage(1000, 1)) == {"input": 2000.0, "output": 8.0}
    assert cost(Usage(1001, 1)) == {"input": 4004.0, "output": 12.0}
    assert cost(Usage(10, 1), response_model="cliff") == {"input": 10.0, "output": 1.0}
    assert cost(Usage(11, 1), response_model="cliff") is None


@pytest.mark.parametrize(
    ("tier", "expected"),
    [(None, 28.0), ("auto", 28.0), ("default", 28.0), ("flex", 14.0), ("batch", 14.0), ("priority", None), ("", None)],
)
def test_a_tier_changes_the_price_or_makes_it_unknown(tier: str | None, expected: float | None) -> None:
    found = cost(Usage(10, 1), tier)
    assert (None if found is None else 20.0 * expected / 28.0) == (None if found is None else found["input"])
    assert (found is None) == (expected is None)


def test_a_batch_without_a_rate_is_not_priced() -> None:
    assert cost(Usage(10, 1), "flex", response_model="thinks") is None


@pytest.mark.parametrize("usage", [None, Usage(), Usage(None, 5), Usage(5, None)])
def test_unknown_usage_has_no_cost(usage: Usage | None) -> None:
    assert cost(usage) is None


def test_embeddings_have_no_output_to_pay() -> None:
    assert cost(Usage(10), response_model="embeds") == {"input": 1.0}
    assert cost(Usage(10, 0), response_model="embeds") == {"input": 1.0}
    assert cost(Usage(10, 5), response_model="embeds") is None


@pytest.mark.parametrize("outcome", ["truncated", "client_disconnect", "error_event", "upstream_error"])
def test_a_stream_that_broke_off_has_told_a_part_only(outcome: str) -> None:
    assert cost(Usage(10, 1), outcome=outcome) is None


def test_the_served_model_is_paid_and_the_requested_one_where_none_is_named() -> None:
    assert cost(Usage(10, 0), request_model="m-1", response_model="other") is None
    assert cost(Usage(10, 0), request_model="m-1", response_model=None) is not None
    assert cost(Usage(10, 0), request_model=None, response_model=None) is None


NAMES = {"openai": {name: Price(Rates(float(number))) for number, name in enumerate((
    "gpt-4", "gpt-4-turbo", "gpt-4o", "gpt-4o-2024-05-13", "claude-sonnet-4", "claude-3-7-sonnet", "gemini-2.0-flash",
    "text-embedding-ada-002", "command-r",
))}}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-4", "gpt-4"), ("gpt-4-0613", "gpt-4"), ("gpt-4-turbo-2024-04-09", "gpt-4-turbo"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"), ("gpt-4o-2024-08-06", "gpt-4o"), ("gpt-4o_2024-08-06", "gpt-4o"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4"), ("claude-3-7-sonnet@20250219", "claude-3-7-sonnet"),
        ("claude-3-7-sonnet-latest", "claude-3-7-sonnet"), ("gemini-2.0-flash-001", "gemini-2.0-flash"),
        ("models/gemini-2.0-flash", "gemini-2.0-flash"), ("text-embedding-ada-002-v2", "text-embedding-ada-002"),
        ("command-r-08-2024", "command-r"), ("publishers/google/models/gemini-2.0-flash", "gemini-2.0-flash"),
        ("gpt-4-32k", None), ("gpt-4.1", None), ("gpt-4-0125-preview", None), ("gpt-4o-mini", None),
        ("gpt-4o-2024-08-06-ft-house", None), ("ft:gpt-4o-2024-08-06:house", None), ("claude-sonnet-4-5", None),
        ("claude-sonnet-4-5-20250929", None), ("gemini-2.0-flash-exp", None), ("gemini-2.0-flash-lite", None),
        ("openai/gpt-4o", None), ("GPT-4O", None), ("command-r-plus-08-2024", None), ("gpt-4-", None), ("", None),
    ],
)  # fmt: skip
def test_a_name_is_matched_whole_or_with_a_version_behind_it(model: str, expected: str | None) -> None:
    assert price_of("openai", model, (NAMES,)) == (NAMES["openai"][expected] if expected is not None else None)


def test_a_price_holds_for_its_providers_only() -> None:
    assert price_of("openrouter", "gpt-4o", (NAMES,)) is None
    assert price_of(None, "gpt-4o", (NAMES,)) is None
    assert price_of(None, "m-1", TABLES) == TABLES[1][ANY_PROVIDER]["m-1"]


def test_the_readings_add_up_to_the_cost() -> None:
    heard = records.Heard()
    measure((("input", 0.25), ("output", 0.5)), heard)
    assert [(each.labels, each.value) for each in heard.readings] == [
        (("main", "m-1", "input"), 0.25), (("main", "m-1", "output"), 0.5),
    ]  # fmt: skip


COUNTS = st.none() | st.integers(0, 10**12)


@given(st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS), st.sampled_from(["m-1", "thinks", "embeds", "cliff"]))
def test_no_usage_is_paid_below_nothing_or_above_its_dearest_rate(usage: Usage, model: str) -> None:
    found = parts(msgspec.structs.replace(RECORD, usage=usage, response_model=model), None, TABLES)
    for _, dollars in found or ():
        assert 0.0 <= dollars <= 12.0 * 10**12 / 1e6
