"""Elements come out when they are complete, wherever the bytes are cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Frame
from collector.wire.json_array import JsonArrayCodec

from .pieces import cut, read, single

CAP = 1 << 20


def frames_of(body: bytes) -> list[Frame]:
    return read(JsonArrayCodec(CAP), [body])[0]


def test_an_object_comes_out_with_its_last_brace_and_not_with_the_comma_after_it() -> None:
    codec = JsonArrayCodec(CAP)
    assert list(codec.feed(b'[{"a": {"b": [1, 2]}')) == []
    assert list(codec.feed(b"}")) == [Frame(b'{"a": {"b": [1, 2]}}')]
    assert list(codec.feed(b"\r\n,\r\n")) == []
    assert list(codec.feed(b'{"c": 3}]')) == [Frame(b'{"c": 3}')]
    assert list(codec.close()) == []
    assert codec.anomalies == []


def test_brackets_commas_and_quotes_in_strings_are_text() -> None:
    text = rb'{"a": "]},[{\"\\", "b\\": "\\\""}'
    assert frames_of(b"[" + text + b",{}]") == [Frame(text), Frame(b"{}")]


def test_numbers_strings_and_words_are_elements_too() -> None:
    assert [frame.data for frame in frames_of(b'[1, "a,b" ,null,[2,3], ]')] == [b"1", b'"a,b"', b"null", b"[2,3]"]


def test_a_byte_order_mark_and_blanks_may_open_the_body_and_what_follows_the_array_is_passed_by() -> None:
    assert frames_of(b'\xef\xbb\xbf \n[{}] {"a":1}]') == [Frame(b"{}")]
    assert frames_of(b"[]") == frames_of(b"") == frames_of(b"{}") == []


@pytest.mark.parametrize(("body", "rest"), [(b'[{"a":1},{"b":', b'{"b":'), (b'[{"a":1},"]', b'"]')])
def test_an_element_that_the_end_cuts_off_is_told_so(body: bytes, rest: bytes) -> None:
    whole = ([Frame(b'{"a":1}'), Frame(rest, terminated=False)], ["unterminated_final_event"])
    assert read(JsonArrayCodec(CAP), [body]) == whole
    assert read(JsonArrayCodec(CAP), single(body)) == whole


def test_an_array_that_lacks_only_its_bracket_has_told_all_its_elements() -> None:
    assert read(JsonArrayCodec(CAP), [b'[{"a":1}\n']) == ([Frame(b'{"a":1}')], [])


def test_an_element_over_the_cap_ends_the_reading_wherever_it_is_cut() -> None:
    for big in (b'{"x":"' + b"y" * 50 + b'"}', b'"' + b"y" * 50 + b'"', b"[" * 60):
        body = b"[{}," + big + b",{}]"
        for pieces in ([body], single(body), cut(body, [9, 30])):
            assert read(JsonArrayCodec(40), pieces) == ([Frame(b"{}")], ["frame_over_cap"])


def test_blanks_between_elements_do_not_count_against_the_cap() -> None:
    body = b"[" + b" " * 100 + b"{}" + b"\n" * 100 + b"," + b" " * 100 + b"{}]"
    for pieces in ([body], single(body)):
        assert read(JsonArrayCodec(40), pieces) == ([Frame(b"{}"), Frame(b"{}")], [])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(JSON, max_size=6), st.sampled_from([None, 1]), st.lists(st.integers(0, 1000), max_size=8))
def test_every_array_is_read_as_json_reads_it(elements: list[object], indent: int | None, places: list[int]) -> None:
    body = json.dumps(elements, indent=indent, ensure_ascii=False).encode()
    frames, anomalies = read(JsonArrayCodec(CAP), cut(body, places))
    assert ([json.loads(frame.data) for frame in frames], anomalies) == (elements, [])


JUNK = st.lists(st.sampled_from(list(b'[]{},"\\ 1a\n\xff'))).map(bytes)


@given(JUNK | st.binary(max_size=60), st.lists(st.integers(0, 1000), max_size=8), st.integers(3, 30))
def test_frames_and_anomalies_do_not_depend_on_where_bytes_are_cut(body: bytes, places: list[int], cap: int) -> None:
    whole = read(JsonArrayCodec(cap), [body])
    assert read(JsonArrayCodec(cap), cut(body, places)) == whole
    assert read(JsonArrayCodec(cap), single(body)) == whole
    assert set(whole[1]) <= {"frame_over_cap", "unterminated_final_event"}
    assert all(0 < len(frame.data) <= cap for frame in whole[0])
