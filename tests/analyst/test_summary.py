"""The state of things in a few numbers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from collector.analyst.summary import Totals, summarise
from collector.model import ChunkGaps, Judgement, RateLimit, Record, Relevance, Timing, Validity


@pytest.fixture(scope="module")
def record(play: Any) -> Record:
    return msgspec.structs.replace(play([b"data: [DONE]\n\n"]).record, response_model="m", provider="openai")


def judged(*results: str) -> Validity:
    each = tuple(Judgement(number, None, "json", result) for number, result in enumerate(results))
    return Validity(True, False, "not_json", "json", None, each)


def test_nothing_is_known_of_no_records() -> None:
    summary = summarise(Totals(recorded=3), [])
    assert summary.totals.recorded == 3
    assert (summary.routes, summary.limits) == ((), ())
    overall = summary.overall
    assert (overall.exchanges, overall.validity_rate, overall.context_relevance, overall.first_token_p50) == (
        0,
        None,
        None,
        None,
    )


def test_unchecked_outputs_are_outside_the_rate(record: Record) -> None:
    records = [msgspec.structs.replace(record, validity=judged("valid", "not_json", "truncated", "valid"))]
    overall = summarise(Totals(), records).overall
    assert (overall.validity_rate, overall.validity_checked) == (pytest.approx(2 / 3), 3)


def test_routes_and_models_are_told_apart_and_medians_taken(record: Record) -> None:
    def timed(route: str, first: float, deviation: float | None) -> Record:
        timing = Timing(first_token=first, chunk_gaps=ChunkGaps(3, 0.1, deviation), stalls=1)
        relevance = Relevance(True, context_relevance=first, groundedness=None)
        return msgspec.structs.replace(record, route=route, timing=timing, relevance=relevance)

    summary = summarise(Totals(), [timed("a", 0.1, 0.01), timed("a", 0.5, 0.03), timed("b", 0.9, None)])
    one, two = summary.routes
    assert (one.route, one.model, one.exchanges, one.continuity_index, one.stalls) == ("a", "m", 2, 0.02, 2)
    assert (two.route, two.continuity_index, two.context_relevance, two.groundedness) == ("b", None, 0.9, None)
    assert (summary.overall.first_token_p50, summary.overall.first_token_p95) == (0.5, 0.9)
    assert summary.overall.outcomes == {"completed": 3}


def test_of_a_limit_the_newest_statement_counts(record: Record) -> None:
    def limited(remaining: float) -> Record:
        return msgspec.structs.replace(record, rate_limits=(RateLimit("tokens", None, 10.0, remaining),))

    (limit,) = summarise(Totals(), [limited(1.0), limited(2.0)]).limits
    assert (limit.provider, limit.scope, limit.remaining) == ("openai", "tokens", 1.0)
