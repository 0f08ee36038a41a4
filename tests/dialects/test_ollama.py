"""Ollama's chat and generate, in lines and whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.dialects.ollama import Ollama, OllamaReader
from collector.model import (
    MAX_CALLS,
    Delta,
    Expectation,
    Finish,
    Frame,
    Headers,
    ReportedUsage,
    ResponseHead,
    TextPiece,
    ToolPiece,
    Usage,
)

from .wires import exchange, lines

END = {
    "model": "m",
    "message": {"role": "assistant", "content": ""},
    "done": True,
    "done_reason": "stop",
    "total_duration": 4_000_000_000,
    "load_duration": 500_000_000,
    "prompt_eval_count": 3,
    "prompt_eval_duration": 1_000_000_000,
    "eval_count": 2,
    "eval_duration": 2_000_000_000,
}


def read(*bodies: Any, by: OllamaReader | None = None) -> list[Delta]:
    by = by if by is not None else OllamaReader(ResponseHead(200, Headers()))
    return [delta for body in bodies if (delta := by.read(Frame(json.dumps(body).encode()))) is not None]


def says(**message: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", **message}, "done": False}


def test_lines_think_say_call_and_are_done() -> None:
    call = {"function": {"index": 0, "name": "f", "arguments": {"a": 1}}}
    deltas = read(
        says(thinking="hm"), says(content="Hi"), says(content="", tool_calls=[call]), says(tool_calls=[call]), END
    )
    assert deltas[0].reasoning == (TextPiece(0, "hm"),)
    assert deltas[1] == Delta(text=(TextPiece(0, "Hi"),), choices=1, model="m")
    assert [delta.tools for delta in deltas[2:4]] == [
        (ToolPiece(0, 0, "f", '{"a":1}'),),
        (ToolPiece(0, 1, "f", '{"a":1}'),),
    ]
    assert deltas[4] == Delta(
        finish=(Finish(0, "stop"),),
        choices=1,
        model="m",
        usage=ReportedUsage(3, 2),
        phases=(("total", 4.0), ("load", 0.5), ("prefill", 1.0), ("decode", 2.0)),
        terminal=True,
    )


def test_generate_says_it_in_other_fields() -> None:
    deltas = read(
        {"response": "Hi", "done": False},
        {"response": "", "thinking": "hm", "done": False},
        {"response": "", "done": True},
    )
    assert [delta.text for delta in deltas] == [(TextPiece(0, "Hi"),), (), ()]
    assert deltas[1].reasoning == (TextPiece(0, "hm"),)
    assert (deltas[2].terminal, deltas[2].choices, deltas[2].finish) == (True, 1, ())


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/json"])
def test_a_stream_makes_a_record(kind: str) -> None:
    record = exchange("/api/chat", lines(says(content="Hi"), says(content=" 😊"), END), kind=kind).record
    assert (record.dialect, record.provider, record.transport) == ("ollama", "ollama", "ndjson")
    assert (record.outcome, record.text.chars, record.frames.data, record.usage) == ("completed", 4, 3, Usage(3, 2))
    assert record.upstream.phases == {"total": 4.0, "load": 0.5, "prefill": 1.0, "decode": 2.0}
    cut = exchange("/api/chat", lines(says(content="Hi")), kind="application/x-ndjson").record
    assert (cut.outcome, cut.finish_reasons) == ("truncated", (None,))
    length = exchange(
        "/api/generate", json.dumps({"response": "Hi", "done": True, "done_reason": "length"}).encode()
    ).record
    assert (length.transport, length.outcome, length.finish_reasons) == ("json", "incomplete", ("length",))


def test_errors_come_as_answers_and_as_lines() -> None:
    record = exchange("/api/chat", b'{"error":"model \\"m\\" not found, try pulling it first"}', status=404).record
    assert record.error is not None
    assert (record.error.type, record.error.kind) == (None, "not_found")
    record = exchange(
        "/api/chat", lines(says(content="Hi"), {"error": "an error was encountered"}), kind="application/x-ndjson"
    ).record
    assert record.error is not None
    assert (record.outcome, record.error.type, record.error.mid_stream) == ("error_event", None, True)


def test_embeddings_are_an_operation_of_their_own() -> None:
    body = json.dumps(
        {"model": "e", "embeddings": [[0.1]], "total_duration": 1_000_000, "prompt_eval_count": 4}
    ).encode()
    for path in ("/api/embed", "/api/embeddings"):
        record = exchange(path, body, request={"model": "e"}).record
        assert (record.dialect, record.operation, record.request_model) == ("ollama.embeddings", "embeddings", "e")
        assert (record.response_model, record.usage, record.finish_reasons, record.outcome) == (
            "e",
            Usage(4),
            (),
            "completed",
        )


def test_a_request_says_what_it_wants() -> None:
    facts = Ollama().request_facts(
        json.dumps(
            {
                "model": "m",
                "options": {"num_predict": 9},
                "format": {"type": "object"},
                "messages": [
                    {"role": "user", "content": "How high is it?"},
                    {"role": "tool", "content": "It is 300 m high."},
                ],
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
            }
        ).encode()
    )
    assert (facts.model, facts.stream, facts.max_output_tokens, facts.query) == ("m", True, 9, "How high is it?")
    assert facts.context == ("It is 300 m high.",)
    assert facts.expectation == Expectation("json_schema", b'{"type": "object"}')
    assert facts.tool_schemas == {"f": b'{"type": "object"}'}


@pytest.mark.parametrize(
    ("wish", "expected"), [("json", Expectation("json")), ("", None), (None, None), ("xml", None), ([], None)]
)
def test_a_format_is_json_or_a_schema(wish: Any, expected: Expectation | None) -> None:
    facts = Ollama().request_facts(
        json.dumps({"prompt": "Why?", "format": wish, "stream": False, "options": {"num_predict": -1}}).encode()
    )
    assert (facts.expectation, facts.query, facts.stream, facts.max_output_tokens) == (expected, "Why?", False, None)


def test_a_flood_of_calls_is_bounded() -> None:
    by = OllamaReader(ResponseHead(200, Headers()))
    for number in range(1000):
        (delta,) = read(says(tool_calls=[{"function": {"name": "f"}}]), by=by)
        assert delta.tools[0].index == min(number, MAX_CALLS)
