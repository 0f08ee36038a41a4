"""Typed where the bytes fit, field by field where they do not, and never an exception but UnreadableError."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from collector.dialects.decoding import (
    MAX_DEPTH,
    Decoder,
    UnreadableError,
    count,
    json_text,
    raw_bytes,
    read_json,
    too_deep,
)

from ..wire.memory import is_linear  # noqa: TID252 - the root is not on the path of plain pytest


class Leaf(Struct):
    name: str | None = None
    size: int | float | None = None


class Tree(Struct):
    leaf: Leaf | str | None = None
    leaves: list[Leaf] | None = None
    inner: list[Tree] | str | None = None
    raw: msgspec.Raw = msgspec.Raw()


decode = Decoder(Tree)


def test_fields_that_fit_are_kept_and_the_others_are_left_out() -> None:
    body = b'{"leaf":{"name":3,"size":2},"leaves":[{"name":"a"},4,null,{"size":"x","name":"b"}],"more":1}'
    assert decode(body) == Tree(Leaf(None, 2), [Leaf("a"), Leaf("b")])


@pytest.mark.parametrize("unit", [b'\\"', b"\\\\", b'"', b"[", b'["', b"{]"])
def test_depth_is_found_in_time_by_the_byte(unit: bytes) -> None:
    # A string that does not end once cost the square of its quotes: hours for a megabyte.
    for start, end in ((b'"', b"[" * 600), (b"", b"]" * 600), (b"[" * 400 + b'"', b"{" * 600)):

        def run(size: int, start: bytes = start, end: bytes = end) -> None:
            too_deep(start + unit * (size // len(unit)) + end)

        assert is_linear(run, 128 * 1024)


def test_brackets_in_a_string_that_does_not_end_are_not_depth() -> None:
    assert not too_deep(b'"' + b"[" * 600)
    assert not too_deep(b'"\\' + b"[" * 600)
    assert too_deep(b'"a\\"b"' + b"[" * 600)
    assert too_deep(b"[" * 513 + b'"')


def test_lone_surrogates_are_kept_as_they_came() -> None:
    assert decode(rb'{"leaf":{"name":"\ud83d"}}') == Tree(Leaf("\ud83d"))


def test_a_byte_order_mark_before_json_is_no_matter() -> None:
    assert decode(b'\xef\xbb\xbf{"leaf":"x"}') == Tree("x")


@pytest.mark.parametrize("body", [b"null", b"[]", b"3", b'"x"'])
def test_json_of_another_kind_says_nothing(body: bytes) -> None:
    assert decode(body) == Tree()


@pytest.mark.parametrize(
    "body", [b"", b"{", b"{'a':1}", b"\xff", b'{"leaf":"\xff"}', b"[" * 100_000, b"[" * 600 + b"]" * 600]
)
def test_what_is_no_json_or_too_deep_is_unreadable(body: bytes) -> None:
    with pytest.raises(UnreadableError):
        decode(body)


@pytest.mark.parametrize("depth", [30, 120, 250, 20_000])
def test_depth_is_survived_on_both_ways_of_reading(depth: int) -> None:
    body = b'{"leaf":5,"inner":[' * depth + b"]}" * depth
    try:
        assert isinstance(decode(body), Tree)
    except UnreadableError:
        assert depth > 100


def test_brackets_inside_strings_do_not_count_as_depth() -> None:
    assert not too_deep(json.dumps("[{" * MAX_DEPTH + '"').encode())
    assert too_deep(b"[" * (MAX_DEPTH + 1))
    assert not too_deep(b"[]" * MAX_DEPTH * 2)


def test_raw_fields_are_kept_as_they_were_written() -> None:
    assert raw_bytes(decode(b'{"raw": {"b":1, "a":2}}').raw) == b'{"b":1, "a":2}'
    assert raw_bytes(decode(b'{"raw":null}').raw) is None
    assert raw_bytes(decode(b"{}").raw) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0), (7, 7), (7.0, 7), (None, None), (-1, None), (1.5, None), (math.nan, None), (math.inf, None),
        (1e300, None), (10**400, None), (True, None),
    ],
)  # fmt: skip
def test_a_token_count_is_a_whole_number_of_0_or_more(value: float | None, expected: int | None) -> None:
    assert count(value) == expected


def test_numbers_of_any_length_are_survived() -> None:
    assert read_json(b"[" + b"9" * 5000 + b"]") == [math.inf]
    assert decode(b'{"leaf":{"size":' + b"9" * 5000 + b"}}") is not None


@pytest.mark.parametrize("value", [{}, {"a": [1, "é"]}, {"a": "\ud83d"}, {"a": 10**30}])
def test_a_decoded_value_can_be_written_again(value: dict[str, Any]) -> None:
    assert json.loads(json_text(value)) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None, exclude_categories=())),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["leaf", "leaves", "inner", "raw", "name", "size"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_gives_a_struct(value: Any) -> None:
    assert isinstance(decode(json.dumps(value).encode()), Tree)


@given(st.binary(max_size=80))
def test_any_bytes_give_a_struct_or_are_unreadable(body: bytes) -> None:
    try:
        told = json.loads(body.removeprefix(b"\xef\xbb\xbf").decode())
    except ValueError:
        with pytest.raises(UnreadableError):
            decode(body)
    else:
        assert isinstance(decode(body), Tree), told
