"""What goes wrong upstream is recorded alike in every dialect that the simulated API speaks."""

from __future__ import annotations

import http.client
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from .conftest import Answer, Sidecar, Simulator, call

QUESTION = "Explain what a token bucket is to a ten-year-old."
MESSAGES = [{"role": "user", "content": QUESTION}]


@dataclass(frozen=True)
class Stream:
    """A request for a stream in one dialect, and the transport of its answer."""

    path: str
    body: dict[str, Any]
    transport: str
    overloaded: int = 503


GEMINI = {"contents": [{"role": "user", "parts": [{"text": QUESTION}]}]}
STREAMS = {
    "gemini": Stream("/v1beta/models/sim-pro:streamGenerateContent?alt=sse", GEMINI, "sse"),
    "gemini, as an array": Stream("/v1beta/models/sim-pro:streamGenerateContent", GEMINI, "json_array"),
    "cohere": Stream("/v2/chat", {"model": "sim", "stream": True, "messages": MESSAGES}, "sse"),
    "mistral": Stream("/mistral/v1/chat/completions", {"model": "sim", "stream": True, "messages": MESSAGES}, "sse"),
    "ollama": Stream("/api/chat", {"model": "sim", "messages": MESSAGES}, "ndjson"),
    "bedrock": Stream(
        "/model/sim-opus/converse-stream",
        {"messages": [{"role": "user", "content": [{"text": QUESTION}]}]},
        "eventstream",
    ),
}
every_stream = pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS.keys())


def ask(sidecar: Sidecar, stream: Stream) -> tuple[Answer, dict[str, Any]]:
    """The answer and its record."""
    request_id = f"test-{uuid.uuid4().hex}"
    answer = call(sidecar.base + stream.path, stream.body, {"X-Client-Request-Id": request_id})
    return answer, sidecar.record_of(request_id)


@every_stream
def test_a_stream_passes_byte_for_byte_and_is_read(stream: Stream, simulator: Simulator, sidecar: Sidecar) -> None:
    answer, record = ask(sidecar, stream)
    assert (record["transport"], record["outcome"]) == (stream.transport, "completed")
    assert record["usage"]["output_tokens"] > 5
    assert record["text"]["chars"] > 40
    if "created" not in answer.body.decode("latin-1"):  # no time is in it
        assert answer.body == call(simulator.base + stream.path, stream.body).body


@every_stream
def test_an_error_in_a_stream_is_one_in_the_record(stream: Stream, faults: Simulator, sidecar: Sidecar) -> None:
    faults.switch(error_event=1)
    answer, record = ask(sidecar, stream)
    assert (answer.status, record["outcome"]) == (200, "error_event")
    assert (record["error"]["mid_stream"], record["error"]["source"]) == (True, "upstream")
    assert record["text"]["chars"] > 0


@every_stream
def test_a_stream_that_breaks_off_is_truncated(stream: Stream, faults: Simulator, sidecar: Sidecar) -> None:
    faults.switch(truncation={"share": 1, "mode": "cut"})
    request_id = f"test-{uuid.uuid4().hex}"
    with pytest.raises(http.client.IncompleteRead):
        call(sidecar.base + stream.path, stream.body, {"X-Client-Request-Id": request_id})
    record = sidecar.record_of(request_id)
    assert (record["outcome"], record["phase"]) == ("truncated", "streaming")


@every_stream
@pytest.mark.parametrize(("mode", "kind"), [("model", "overloaded"), ("gateway", "rate_limited")])
def test_the_two_ways_of_being_throttled_are_told_apart(
    mode: str, kind: str, stream: Stream, faults: Simulator, sidecar: Sidecar
) -> None:
    faults.switch(overload={"share": 1, "mode": mode})
    answer, record = ask(sidecar, stream)
    assert answer.status == (stream.overloaded if mode == "model" else 429)
    assert (record["outcome"], record["error"]["kind"]) == ("upstream_error", kind)
    assert record["error"]["limiter"] == mode
