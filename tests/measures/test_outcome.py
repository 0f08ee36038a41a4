"""How did the exchange end? The first that applies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from collector.catalogue import BY_NAME, OUTCOMES, label_names
from collector.labels import place_of
from collector.measures.outcome import measure, outcome
from collector.model import (
    ErrorFact,
    Reading,
    Timing,
)

from .records import RECORD, Heard

GOOD: dict[str, Any] = {
    "how": "complete", "status": 200, "error": False, "terminal": True, "whole": True, "blocked": False,
    "endings": ["completed"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "completed"),
        ({"endings": []}, "completed"),
        ({"endings": [None, "completed"]}, "completed"),
        ({"terminal": False}, "completed"),
        ({"terminal": False, "whole": False}, "truncated"),
        ({"whole": False}, "completed"),
        ({"how": "upstream_cut", "whole": False}, "completed"),
        ({"how": "client_disconnect", "terminal": False}, "client_disconnect"),
        ({"how": "client_disconnect", "terminal": False, "status": None}, "client_disconnect"),
        ({"how": "client_disconnect", "terminal": False, "error": True, "status": 500}, "client_disconnect"),
        ({"how": "client_disconnect", "endings": ["incomplete"]}, "incomplete"),
        ({"how": "connect_failed", "status": 502}, "upstream_error"),
        ({"how": "upstream_timeout", "status": None}, "upstream_error"),
        ({"status": 400, "error": True}, "upstream_error"),
        ({"status": 399}, "completed"),
        ({"error": True, "whole": False, "terminal": False}, "error_event"),
        ({"endings": ["completed", "error"]}, "error_event"),
        ({"endings": ["incomplete", "blocked"]}, "blocked"),
        ({"endings": ["refusal"]}, "blocked"),
        ({"blocked": True, "endings": []}, "blocked"),
        ({"endings": ["completed", "incomplete"]}, "incomplete"),
        ({"endings": ["blocked"], "whole": False, "terminal": False}, "truncated"),
    ],
)
def test_the_first_that_applies_is_the_outcome(change: dict[str, Any], expected: str) -> None:
    assert outcome(**{**GOOD, **change}) == expected
    assert expected in OUTCOMES


def read(**facts: Any) -> list[Reading]:
    record = msgspec.structs.replace(RECORD, **facts)
    heard = Heard(place_of(record))
    measure(record, heard)
    return heard.readings


def test_an_exchange_is_counted_with_its_outcome_and_its_duration() -> None:
    found = read(timing=Timing(duration=1.5), anomalies=("usage_missing",))
    assert found == [
        Reading("semantic_health_exchanges_total", 1.0, ("main", "openai", "m-1", "chat", "completed")),
        Reading("semantic_health_operation_duration_seconds", 1.5, ("main", "openai", "m-1", "chat")),
        Reading("semantic_health_anomalies_total", 1.0, ("main", "usage_missing")),
    ]


def test_what_is_not_known_is_called_unknown() -> None:
    found = read(provider=None, operation=None, response_model=None, status=404)
    assert found == [
        Reading("semantic_health_exchanges_total", 1.0, ("main", "unknown", "unknown", "unknown", "completed"))
    ]


def test_an_error_is_counted_by_kind_and_by_who_made_it() -> None:
    error = ErrorFact("x", None, "overloaded", "upstream", None, False)
    found = read(error=error)
    named = dict(zip(label_names(BY_NAME["semantic_health_errors_total"]), found[1].labels, strict=True))
    assert (found[1].metric, named["route"], named["kind"]) == ("semantic_health_errors_total", "main", "overloaded")
    assert named["source"] == "upstream"
    for reading in found:
        assert len(reading.labels) == len(label_names(BY_NAME[reading.metric]))
