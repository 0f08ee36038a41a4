"""watsonx.ai's text generation, and its chat."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.app import DIALECTS
from collector.model import Headers, ReportedUsage, RequestHead, ResponseHead, Usage

from .wires import exchange, sse

PATH = "/ml/v1/text/generation"


def result(text: str, out: int, into: int, reason: str) -> dict[str, Any]:
    told = {"generated_text": text, "generated_token_count": out, "input_token_count": into, "stop_reason": reason}
    return {"model_id": "vendor/m", "results": [told]}


def test_a_whole_answer_is_all_of_it_at_once() -> None:
    request = {"model_id": "vendor/asked", "input": "Why?", "parameters": {"max_new_tokens": 5}}
    found = exchange(PATH + "?version=1", json.dumps(result("Hi", 2, 7, "eos_token")).encode(), request=request)
    record = found.record
    assert (record.dialect, record.provider, record.operation) == ("watsonx", "ibm.watsonx.ai", "text_completion")
    assert (record.request_model, record.response_model) == ("vendor/asked", "vendor/m")
    assert (record.text.chars, record.finish_reasons, record.outcome, record.usage) == (
        2,
        ("eos_token",),
        "completed",
        Usage(7, 2),
    )
    assert (found.request.query, found.request.max_output_tokens) == ("Why?", 5)


def test_only_the_first_chunk_of_a_stream_counts_the_input() -> None:
    chunks = (result("", 0, 7, "not_finished"), result("H", 1, 0, "not_finished"), result("i", 2, 0, "max_tokens"))
    body = sse(*(("message", chunk) for chunk in chunks), names=True)
    record = exchange(PATH + "_stream", body, kind="text/event-stream").record
    assert (record.usage_reported, record.finish_reasons, record.outcome) == (
        ReportedUsage(7, 2),
        ("max_tokens",),
        "incomplete",
    )
    assert (record.text.chars, record.frames.data) == (2, 3)
    cut = exchange(PATH + "_stream", sse(*chunks[:2]), kind="text/event-stream").record
    assert (cut.outcome, cut.finish_reasons) == ("truncated", (None,))


@pytest.mark.parametrize(
    ("event", "data", "code"),
    [
        ("error", b'{"errors":[{"code":"downstream_issue","message":"m"}]}', "downstream_issue"),
        ("message", b'{"errors":[{"code":"downstream_issue"}]}', "downstream_issue"),
        ("error", b"{}", None),
        ("error", b"oops", None),
    ],
)
def test_an_error_inside_a_stream_is_an_error(event: str, data: bytes, code: str | None) -> None:
    record = exchange(PATH + "_stream", sse((event, data), names=True), kind="text/event-stream").record
    assert record.error is not None
    assert (record.outcome, record.error.code, record.error.mid_stream) == ("error_event", code, True)


def test_an_error_status_tells_its_first_error() -> None:
    body = b'{"errors":[{"code":"authentication_token_expired","message":"m"}],"trace":"t","status_code":401}'
    record = exchange(PATH, body, status=401).record
    assert record.error is not None
    assert (record.error.code, record.error.kind) == ("authentication_token_expired", "auth")


def test_chat_is_openais_but_for_the_name_of_the_model() -> None:
    body = {
        "model_id": "vendor/m",
        "model": "vendor/m",
        "choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    request = {"model_id": "vendor/m", "messages": [{"role": "user", "content": "Why?"}]}
    found = exchange("/ml/v1/text/chat", json.dumps(body).encode(), request=request)
    assert (found.record.dialect, found.record.operation, found.record.request_model) == (
        "watsonx.chat",
        "chat",
        "vendor/m",
    )
    assert (found.record.text.chars, found.record.usage, found.request.query) == (2, Usage(1, 2), "Why?")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (PATH, "watsonx"),
        ("/ml/v1-beta/generation/text", "watsonx"),
        ("/ml/v1-beta/generation/text_stream", "watsonx"),
        ("/ml/v1/deployments/d/text/generation_stream", "watsonx"),
        ("/ml/v1/text/chat_stream", "watsonx.chat"),
        ("/ml/v1/text/embeddings", None),
        ("/text/generation", None),
    ],
)
def test_it_speaks_where_watsonx_generates(path: str, name: str | None) -> None:
    request, response = RequestHead("POST", path, "h", Headers()), ResponseHead(200, Headers())
    spoken = [each.name for each in DIALECTS if each.name.startswith("watsonx") and each.speaks(request, response)]
    assert spoken == ([name] if name is not None else [])
