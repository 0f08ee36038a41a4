"""Lines are the same wherever the bytes are cut, and a hostile body costs bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Frame
from collector.wire.ndjson import NdjsonCodec

from .pieces import cut, read, single

CAP = 1 << 20


def frames_of(body: bytes) -> list[Frame]:
    return read(NdjsonCodec(CAP), [body])[0]


def test_each_line_is_a_frame_and_the_last_needs_no_end() -> None:
    assert frames_of(b'{"a":1}\n{"a":2}\n{"a":3}') == [
        Frame(b'{"a":1}'), Frame(b'{"a":2}'), Frame(b'{"a":3}', terminated=False),
    ]  # fmt: skip


def test_a_line_comes_out_as_soon_as_it_has_ended() -> None:
    codec = NdjsonCodec(CAP)
    assert list(codec.feed(b'{"a"')) == []
    assert list(codec.feed(b':1}\n{"b"')) == [Frame(b'{"a":1}')]
    assert list(codec.feed(b":2}\n")) == [Frame(b'{"b":2}')]


def test_blank_lines_carriage_returns_and_a_byte_order_mark_are_no_data() -> None:
    assert frames_of(b"\xef\xbb\xbf{}\r\n\r\n \n[1]\r\n\n") == [Frame(b"{}"), Frame(b"[1]")]


def test_line_separators_of_unicode_are_data() -> None:
    text = '{"a":"\u2028\u2029\u0085"}'.encode()
    assert frames_of(text + b"\n") == [Frame(text)]


@pytest.mark.parametrize("after", [b"", b"\n{}\n"])
def test_a_line_over_the_cap_ends_the_reading_wherever_it_is_cut(after: bytes) -> None:
    body = b"{}\n" + b"x" * 50 + after
    for pieces in ([body], single(body), cut(body, [10, 40])):
        assert read(NdjsonCodec(40), pieces) == ([Frame(b"{}")], ["frame_over_cap"])


def test_a_long_line_in_many_pieces_takes_no_more_memory_than_the_line() -> None:
    codec = NdjsonCodec(CAP)
    for _ in range(200_000):
        codec.feed(b"ab")
    assert len(codec._line) == 400_000


BODIES = st.lists(st.sampled_from([b"{}", b'{"a":"\\n"}', b"\n", b"\r\n", b"  ", b"\xef\xbb\xbf", b"junk", b"x" * 30]))


@given(BODIES.map(b"".join) | st.binary(max_size=80), st.lists(st.integers(0, 1000), max_size=8))
def test_frames_and_anomalies_do_not_depend_on_where_bytes_are_cut(body: bytes, places: list[int]) -> None:
    whole = read(NdjsonCodec(40), [body])
    assert read(NdjsonCodec(40), cut(body, places)) == whole
    assert read(NdjsonCodec(40), single(body)) == whole
    assert set(whole[1]) <= {"frame_over_cap"}
