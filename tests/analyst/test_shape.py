"""A read that has the shape of those before it says what decoding it would say, and any other has no shape."""

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


def shape(is_chunked: bool) -> Shape:
    read = chunked(event("a")) if is_chunked else event("a")
    found = shape_of(read, event("a"), "a", MOST, tell)
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


@pytest.mark.parametrize("is_chunked", [False, True], ids=["bare", "chunked"])
@given(st.data())
@settings(max_examples=300, deadline=None)
def test_what_has_the_shape_says_what_decoding_says(is_chunked: bool, data: st.DataObject) -> None:
    given_reads = data.draw(reads(is_chunked))
    texts, size = shape(is_chunked).texts(given_reads)
    if texts:
        assert told_by_decoding(given_reads[: len(texts)], is_chunked) == (texts, size)


@pytest.mark.parametrize("is_chunked", [False, True], ids=["bare", "chunked"])
def test_reads_are_told_up_to_the_first_that_has_another_shape(is_chunked: bool) -> None:
    frame = chunked if is_chunked else bytes
    alike = [frame(event(text)) for text in ("a", "bc", "\u00e9\n\ud83d\ude42", '"')]
    odd = frame(event("d").replace(b'"index": 0', b'"index": 1'))
    texts, size = shape(is_chunked).texts([*alike, odd, *alike])
    assert texts == ["a", "bc", "é\n🙂", '"']
    assert size == sum(len(event(text)) for text in texts)


@pytest.mark.parametrize(
    "read", [b"", event(""), event("x" * MOST), event("a")[:-1], event("a") + b"\n", event("a", b"\r\n\r\n")]
)
def test_what_has_another_shape_is_told_by_none(read: bytes) -> None:
    assert shape(is_chunked=False).texts([read]) == ([], 0)
    assert shape(is_chunked=True).texts([chunked(read) if read else read, read]) == ([], 0)


def test_a_read_without_its_chunk_s_frame_has_no_shape_in_a_chunked_body() -> None:
    for more in range(300):  # of every length, some of which no chunk has
        assert shape(is_chunked=True).texts([event("a" * more)[:-2] + b"\r\n\n\n\r\n"]) == ([], 0)
        assert shape(is_chunked=True).texts([event("a" * more) + b"\r\n"]) == ([], 0)


def test_where_no_place_is_the_text_s_there_is_no_shape() -> None:
    assert shape_of(event("a"), event("a"), "b", MOST, tell) is None
    assert shape_of(event("a"), event("a"), "a", MOST, lambda bodies: []) is None


def test_a_shape_is_proven_anew_by_what_is_said_of_another_text() -> None:
    found = shape(is_chunked=True)
    assert found.is_told(tell)
    assert not found.is_told(lambda bodies: [])
