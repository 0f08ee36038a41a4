"""What a reader tells of many frames at once is what it would tell of each."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.dialects.anthropic_messages import AnthropicMessages
from collector.dialects.bedrock_converse import BedrockConverse
from collector.dialects.openai_chat import OpenAiChat
from collector.model import Frame, Headers, RequestHead, ResponseHead, TextPiece

READERS: dict[str, Any] = {"chat": OpenAiChat, "claude": AnthropicMessages, "converse": BedrockConverse}
EVENTS = {"chat": None, "claude": "content_block_delta", "converse": "contentBlockDelta"}
PLAIN: dict[str, dict[str, Any]] = {
    "chat": {"model": "m", "choices": [{"index": 0, "delta": {"content": "a"}}]},
    "claude": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
    "converse": {"contentBlockIndex": 0, "delta": {"text": "a"}},
}
KEYS = (
    "model", "choices", "index", "delta", "content", "role", "finish_reason", "message", "error", "usage", "object",
    "type", "code", "timings", "time_info", "perf_metrics", "x_groq", "tool_calls", "function_call", "reasoning",
    "reasoning_content", "refusal", "text", "partial_json", "thinking", "stop_reason", "citation", "content_block",
    "contentBlockIndex", "toolUse", "reasoningContent", "citationsContent", "output", "start", "stopReason", "metrics",
    "trace", "p",
)  # fmt: skip
VALUES = st.sampled_from([
    None, "", "b", "m", "error", "text_delta", "\ud83d", "é", 0, 1, -1, 1.5, True, [], [{}], {}, {"text": "c"}, 10**400,
])  # fmt: skip


def reader_of(kind: str) -> Any:
    reader = READERS[kind]().reader(RequestHead("POST", "/", "h", Headers()), ResponseHead(200, Headers()))
    assert reader.read(Frame(json.dumps(PLAIN[kind]).encode(), EVENTS[kind])) is not None
    return reader


@st.composite
def payloads(draw: st.DrawFn, kind: str) -> bytes:
    """A plain payload with a few of its fields put in, taken out or changed, or bytes changed in it."""
    value = json.loads(json.dumps(PLAIN[kind]))
    for key, put in draw(st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=2)):
        places: list[Any] = [value, value.get("delta")]
        if isinstance(value.get("choices"), list) and value["choices"]:
            places += [value["choices"][0], value["choices"][0].get("delta")]
        place = draw(st.sampled_from([each for each in places if isinstance(each, dict)]))
        if put is None and key in place and draw(st.booleans()):
            del place[key]
        else:
            place[key] = deepcopy(put)  # what is drawn is shared by all examples
    written = bytearray(json.dumps(value, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass"))
    for at, byte in draw(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=1)):
        written[at % len(written)] = byte
    return bytes(written)


@pytest.mark.parametrize("kind", READERS)
@given(st.data())
@settings(max_examples=400, deadline=None)
def test_texts_told_together_are_those_of_the_frames(kind: str, data: st.DataObject) -> None:
    given_payloads = data.draw(st.lists(st.just(json.dumps(PLAIN[kind]).encode()) | payloads(kind), max_size=4))
    together, alone = reader_of(kind), reader_of(kind)
    texts = together.texts(given_payloads)
    frames = [Frame(payload, EVENTS[kind]) for payload in given_payloads]
    assert [alone.read(frame) for frame in frames[: len(texts)]] == [TextPiece(0, text) for text in texts]
    for frame in frames[len(texts) :]:
        assert together.read(frame) == alone.read(frame)


@pytest.mark.parametrize("kind", READERS)
def test_plain_texts_are_told_together_up_to_another_frame(kind: str) -> None:
    plain = json.dumps(PLAIN[kind]).encode()
    assert reader_of(kind).texts([plain, plain, b"{}", plain]) == ["a", "a"]
    assert reader_of(kind).texts([plain, plain.replace(b'"a"', b'""'), plain]) == ["a"]


def test_a_chunk_of_another_model_is_no_plain_text() -> None:
    other = json.dumps(PLAIN["chat"] | {"model": "n"}).encode()
    assert reader_of("chat").texts([other]) == []
