"""Messages that tell their length first: four bytes of it, or a line of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Frame
from collector.wire.length_prefixed import MAX_HEAD, LengthPrefixedCodec

from .pieces import cut, read, single

CAP = 1 << 20


def prefixed(*payloads: bytes) -> bytes:
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


def headed(*payloads: bytes) -> bytes:
    return b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(payload), payload) for payload in payloads)


def frames_of(body: bytes) -> list[Frame]:
    return read(LengthPrefixedCodec(CAP), [body])[0]


@pytest.mark.parametrize("framed", [prefixed, headed])
def test_json_comes_as_data(framed: Callable[..., bytes]) -> None:
    body = framed(b'{"a":1}', b"", b'{"b":2}')
    assert frames_of(body) == [Frame(b'{"a":1}'), Frame(b"", None, "empty"), Frame(b'{"b":2}')]
    assert read(LengthPrefixedCodec(CAP), [body])[1] == []


@pytest.mark.parametrize("framed", [prefixed, headed])
def test_text_comes_as_text_whatever_it_looks_like_later(framed: Callable[..., bytes]) -> None:
    tokens = [b"{", b" Hel", b"lo\r\n\r\n", b'{"a":1}', b"\xe4\xbd", b"\xa0"]
    assert frames_of(framed(*tokens)) == [Frame(token, None, "text") for token in tokens]


def test_a_message_comes_out_with_its_last_byte() -> None:
    codec = LengthPrefixedCodec(CAP)
    assert list(codec.feed(b"\0\0\0\x02{")) == []
    assert list(codec.feed(b"}\0")) == [Frame(b"{}")]


def test_heads_may_have_other_lines_end_with_bare_newlines_and_stand_between_boundaries() -> None:
    body = b'--b\r\nContent-Type: application/json\r\ncontent-length : 2 \r\n\r\n{}\r\n--b\nCONTENT-LENGTH:7\n\n{"a":1}'
    assert frames_of(body) == [Frame(b"{}"), Frame(b'{"a":1}')]
    for end in (b"\r\n--b--\r\n", b"\r\n--b--\r\n\r\nmore", b"\r\n"):
        assert read(LengthPrefixedCodec(CAP), [body + end])[1] == []


def test_a_length_over_the_cap_ends_the_reading_before_anything_is_waited_for() -> None:
    for body in (prefixed(b"{}") + b"\xff\xff\xff\xff", headed(b"{}") + b"Content-Length: 999999999999999\r\n\r\n"):
        codec = LengthPrefixedCodec(CAP)
        assert list(codec.feed(body)) == [Frame(b"{}")]
        assert codec.anomalies == ["frame_over_cap"]
        assert list(codec.feed(b"\0\0\0\x02{}")) == list(codec.close()) == []


def test_a_head_without_a_length_or_without_an_end_ends_the_reading() -> None:
    assert read(LengthPrefixedCodec(CAP), [b"Content-Type: x\r\n\r\n{}"]) == ([], ["framing_broken"])
    for pieces in ([b"a" * (MAX_HEAD + 10)], single(b"a" * (MAX_HEAD + 10))):
        assert read(LengthPrefixedCodec(CAP), pieces) == ([], ["frame_over_cap"])


@pytest.mark.parametrize("body", [b"\0\0", prefixed(b"{}")[:-1], headed(b"{}")[:-1], b"Content-Len"])
def test_a_message_that_the_end_cuts_off_is_told(body: bytes) -> None:
    assert read(LengthPrefixedCodec(CAP), [body]) == ([], ["unterminated_final_event"])


PARTS = st.lists(
    st.sampled_from([
        prefixed(b"{}"), prefixed(b""), prefixed(b"ab"), headed(b"{}"), headed(b"a\r\n"), b"\r\n", b"--b--\r\n\r\n",
        b"Content-Length: x\r\n\r\n", b"\0", b"\xff\xff\xff\xff", b"\n",
    ])
).map(b"".join)  # fmt: skip


@given(PARTS | st.binary(max_size=60), st.lists(st.integers(0, 1000), max_size=8))
def test_frames_and_anomalies_do_not_depend_on_where_bytes_are_cut(body: bytes, places: list[int]) -> None:
    whole = read(LengthPrefixedCodec(40), [body])
    assert read(LengthPrefixedCodec(40), cut(body, places)) == whole
    assert read(LengthPrefixedCodec(40), single(body)) == whole
    assert set(whole[1]) <= {"frame_over_cap", "framing_broken", "unterminated_final_event"}


@given(st.lists(st.binary(min_size=1, max_size=30)))
def test_text_goes_through_whole(tokens: list[bytes]) -> None:
    first = b"t"
    for framed in (prefixed, headed):
        assert [frame.data for frame in frames_of(framed(first, *tokens))] == [first, *tokens]
