"""What holds for every dialect: a record does not depend on where bytes are cut, and no bytes are too odd."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.app import DIALECTS
from collector.catalogue import ERROR_KINDS
from collector.dialects.decoding import UnreadableError
from collector.model import MAX_CALLS, Frame, Headers, Record, RequestHead, ResponseHead, Timing

from ..wire.event_messages import event, exception  # noqa: TID252 - the root is not on the path of plain pytest
from ..wire.pieces import cut  # noqa: TID252 - the root is not on the path of plain pytest
from .wires import EVENT_STREAM, chunks, events, exchange, lines, sse

SAID = "Hé 😊\u2028 "
GEMINI = (
    {"candidates": [{"content": {"parts": [{"text": SAID}]}}], "modelVersion": "g"},
    {
        "candidates": [
            {"content": {"parts": [{"functionCall": {"name": "f", "args": {"a": "]}"}}}]}, "finishReason": "STOP"}
        ],
        "usageMetadata": {"promptTokenCount": 2},
    },
)
# Path, media type, host, body.
WIRES: dict[str, tuple[str, str, str, bytes]] = {
    "gemini as events": ("/v1/models/g:streamGenerateContent", "text/event-stream", "h", sse(*GEMINI)),
    "gemini as an array": (
        "/v1/models/g:streamGenerateContent",
        "application/json",
        "h",
        json.dumps(GEMINI, indent=1, ensure_ascii=False).encode(),
    ),
    "gemini whole": ("/v1/models/g:generateContent", "application/json", "h", json.dumps(GEMINI[1]).encode()),
    "interactions": (
        "/v1/interactions",
        "text/event-stream",
        "h",
        sse(
            ("step.delta", {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": SAID}}),
            ("interaction.completed", {"event_type": "interaction.completed", "interaction": {"status": "completed"}}),
            ("done", b"[DONE]"),
            names=True,
        ),
    ),
    "converse": (
        "/model/m/converse-stream",
        EVENT_STREAM,
        "h",
        events(
            ("messageStart", {"role": "assistant"}),
            ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": SAID}}),
            ("messageStop", {"stopReason": "end_turn"}),
            ("metadata", {"usage": {"inputTokens": 1, "outputTokens": 2}}),
        ),
    ),
    "converse with an exception": (
        "/model/m/converse-stream",
        EVENT_STREAM,
        "h",
        events(
            ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": SAID}}),
        )
        + exception("internalServerException", b"{}"),
    ),
    "invoke": (
        "/model/m/invoke-with-response-stream",
        EVENT_STREAM,
        "h",
        chunks(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": SAID}},
            {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 1}},
        )
        + event("chunk", b"{"),
    ),
    "cohere": (
        "/v2/chat",
        "text/event-stream",
        "h",
        sse(
            ("content-delta", {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": SAID}}}}),
            ("message-end", {"type": "message-end", "delta": {"finish_reason": "COMPLETE"}}),
            names=True,
        ),
    ),
    "cohere in lines": (
        "/v1/chat",
        "application/stream+json",
        "api.cohere.com",
        lines(
            {"event_type": "text-generation", "text": SAID},
            {"event_type": "stream-end", "finish_reason": "COMPLETE", "response": {"text": SAID}},
        ),
    ),
    "ollama": (
        "/api/chat",
        "application/x-ndjson",
        "h",
        lines(
            {"model": "m", "message": {"content": SAID}, "done": False},
            {"model": "m", "message": {"content": ""}, "done": True, "eval_count": 1},
        ),
    ),
    "replicate": (
        "/v1/predictions/x",
        "text/event-stream",
        "api.replicate.com",
        sse(("output", SAID.encode()), ("done", b"{}"), names=True),
    ),
    "watsonx": (
        "/ml/v1/text/generation_stream",
        "text/event-stream",
        "h",
        sse(
            {"results": [{"generated_text": SAID, "stop_reason": "not_finished", "input_token_count": 3}]},
            {"results": [{"generated_text": "", "stop_reason": "eos_token"}]},
        ),
    ),
}


def record(name: str, *pieces: bytes) -> Record:
    path, kind, host, _ = WIRES[name]
    method = "GET" if name == "replicate" else "POST"
    found = exchange(path, *pieces, kind=kind, host=host, method=method).record
    return msgspec.structs.replace(found, timing=Timing())


@pytest.mark.parametrize("name", WIRES)
def test_a_record_does_not_depend_on_where_bytes_are_cut(name: str) -> None:
    body = WIRES[name][3]
    whole = record(name, body)
    assert whole.dialect != "unknown"
    assert whole.frames.malformed == (1 if name == "invoke" else 0)

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.integers(0, len(body)), max_size=8))
    def at_any_places(places: list[int]) -> None:
        assert record(name, *cut(body, places)) == whole

    at_any_places()
    assert record(name, *(body[at : at + 1] for at in range(len(body)))) == whole


@pytest.mark.parametrize("name", WIRES)
def test_a_body_that_is_cut_off_anywhere_gives_a_record(name: str) -> None:
    body = WIRES[name][3]
    outcomes = {record(name, body[:end]).outcome for end in range(0, len(body), 7)}
    assert outcomes <= {"truncated", "completed", "error_event"}


WORDS = [
    "candidates",
    "content",
    "parts",
    "text",
    "functionCall",
    "args",
    "partialArgs",
    "jsonPath",
    "stringValue",
    "willContinue",
    "finishReason",
    "index",
    "usageMetadata",
    "promptTokenCount",
    "error",
    "code",
    "status",
    "details",
    "violations",
    "retryDelay",
    "promptFeedback",
    "blockReason",
    "interaction",
    "event_type",
    "step",
    "steps",
    "delta",
    "type",
    "arguments",
    "usage",
    "metadata",
    "total_input_tokens",
    "output",
    "message",
    "toolUse",
    "input",
    "name",
    "contentBlockIndex",
    "start",
    "stopReason",
    "inputTokens",
    "metrics",
    "latencyMs",
    "trace",
    "promptRouter",
    "bytes",
    "results",
    "outputText",
    "tokenCount",
    "outputs",
    "generations",
    "completions",
    "data",
    "choices",
    "completion",
    "generation",
    "stop_reason",
    "inputTextTokenCount",
    "amazon-bedrock-invocationMetrics",
    "inputTokenCount",
    "messageStart",
    "contentBlockDelta",
    "tool_calls",
    "function",
    "tool_plan",
    "finish_reason",
    "tokens",
    "meta",
    "response",
    "is_finished",
    "tool_call_delta",
    "parameters",
    "done",
    "done_reason",
    "total_duration",
    "eval_count",
    "model",
    "errors",
    "generated_text",
    "input_token_count",
    "predictions",
    "embeddings",
    "statistics",
]
TEXTS = [
    "",
    "text",
    "content-delta",
    "content-start",
    "message-end",
    "tool-call-delta",
    "text-generation",
    "stream-end",
    "tool-calls-chunk",
    "tool-calls-generation",
    "step.delta",
    "step.start",
    "function_call",
    "arguments_delta",
    "error",
    "message_start",
    "content_block_delta",
    "$.a[0].b",
    "$['a']",
    "9s",
    "eyJhIjoxfQ==",
    "eyJvdXRwdXRzIjpbeyJ0ZXh0IjoieCJ9XX0=",
    "\ud83d",
    "succeeded",
    "not_finished",
]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**20) | st.floats() | st.sampled_from(TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=25,
)
BODIES = JUNK.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20)
EVENTS = st.sampled_from(
    [
        None,
        "chunk",
        "error",
        "output",
        "done",
        "contentBlockDelta",
        "contentBlockStart",
        "messageStop",
        "metadata",
        "exception:throttlingException",
    ]
)
PATHS = {
    "gemini.generate": "/v1/models/g:generateContent",
    "bedrock.converse": "/model/m/converse",
    "count_tokens": "/model/m/count-tokens",
    "watsonx.chat": "/ml/v1/text/chat",
}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("status", [200, 429])
def test_any_frames_give_facts_that_can_be_written(dialect: Any, status: int) -> None:
    request, response = (
        RequestHead("POST", PATHS.get(dialect.name, "/x"), "h", Headers()),
        ResponseHead(status, Headers()),
    )

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(EVENTS, BODIES), max_size=6))
    def for_any(frames: list[tuple[str | None, bytes]]) -> None:
        by = dialect.reader(request, response)
        for name, body in frames:
            delta = by.read(Frame(body, name))
            assert delta is not None
            assert all(0 <= piece.index <= MAX_CALLS for piece in delta.tools)
            assert all(isinstance(piece.text, str) for piece in (*delta.text, *delta.reasoning))
            assert all(isinstance(end.reason, str) for end in delta.finish)
            assert all(0 <= seconds < 1e6 for _, seconds in delta.phases)
            assert delta.error is None or delta.error.kind in ERROR_KINDS
            for usage in (delta.usage, by.normal_usage(delta.usage) if delta.usage is not None else None):
                counts = msgspec.structs.astuple(usage) if usage is not None else ()
                assert all(count is None or (type(count) is int and count >= 0) for count in counts)
        by.ended_well()

    for_any()


ASKED = [
    "model",
    "messages",
    "contents",
    "role",
    "content",
    "parts",
    "text",
    "systemInstruction",
    "system",
    "generationConfig",
    "responseMimeType",
    "responseSchema",
    "tools",
    "functionDeclarations",
    "parameters",
    "name",
    "type",
    "properties",
    "nullable",
    "input",
    "result",
    "response_format",
    "schema",
    "toolConfig",
    "toolSpec",
    "inputSchema",
    "json",
    "outputConfig",
    "textFormat",
    "structure",
    "jsonSchema",
    "document",
    "source",
    "guardContent",
    "toolResult",
    "anthropic_version",
    "schemaVersion",
    "prompt",
    "inputText",
    "message",
    "chat_history",
    "documents",
    "data",
    "tool_results",
    "outputs",
    "parameter_definitions",
    "format",
    "options",
    "num_predict",
    "version",
    "model_id",
    "max_tokens",
    "functionResponse",
    "response",
    "items",
]
REQUESTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 10**20)
    | st.sampled_from(
        [
            "",
            "application/json",
            "user",
            "tool",
            "json",
            "json_schema",
            "json_object",
            "OBJECT",
            "Why?",
            "\ud83d",
            "[INST] a",
            "Human:",
            "a/b:c",
        ]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(ASKED), inner, max_size=8),
    max_leaves=30,
)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_any_request_gives_facts_or_is_unreadable(dialect: Any) -> None:
    @settings(max_examples=60, deadline=None)
    @given(REQUESTS.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20))
    def for_any(body: bytes) -> None:
        try:
            facts = dialect.request_facts(body)
        except UnreadableError:
            return
        assert facts.model is None or isinstance(facts.model, str)
        assert facts.query is None or isinstance(facts.query, str)
        assert all(isinstance(schema, bytes) for schema in facts.tool_schemas.values())

    for_any()
