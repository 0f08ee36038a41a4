"""Whatever transport carries an answer, its record says the same, wherever the bytes are cut."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from collector.analyst.answer import Limits
from collector.analyst.fold import ExchangeFold, RouteFacts, Rules
from collector.dialects.openai_chat import OpenAiChat
from collector.dialects.openai_responses import OpenAiResponses
from collector.dialects.unknown import Unknown
from collector.model import BytesSeen, ExchangeEnded, Record, RequestSeen, ResponseSeen

from ..wire.event_messages import event  # noqa: TID252 - the root is not on the path of plain pytest
from ..wire.pieces import cut, single  # noqa: TID252

CHAT = "/v1/chat/completions"
CHUNKS: list[dict[str, Any]] = [
    {"model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {"model": "m", "choices": [{"index": 0, "delta": {"content": "Hel 🙂"}}]},
    {"model": "m", "choices": [{"index": 0, "delta": {"content": "lo"}}]},
    {"model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"model": "m", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
]
LINES = [json.dumps(chunk, ensure_ascii=False).encode() for chunk in CHUNKS]
BODIES = {
    "sse": ("text/event-stream", b"".join(b"data: %s\n\n" % line for line in LINES)),
    "ndjson": ("application/x-ndjson", b"\n".join(LINES)),
    "json_array": ("application/json", b"[" + b"\n,\r\n".join(LINES) + b"]\n"),
    "eventstream": ("application/vnd.amazon.eventstream", b"".join(event("chunk", line) for line in LINES)),
    "length_prefixed": (
        "application/x-claude-token-stream", b"".join(len(line).to_bytes(4, "big") + line for line in LINES),
    ),
}  # fmt: skip


class StreamedArrays(OpenAiChat):
    """Chat under a path that asks for a stream as an array."""

    def speaks(self, request: Any, response: Any) -> bool:
        return True


def record_of(kind: str, pieces: list[bytes], path: str = CHAT, limits: Limits | None = None) -> Record:
    dialects = (OpenAiResponses(), OpenAiChat(), *([StreamedArrays()] if ":" in path else []), Unknown())
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode()
    seen = RequestSeen(1, 0.0, 0.0, "r", head)
    fold = ExchangeFold("x", seen, RouteFacts("r", "h"), Rules(dialects, limits or Limits(), hashlib.sha256))
    fold.response_seen(ResponseSeen(1, 1.0, 0.0, None, f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode()))
    for piece in pieces:
        fold.bytes_seen(BytesSeen(1, 2.0, True, piece))
    record = fold.ended(ExchangeEnded(1, 3.0, "complete", 0.0)).record
    # How many reads there were is no matter of the bytes.
    return replace(record, timing=replace(record.timing, max_byte_gap=None))


def path_for(transport: str) -> str:
    return "/v1/models/m:streamGenerateContent" if transport == "json_array" else CHAT


@pytest.mark.parametrize("transport", BODIES)
def test_every_transport_tells_the_same(transport: str) -> None:
    kind, body = BODIES[transport]
    record = record_of(kind, [body], path_for(transport))
    assert (record.transport, record.stream, record.outcome, record.anomalies) == (transport, True, "completed", ())
    assert record.text.sha256 == hashlib.sha256("Hel 🙂lo".encode()).hexdigest()
    assert record.usage is not None
    assert (record.usage.input_tokens, record.usage.output_tokens) == (5, 2)
    assert (record.finish_reasons, record.frames.data, record.frames.content) == (("stop",), 5, 2)
    assert record.timing.chunk_gaps.count == 1
    assert record == record_of(kind, single(body), path_for(transport))


@settings(max_examples=60)
@given(st.sampled_from(sorted(BODIES)), st.lists(st.integers(0, 2000), max_size=6), st.integers(0, 700))
def test_the_record_does_not_depend_on_where_bytes_are_cut(transport: str, places: list[int], lost: int) -> None:
    kind, body = BODIES[transport]
    body = body[: max(0, len(body) - lost)]
    whole = record_of(kind, [body], path_for(transport))
    assert record_of(kind, cut(body, places), path_for(transport)) == whole


@pytest.mark.parametrize("transport", BODIES)
def test_a_body_that_ends_before_its_last_words_is_truncated(transport: str) -> None:
    kind, body = BODIES[transport]
    record = record_of(kind, [body[: body.index(b"lo") - 20]], path_for(transport))
    assert record.outcome == "truncated"
    assert record.text.chars == 5


@pytest.mark.parametrize("transport", ["ndjson", "json_array", "eventstream", "length_prefixed"])
def test_a_frame_over_the_cap_is_told_and_what_came_before_stays(transport: str) -> None:
    kind, body = BODIES[transport]
    bound = max(len(line) for line in LINES[:3]) + 100
    big = b'{"x":"' + b"y" * 1000 + b'"}'
    wrapped = {
        "ndjson": b"\n" + big, "json_array": b"," + big, "eventstream": event("chunk", big),
        "length_prefixed": len(big).to_bytes(4, "big") + big,
    }[transport]  # fmt: skip
    body = body.removesuffix(b"]\n") + wrapped
    record = record_of(kind, [body], path_for(transport), Limits(body=bound))
    assert record.anomalies == ("frame_over_cap",)
    assert (record.outcome, record.text.chars) == ("completed", 7)


def test_text_in_frames_is_text_though_its_characters_are_cut() -> None:
    tokens = [b"Hel ", "🙂".encode()[:2], "🙂".encode()[2:], b"lo"]
    body = b"".join(len(token).to_bytes(4, "big") + token for token in tokens)
    record = record_of("application/x-claude-token-stream", [body])
    assert (record.outcome, record.finish_reasons, record.frames.data) == ("completed", (None,), 4)
    assert record.text.sha256 == hashlib.sha256("Hel 🙂lo".encode()).hexdigest()
    assert record_of("application/x-claude-token-stream", [body[:-1]]).outcome == "truncated"


def test_a_checksum_that_fails_makes_the_answer_a_cut_one() -> None:
    kind, body = BODIES["eventstream"]
    broken = body.replace(b"lo", b"la")
    record = record_of(kind, [broken])
    assert (record.outcome, record.anomalies, record.frames.data) == ("truncated", ("crc_mismatch",), 2)


def test_lines_under_the_name_of_json_are_told_as_a_mismatch() -> None:
    _, body = BODIES["ndjson"]
    record = record_of("application/json", single(body))
    assert (record.transport, record.text.chars, record.anomalies) == ("ndjson", 7, ("content_type_mismatch",))


def responses(*events: dict[str, Any]) -> Record:
    body = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)
    return record_of("text/event-stream", [body], "/v1/responses")


def test_what_a_provider_takes_back_is_a_share_of_the_text() -> None:
    delta = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "abcd"}
    done = {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "abXd"}
    end = {"type": "response.completed", "response": {"status": "completed"}}
    assert responses(delta, done, end).correction_ratio == 0.25
    assert responses(delta, {**done, "text": "abcd"}, end).correction_ratio == 0.0
    assert responses(delta, end).correction_ratio is None
    assert responses(delta, done).correction_ratio is None


def test_the_last_numbers_of_a_cache_stay_when_later_usage_leaves_them_out() -> None:
    details = {"cached_tokens": 3, "cache_write_tokens": 4}
    first = {"choices": [], "usage": {"prompt_tokens": 9, "prompt_tokens_details": details}}
    last = {"choices": [], "usage": {"completion_tokens": 2}}
    body = (
        b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in (CHUNKS[1], first, last)) + b"data: [DONE]\n\n"
    )
    record = record_of("text/event-stream", [body])
    reported = record.usage_reported
    assert (reported.input_tokens, reported.output_tokens, reported.cached_input_tokens) == (9, 2, 3)
    assert reported.cache_write_tokens == 4
