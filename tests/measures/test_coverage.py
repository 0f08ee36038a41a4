"""Tests of collector.measures.coverage."""

from __future__ import annotations

import pytest

from collector.catalogue import RELEVANCE_REASONS
from collector.measures.coverage import LEFT_OUT, measure
from collector.model import Reading, Relevance

from .records import Heard


@pytest.mark.parametrize("reason", RELEVANCE_REASONS)
def test_what_could_not_be_scored_is_not_eligible_and_what_was_left_out_is(reason: str) -> None:
    heard = Heard()
    measure(Relevance(scored=False, reason=reason), heard)
    assert bool(heard.readings) == (reason in {"sampled_out", "budget", "model_not_ready"})


def test_a_scored_exchange_is_eligible() -> None:
    heard = Heard()
    measure(Relevance(scored=True, context_relevance=0.9), heard)
    assert heard.readings == [Reading("semantic_health_relevance_eligible_total", 1.0, ("main", "m-1"))]


def test_the_reasons_are_of_the_catalogue() -> None:
    assert set(RELEVANCE_REASONS) >= LEFT_OUT
