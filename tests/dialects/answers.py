"""One hand-written (synthetic) answer of every dialect, shaped as its vendor's page shows it, for any transport.

The pages: platform.openai.com/docs/api-reference (chat, completions, responses, embeddings, realtime),
docs.anthropic.com (messages, streaming; legacy completions; count tokens), ai.google.dev/api (generate-content,
interactions, embeddings), docs.aws.amazon.com/bedrock (ConverseStream, InvokeModelWithResponseStream),
docs.cohere.com/reference (chat-stream, embed, rerank), github.com/ollama/ollama docs/api.md,
huggingface.co/docs/text-generation-inference, replicate.com/docs/topics/predictions/streaming, cloud.ibm.com/apidocs
(watsonx-ai).
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from msgspec import Struct

SAID = 'Hé 😊\u2028 ]},"{'
Named = tuple[str | None, Any]  # an event's name and its payload: JSON, or bytes as they are


class Answer(Struct, frozen=True):
    """The messages of one answer. `transport` and `path` are those in which its vendor sends it."""

    transport: str
    path: str
    messages: tuple[Named, ...]
    text: str = ""
    host: str = "api.example.test"
    method: str = "POST"


def _unnamed(*payloads: Any) -> tuple[Named, ...]:
    return tuple((None, payload) for payload in payloads)


def _typed(key: str, *payloads: dict[str, Any]) -> tuple[Named, ...]:
    return tuple((payload[key], payload) for payload in payloads)


def _chunks(*payloads: Any) -> tuple[Named, ...]:
    """Bedrock's chunks: what the model says, in base64."""
    return tuple(
        ("chunk", {"bytes": b64encode(json.dumps(payload).encode()).decode(), "p": "abc"}) for payload in payloads
    )


_CHAT = _unnamed(
    {"model": "m-1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {"model": "m-1", "choices": [{"index": 0, "delta": {"reasoning_content": "Hm"}}]},
    {"model": "m-1", "choices": [{"index": 0, "delta": {"content": SAID}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [
        {"index": 0, "id": "c1", "function": {"name": "find", "arguments": '{"a":'}}]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}}]},
    {"choices": [{"index": 0, "delta": {"content": "b"}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {
        "cached_tokens": 3}}},
    b"[DONE]",
)  # fmt: skip
_TURN = {"id": "resp_1", "status": "completed", "output": [], "usage": {"input_tokens": 3, "output_tokens": 2}}

ANSWERS: dict[str, Answer] = {
    "openai.chat": Answer("sse", "/v1/chat/completions", _CHAT, SAID + "b"),
    "count_tokens": Answer("json", "/v1/messages/count_tokens", _unnamed({"input_tokens": 14})),
    "anthropic.messages": Answer(
        "sse",
        "/v1/messages",
        _typed(
            "type",
            {"type": "message_start", "message": {"model": "c-1", "usage": {"input_tokens": 3, "output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}},
            {"type": "ping"},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": SAID}},
            {"type": "content_block_start", "index": 2, "content_block": {
                "type": "tool_use", "name": "f", "input": {}}},
            {"type": "content_block_delta", "index": 2, "delta": {
                "type": "input_json_delta", "partial_json": '{"a":1}'}},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ),
        SAID,
    ),
    "anthropic.completions": Answer(
        "sse",
        "/v1/complete",
        _typed(
            "type",
            {"type": "completion", "completion": SAID, "stop_reason": None, "model": "c-2"},
            {"type": "ping"},
            {"type": "completion", "completion": "", "stop_reason": "stop_sequence", "model": "c-2"},
        ),
        SAID,
    ),
    "openai.responses": Answer(
        "sse",
        "/v1/responses",
        _typed(
            "type",
            {"type": "response.created", "response": {"model": "m-2", "status": "in_progress"}},
            {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": SAID},
            {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": SAID + "!"},
            {"type": "response.output_item.added", "output_index": 1, "item": {
                "type": "function_call", "id": "fc_1", "name": "f", "arguments": ""}},
            {"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "fc_1", "delta": "{}"},
            {"type": "response.completed", "response": {"status": "completed", "model": "m-2", "usage": {
                "input_tokens": 4, "output_tokens": 2}}},
        ),
        SAID,
    ),
    "openai.completions": Answer(
        "sse",
        "/v1/completions",
        _unnamed(
            {"model": "m-3", "choices": [{"index": 0, "text": SAID}, {"index": 1, "text": "x"}]},
            {"choices": [{"index": 1, "text": "", "finish_reason": "stop"}]},
            {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}},
            b"[DONE]",
        ),
        SAID + "x",
    ),
    "openai.realtime": Answer(
        "websocket",
        "/v1/realtime?model=gpt-realtime",
        _unnamed(
            {"type": "session.created", "session": {"model": "gpt-realtime"}},
            {"type": "rate_limits.updated", "rate_limits": [{"name": "tokens", "limit": 9, "remaining": 8}]},
            {"type": "response.created", "response": {"id": "resp_1"}},
            {"type": "response.output_text.delta", "response_id": "resp_1", "delta": SAID},
            {"type": "response.done", "response": _TURN},
        ),
        SAID,
        method="GET",
    ),
    "gemini.generate": Answer(
        "json_array",
        "/v1beta/models/g-1:streamGenerateContent",
        _unnamed(
            {"candidates": [{"content": {"parts": [{"text": SAID}]}}], "modelVersion": "g-1"},
            {"candidates": [{"content": {"parts": [
                {"functionCall": {"name": "f", "willContinue": True}},
                {"functionCall": {"partialArgs": [{"jsonPath": "$.city", "stringValue": "Be"}], "willContinue": True}},
                {"functionCall": {"partialArgs": [{"jsonPath": "$.n", "numberValue": 1}]}},
            ]}}]},
            {"candidates": [{"content": {"parts": [{"text": "Hm", "thought": True}]}, "finishReason": "STOP"}],
             "usageMetadata": {"promptTokenCount": 2, "candidatesTokenCount": 1}},
        ),
        SAID,
    ),
    "gemini.interactions": Answer(
        "sse",
        "/v1beta/interactions",
        (
            *_typed(
                "event_type",
                {"event_type": "step.start", "index": 0, "step": {"type": "function_call", "name": "f"}},
                {"event_type": "step.delta", "index": 0, "delta": {
                    "type": "arguments_delta", "partial_arguments": "{}"}},
                {"event_type": "step.delta", "index": 1, "delta": {"type": "text", "text": SAID}},
                {"event_type": "interaction.completed", "interaction": {"status": "completed", "model": "g-2"}},
            ),
            ("done", b"[DONE]"),
        ),
        SAID,
    ),
    "gemini.embeddings": Answer(
        "json",
        "/v1beta/models/e-1:embedContent",
        _unnamed({"embedding": {"values": [0.1, 2e-3]}, "usageMetadata": {"promptTokenCount": 5}}),
    ),
    "bedrock.converse": Answer(
        "eventstream",
        "/model/m-4/converse-stream",
        (
            ("messageStart", {"role": "assistant"}),
            ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": SAID}}),
            ("contentBlockStart", {"contentBlockIndex": 1, "start": {"toolUse": {"name": "f"}}}),
            ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"toolUse": {"input": "{}"}}}),
            ("messageStop", {"stopReason": "tool_use"}),
            ("metadata", {"usage": {"inputTokens": 1, "outputTokens": 2}, "metrics": {"latencyMs": 300}}),
        ),
        SAID,
    ),
    "bedrock.invoke": Answer(
        "eventstream",
        "/model/m-5/invoke-with-response-stream",
        _chunks(
            {"outputText": SAID, "index": 0, "inputTextTokenCount": 3},
            {"outputText": "", "index": 0, "completionReason": "FINISH", "totalOutputTextTokenCount": 4,
             "amazon-bedrock-invocationMetrics": {"inputTokenCount": 3, "outputTokenCount": 4,
                                                  "invocationLatency": 500, "firstByteLatency": 100}},
        ),
        SAID,
    ),
    "bedrock.embeddings": Answer(
        "json", "/model/amazon.titan-embed-text-v2/invoke", _unnamed({"embedding": [0.5], "inputTextTokenCount": 3})
    ),
    "cohere.chat": Answer(
        "sse",
        "/v2/chat",
        _typed(
            "type",
            {"type": "message-start", "id": "x"},
            {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": SAID}}}},
            {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": {"function": {
                "name": "f", "arguments": "{"}}}}},
            {"type": "tool-call-delta", "index": 0, "delta": {"message": {"tool_calls": {"function": {
                "arguments": "}"}}}}},
            {"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": {
                "tokens": {"input_tokens": 3, "output_tokens": 2}}}},
        ),
        SAID,
    ),
    "cohere.embeddings": Answer(
        "json", "/v2/embed", _unnamed({"embeddings": {"float": [[0.1]]}, "meta": {"billed_units": {"input_tokens": 2}}})
    ),
    "ollama": Answer(
        "ndjson",
        "/api/chat",
        _unnamed(
            {"model": "o-1", "message": {"role": "assistant", "content": SAID}, "done": False},
            {"model": "o-1", "message": {"content": "", "tool_calls": [{"function": {
                "name": "f", "arguments": {"a": 1}}}]}, "done": False},
            {"model": "o-1", "message": {"content": ""}, "done": True, "done_reason": "stop", "eval_count": 1,
             "prompt_eval_count": 4, "total_duration": 5000000000},
        ),
        SAID,
    ),
    "ollama.embeddings": Answer(
        "json", "/api/embed", _unnamed({"model": "o-2", "embeddings": [[0.1]], "prompt_eval_count": 8})
    ),
    "replicate": Answer(
        "sse",
        "/v1/predictions/x",
        (("output", SAID.replace("\u2028", "").encode()), ("done", b"{}")),
        SAID.replace("\u2028", ""),
        host="stream.replicate.com",
        method="GET",
    ),
    "tgi": Answer(
        "sse",
        "/generate_stream",
        _unnamed(
            {"token": {"id": 1, "text": SAID, "special": False}, "generated_text": None, "details": None},
            {"token": {"id": 2, "text": "</s>", "special": True}, "generated_text": SAID,
             "details": {"finish_reason": "eos_token", "generated_tokens": 2, "input_length": 3}},
        ),
        SAID,
    ),
    "watsonx": Answer(
        "sse",
        "/ml/v1/text/generation_stream",
        _unnamed(
            {"model_id": "w-1", "results": [
                {"generated_text": SAID, "stop_reason": "not_finished", "input_token_count": 3}]},
            {"results": [{"generated_text": "", "generated_token_count": 2, "stop_reason": "eos_token"}]},
        ),
        SAID,
    ),
    "watsonx.chat": Answer("sse", "/ml/v1/text/chat_stream", _CHAT[:-1], SAID + "b"),
    "openai.embeddings": Answer(
        "json",
        "/v1/embeddings",
        _unnamed({"model": "e-2", "data": [{"embedding": [0.1]}], "usage": {"prompt_tokens": 8, "total_tokens": 8}}),
    ),
    "rerank": Answer(
        "json",
        "/v1/rerank",
        _unnamed({"model": "r-1", "results": [{"index": 0, "relevance_score": 0.9}], "usage": {"total_tokens": 9}}),
    ),
    "unknown": Answer("sse", "/answers", _unnamed({"said": SAID}, b"[DONE]")),
}  # fmt: skip
