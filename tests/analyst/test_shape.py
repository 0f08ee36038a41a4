"""An event that has the shape of those before it says what decoding it would say, and any other has no shape."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.analyst.shape import Shape, shape_of
from collector.dialects.openai_chat import OpenAiChat
from collector.model import Frame, Headers, RequestHead, ResponseHead
from collector.wire.sse import SseCodec
from collector.wire.transfer import Dechunker

MOST = 400  # bytes


def event(text: str, end: bytes = b"\n\n") -> bytes:
    delta = {"role": "a", "content": text, "name": "a"}
    return b"data: " + json.dumps({"id": "a", "model": "a", "choices": [{"index": 0, "delta": delta}]}).encode() + end


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def tell(bodies: list[bytes]) -> list[str]:
    reader = OpenAiChat().reader(RequestHead("POST", "/", "h", Headers()), ResponseHead(200, Headers()))
    reader.read(Frame(event("a")[6:-2]))
    return reader.texts(SseCodec(MOST).payloads(bodies, None))  # type: ignore[attr-defined,no-any-return]


def shape() -> Shape:
    found = shape_of(event("a"), "a", MOST, tell)
    assert found is not None
    return found


def told_by_decoding(reads: list[bytes], is_chunked: bool) -> tuple[list[str], int]:
    bodies = Dechunker().whole_chunks(reads) if is_chunked else reads
    texts = tell(bodies)
    return texts, sum(map(len, bodies[: len(texts)]))


TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=30)


@st.composite
def reads(draw: st.DrawFn, is_chunked: bool) -> list[bytes]:
    """Mostly of the shape; in some a few bytes are changed, put in or taken out, or the frame is another."""
    found = []
    for text in draw(st.lists(TEXTS | st.sampled_from(["a", "", "x" * MOST]), min_size=1, max_size=6)):
        data = bytearray(event(text))
        for at, byte in draw(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=1)):
            place = at % len(data)
            data[place : place + draw(st.integers(0, 1))] = bytes([byte])
        framed = draw(st.sampled_from([is_chunked, is_chunked, is_chunked, not is_chunked]))
        found.append(chunked(bytes(data)) if framed else bytes(data))
    return found


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_what_has_the_shape_says_what_decoding_says(data: st.DataObject) -> None:
    events = data.draw(reads(is_chunked=False))
    texts = shape().texts(events)
    if texts:
        assert tell(events[: len(texts)]) == texts


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_what_has_the_shape_in_chunks_says_what_decoding_says(data: st.DataObject) -> None:
    chunks = data.draw(reads(is_chunked=True))
    texts, size = shape().texts_in_chunks(chunks)
    if texts:
        assert told_by_decoding(chunks, is_chunked=True) == (texts, size)


ALIKE = [event(text) for text in ("a", "bc", "\u00e9\n\ud83d\ude42", '"', "\\", '\\",', '","')]


def test_events_are_told_up_to_the_first_that_has_another_shape() -> None:
    odd = event("d").replace(b'"index": 0', b'"index": 1')
    told = ["a", "bc", "é\n🙂", '"', "\\", '\\",', '","']
    assert shape().texts([*ALIKE, odd, *ALIKE]) == told
    assert shape().texts(ALIKE) == told
    assert shape().texts_in_chunks([chunked(each) for each in ALIKE]) == (told, sum(map(len, ALIKE)))
    assert shape().texts_in_chunks([chunked(each) for each in [*ALIKE, odd]]) == ([], 0)


@pytest.mark.parametrize(
    "strings",
    [
        [b'"a"', b'"b","c"'],
        [b'"a\\"', b'"b"'],
        [b'"a\\"', b'"b","c"'],
        [b'"a",', b'"b"'],
        [b'"a"', b"b"],
        [b'"a" ,"b"'],
    ],
)
def test_what_is_no_string_in_one_event_is_made_none_by_those_around_it(strings: list[bytes]) -> None:
    events = [event("a").replace(b'"content": "a"', b'"content": %b' % each) for each in strings]
    assert shape().texts(events) in ([], tell(events))
    assert shape().texts_in_chunks([chunked(each) for each in events]) in (([], 0), told_by_decoding(events, False))


@pytest.mark.parametrize(
    "read", [b"", event(""), event("x" * MOST), event("a")[:-1], event("a") + b"\n", event("a", b"\r\n\r\n")]
)
def test_what_has_another_shape_is_told_by_none(read: bytes) -> None:
    assert shape().texts([read]) == []
    assert shape().texts_in_chunks([chunked(read) if read else read, read]) == ([], 0)


def test_a_read_without_its_chunk_s_frame_has_no_shape_in_a_chunked_body() -> None:
    for more in range(300):  # of every length, some of which no chunk has
        assert shape().texts_in_chunks([event("a" * more)[:-2] + b"\r\n\n\n\r\n"]) == ([], 0)
        assert shape().texts_in_chunks([event("a" * more) + b"\r\n"]) == ([], 0)


def test_bytes_that_are_moved_from_one_event_to_the_next_spoil_both() -> None:
    whole = event("a") + event("b")
    for place in range(1, len(whole)):
        texts = shape().texts([whole[:place], whole[place:]])
        assert texts == (["a", "b"] if place == len(event("a")) else [])


def test_where_no_place_is_the_text_s_there_is_no_shape() -> None:
    assert shape_of(event("a"), "b", MOST, tell) is None
    assert shape_of(event("a"), "a", MOST, lambda bodies: []) is None


def test_a_shape_is_proven_anew_by_what_is_said_of_another_text() -> None:
    found = shape()
    assert found.is_told(tell)
    assert not found.is_told(lambda bodies: [])
