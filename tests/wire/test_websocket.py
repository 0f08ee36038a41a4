"""WebSocket messages are the same wherever the bytes are cut, and no bytes are too odd."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Frame
from collector.wire.websocket import WebSocketCodec, deflate_context

from .pieces import cut, read, single
from .socket_frames import BINARY, CLOSE, PING, PONG, TEXT, Deflating, close, frame

CAP = 100_000
TALK = (
    frame(TEXT, b'{"a":1}')
    + frame(PING, b"x")
    + frame(TEXT, b'{"b":', last=False, masked=True)
    + frame(PONG)
    + frame(0, "\u2028é".encode(), last=False)
    + frame(0, b"}", masked=True)
    + frame(BINARY, bytes(300))
    + frame(TEXT, b"y" * 70_000, masked=True)
    + frame(TEXT)
)
SAID = [
    Frame(b'{"a":1}'), Frame(b"", None, "ping"), Frame(b"", None, "ping"), Frame('{"b":\u2028é}'.encode()),
    Frame(bytes(300), "binary"), Frame(b"y" * 70_000), Frame(b"", None, "empty"),
]  # fmt: skip


def test_messages_pings_and_fragments() -> None:
    assert read(WebSocketCodec(CAP), [TALK]) == (SAID, [])


def test_a_close_gives_its_code_and_reason_and_nothing_comes_after_it() -> None:
    assert read(WebSocketCodec(CAP), [close(1011, b"oh") + TALK]) == ([Frame(b"oh", "1011", "close")], [])
    assert read(WebSocketCodec(CAP), [frame(CLOSE, masked=True)]) == ([Frame(b"", None, "close")], [])


@given(st.lists(st.integers(0, len(TALK)), max_size=8))
def test_the_messages_do_not_depend_on_where_bytes_are_cut(places: list[int]) -> None:
    assert read(WebSocketCodec(CAP), cut(TALK, places)) == (SAID, [])


def test_single_bytes() -> None:
    assert read(WebSocketCodec(CAP), single(TALK[:700])) == read(WebSocketCodec(CAP), [TALK[:700]])


@pytest.mark.parametrize("keeps", [True, False])
def test_deflated_messages_with_and_without_context(keeps: bool) -> None:
    texts = [b'{"delta":"one two three"}', b'{"delta":"one two three"}', b"{}"]
    sender = Deflating()
    body = b""
    for text in texts:
        sender = sender if keeps else Deflating()
        packed = sender.deflated(text)
        body += frame(TEXT, packed[:4], last=False, reserved=0x40) + frame(0, packed[4:])
    body += frame(TEXT, b"plain")
    told = [*(Frame(text) for text in texts), Frame(b"plain")]
    assert read(WebSocketCodec(CAP, keeps), [body]) == (told, [])
    assert read(WebSocketCodec(CAP, keeps), single(body)) == (told, [])


def test_a_deflated_stream_that_ends_within_a_message_can_go_on() -> None:
    final = zlib.compressobj(wbits=-15)
    packed = final.compress(b"one") + final.flush()
    body = frame(TEXT, packed, reserved=0x40) + frame(TEXT, Deflating().deflated(b"two"), reserved=0x40)
    assert read(WebSocketCodec(CAP, True), [body]) == ([Frame(b"one"), Frame(b"two")], [])


def test_a_message_that_inflates_too_far_ends_the_reading() -> None:
    body = frame(TEXT, Deflating().deflated(bytes(CAP + 1)), reserved=0x40) + frame(TEXT, b"{}")
    assert read(WebSocketCodec(CAP, True), [body]) == ([], ["decompress_over_cap"])
    bomb = frame(TEXT, Deflating().deflated(bytes(3_000_000)), reserved=0x40)
    assert read(WebSocketCodec(10_000_000, True), [bomb])[1] == ["decompress_over_cap"]
    fits = frame(TEXT, Deflating().deflated(b"1" * CAP), reserved=0x40)
    assert read(WebSocketCodec(CAP, True), [fits]) == ([Frame(b"1" * CAP)], [])


def test_what_does_not_inflate_ends_the_reading() -> None:
    body = frame(TEXT, b"\xff\xff\xff", reserved=0x40) + frame(TEXT, b"{}")
    assert read(WebSocketCodec(CAP, True), [body]) == ([], ["encoding_broken"])


@pytest.mark.parametrize(
    "body",
    [
        frame(3), frame(11), frame(0, b"x"), frame(TEXT, b"x", reserved=0x40), frame(TEXT, b"x", reserved=0x20),
        frame(PING, last=False), frame(PING, bytes(126)), frame(TEXT, b"x", last=False) + frame(TEXT, b"x"),
        frame(CLOSE, reserved=0x40), b"HTTP/1.1 200 OK\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_no_websocket_ends_the_reading(body: bytes) -> None:
    assert read(WebSocketCodec(CAP), [body + frame(TEXT, b"{}")]) == ([], ["framing_broken"])


def test_a_message_over_the_cap_is_not_waited_for() -> None:
    codec = WebSocketCodec(1000)
    assert list(codec.feed(frame(TEXT, b"{}") + frame(TEXT, bytes(1001))[:10])) == [Frame(b"{}")]
    assert codec.anomalies == ["frame_over_cap"]
    parts = frame(TEXT, b"1" * 600, last=False) + frame(0, b"1" * 401)
    assert read(WebSocketCodec(1000), [parts]) == ([], ["frame_over_cap"])
    huge = b"\x81\x7f" + b"\xff" * 8
    assert read(WebSocketCodec(1000), [huge]) == ([], ["frame_over_cap"])


@pytest.mark.parametrize("body", [b"\x81", frame(TEXT, b"abc")[:-1], frame(TEXT, b"abc", last=False)])
def test_a_message_that_is_cut_off_is_told(body: bytes) -> None:
    assert read(WebSocketCodec(CAP), [body]) == ([], ["unterminated_final_event"])


@given(st.lists(st.binary(max_size=40), max_size=8), st.sampled_from([None, True, False]))
def test_any_bytes_are_read_the_same_wherever_they_are_cut(pieces: list[bytes], deflated: bool | None) -> None:
    whole = read(WebSocketCodec(64, deflated), [b"".join(pieces)])
    assert read(WebSocketCodec(64, deflated), pieces) == whole
    assert all(len(told.data) <= 64 or told.kind == "close" for told in whole[0])


HEADS = st.sampled_from([b"\x81", b"\xc1", b"\x01", b"\x80", b"\x00", b"\x89", b"\x88", b"\x82"])


@given(st.lists(st.tuples(HEADS, st.binary(max_size=100)), max_size=6), st.lists(st.integers(0, 600), max_size=5))
def test_frames_of_any_order_are_read_the_same_wherever_they_are_cut(
    frames: list[tuple[bytes, bytes]], places: list[int]
) -> None:
    body = b"".join(head + bytes([len(payload)]) + payload for head, payload in frames)
    assert read(WebSocketCodec(200, True), cut(body, places)) == read(WebSocketCodec(200, True), [body])


def test_what_was_agreed_on() -> None:
    told = ["x-other, permessage-deflate; client_no_context_takeover; server_max_window_bits=12"]
    assert deflate_context(told, "server") is True
    assert deflate_context(told, "client") is False
    assert deflate_context(["x-other"], "client") is None
    assert deflate_context([], "server") is None
