"""A body is one frame at its end, or nothing once it is over the cap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Frame
from collector.wire.whole import WholeCodec


def read(pieces: list[bytes], cap: int) -> tuple[list[Frame], list[str]]:
    codec = WholeCodec(cap)
    frames = [frame for piece in pieces for frame in codec.feed(piece)] + list(codec.close())
    return frames, codec.anomalies


@given(st.lists(st.binary(max_size=10)), st.integers(0, 60))
def test_a_body_is_one_frame_however_it_comes(pieces: list[bytes], cap: int) -> None:
    body = b"".join(pieces)
    if len(body) > cap:
        expected: tuple[list[Frame], list[str]] = ([], ["frame_over_cap"])
    else:
        expected = ([Frame(body)] if body.strip() else [], [])
    assert read(pieces, cap) == expected
    assert read([body], cap) == expected


@pytest.mark.parametrize("body", [b"", b" \r\n "])
def test_a_blank_body_is_no_frame(body: bytes) -> None:
    assert read([body], 100) == ([], [])


def test_a_body_over_the_cap_is_let_go_at_once() -> None:
    codec = WholeCodec(1000)
    for _ in range(5000):
        codec.feed(b"x" * 999)
    assert len(codec._body) == 0
