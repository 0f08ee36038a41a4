"""The end of a body is found wherever the bytes are cut, and whatever follows it."""

from __future__ import annotations

import itertools

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collector.proxy.bodies import BodyError, ChunkedBody, EndlessBody, LengthBody, UnchunkedBody, body_of

contents = st.lists(
    st.one_of(st.binary(min_size=1, max_size=20), st.sampled_from([b"\r\n", b"\r\n\r\n", b"0\r\n\r\n"])), max_size=6
)
cuts = st.lists(st.integers(0, 400), max_size=12)


def in_chunks(pieces: list[bytes], trailer: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailer + b"\r\n"


def pieces_of(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(cut, len(data)) for cut in at), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


@given(
    contents,
    st.sampled_from([b"", b"X: 1\r\n", b"A: \r\nB: 2\r\n"]),
    cuts,
    st.sampled_from([b"", b"\r\n", b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"0\r\n\r\n"]),
)
@example([], b"", [1, 2, 3, 4], b"\r\n\r\n")
def test_a_chunked_body_ends_at_the_same_byte_however_it_is_cut(
    pieces: list[bytes], trailer: bytes, at: list[int], after: bytes
) -> None:
    whole = in_chunks(pieces, trailer)
    body, plain = ChunkedBody(), UnchunkedBody()
    taken, content = 0, b""
    for piece in pieces_of(whole + after, at):
        if body.done:
            break
        size = body.take(piece)
        assert plain.take(piece) == size
        content += plain.content()
        taken += size
        assert size == len(piece) or body.done
    assert body.done
    assert plain.done
    assert taken == len(whole)
    assert content == b"".join(pieces)


@given(contents, st.data())
def test_a_chunked_body_that_is_cut_short_is_never_done(pieces: list[bytes], data: st.DataObject) -> None:
    whole = in_chunks(pieces)
    body = ChunkedBody()
    short = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for at in range(len(short)):
        body.take(short[at : at + 1])
    assert not body.done


@given(st.binary(max_size=60))
def test_the_follower_agrees_with_the_parser_on_any_bytes(junk: bytes) -> None:
    class Seen:
        complete = False

        def on_message_complete(self) -> None:
            self.complete = True

    seen = Seen()
    parser = httptools.HttpRequestParser(seen)
    parser.feed_data(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    broken = False
    try:
        parser.feed_data(junk)
    except httptools.HttpParserError:
        broken = True
    body = ChunkedBody()
    try:
        body.take(junk)
    except BodyError:
        assert broken
    else:
        assert body.done == seen.complete
        assert body.done or not broken


@pytest.mark.parametrize(
    "broken",
    [b"x\r\n", b"5\nhello", b"5 \r\nhello\r\n", b"-1\r\n", b"+2\r\nab\r\n", b"2\r\nabc\r\n", b"ffffffffffffffffff\r\n"],
)
def test_broken_chunks_are_an_error(broken: bytes) -> None:
    with pytest.raises(BodyError):
        ChunkedBody().take(broken)


@given(st.integers(0, 50), cuts, st.binary(max_size=10))
def test_a_body_of_stated_length_ends_there(length: int, at: list[int], after: bytes) -> None:
    body = LengthBody(length)
    taken = 0
    for piece in pieces_of(b"x" * length + after, at):
        if body.done:
            break
        taken += body.take(piece)
    assert body.done
    assert taken == length


def test_a_body_without_an_end_takes_all() -> None:
    body, taken = body_of("close", 0, b"0\r\n\r\n")
    assert (isinstance(body, EndlessBody), taken) == (True, 5)
    assert body.take(b"0\r\n\r\n") == 5
    assert not body.done
