"""Strict JSON, near misses, and bounds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.catalogue import VALIDITY_RESULTS
from collector.validation.json_text import DEPTH, is_deeper, read

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": [1, 2.5e3, "x", null, true]}', None),
        (' \t\r\n{"a":1}\n', None),
        ('"only a string"', None),
        ("", "not_json"),
        ("{'a': 1}", "not_json"),
        ('{"a": 1,}', "not_json"),
        ('{"a": 01}', "not_json"),
        ('{"a": .5}', "not_json"),
        ('{"a": "line\nbreak"}', "not_json"),
        ('{"a": 1', "not_json"),
        ("\ufeff[]", "trailing_text"),
        ("\u00a0{}", "trailing_text"),
        ('{"a": NaN}', "non_standard_number"),
        ("[Infinity]", "non_standard_number"),
        ("-Infinity", "non_standard_number"),
        ('{"a": "NaN"}', None),
        ('{"a": 1, "a": 1}', "duplicate_key"),
        ('{"x": {"a": 1, "\\u0061": 2}}', "duplicate_key"),
        ('[{"a": 1}, {"a": 2}]', None),
        ('```json\n{"a": 1}\n```', "fenced"),
        ('```\n{"a": 1}\n```\n', "fenced"),
        ('```JSON\r\n[1]\r\n```', "fenced"),
        ('```json {"a": 1} ```', "fenced"),
        ("```json\nno json\n```", "not_json"),
        ("``````", "not_json"),
        ('{"a": 1} I hope this helps!', "trailing_text"),
        ('Here you are: {"a": 1}', "trailing_text"),
        ('Here:\n```json\n{"a": 1}\n```\nDone.', "trailing_text"),
        ('{"a": 1}{"b": 2}', "trailing_text"),
        ("[1, 2] and more", "trailing_text"),
        ("12 apples", "not_json"),
        ("I do not know.", "not_json"),
        ("9" * 5000, "output_over_cap"),
        ('{"a": -' + "1" * 5000 + "}", "output_over_cap"),
        ("1e999", None),
    ],
)  # fmt: skip
def test_a_text_is_strict_json_or_has_a_name_for_what_it_is(text: str, fault: str | None) -> None:
    assert read(text).fault == fault


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"a":['])
@pytest.mark.parametrize("depth", [DEPTH + 1, 100_000])
def test_nesting_beyond_the_bound_is_not_read(opening: str, depth: int) -> None:
    assert read(opening * depth).fault == "output_over_cap"


def test_nesting_up_to_the_bound_is_read() -> None:
    assert read("[" * DEPTH + "]" * DEPTH).fault is None
    assert read("[" * (DEPTH + 1) + "]" * (DEPTH + 1)).fault == "output_over_cap"


def test_brackets_in_strings_and_side_by_side_do_not_nest() -> None:
    assert not is_deeper(json.dumps(["[{" * 5000, '"[\\']), 3)
    assert not is_deeper("[" + ",".join(["[]"] * 5000) + "]", 2)


def test_a_long_string_that_never_ends_is_read_in_passing() -> None:
    assert read("[" * (DEPTH + 1) + '"' + "\\\\" * 2_000_000).fault == "output_over_cap"
    assert read('{"a": "' + "x[" * 2_000_000).fault == "not_json"


@given(VALUES)
def test_whatever_json_writes_is_valid_and_comes_back(value: object) -> None:
    document = read(json.dumps(value))
    assert document.fault is None
    assert document.value == value


@given(st.dictionaries(st.text(), VALUES, min_size=1), st.data())
def test_no_part_of_an_object_passes_for_the_whole(value: dict[str, object], data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(0, len(text) - 1))
    assert read(text[:cut]).fault is not None


@given(st.text() | st.text(alphabet='{}[]",:\\ `json01-+.eENaIinfty\n'))
def test_any_text_is_read_without_raising(text: str) -> None:
    document = read(text)
    assert document.fault is None or document.fault in VALIDITY_RESULTS
