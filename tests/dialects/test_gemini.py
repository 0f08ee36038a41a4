"""generateContent and streamGenerateContent, in every transport that they come in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.dialects.decoding import UnreadableError
from collector.dialects.gemini import (
    MAX_ARGUMENT_CHARS,
    MAX_ARGUMENTS,
    MAX_OPEN,
    MAX_STEPS,
    EmbeddingsReader,
    GeminiEmbeddings,
    GeminiGenerate,
    GenerateReader,
)
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
    WireError,
)

from .wires import exchange, sse

STREAM = "/v1beta/models/g-1:streamGenerateContent"


def reader(status: int = 200) -> GenerateReader:
    return GenerateReader(ResponseHead(status, Headers()))


def read(*bodies: Any, by: GenerateReader | None = None) -> list[Delta]:
    by = by if by is not None else reader()
    deltas = [by.read(Frame(body if isinstance(body, bytes) else json.dumps(body).encode())) for body in bodies]
    assert None not in deltas
    return [delta for delta in deltas if delta is not None]


def says(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **more}], "modelVersion": "g-1"}


def asked(body: Any) -> Any:
    return GeminiGenerate().request_facts(json.dumps(body).encode())


def test_a_stream_thinks_says_and_finishes() -> None:
    by = reader()
    deltas = read(
        says({"text": "hm", "thought": True}),
        {**says({"text": "Hi"}), "usageMetadata": {"promptTokenCount": 3}},
        {
            **says({"text": "", "thoughtSignature": "xyz"}, finishReason="STOP"),
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "thoughtsTokenCount": 5},
        },
        by=by,
    )
    assert deltas[0] == Delta(reasoning=(TextPiece(0, "hm"),), choices=1, model="g-1")
    assert deltas[1].text == (TextPiece(0, "Hi"),)
    assert (deltas[2].text, deltas[2].finish) == ((), (Finish(0, "STOP"),))
    assert deltas[2].usage == ReportedUsage(3, 2, None, None, 5)
    assert by.ended_well()


def test_a_stream_whose_candidate_has_not_finished_is_not_whole() -> None:
    by = reader()
    read(says({"text": "a"}, finishReason="STOP"), {"candidates": [{"index": 1, "content": {}}]}, by=by)
    assert not by.ended_well()
    assert not reader().ended_well()


def test_finish_reasons_may_be_numbers_and_unspecified_is_none() -> None:
    deltas = read(says(finishReason=1), says(finishReason=0), says(finishReason="FINISH_REASON_UNSPECIFIED"))
    assert [delta.finish for delta in deltas] == [(Finish(0, "1"),), (), ()]


def test_candidates_are_told_apart_by_index_or_place() -> None:
    (delta,) = read(
        {
            "candidates": [
                {"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"},
                {"index": 1, "content": {"parts": [{"text": "b"}]}, "finishReason": "MAX_TOKENS"},
            ]
        }
    )
    assert delta.text == (TextPiece(0, "a"), TextPiece(1, "b"))
    assert (delta.finish, delta.choices) == ((Finish(0, "STOP"), Finish(1, "MAX_TOKENS")), 2)


def test_calls_are_numbered_over_the_whole_stream_and_no_arguments_are_an_empty_object() -> None:
    deltas = read(
        says({"functionCall": {"name": "f", "args": {"a": 1}}}, {"functionCall": {"name": "g"}}),
        says({"functionCall": {"name": "h", "args": {}}}),
    )
    assert [piece for delta in deltas for piece in delta.tools] == [
        ToolPiece(0, 0, "f", '{"a":1}'),
        ToolPiece(0, 1, "g", "{}"),
        ToolPiece(0, 2, "h", "{}"),
    ]


def test_arguments_that_are_streamed_by_path_are_put_together() -> None:
    def part(**call: Any) -> dict[str, Any]:
        return says({"functionCall": call})

    deltas = read(
        part(name="f", willContinue=True),
        part(partialArgs=[{"jsonPath": "$.city", "stringValue": "Ber", "willContinue": True}], willContinue=True),
        part(partialArgs=[{"jsonPath": "$.city", "stringValue": "lin"}], willContinue=True),
        part(
            partialArgs=[
                {"jsonPath": "$.stops[0].name", "stringValue": "a"},
                {"jsonPath": "$['stops'][1]", "numberValue": 2},
                {"jsonPath": "$.now", "boolValue": True},
                {"jsonPath": "$.none", "nullValue": "NULL_VALUE"},
                {"jsonPath": "$.stops[7]", "numberValue": 3},
                {"jsonPath": "$", "numberValue": 3},
            ],
            willContinue=True,
        ),
        part(),
        part(name="g", args={}),
    )
    pieces = [piece for delta in deltas for piece in delta.tools]
    assert all(delta.tools for delta in deltas)
    assert [piece.index for piece in pieces] == [0, 0, 0, 0, 0, 1]
    assert [piece.arguments for piece in pieces[:4]] == [""] * 4
    assert json.loads(pieces[4].arguments) == {"city": "Berlin", "stops": [{"name": "a"}, 2], "now": True, "none": None}


def test_a_blocked_prompt_has_no_candidate_and_is_whole() -> None:
    by = reader()
    (delta,) = read({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}}, by=by)
    assert delta == Delta(blocked=True, usage=ReportedUsage(4))
    assert by.ended_well()
    assert not read({"promptFeedback": {"safetyRatings": []}})[0].blocked


def test_usage_in_normal_form_adds_thoughts_to_the_output_and_what_tools_found_to_the_input() -> None:
    by = reader()
    read({"usageMetadata": {"promptTokenCount": 10, "toolUsePromptTokenCount": 5}}, by=by)
    assert by.normal_usage(ReportedUsage(10, 2, 4, None, 7)) == Usage(15, 9, 4, None, 7)
    assert reader().normal_usage(ReportedUsage(None, None, None, None, 7)) == Usage(None, 7, None, None, 7)
    assert reader().normal_usage(ReportedUsage(3)) == Usage(3)


def test_an_array_in_one_piece_is_all_of_its_chunks() -> None:
    (delta,) = read(
        [says({"text": "a"}), {**says({"text": "b"}, finishReason="STOP"), "usageMetadata": {"promptTokenCount": 1}}]
    )
    assert delta.text == (TextPiece(0, "a"), TextPiece(0, "b"))
    assert (delta.finish, delta.model, delta.usage) == ((Finish(0, "STOP"),), "g-1", ReportedUsage(1))
    assert read([]) == [Delta()]
    assert read(b"[1") == [Delta(malformed=True)]


QUOTA = {
    "code": 429,
    "status": "RESOURCE_EXHAUSTED",
    "message": "You exceeded your quota.",
    "details": [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "RequestsPerMinute"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "48.5s"},
    ],
}


@pytest.mark.parametrize("body", [{"error": QUOTA}, [{"error": QUOTA}]])
def test_an_error_tells_what_limited_and_when_to_come_back(body: Any) -> None:
    error = WireError("RESOURCE_EXHAUSTED", "429", "rate_limited", "RequestsPerMinute")
    assert read(body, by=reader(429)) == [Delta(error=error, retry_after=48.5)]


def test_a_wrong_key_is_an_error_of_who_asks() -> None:
    body = {"error": {"code": 400, "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}
    assert read(body, by=reader(400))[0].error == WireError("INVALID_ARGUMENT", "400", "auth")


def test_an_error_inside_a_stream_is_an_error() -> None:
    (delta,) = read({"error": {"code": 503, "status": "UNAVAILABLE", "message": "later"}})
    assert delta.error == WireError("UNAVAILABLE", "503", "overloaded")


def test_the_record_is_the_same_in_each_transport() -> None:
    pieces = (
        says({"text": "Hé"}),
        {
            **says({"text": "llo"}, finishReason="STOP"),
            "usageMetadata": {"promptTokenCount": 2, "candidatesTokenCount": 1},
        },
    )
    streamed = exchange(STREAM + "?alt=sse", sse(*pieces), kind="text/event-stream").record
    array = exchange(STREAM, json.dumps(pieces, indent=1).encode()).record
    assert (streamed.transport, array.transport) == ("sse", "json_array")
    for record in (streamed, array):
        assert (record.dialect, record.provider, record.operation) == (
            "gemini.generate",
            "gcp.gemini",
            "generate_content",
        )
        assert (record.request_model, record.response_model, record.outcome) == ("g-1", "g-1", "completed")
        assert (record.finish_reasons, record.text.chars, record.frames.data) == (("STOP",), 5, 2)
        assert record.usage == Usage(2, 1)
    assert streamed.text == array.text


def test_a_stream_that_is_cut_is_truncated_and_one_that_is_blocked_is_blocked() -> None:
    cut = exchange(STREAM, sse(says({"text": "a"})), kind="text/event-stream").record
    assert (cut.outcome, cut.finish_reasons) == ("truncated", (None,))
    blocked = exchange(STREAM, sse({"promptFeedback": {"blockReason": "OTHER"}}), kind="text/event-stream").record
    assert (blocked.outcome, blocked.finish_reasons) == ("blocked", ())
    for word, outcome in (
        ("SAFETY", "blocked"),
        (3, "blocked"),
        ("MAX_TOKENS", "incomplete"),
        (2, "incomplete"),
        (1, "completed"),
    ):
        assert exchange(STREAM, sse(says(finishReason=word)), kind="text/event-stream").record.outcome == outcome


def test_the_bodys_hint_stands_in_for_the_header() -> None:
    body = json.dumps({"error": QUOTA}).encode()
    assert exchange(STREAM, body, status=429).record.retry_after == 48.5
    assert exchange(STREAM, body, status=429, headers=("retry-after: 3",)).record.retry_after == 3
    chat = exchange("/v1beta/openai/chat/completions", b"[" + body + b"]", status=429).record
    assert (chat.dialect, chat.retry_after) == ("openai.chat", 48.5)


def test_a_total_of_counted_tokens_is_no_usage() -> None:
    record = exchange("/v1beta/models/g-1:countTokens", b'{"totalTokens":4}').record
    assert (record.dialect, record.request_model, record.usage) == ("count_tokens", "g-1", None)
    assert record.usage_reported == ReportedUsage()
    record = exchange("/v1beta/models/g-1:countTokens", json.dumps({"error": QUOTA}).encode(), status=429).record
    assert record.retry_after == 48.5


def test_it_speaks_where_content_is_generated() -> None:
    response = ResponseHead(200, Headers())
    for method, path, expected in (
        ("POST", "/v1beta/models/g:generateContent", True),
        ("POST", "/v1/publishers/google/models/g%3AstreamGenerateContent", True),
        ("GET", "/v1beta/models/g:generateContent", False),
        ("POST", "/v1beta/models/g:countTokens", False),
        ("POST", "/generateContent", False),
    ):
        assert GeminiGenerate().speaks(RequestHead(method, path, "h", Headers()), response) is expected


SCHEMA = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True}}, "propertyOrdering": ["a"]}


@pytest.mark.parametrize(
    "config",
    [
        {"responseMimeType": "application/json", "responseSchema": SCHEMA},
        {"response_mime_type": "application/json", "response_schema": SCHEMA},
    ],
)
def test_a_schema_in_the_manner_of_openapi_becomes_json_schema(config: dict[str, Any]) -> None:
    for name in ("generationConfig", "generation_config"):
        wish = asked({name: config}).expectation
        assert wish.kind == "json_schema"
        assert json.loads(wish.schema) == {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}


def test_a_json_schema_stays_as_it_is_and_only_json_is_expected_of_json() -> None:
    config = {"responseMimeType": "application/json", "responseJsonSchema": {"type": "array"}}
    assert asked({"generationConfig": config}).expectation == Expectation("json_schema", b'{"type": "array"}')
    assert asked({"generationConfig": {"responseMimeType": "application/json"}}).expectation == Expectation("json")
    assert asked({"generationConfig": {"responseMimeType": "text/x.enum"}}).expectation is None
    assert asked({"generationConfig": {"responseMimeType": "text/plain", "responseSchema": SCHEMA}}).expectation is None
    assert asked({"generationConfig": {}}).expectation is None


def test_tools_have_schemas_of_either_kind() -> None:
    facts = asked(
        {
            "tools": [
                {"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT"}}, {"name": "n"}]},
                {"function_declarations": [{"name": "g", "parametersJsonSchema": {"type": "object"}}]},
                {"googleSearch": {}},
            ]
        }
    )
    assert facts.tool_schemas == {"f": b'{"type":"object"}', "g": b'{"type": "object"}'}


def test_contents_are_turns_and_what_functions_told_is_context() -> None:
    facts = asked(
        {
            "model": "models/g-1",
            "systemInstruction": {"parts": {"text": "Be kind."}},
            "generationConfig": {"maxOutputTokens": 9},
            "contents": [
                {"role": "user", "parts": [{"text": "How high is the tower?"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "f"}}]},
                {
                    "role": "function",
                    "parts": [{"functionResponse": {"name": "f", "response": {"text": "It is 300 m high."}}}],
                },
            ],
        }
    )
    assert (facts.model, facts.query, facts.max_output_tokens) == ("g-1", "How high is the tower?", 9)
    assert facts.context == ("It is 300 m high.",)


def test_a_request_that_is_no_json_is_unreadable() -> None:
    with pytest.raises(UnreadableError):
        GeminiGenerate().request_facts(b"<xml/>")


def test_a_flood_of_calls_is_bounded() -> None:
    by = reader()
    for number in range(1000):
        (delta,) = read(says({"functionCall": {"name": "f", "willContinue": True}}), by=by)
        assert delta.tools[0].index <= min(number, MAX_CALLS)
    for choice in range(1000):
        read(
            {"candidates": [{"index": choice, "content": {"parts": [{"functionCall": {"willContinue": True}}]}}]}, by=by
        )
    assert len(by._open) <= 128 >= len(by._calls)


def test_arguments_that_are_streamed_are_bounded() -> None:
    def piece(text: str, path: str = "$.a") -> dict[str, Any]:
        told = {"partialArgs": [{"jsonPath": path, "stringValue": text, "willContinue": True}], "willContinue": True}
        return says({"functionCall": told})

    by = reader()
    read(says({"functionCall": {"name": "f", "willContinue": True}}), by=by)
    for _ in range(MAX_ARGUMENTS // 2):
        read(piece("x" * 1000), by=by)
    (delta,) = read(says({"functionCall": {}}), by=by)
    kept = len(json.loads(delta.tools[0].arguments)["a"])
    assert MAX_ARGUMENT_CHARS - 2000 < kept <= MAX_ARGUMENT_CHARS
    read(says({"functionCall": {"name": "f", "willContinue": True}}), by=by)
    for number in range(MAX_ARGUMENTS - 1):
        read(piece("", "$" + f".a{number}" * 60), by=by)
    (delta,) = read(says({"functionCall": {}}), by=by)
    assert delta.tools[0].arguments.count(":") <= MAX_STEPS


def test_so_many_calls_are_open_at_the_same_time_and_the_others_are_told_as_too_many() -> None:
    by = reader()
    told = [read(says({"functionCall": {"willContinue": True}}, index=choice), by=by) for choice in range(MAX_OPEN + 2)]
    assert [delta.tools[0].index for (delta,) in told] == [0] * MAX_OPEN + [MAX_CALLS] * 2
    assert len(by._open) == MAX_OPEN


def test_embeddings_are_counted_and_not_read() -> None:
    by = EmbeddingsReader(ResponseHead(200, Headers()))
    vertex = {"predictions": [{"embeddings": {"values": [0.1], "statistics": {"token_count": n}}} for n in (3, 4)]}
    assert by.read(Frame(json.dumps(vertex).encode())) == Delta(usage=ReportedUsage(7))
    gemini = {"embedding": {"values": [0.1]}, "usageMetadata": {"promptTokenCount": 5}}
    assert by.read(Frame(json.dumps(gemini).encode())) == Delta(usage=ReportedUsage(5))
    record = exchange("/v1/publishers/google/models/gemini-embedding-001:predict", json.dumps(vertex).encode()).record
    assert (record.dialect, record.operation, record.usage) == ("gemini.embeddings", "embeddings", Usage(7))
    assert record.request_model == "gemini-embedding-001"
    assert not GeminiEmbeddings().speaks(
        RequestHead("POST", "/v1/models/imagen:predict", "h", Headers()), ResponseHead(200, Headers())
    )
