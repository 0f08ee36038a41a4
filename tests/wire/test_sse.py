"""Events are the same wherever the bytes are cut, and a hostile body costs bounded memory."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.model import Frame
from collector.wire.sse import MAX_TAKEN_BACK, SseCodec

from .pieces import read_by_events

CAP = 1 << 20


def frames_of(pieces: list[bytes], cap: int = CAP) -> tuple[list[Frame], list[str]]:
    codec = SseCodec(cap)
    frames = [frame for piece in pieces for frame in codec.feed(piece)]
    frames += codec.close()
    return frames, codec.anomalies


def cut(body: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(body) + 1) for place in places} | {len(body)})
    return [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def data_of(body: bytes) -> list[bytes]:
    return [frame.data for frame in frames_of([body])[0] if frame.kind == "data"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_lines_may_end_with_lf_crlf_or_cr(end: bytes) -> None:
    body = end.join([b"event: a", b'data: {"x":1}', b"", b'data: {"x":2}', b"", b""])
    assert frames_of([body]) == ([Frame(b'{"x":1}', "a"), Frame(b'{"x":2}')], [])


WHOLE = [
    b'data: {"a":1}\n\n',
    b'event: e\ndata: {"a":1}\n\n',
    b'data: {"b":\n\n',
    b'data: {"c":\r1}\n\n',
    b"data: {}\r\n\r\n",
]
ODD = [
    b": c\n\n",
    b"event: e\n",
    b"data: 1",
    b"\n",
    b"\r",
    b"\n\n",
    b"",
    b"\xef\xbb\xbf",
    b'data: {"a":1}\n\ndata: {"a":2}\n\n',
]


@given(
    st.lists(st.sampled_from(WHOLE + ODD), max_size=4),
    st.lists(st.sampled_from(WHOLE) | st.sampled_from(ODD), max_size=6),
    st.sampled_from([None, "e", "", "e" * 64, " e", "\ufffd"]),
    st.sampled_from([CAP, 16]),
)
def test_events_told_together_are_those_that_feeding_tells(
    before: list[bytes], reads: list[bytes], name: str | None, cap: int
) -> None:
    together, alone = SseCodec(cap), SseCodec(cap)
    for piece in before:
        assert list(together.feed(piece)) == list(alone.feed(piece))
    payloads = together.payloads(reads, name)
    assert [list(alone.feed(read)) for read in reads[: len(payloads)]] == [[Frame(data, name)] for data in payloads]
    for read in reads[len(payloads) :]:
        assert list(together.feed(read)) == list(alone.feed(read))
    assert (list(together.close()), together.anomalies) == (list(alone.close()), alone.anomalies)


@pytest.mark.parametrize("name", [None, "content_block_delta"])
def test_whole_events_of_one_name_are_told_together_up_to_another(name: str | None) -> None:
    start = b"" if name is None else b"event: %b\n" % name.encode()
    reads = [start + b'data: {"x":%d}\n\n' % number for number in range(3)]
    assert SseCodec(CAP).payloads([*reads, b"event: ping\ndata: {}\n\n", *reads], name) == [
        b'{"x":0}', b'{"x":1}', b'{"x":2}',
    ]  # fmt: skip


def test_an_event_ended_by_bare_crs_comes_out_before_any_more_bytes_arrive() -> None:
    codec = SseCodec(CAP)
    assert list(codec.feed(b"data: 1\r\r")) == [Frame(b"1")]


def test_a_crlf_cut_in_half_is_one_line_end() -> None:
    assert frames_of([b"data: 1\r", b"\ndata: 2\r", b"\n\r", b"\n"]) == ([Frame(b"1\n2")], [])


def test_a_byte_order_mark_opens_a_stream_and_is_data_later() -> None:
    frames, _ = frames_of([b"\xef\xbb", b"\xbfdata: 1\n\n\xef\xbb\xbfdata: 2\n\n"])
    assert frames == [Frame(b"1")]


def test_many_data_lines_make_one_event() -> None:
    assert data_of(b'data: {\ndata:  "a":\ndata: 1}\n\n') == [b'{\n "a":\n1}']


def test_one_space_after_the_colon_belongs_to_the_field_and_more_to_the_value() -> None:
    assert data_of(b"data:1\n\ndata: 2\n\ndata:  3\n\n") == [b"1", b"2", b" 3"]


def test_line_separators_of_unicode_are_data() -> None:
    text = "data: a\u2028b\u2029c\u0085d\x0b\x0c\n\n".encode()
    assert data_of(text) == ["a\u2028b\u2029c\u0085d\x0b\x0c".encode()]


def test_comments_are_told_apart_from_events_and_control_fields_say_nothing() -> None:
    frames, _ = frames_of([b": ping\n\nretry: 3000\n\nid: 1\n\n:408: timeout\n\n"])
    assert [frame.kind for frame in frames] == ["comment", "comment"]


def test_an_event_without_data_is_empty() -> None:
    frames, _ = frames_of([b"data:\n\ndata\n\ndata:  \n\nevent: ping\n\n"])
    assert [frame.kind for frame in frames] == ["empty"] * 4
    assert frames[-1].event == "ping"


def test_a_name_belongs_to_its_own_event_only() -> None:
    frames, _ = frames_of([b"event: a\ndata: 1\n\ndata: 2\n\nevent: b\n\ndata: 3\n\n"])
    assert [(frame.event, frame.kind) for frame in frames] == [
        ("a", "data"), (None, "data"), ("b", "empty"), (None, "data"),
    ]  # fmt: skip


def test_a_last_event_without_its_empty_line_is_told_as_cut_off() -> None:
    for body in (b'event: a\ndata: {"x":1}\n', b'event: a\ndata: {"x":1}'):
        assert frames_of([body]) == ([Frame(b'{"x":1}', "a", terminated=False)], ["unterminated_final_event"])


def test_a_name_or_an_empty_line_at_the_end_is_no_event() -> None:
    for body in (b"event: a", b"data: 1\n\n\n", b"data: 1\n\ndata:", b"data: 1\n\n\xef\xbb\xbf", b""):
        frames, anomalies = frames_of([body])
        assert ([frame.data for frame in frames], anomalies) == ([b"1"] if body[:1] == b"d" else [], [])


@pytest.mark.parametrize(
    "body",
    [b"data: " + b"x" * 200, b"data: 1234\n" * 30, b": " + b"x" * 200, b"event: " + b"x" * 200 + b"\ndata: 1\n\n"],
    ids=["one line", "many lines", "a comment", "a name"],
)
def test_more_than_the_cap_ends_the_reading_wherever_it_is_cut(body: bytes) -> None:
    for pieces in ([body], [body[i : i + 1] for i in range(len(body))], cut(body, [3, 90, 91])):
        assert frames_of([b"data: {}\n\n", *pieces, b"\n\ndata: {}\n\n"], cap=100) == (
            [Frame(b"{}")],
            ["event_over_cap"],
        )


def test_events_up_to_the_cap_are_read() -> None:
    body = b"data: {" + b"x" * 92 + b"}\n\n"
    assert frames_of([body], cap=100)[1] == []
    assert frames_of([body, body], cap=100)[0] == frames_of([body + body], cap=100)[0]


def test_a_million_short_pieces_of_one_line_take_no_more_memory_than_the_line() -> None:
    codec = SseCodec(CAP)
    for _ in range(200_000):
        codec.feed(b"ab")
    assert len(codec._line) == 400_000


LINES = st.sampled_from([
    b"data: {\"a\":1}", b"data: {}", b"data:", b"data", b"data:  x", b"event: ping", b"event:", b"event: \xff", b": c",
    b":", b"id: 1", b"retry: 1", b"", b"", b"", "data: é🙂\u2028".encode(), b"junk", b"data: }", b"data: [DONE]",
])  # fmt: skip
BODIES = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"]))).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


def reference(body: bytes) -> list[tuple[str, bytes]]:
    """Names and data of the events, as WHATWG HTML 9.2.6 puts it, for a body that is whole."""
    found, name, data = [], "", None
    for raw in body.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]:
        field, _, value = raw.partition(b":")
        value = value.removeprefix(b" ")
        if raw == b"":
            if data is not None and data.strip():
                found.append((name, data))
            name, data = "", None
        elif field == b"data":
            data = value if data is None else data + b"\n" + value
        elif field == b"event":
            name = value.strip().decode("utf-8", "replace")
    return found


@given(BODIES)
def test_it_reads_what_the_standard_says(body: bytes) -> None:
    frames, _ = frames_of([body])
    assert [(f.event or "", f.data) for f in frames if f.kind == "data" and f.terminated] == reference(body)


@given(BODIES, st.lists(st.integers(0, 10_000), max_size=12), st.integers(5, 60))
def test_frames_and_anomalies_do_not_depend_on_where_bytes_are_cut(body: bytes, places: list[int], cap: int) -> None:
    whole = frames_of([body], cap)
    assert frames_of(cut(body, places), cap) == whole
    assert frames_of([body[i : i + 1] for i in range(len(body))], cap) == whole


@given(BODIES, st.lists(st.integers(0, 10_000), max_size=12), st.sampled_from([CAP, 60, 20]))
@settings(max_examples=300)
def test_what_is_taken_back_and_fed_again_is_the_same_event(body: bytes, places: list[int], cap: int) -> None:
    whole = frames_of([body], cap)
    assert read_by_events(SseCodec(cap), cut(body, places)) == whole
    assert read_by_events(SseCodec(cap), [body[i : i + 1] for i in range(len(body))]) == whole


def test_much_of_an_event_is_not_taken_back() -> None:
    codec = SseCodec(CAP)
    codec.feed(b"data: 1\n\ndata: " + b"x" * 100)
    assert codec.take_back() == b"data: " + b"x" * 100
    codec.feed(b"data: " + b"x" * MAX_TAKEN_BACK)
    assert codec.take_back() is None
    assert list(codec.feed(b"\n\n")) == [Frame(b"x" * MAX_TAKEN_BACK)]


@given(st.lists(st.binary(max_size=40)))
def test_any_bytes_are_survived(pieces: list[bytes]) -> None:
    frames, anomalies = frames_of(pieces, cap=60)
    assert all(frame.kind in ("data", "comment", "empty") for frame in frames)
    assert set(anomalies) <= {"event_over_cap", "unterminated_final_event"}


@given(st.lists(st.dictionaries(st.text(), st.text()), min_size=1))
def test_json_goes_through_whole(messages: list[dict[str, str]]) -> None:
    body = b"".join(
        b"data: " + json.dumps(m, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n" for m in messages
    )
    assert [json.loads(data) for data in data_of(body)] == [
        json.loads(json.dumps(m, ensure_ascii=False).encode("utf-8", "replace")) for m in messages
    ]


@pytest.mark.parametrize("name", ["a", "n" * 57, "n" * 58, "n" * 200, " é ", ""])
def test_a_name_is_the_same_in_an_event_that_comes_whole_as_in_one_that_is_cut(name: str) -> None:
    body = f"event: {name}\ndata: {{}}\n\n".encode()
    assert frames_of([body]) == frames_of([body[:-1], body[-1:]])
