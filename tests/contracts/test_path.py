"""Paths lead to values of an answer, or say why they lead nowhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.contracts.answer import NotEvaluatedError
from collector.contracts.path import MAX_FOUND, PathError, found_at, parse_path

VALUE = {"amount": 3, "people": [{"name": "Ada", "age": 36}, {"name": "Bo"}], "none": [], "a b": {"c-d": 1}}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("amount", [3]),
        ("output.amount", [3]),
        ("people[*].name", ["Ada", "Bo"]),
        ("people[1].name", ["Bo"]),
        ("none[*].name", []),
        ("a b.c-d", [1]),
    ],
)
def test_a_path_leads_to_its_values(path: str, found: list[object]) -> None:
    assert found_at(VALUE, parse_path(path)) == found


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("missing", "missing"),
        ("people[7]", "missing"),
        ("people[*].age", "missing"),
        ("amount.x", "type"),
        ("amount[0]", "type"),
        ("people.name", "type"),
        ("amount[*]", "type"),
    ],
)
def test_a_path_that_leads_nowhere_says_why(path: str, why: str) -> None:
    with pytest.raises(NotEvaluatedError) as raised:
        found_at(VALUE, parse_path(path))
    assert raised.value.why == why


@pytest.mark.parametrize("path", ["", "output", ".a", "a..b", "a[", "a[x]", "a[-1]", "a]", "a.", "[*]a", "a." * 30])
def test_a_path_that_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(PathError):
        parse_path(path)


def test_what_a_path_leads_to_is_bounded() -> None:
    with pytest.raises(NotEvaluatedError) as raised:
        found_at({"a": [0] * (MAX_FOUND + 1)}, parse_path("a[*]"))
    assert raised.value.why == "over_bounds"


@given(st.text("ab.[]*0output ", max_size=12))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        steps = parse_path(text)
    except PathError:
        return
    assert steps
