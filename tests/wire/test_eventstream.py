"""Binary messages are read exactly, or the reading ends and says why."""

from __future__ import annotations

import struct
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Frame
from collector.wire.eventstream import EventStreamCodec

from .event_messages import error, event, exception, header, message, text
from .pieces import cut, read, read_by_events, single

CAP = 1 << 24
ONE, TWO = event("messageStart", b'{"a":1}'), event("contentBlockDelta", b'{"b":2}')
# One header of each type: true, false, byte, short, int, long, bytes, text, timestamp, uuid (Smithy, event streams).
ALL_TYPES = (
    header("a", 0, b"") + header("b", 1, b"") + header("c", 2, b"\x01") + header("d", 3, b"\0\1")
    + header("e", 4, b"\0" * 4) + header("f", 5, b"\0" * 8) + header("g", 6, b"\0\3abc")
    + header("h", 8, b"\0" * 8) + header("i", 9, b"\0" * 16)
)  # fmt: skip


def test_an_event_has_its_type_and_its_payload() -> None:
    assert read(EventStreamCodec(CAP), [ONE + TWO]) == (
        [Frame(b'{"a":1}', "messageStart"), Frame(b'{"b":2}', "contentBlockDelta")],
        [],
    )


def test_a_message_comes_out_with_its_last_byte() -> None:
    codec = EventStreamCodec(CAP)
    assert list(codec.feed(ONE[:-1])) == []
    assert list(codec.feed(ONE[-1:] + TWO[:5])) == [Frame(b'{"a":1}', "messageStart")]


MESSAGES = [
    ONE, TWO, TWO, TWO[:-1], TWO[:-1] + b"\0", TWO[:8] + b"\0" + TWO[9:], TWO + TWO, b"", b"\0",
    event("contentBlockDelta", b""),
    exception("throttlingException", b"{}"), message(b"", b"{}"), message(text("x", "y" * 2000), b"{}"),
    message(text("a", "b") + text(":event-type", "contentBlockDelta"), b'{"c":3}'),
]  # fmt: skip


@given(
    st.lists(st.sampled_from(MESSAGES), max_size=3),
    st.lists(st.sampled_from(MESSAGES), max_size=6),
    st.sampled_from([None, "contentBlockDelta", "messageStart", "exception:throttlingException"]),
    st.sampled_from([CAP, 100]),
)
def test_messages_told_together_are_those_that_feeding_tells(
    before: list[bytes], reads: list[bytes], name: str | None, cap: int
) -> None:
    together, alone = EventStreamCodec(cap), EventStreamCodec(cap)
    for piece in before:
        assert list(together.feed(piece)) == list(alone.feed(piece))
    payloads = together.payloads(reads, name)
    assert [list(alone.feed(read)) for read in reads[: len(payloads)]] == [[Frame(data, name)] for data in payloads]
    for each in reads[len(payloads) :]:
        assert list(together.feed(each)) == list(alone.feed(each))
    assert (list(together.close()), together.anomalies) == (list(alone.close()), alone.anomalies)


def test_whole_messages_of_one_event_are_told_together_up_to_another() -> None:
    codec = EventStreamCodec(CAP)
    assert list(codec.feed(TWO)) == [Frame(b'{"b":2}', "contentBlockDelta")]
    assert codec.payloads([TWO, event("contentBlockDelta", b'{"b":30}'), ONE, TWO], "contentBlockDelta") == [
        b'{"b":2}', b'{"b":30}',
    ]  # fmt: skip


def test_headers_of_every_type_are_stepped_over() -> None:
    body = message(ALL_TYPES + text(":event-type", "chunk") + ALL_TYPES, b"{}")
    assert read(EventStreamCodec(CAP), [body]) == ([Frame(b"{}", "chunk")], [])


def test_exceptions_and_errors_are_told_by_name() -> None:
    body = (
        exception("throttlingException", b'{"message":"slow down"}')
        + error("InternalError", "oh")
        + exception("x", b"")
    )
    assert [(frame.event, frame.data) for frame in read(EventStreamCodec(CAP), [body])[0]] == [
        ("exception:throttlingException", b'{"message":"slow down"}'), ("error:InternalError", b"{}"),
        ("exception:x", b"{}"),
    ]  # fmt: skip


def test_a_message_without_payload_or_type_is_survived() -> None:
    body = message(b"") + event("ping", b"") + message(text(":event-type", ""), b"{}")
    assert read(EventStreamCodec(CAP), [body])[0] == [
        Frame(b"", None, "empty"), Frame(b"", "ping", "empty"), Frame(b"{}"),
    ]  # fmt: skip


@pytest.mark.parametrize("head", [b"\x05ab", b"\x01a\x63", b"\x01a\x07\xff\xff", b"\x00", b"\x01a\x06"])
def test_headers_that_make_no_sense_are_passed_by(head: bytes) -> None:
    assert read(EventStreamCodec(CAP), [message(head, b"{}")]) == ([Frame(b"{}")], [])


@pytest.mark.parametrize("place", [0, 5, 9, 20, len(TWO) - 6, len(TWO) - 1])
def test_a_byte_that_is_not_what_was_sent_ends_the_reading(place: int) -> None:
    broken = bytearray(TWO)
    broken[place] ^= 1
    frames, anomalies = read(EventStreamCodec(1 << 30), [ONE + bytes(broken) + ONE])
    assert (frames, anomalies) == ([Frame(b'{"a":1}', "messageStart")], ["crc_mismatch"])


def test_a_length_that_cannot_be_ends_the_reading_although_its_checksum_fits() -> None:
    for total, headers in ((15, 0), (16, 1), (0, 0)):
        prelude = struct.pack(">II", total, headers)
        body = prelude + struct.pack(">I", zlib.crc32(prelude)) + b"\0" * 64
        assert read(EventStreamCodec(CAP), [body]) == ([], ["crc_mismatch"])


def test_a_length_over_the_cap_ends_the_reading_before_anything_is_waited_for() -> None:
    codec = EventStreamCodec(CAP)
    assert list(codec.feed(ONE + b"\xff\xff\xff\xff\0\0\0\x10\0\0\0\0")) == [Frame(b'{"a":1}', "messageStart")]
    assert codec.anomalies == ["frame_over_cap"]
    assert list(codec.feed(ONE)) == list(codec.close()) == []
    assert len(codec._buffer) == 0


def test_a_message_that_the_end_cuts_off_is_told() -> None:
    for end in (3, 14, len(TWO) - 1):
        body = ONE + TWO[:end]
        assert read(EventStreamCodec(CAP), [body]) == (
            [Frame(b'{"a":1}', "messageStart")],
            ["unterminated_final_event"],
        )


def test_a_large_message_in_small_pieces_costs_what_its_size_costs() -> None:
    body = event("chunk", b"x" * (4 << 20))
    started = time.process_time()
    frames, _ = read(EventStreamCodec(CAP), [body[at : at + 1024] for at in range(0, len(body), 1024)])
    assert len(frames[0].data) == 4 << 20
    assert time.process_time() - started < 1.0


MESSAGES = st.lists(
    st.sampled_from([ONE, TWO, exception("e", b"{}"), error("c", "w"), message(b""), b"\xff\xff\xff\xff", b"junk"])
).map(b"".join)


@given(MESSAGES | st.binary(max_size=60), st.lists(st.integers(0, 1000), max_size=8))
def test_frames_and_anomalies_do_not_depend_on_where_bytes_are_cut(body: bytes, places: list[int]) -> None:
    whole = read(EventStreamCodec(200), [body])
    assert read(EventStreamCodec(200), cut(body, places)) == whole
    assert read(EventStreamCodec(200), single(body)) == whole
    assert read_by_events(EventStreamCodec(200), cut(body, places)) == whole
    assert read_by_events(EventStreamCodec(200), single(body)) == whole
    assert set(whole[1]) <= {"frame_over_cap", "crc_mismatch", "unterminated_final_event"}


@given(st.binary(max_size=80), st.binary(max_size=40))
def test_any_headers_are_survived(head: bytes, payload: bytes) -> None:
    frames, anomalies = read(EventStreamCodec(CAP), [message(head, payload)])
    assert (len(frames), anomalies) == (1, [])
