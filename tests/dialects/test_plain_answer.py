"""What a narrow type reads of a whole answer is what the wide one reads of it."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.dialects import openai_chat
from collector.dialects.openai_chat import OpenAiChat
from collector.model import Delta, Finish, Frame, Headers, ReportedUsage, RequestHead, ResponseHead, TextPiece, Usage

PLAIN: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 6,
        "completion_tokens": 4,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    },
}
KEYS = (
    "model", "choices", "index", "delta", "message", "content", "role", "finish_reason", "error", "usage", "object",
    "type", "code", "timings", "time_info", "perf_metrics", "x_groq", "tool_calls", "function_call", "reasoning",
    "reasoning_content", "refusal", "prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens",
    "cache_write_tokens", "cache_creation_tokens", "prompt_cache_hit_tokens", "reasoning_tokens", "queue_time",
    "total_latency", "prompt_tokens_details",
)  # fmt: skip
VALUES = st.sampled_from([
    None, "", "b", "error", "\ud83d", "é", 0, 1, 3, 20, -1, 1.5, 2.0, True, [], [{}], {}, {"content": "c"}, 10**15,
    10**400, {"cached_tokens": 2}, [{"index": 1}],
])  # fmt: skip
HOSTS = ("api.openai.com", "api.x.ai", "generativelanguage.googleapis.com")


def told_by(host: str, payloads: list[bytes]) -> list[object]:
    """All that a reader tells of these, in their order."""
    request = RequestHead("POST", "/v1/chat/completions", host, Headers())
    reader = OpenAiChat().reader(request, ResponseHead(200, Headers()))
    deltas = [reader.read(Frame(payload)) for payload in payloads]
    usages = [delta.usage for delta in deltas if isinstance(delta, Delta) and delta.usage is not None]
    return [deltas, reader.ended_well(), reader.normal_usage(usages[-1] if usages else ReportedUsage())]


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """A plain answer with a few of its fields put in, taken out or changed, or a byte changed in it."""
    value = json.loads(json.dumps(PLAIN))
    for key, put in draw(st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=3)):
        places: list[Any] = [value, value.get("usage")]
        if isinstance(value.get("usage"), dict):
            places += value["usage"].values()
        if isinstance(value.get("choices"), list) and value["choices"]:
            places += [value["choices"][0], value["choices"][0].get("message")]
        place = draw(st.sampled_from([each for each in places if isinstance(each, dict)]))
        if put is None and key in place and draw(st.booleans()):
            del place[key]
        else:
            place[key] = deepcopy(put)  # what is drawn is shared by all examples
    written = bytearray(json.dumps(value, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass"))
    for at, byte in draw(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=1)):
        written[at % len(written)] = byte
    return bytes(written)


@given(st.sampled_from(HOSTS), st.lists(answers(), min_size=1, max_size=2))
@settings(max_examples=800, deadline=None)
def test_both_types_read_the_same(host: str, payloads: list[bytes]) -> None:
    told = told_by(host, payloads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_chat, "_decode_answer", lambda payload: None)
        assert told == told_by(host, payloads)


def test_a_plain_answer_is_read_by_the_narrow_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_chat, "_decode", None)  # not needed
    (delta,), is_whole, usage = told_by(HOSTS[0], [json.dumps(PLAIN).encode()])  # type: ignore[misc] # a list in it
    assert delta == Delta(
        text=(TextPiece(0, "a"),),
        finish=(Finish(0, "stop"),),
        choices=1,
        model="m",
        usage=ReportedUsage(6, 4, 0, None, 0),
    )
    assert is_whole
    assert usage == Usage(6, 4, 0, None, 0)
