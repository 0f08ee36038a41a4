"""Tests of collector.measures.prose."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.measures.prose import MOST_VALUES, spoken

ANSWER = "The Velm harbour has twelve berths."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps({"answer": ANSWER, "confidence": 0.93, "sources": [3, 1]}), ANSWER),
        (json.dumps({"summary": "青石桥建于一八七一年。", "kind": "question"}), "青石桥建于一八七一年。"),
        (json.dumps([{"text": ANSWER}, {"text": "It was built of stone."}]), f"{ANSWER}\nIt was built of stone."),
        (f'```json\n{{"answer": "{ANSWER}"}}\n```', ANSWER),
        (ANSWER, ANSWER),
        (f'{{"answer": "{ANSWER}', f'{{"answer": "{ANSWER}'),
        ('{"year": 1871, "place": "Velm"}', '{"year": 1871, "place": "Velm"}'),
        ("[" * 100_000, "[" * 100_000),
        ("", ""),
    ],
)  # fmt: skip
def test_a_structured_answer_is_read_by_its_sentences(text: str, said: str) -> None:
    assert spoken(text) == said


def test_a_large_document_is_read_up_to_the_bound() -> None:
    text = json.dumps([ANSWER] * (2 * MOST_VALUES))
    assert len(spoken(text).splitlines()) == MOST_VALUES - 1


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(JSON | st.text())
def test_any_answer_is_read(given: object) -> None:
    text = given if isinstance(given, str) else json.dumps(given)
    assert isinstance(spoken(text), str)
    assert bool(spoken(text)) == bool(text)
