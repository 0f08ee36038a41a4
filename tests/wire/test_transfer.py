"""Chunked bodies come out whole wherever they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.wire.transfer import Dechunker, line_of


def chunked(chunks: list[bytes], extension: bytes = b"", trailers: bytes = b"") -> bytes:
    parts = [b"%x%s\r\n%s\r\n" % (len(chunk), extension, chunk) for chunk in chunks if chunk]
    return b"".join(parts) + b"0\r\n" + trailers + b"\r\n"


def read(pieces: list[bytes]) -> tuple[bytes, bool, bool]:
    dechunker = Dechunker()
    body = b"".join(dechunker.feed(piece) for piece in pieces)
    return body, dechunker.complete, dechunker.broken


def parsed(pieces: list[bytes]) -> tuple[bytes, bool, bool]:
    """What the parser makes of the pieces, where it is given all of them."""
    dechunker = Dechunker()
    body = b"".join(
        part for piece in pieces if not (dechunker.complete or dechunker.broken) for part in dechunker._parse(piece)
    )
    return body, dechunker.complete, dechunker.broken


def cut(body: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(body) + 1) for place in places} | {len(body)})
    return [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]


CHUNKS = st.lists(st.binary(max_size=30) | st.sampled_from([b"5\r\nhello\r\n", b"\r\n", b"0\r\n\r\n", b"5"]))


@given(CHUNKS, st.sampled_from([b"", b";a=b", b';a="x y"']), st.lists(st.integers(0, 5000), max_size=10))
def test_the_body_does_not_depend_on_where_bytes_are_cut(
    chunks: list[bytes], extension: bytes, places: list[int]
) -> None:
    wire = chunked(chunks, extension, b"x-checksum: 1\r\n")
    for pieces in ([wire], cut(wire, places), [wire[i : i + 1] for i in range(len(wire))]):
        assert read(pieces) == (b"".join(chunks), True, False)


@given(
    CHUNKS,
    st.lists(st.tuples(st.integers(0, 5000), st.binary(max_size=2)), max_size=3),
    st.lists(st.integers(0, 5000), max_size=10),
)
@settings(max_examples=500, deadline=None)
def test_chunks_that_the_parser_does_not_see_are_read_as_it_reads_them(
    chunks: list[bytes], faults: list[tuple[int, bytes]], places: list[int]
) -> None:
    wire = chunked(chunks)
    for place, fault in faults:
        at = place % len(wire)
        wire = wire[:at] + fault + wire[at + 1 :]
    for pieces in ([wire], cut(wire, places), [wire[i : i + 1] for i in range(len(wire))]):
        assert read(pieces) == parsed([wire])
        assert read(pieces) == parsed(pieces)


@given(CHUNKS, CHUNKS)
def test_a_read_that_is_exactly_one_chunk_is_the_same_as_any_other(before: list[bytes], chunks: list[bytes]) -> None:
    pieces = [chunked([chunk])[:-5] for chunk in chunks if chunk]
    assert read([chunked(before)[:-5], *pieces, b"0\r\n\r\n"]) == (b"".join(before + chunks), True, False)


@given(
    st.lists(st.integers(0, 5000), max_size=3),
    CHUNKS,
    st.lists(
        st.sampled_from([b"0\r\n\r\n", b"03\r\nabc\r\n", b"3;a\r\nabc\r\n", b"3\r\nabc", b"\r\n", b"3\r\n\r\n\r\n"])
    ),
)
def test_reads_that_are_told_together_as_chunks_need_not_be_fed(
    places: list[int], chunks: list[bytes], more: list[bytes]
) -> None:
    before = cut(chunked(chunks)[:-5], places)
    reads = [*(chunked([chunk])[:-5] for chunk in chunks if chunk), *more]
    together, alone = Dechunker(), Dechunker()
    assert [together.feed(piece) for piece in before] == [alone.feed(piece) for piece in before]
    bodies = together.whole_chunks(reads)
    found = bodies + [together.feed(read) for read in reads[len(bodies) :]]
    assert found == [alone.feed(read) for read in reads]
    assert (together.complete, together.broken) == (alone.complete, alone.broken)


def test_the_first_line_of_a_chunk_is_known_by_the_length_of_the_whole() -> None:
    lines = {len(chunked([b"x" * size])) - 5: b"%x\r\n" % size for size in range(1, 70_000)}
    assert all(line_of(length) == lines.get(length, b"") for length in range(70_000))


def test_what_looks_like_a_chunk_inside_a_chunk_is_data() -> None:
    inner = b"5\r\nhello\r\n"
    assert read([b"14\r\n", inner, inner, b"\r\n0\r\n\r\n"]) == (inner + inner, True, False)
    assert read([b"1", b"5\r\n", b"x" * 21, b"\r\n", b"0\r\n\r\n"]) == (b"x" * 21, True, False)
    inner = b"e\r\n" + b"x" * 13
    assert read([b"1", b"0\r\n", inner, b"\r\n", b"0\r\n\r\n"]) == (inner, True, False)


def test_a_cut_body_is_not_complete() -> None:
    assert read([b"5\r\nhello\r\n"]) == (b"hello", False, False)
    assert read([b"5\r\nhel"]) == (b"hel", False, False)


def test_bytes_after_the_last_chunk_are_none_of_the_body() -> None:
    assert read([b"1\r\na\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n", b"more"]) == (b"a", True, False)


@pytest.mark.parametrize(
    "wire", [b"zz\r\nhello\r\n", b"-5\r\nhello\r\n", b"5\r\nhelloXX", b"0x5\r\nhello\r\n", b"\r\n\r\n"]
)
def test_what_is_not_chunked_is_broken(wire: bytes) -> None:
    body, complete, broken = read([wire, b"5\r\nhello\r\n"])
    assert broken
    assert not complete
    assert body in (b"", b"hello")


@given(st.lists(st.binary(max_size=40)))
def test_any_bytes_are_survived(pieces: list[bytes]) -> None:
    body, complete, broken = read(pieces)
    assert len(body) <= sum(map(len, pieces))
    assert not (complete and broken)
