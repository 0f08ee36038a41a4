"""Replicate's predictions and their streams."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.dialects.replicate import Replicate
from collector.model import Headers, RequestHead, ResponseHead, Usage

from .wires import exchange, sse

PATH = "/v1/models/owner/name/predictions"


def predicted(**more: Any) -> Any:
    body = json.dumps({"id": "1", "model": "owner/name", "input": {"prompt": "p"}, "error": None, **more}).encode()
    return exchange(PATH, body, host="api.replicate.com", status=201).record


def test_a_prediction_that_starts_has_said_nothing_yet() -> None:
    record = predicted(status="starting")
    assert (record.dialect, record.provider, record.response_model) == ("replicate", "replicate", "owner/name")
    assert (record.finish_reasons, record.outcome, record.text.chars, record.anomalies) == (
        ("starting",),
        "incomplete",
        0,
        (),
    )
    assert record.request_model == "owner/name"


@pytest.mark.parametrize(("output", "chars"), [("Hi", 2), (["H", "i", "!"], 3), ({"a": 1}, 0), ([1], 0), (None, 0)])
def test_a_prediction_that_was_waited_for_has_its_output(output: Any, chars: int) -> None:
    metrics = {"input_token_count": 3, "output_token_count": 4, "predict_time": 0.5, "total_time": 0.75}
    record = predicted(status="succeeded", output=output, metrics=metrics)
    assert (record.text.chars, record.outcome, record.usage) == (chars, "completed", Usage(3, 4))
    assert record.upstream.phases == {"inference": 0.5, "total": 0.75}


def test_a_prediction_may_fail() -> None:
    record = predicted(status="failed", error="CUDA out of memory")
    assert record.error is not None
    assert (record.outcome, record.error.type, record.error.mid_stream) == ("error_event", None, False)
    record = exchange(PATH, b'{"title":"Unauthenticated","status":401}', host="api.replicate.com", status=401).record
    assert record.error is not None
    assert record.error.kind == "auth"


def streamed(*named: tuple[str, bytes]) -> Any:
    body = sse(*named, names=True)
    return exchange("/v1/streams/abc", body, kind="text/event-stream", host="stream.replicate.com", method="GET").record


def test_the_data_of_a_stream_is_the_bare_text() -> None:
    record = streamed(("output", b"Once"), ("logs", b"loaded"), ("output", "\u00a0upon {".encode()), ("done", b"{}"))
    assert (record.dialect, record.text.chars, record.outcome, record.finish_reasons) == (
        "replicate",
        11,
        "completed",
        ("succeeded",),
    )
    assert (record.frames.data, record.frames.content, record.frames.malformed) == (4, 2, 0)


def test_a_stream_may_be_canceled_cut_or_fail() -> None:
    record = streamed(("output", b"Once"), ("done", b'{"reason":"canceled"}'))
    assert (record.outcome, record.finish_reasons) == ("incomplete", ("canceled",))
    record = streamed(("output", b"Once"))
    assert (record.outcome, record.finish_reasons) == ("truncated", (None,))
    assert streamed(("output", b"Once"), ("error", b"It broke.")).outcome == "error_event"


def test_a_request_says_what_it_wants() -> None:
    facts = Replicate().request_facts(
        json.dumps(
            {
                "version": "owner/name:abc",
                "stream": True,
                "input": {"prompt": "Why?", "system_prompt": "Be kind.", "max_new_tokens": 5},
            }
        ).encode()
    )
    assert (facts.model, facts.stream, facts.query, facts.max_output_tokens) == ("owner/name", True, "Why?", 5)
    assert Replicate().request_facts(b'{"version":"abc","input":{}}').model is None


@pytest.mark.parametrize(
    ("method", "path", "host", "expected"),
    [
        ("POST", "/v1/predictions", "api.replicate.com", True),
        ("GET", "/v1/predictions/abc", "api.replicate.com:443", True),
        ("GET", "/v1/streams/abc", "stream-b.svc.ric1.c.replicate.net", True),
        ("POST", "/v1/predictions", "h", False),
        ("POST", "/v1/predictions/abc/cancel", "api.replicate.com", False),
    ],
)
def test_it_speaks_on_replicates_hosts(method: str, path: str, host: str, expected: bool) -> None:
    assert Replicate().speaks(RequestHead(method, path, host, Headers()), ResponseHead(200, Headers())) is expected
