"""Converse and ConverseStream."""

from __future__ import annotations

import json
from typing import Any

from collector.dialects.bedrock_converse import BedrockConverse, ConverseReader
from collector.model import (
    MAX_CALLS,
    Delta,
    Expectation,
    Finish,
    Frame,
    Headers,
    ReportedUsage,
    RequestHead,
    ResponseHead,
    TextPiece,
    ToolPiece,
    Usage,
)

from ..wire.event_messages import exception  # noqa: TID252 - the root is not on the path of plain pytest
from .wires import EVENT_STREAM, as_delta, events, exchange

PATH = "/model/vendor.model-v1%3A0/converse"
STREAM = PATH + "-stream"


def reader(status: int = 200) -> ConverseReader:
    return ConverseReader(ResponseHead(status, Headers()))


def read(*frames: tuple[str | None, Any], by: ConverseReader | None = None) -> list[Delta]:
    by = by if by is not None else reader()
    read = [by.read(Frame(json.dumps(body).encode(), name)) for name, body in frames]
    assert None not in read
    return [as_delta(delta) for delta in read if delta is not None]


def piece(at: int, **delta: Any) -> tuple[str, Any]:
    return "contentBlockDelta", {"contentBlockIndex": at, "delta": delta, "p": "abc"}


def starts(at: int, **block: Any) -> tuple[str, Any]:
    return "contentBlockStart", {"contentBlockIndex": at, "start": block}


ANSWER = (
    ("messageStart", {"role": "assistant"}),
    piece(0, reasoningContent={"text": "hm"}),
    piece(0, reasoningContent={"signature": "x"}),
    piece(1, text="Hé"),
    piece(1, text=""),
    piece(1, citation={"title": "t"}),
    piece(1, text="llo"),
    ("contentBlockStop", {"contentBlockIndex": 1}),
    starts(2, toolUse={"toolUseId": "t", "name": "f"}),
    piece(2, toolUse={"input": '{"a"'}),
    piece(2, toolUse={"input": ":1}"}),
    ("messageStop", {"stopReason": "tool_use"}),
    (
        "metadata",
        {"usage": {"inputTokens": 3, "outputTokens": 4, "cacheReadInputTokens": 5}, "metrics": {"latencyMs": 250}},
    ),
)


def test_a_stream_is_blocks_of_reasoning_text_and_calls_and_then_its_end() -> None:
    deltas = read(*ANSWER)
    assert [delta.reasoning for delta in deltas if delta.reasoning] == [(TextPiece(0, "hm"),)]
    assert [delta.text for delta in deltas if delta.text] == [(TextPiece(0, "Hé"),), (TextPiece(0, "llo"),)]
    assert [p for delta in deltas for p in delta.tools] == [
        ToolPiece(0, 0, "f"),
        ToolPiece(0, 0, None, '{"a"'),
        ToolPiece(0, 0, None, ":1}"),
    ]
    assert deltas[-2] == Delta(finish=(Finish(0, "tool_use"),), terminal=True)
    assert deltas[-1] == Delta(usage=ReportedUsage(3, 4, 5), phases=(("total", 0.25),))
    assert deltas[4] == deltas[5] == deltas[7] == Delta()


def test_what_a_server_tool_found_is_nothing_the_model_said() -> None:
    deltas = read(
        starts(0, toolUse={"name": "grounding", "type": "server_tool_use"}),
        starts(1, toolResult={"status": "success"}),
        piece(1, toolResult=[{"text": "found"}]),
    )
    assert deltas == [Delta(tools=(ToolPiece(0, 0, "grounding"),)), Delta(), Delta()]


def test_a_whole_answer_is_all_of_it_at_once() -> None:
    (delta,) = read(
        (
            None,
            {
                "output": {
                    "message": {
                        "role": "assistant",
                        "content": [
                            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "x"}}},
                            {"text": "a"},
                            {"citationsContent": {"content": [{"text": "b"}], "citations": [{"title": "t"}]}},
                            {"toolUse": {"name": "f", "input": {"x": 1}}},
                            {"toolUse": {"name": "g", "input": {}}},
                        ],
                    }
                },
                "stopReason": "tool_use",
                "usage": {"inputTokens": 3, "outputTokens": 4, "cacheWriteInputTokenCount": 6},
                "metrics": {"latencyMs": 10},
                "trace": {
                    "promptRouter": {"invokedModelId": "arn:aws:bedrock:us-east-1:1:inference-profile/us.vendor.small"}
                },
            },
        )
    )
    assert delta == Delta(
        text=(TextPiece(0, "a"), TextPiece(0, "b")),
        reasoning=(TextPiece(0, "hm"),),
        tools=(ToolPiece(0, 0, "f", '{"x":1}'), ToolPiece(0, 1, "g", "{}")),
        finish=(Finish(0, "tool_use"),),
        choices=1,
        model="us.vendor.small",
        usage=ReportedUsage(3, 4, None, 6),
        phases=(("total", 0.01),),
        terminal=True,
    )


def test_usage_in_normal_form_counts_cached_tokens_inside_the_input() -> None:
    assert reader().normal_usage(ReportedUsage(3, 4, 5, 6)) == Usage(14, 4, 5, 6)
    assert reader().normal_usage(ReportedUsage(None, 4)) == Usage(None, 4)


def test_a_stream_makes_a_record() -> None:
    record = exchange(STREAM, events(*ANSWER), kind=EVENT_STREAM).record
    assert (record.dialect, record.provider, record.transport) == ("bedrock.converse", "aws.bedrock", "eventstream")
    assert (record.request_model, record.response_model) == ("vendor.model-v1:0", None)
    assert (record.outcome, record.finish_reasons, record.text.chars) == ("completed", ("tool_use",), 5)
    assert (record.frames.data, record.frames.content) == (13, 6)
    assert record.upstream.phases == {"total": 0.25}
    assert record.usage == Usage(8, 4, 5)


def test_an_exception_inside_a_stream_is_an_error_event() -> None:
    body = events(*ANSWER[:4]) + exception("throttlingException", b'{"message":"Too many"}')
    record = exchange(STREAM, body, kind=EVENT_STREAM).record
    assert record.outcome == "error_event"
    assert record.error is not None
    assert (record.error.type, record.error.kind, record.error.mid_stream) == (
        "throttlingException",
        "rate_limited",
        True,
    )
    assert record.text.chars == 2


def test_a_stream_without_its_stop_is_truncated_and_a_guardrail_blocks() -> None:
    assert exchange(STREAM, events(*ANSWER[:8]), kind=EVENT_STREAM).record.outcome == "truncated"
    blocked = events(ANSWER[0], piece(0, text="{X}"), ("messageStop", {"stopReason": "guardrail_intervened"}))
    assert exchange(STREAM, blocked, kind=EVENT_STREAM).record.outcome == "blocked"


def test_an_error_status_is_told_by_its_header() -> None:
    record = exchange(
        PATH, b'{"message":"no"}', status=403, headers=("x-amzn-errortype: AccessDeniedException:http://x/",)
    ).record
    assert record.error is not None
    assert (record.error.type, record.error.kind, record.error.mid_stream) == ("AccessDeniedException", "auth", False)


def test_a_request_says_what_it_wants() -> None:
    facts = BedrockConverse().request_facts(
        json.dumps(
            {
                "system": [{"text": "Be kind."}, {"cachePoint": {"type": "default"}}],
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "guardContent": {
                                    "text": {"text": "Tokyo is in Japan.", "qualifiers": ["grounding_source"]}
                                }
                            },
                            {"document": {"name": "d", "source": {"text": "The tower is 300 m high."}}},
                            {"searchResult": {"content": [{"text": "It was built in 1889."}]}},
                            {"toolResult": {"content": [{"json": {"city": "Paris"}}]}},
                            {"guardContent": {"text": {"text": "How high is it?", "qualifiers": ["query"]}}},
                        ],
                    }
                ],
                "inferenceConfig": {"maxTokens": 10},
                "toolConfig": {
                    "tools": [
                        {"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}},
                        {"systemTool": {"name": "g"}},
                    ]
                },
                "outputConfig": {
                    "textFormat": {
                        "type": "json_schema",
                        "structure": {"jsonSchema": {"schema": '{"type":"object"}', "name": "n"}},
                    }
                },
            }
        ).encode()
    )
    assert (facts.query, facts.max_output_tokens) == ("How high is it?", 10)
    assert {"Tokyo is in Japan.", "The tower is 300 m high.", "It was built in 1889.", "city: Paris"} == set(
        facts.context
    )
    assert facts.tool_schemas == {"f": b'{"type": "object"}'}
    assert facts.expectation == Expectation("json_schema", b'{"type":"object"}', "n")


def test_tokens_that_are_only_counted_are_reported_and_not_used() -> None:
    record = exchange("/model/vendor.model-v1%3A0/count-tokens", b'{"inputTokens":19}').record
    assert (record.dialect, record.request_model) == ("count_tokens", "vendor.model-v1:0")
    assert (record.usage_reported, record.usage) == (ReportedUsage(19), None)
    headers = ("x-amzn-errortype: ThrottlingException",)
    record = exchange("/model/m/count-tokens", b'{"message":"no"}', status=429, headers=headers).record
    assert record.error is not None
    assert (record.error.type, record.error.kind) == ("ThrottlingException", "rate_limited")


def test_a_flood_of_calls_is_bounded() -> None:
    by = reader()
    for number in range(1000):
        (delta,) = read(starts(number, toolUse={"name": "f"}), by=by)
        assert delta.tools[0].index == min(number, MAX_CALLS)
    assert len(by._calls) == MAX_CALLS


def test_it_speaks_where_models_are_conversed_with() -> None:
    response = ResponseHead(200, Headers())
    for method, path, expected in (
        ("POST", PATH, True),
        ("POST", STREAM, True),
        ("GET", PATH, False),
        ("POST", "/model/x/invoke", False),
        ("POST", "/converse", False),
    ):
        assert BedrockConverse().speaks(RequestHead(method, path, "h", Headers()), response) is expected
