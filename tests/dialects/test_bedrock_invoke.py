"""InvokeModel, in the words of each family of models."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.app import DIALECTS
from collector.dialects.bedrock_invoke import BedrockEmbeddings, BedrockInvoke, prompt_turns
from collector.dialects.conversation import Turn
from collector.model import Headers, ReportedUsage, RequestHead, ResponseHead, Usage

from ..wire.event_messages import event, exception  # noqa: TID252 - the root is not on the path of plain pytest
from .wires import EVENT_STREAM, chunks, exchange, lines, to_bytes

PATH = "/model/vendor.model-v1/invoke"
STREAM = PATH + "-with-response-stream"
METRICS = {
    "amazon-bedrock-invocationMetrics": {
        "inputTokenCount": 7,
        "outputTokenCount": 2,
        "invocationLatency": 500,
        "firstByteLatency": 100,
    }
}

CALL = [{"function": {"name": "f", "arguments": "{}"}}]
WHOLE: dict[str, tuple[Any, str, tuple[str, ...], ReportedUsage]] = {
    "claude": (
        {
            "type": "message",
            "model": "claude",
            "content": [{"type": "text", "text": "Hi"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 2},
        },
        "Hi",
        ("end_turn",),
        ReportedUsage(1, 2),
    ),
    "claude 2": (
        {"type": "completion", "completion": " Hi", "stop_reason": "stop_sequence"},
        " Hi",
        ("stop_sequence",),
        ReportedUsage(),
    ),
    "titan": (
        {"inputTextTokenCount": 3, "results": [{"tokenCount": 4, "outputText": "Hi", "completionReason": "FINISH"}]},
        "Hi",
        ("FINISH",),
        ReportedUsage(3, 4),
    ),
    "nova": (
        {
            "output": {"message": {"content": [{"text": "Hi"}]}},
            "stopReason": "end_turn",
            "usage": {"inputTokens": 1, "outputTokens": 2, "cacheReadInputTokenCount": 0},
        },
        "Hi",
        ("end_turn",),
        ReportedUsage(1, 2, 0),
    ),
    "llama": (
        {"generation": "Hi", "prompt_token_count": 3, "generation_token_count": 4, "stop_reason": "stop"},
        "Hi",
        ("stop",),
        ReportedUsage(3, 4),
    ),
    "mistral": ({"outputs": [{"text": "Hi", "stop_reason": "length"}]}, "Hi", ("length",), ReportedUsage()),
    "mistral chat": (
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "stop_reason": "stop"}]},
        "Hi",
        ("stop",),
        ReportedUsage(),
    ),
    "command": (
        {
            "generations": [{"text": "Hi", "finish_reason": "MAX_TOKENS"}, {"text": "Ho", "finish_reason": "COMPLETE"}],
            "prompt": "p",
        },
        "HiHo",
        ("MAX_TOKENS", "COMPLETE"),
        ReportedUsage(),
    ),
    "command r": (
        {"text": "Hi", "generation_id": "g", "finish_reason": "COMPLETE", "chat_history": []},
        "Hi",
        ("COMPLETE",),
        ReportedUsage(),
    ),
    "jurassic": (
        {
            "id": 1,
            "prompt": {"text": "p"},
            "completions": [{"data": {"text": "Hi"}, "finishReason": {"reason": "endoftext"}}],
        },
        "Hi",
        ("endoftext",),
        ReportedUsage(),
    ),
    "jamba": (
        {
            "choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2},
        },
        "Hi",
        ("stop",),
        ReportedUsage(1, 2),
    ),
    "deepseek": ({"choices": [{"text": "Hi", "stop_reason": "stop"}]}, "Hi", ("stop",), ReportedUsage()),
}
STREAMS: dict[str, tuple[list[Any], str, ReportedUsage]] = {
    "claude": (
        [
            {"type": "message_start", "message": {"model": "claude", "usage": {"input_tokens": 1, "output_tokens": 1}}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop", **METRICS},
        ],
        "end_turn",
        ReportedUsage(1, 9),
    ),
    "claude 2": (
        [{"completion": "H", "stop_reason": None}, {"completion": "i", "stop_reason": "max_tokens", **METRICS}],
        "max_tokens",
        ReportedUsage(7, 2),
    ),
    "titan": (
        [
            {
                "outputText": "H",
                "index": 0,
                "completionReason": None,
                "inputTextTokenCount": 3,
                "totalOutputTextTokenCount": None,
            },
            {"outputText": "i", "index": 0, "completionReason": "LENGTH", "totalOutputTextTokenCount": 4.0, **METRICS},
        ],
        "LENGTH",
        ReportedUsage(3, 4),
    ),
    "nova": (
        [
            {"messageStart": {"role": "assistant"}},
            {"contentBlockDelta": {"delta": {"text": "Hi"}, "contentBlockIndex": 0}},
            {"contentBlockStop": {"contentBlockIndex": 0}},
            {"messageStop": {"stopReason": "end_turn"}},
            {"metadata": {"usage": {"inputTokens": 1, "outputTokens": 5}}, **METRICS},
        ],
        "end_turn",
        ReportedUsage(1, 5),
    ),
    "llama": (
        [
            {"generation": "H", "prompt_token_count": 3, "generation_token_count": 1, "stop_reason": None},
            {
                "generation": "i",
                "prompt_token_count": None,
                "generation_token_count": 2,
                "stop_reason": "stop",
                **METRICS,
            },
        ],
        "stop",
        ReportedUsage(3, 2),
    ),
    "mistral": (
        [
            {"outputs": [{"text": "H", "stop_reason": None}]},
            {"outputs": [{"text": "i", "stop_reason": "stop"}], **METRICS},
        ],
        "stop",
        ReportedUsage(7, 2),
    ),
    "mistral chat": (
        [
            {"choices": [{"index": 0, "message": {"content": "H"}, "stop_reason": None}]},
            {"choices": [{"index": 0, "message": {"content": "i"}, "stop_reason": "stop"}], **METRICS},
        ],
        "stop",
        ReportedUsage(7, 2),
    ),
    "command": (
        [
            {"is_finished": False, "text": "Hi", "index": 0},
            {"is_finished": True, "finish_reason": "COMPLETE", "index": 0, **METRICS},
        ],
        "COMPLETE",
        ReportedUsage(7, 2),
    ),
    "command r": (
        [
            {"event_type": "text-generation", "text": "Hi", "is_finished": False},
            {
                "event_type": "stream-end",
                "finish_reason": "COMPLETE",
                "response": {"text": "Hi"},
                "is_finished": True,
                **METRICS,
            },
        ],
        "COMPLETE",
        ReportedUsage(7, 2),
    ),
    "jamba": (
        [
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
            {"choices": [{"index": 0, "delta": {"content": "Hi"}}]},
            {
                "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 3},
                **METRICS,
            },
        ],
        "stop",
        ReportedUsage(1, 3),
    ),
    "deepseek": (
        [
            {"choices": [{"text": "H", "stop_reason": None}]},
            {"choices": [{"text": "i", "stop_reason": "stop"}], **METRICS},
        ],
        "stop",
        ReportedUsage(7, 2),
    ),
}


@pytest.mark.parametrize("family", WHOLE)
def test_a_whole_answer_of_each_family_is_read(family: str) -> None:
    body, text, finish, usage = WHOLE[family]
    found = exchange(PATH, to_bytes(body))
    record = found.record
    assert (record.dialect, record.provider, record.outcome) == (
        "bedrock.invoke",
        "aws.bedrock",
        "incomplete" if {"length", "MAX_TOKENS"} & set(finish) else "completed",
    )
    assert "".join(choice.text for choice in found.choices) == text
    assert (record.finish_reasons, record.usage_reported) == (finish, usage)
    assert record.request_model == "vendor.model-v1"


@pytest.mark.parametrize("family", STREAMS)
def test_a_stream_of_each_family_is_read(family: str) -> None:
    said, finish, usage = STREAMS[family]
    record = exchange(STREAM, chunks(*said), kind=EVENT_STREAM).record
    assert (record.text.chars, record.finish_reasons, record.usage_reported) == (2, (finish,), usage)
    assert (record.frames.data, record.frames.malformed) == (len(said), 0)
    assert record.outcome in ("completed", "incomplete")
    assert record.upstream.phases == {"total": 0.5, "first_token": 0.1}


@pytest.mark.parametrize("family", STREAMS)
def test_a_stream_that_is_cut_is_truncated(family: str) -> None:
    said, _, _ = STREAMS[family]
    assert exchange(STREAM, chunks(said[0]), kind=EVENT_STREAM).record.outcome == "truncated"


def test_counts_that_only_headers_tell_are_used_but_not_reported_by_the_body() -> None:
    headers = (
        "x-amzn-bedrock-input-token-count: 10",
        "x-amzn-bedrock-output-token-count: 20",
        "x-amzn-bedrock-invocation-latency: 319",
    )
    record = exchange(PATH, to_bytes({"outputs": [{"text": "Hi", "stop_reason": "stop"}]}), headers=headers).record
    assert (record.usage, record.usage_reported) == (Usage(10, 20), ReportedUsage())
    assert (record.upstream.phases, record.anomalies) == ({"total": 0.319}, ())
    claude = exchange(
        PATH, to_bytes(WHOLE["claude"][0]), headers=(*headers, "x-amzn-bedrock-cache-read-input-token-count: 5")
    ).record
    assert claude.usage == Usage(1, 2)
    junk = exchange(PATH, to_bytes(WHOLE["mistral"][0]), headers=("x-amzn-bedrock-input-token-count: -1",)).record
    assert junk.usage is None


def test_tool_calls_of_mistrals_chat_models_are_calls() -> None:
    body = {"choices": [{"index": 0, "message": {"content": "", "tool_calls": CALL}, "stop_reason": "tool_calls"}]}
    (call,) = exchange(PATH, to_bytes(body)).record.tool_calls
    assert (call.name, call.arguments_chars) == ("f", 2)


def test_a_guardrail_that_intervened_blocks() -> None:
    result = {"outputText": "No.", "completionReason": "", "tokenCount": 0}
    acted = {"amazon-bedrock-guardrailAction": "INTERVENED", "amazon-bedrock-trace": {"guardrail": {}}}
    record = exchange(PATH, to_bytes({"inputTextTokenCount": 0, "results": [result], **acted})).record
    assert (record.outcome, record.finish_reasons) == ("blocked", ("",))
    idle = {**WHOLE["claude"][0], "amazon-bedrock-guardrailAction": "NONE"}
    assert exchange(PATH, to_bytes(idle)).record.outcome == "completed"
    said = ({"outputText": "No.", "index": 0, "completionReason": "FINISH", **acted, **METRICS},)
    assert exchange(STREAM, chunks(*said), kind=EVENT_STREAM).record.outcome == "blocked"


def test_exceptions_and_junk_in_a_stream() -> None:
    body = chunks({"outputs": [{"text": "Hi", "stop_reason": None}]}) + exception("modelStreamErrorException", b"{}")
    record = exchange(STREAM, body, kind=EVENT_STREAM).record
    assert record.error is not None
    assert (record.outcome, record.error.type, record.error.mid_stream) == (
        "error_event",
        "modelStreamErrorException",
        True,
    )
    junk = (
        event("chunk", b'{"bytes":"%%%"}')
        + event("chunk", b"{")
        + event("chunk", b"{}")
        + event("initial-response", b"{}")
    )
    record = exchange(STREAM, junk, kind=EVENT_STREAM).record
    assert (record.frames.data, record.frames.malformed) == (4, 2)


def test_an_error_status_is_told_by_its_header() -> None:
    record = exchange(PATH, b'{"message":"no"}', status=400, headers=("x-amzn-errortype: ValidationException",)).record
    assert record.error is not None
    assert (record.error.type, record.error.kind) == ("ValidationException", "invalid_request")


def test_embeddings_are_an_operation_of_their_own() -> None:
    body = to_bytes({"embedding": [0.1], "inputTextTokenCount": 6})
    record = exchange("/model/amazon.titan-embed-text-v2%3A0/invoke", body).record
    assert (record.dialect, record.operation, record.usage) == ("bedrock.embeddings", "embeddings", Usage(6))
    assert (record.finish_reasons, record.outcome, record.anomalies) == ((), "completed", ())


def facts(body: Any) -> Any:
    dialect = next(
        each for each in DIALECTS if isinstance(each, BedrockInvoke) and not isinstance(each, BedrockEmbeddings)
    )
    return dialect.request_facts(json.dumps(body).encode())


@pytest.mark.parametrize(
    "body",
    [
        {
            "anthropic_version": "bedrock-2023-05-31",
            "max_tokens": 5,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Why?"}]}],
        },
        {
            "schemaVersion": "messages-v1",
            "inferenceConfig": {"max_new_tokens": 5},
            "messages": [{"role": "user", "content": [{"text": "Why?"}]}],
        },
        {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 5, "model": "other"},
        {"message": "Why?", "max_tokens": 5},
        {"prompt": "Why?", "max_gen_len": 5},
        {"prompt": "\n\nHuman: Why?\n\nAssistant:", "max_tokens_to_sample": 5},
        {"prompt": "<s>[INST] Why? [/INST]", "max_tokens": 5},
    ],
)
def test_the_request_of_each_family_is_read(body: dict[str, Any]) -> None:
    found = facts(body)
    assert (found.query, found.max_output_tokens, found.model) == ("Why?", 5, None)


@pytest.mark.parametrize(
    ("prompt", "turns"),
    [
        ("Why?", [Turn("user", "text", "Why?")]),
        (
            "Be kind.\n\nHuman: Hi\n\nAssistant: Ho\n\nHuman: Why?\n\nAssistant:",
            [
                Turn("system", "text", "Be kind."),
                Turn("user", "text", "Hi"),
                Turn("assistant", "text", "Ho"),
                Turn("user", "text", "Why?"),
            ],
        ),
        (
            "<|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|><|start_header_id|>user<|end_header_id|>"
            "\n\nWhy?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n",
            [
                Turn("system", "text", "Be kind."),
                Turn("user", "text", "Why?"),
            ],
        ),
        (
            "<s>[INST] <<SYS>>Be kind.<</SYS>> Why? [/INST]",
            [Turn("system", "text", "Be kind."), Turn("user", "text", "Why?")],
        ),
    ],
)
def test_a_prompt_is_taken_apart_into_its_turns(prompt: str, turns: list[Turn]) -> None:
    assert prompt_turns(prompt) == turns


def test_it_speaks_where_models_are_invoked() -> None:
    response = ResponseHead(200, Headers())
    for path, chats, embeds in (
        (PATH, True, False),
        (STREAM, True, False),
        ("/model/cohere.embed-english-v3/invoke", False, True),
        ("/model/x/converse", False, False),
        ("/invoke", False, False),
    ):
        request = RequestHead("POST", path, "h", Headers())
        spoken = {each.name for each in DIALECTS[:-1] if each.speaks(request, response)}
        assert ("bedrock.invoke" in spoken, "bedrock.embeddings" in spoken) == (chats, embeds)


def test_lines_of_json_are_no_invoke_stream() -> None:
    record = exchange(
        STREAM, lines({"outputs": [{"text": "Hi", "stop_reason": "stop"}]}), kind="application/x-ndjson"
    ).record
    assert (record.transport, record.text.chars) == ("ndjson", 2)
