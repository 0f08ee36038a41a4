"""Mistral's chat completions: OpenAI's requests, and answers in Mistral's words (docs.mistral.ai/api)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import msgspec

from collector.simulator import openai_chat
from collector.simulator.answers import Ask, Ending, Reply, identity
from collector.simulator.delivery import Identity, Part, Refusal, RequestError

_FINISH: dict[Ending, str] = {"stop": "stop", "stop_sequence": "stop", "length": "length", "tool_use": "tool_calls"}
_encode = msgspec.json.Encoder().encode


def parse(body: bytes) -> Ask:
    """The request as an Ask, or RequestError with the reason of the refusal. Streams always tell their usage."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"We could not parse the body of your request: {error}") from error
    if isinstance(fields, dict) and fields.get("tool_choice") == "any":  # what OpenAI calls `required`
        body = _encode(fields | {"tool_choice": "required"})
    return msgspec.structs.replace(openai_chat.parse(body), cached_tokens=0, wants_usage=True)


# ---------------------------------------------------------------- answers


def whole(ask: Ask, replies: list[Reply], who: Identity) -> bytes:
    """The body of an answer that is not streamed."""
    choices = [
        {
            "index": index,
            "message": {
                "role": "assistant",
                "content": "".join(reply.text),
                "tool_calls": _calls(reply) if reply.calls else None,
                "prefix": False,
            },
            "finish_reason": _FINISH[reply.ending],
        }
        for index, reply in enumerate(replies)
    ]
    return _encode(_envelope(ask, who, "chat.completion", choices) | {"usage": _usage(ask, replies)})


def _envelope(ask: Ask, who: Identity, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": identity(ask.digest, "answer"),
        "object": kind,
        "created": who.created,
        "model": who.model,
        "choices": choices,
    }


def _calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {"index": index, "id": call.id[:9], "function": {"name": call.name, "arguments": call.arguments}}
        for index, call in enumerate(reply.calls)
    ]


def _usage(ask: Ask, replies: list[Reply]) -> dict[str, Any]:
    output = sum(reply.token_count for reply in replies)
    return {
        "prompt_tokens": ask.input_tokens,
        "completion_tokens": output,
        "total_tokens": ask.input_tokens + output,
    }


def stream(ask: Ask, replies: list[Reply], who: Identity) -> Iterator[Part]:
    """The parts of a streamed answer. The chunk with the last word tells the usage, and calls come whole."""

    def chunk(choices: list[dict[str, Any]], **beside: Any) -> bytes:
        return b"data: " + _encode(_envelope(ask, who, "chat.completion.chunk", choices) | beside) + b"\n\n"

    def choice(index: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {"index": index, "delta": delta, "finish_reason": finish}

    opening = {"role": "assistant", "content": ""}
    yield Part(chunk([choice(index, opening) for index in range(len(replies))]), "beside")
    for step in zip_longest(*(_deltas(reply) for reply in replies)):
        yield Part(chunk([choice(index, said) for index, said in enumerate(step) if said is not None]), "token")
    ends = [choice(index, {"content": ""}, _FINISH[reply.ending]) for index, reply in enumerate(replies)]
    yield Part(chunk(ends, usage=_usage(ask, replies)), "beside")
    yield Part(openai_chat.DONE, "beside")


def _deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    for piece in reply.text:
        yield {"content": piece}
    if reply.calls:
        yield {"content": "", "tool_calls": _calls(reply)}


# ---------------------------------------------------------------- errors


def error_body(refusal: Refusal) -> bytes:
    """The body of an error answer."""
    return _encode(
        {
            "object": "error",
            "message": refusal.message,
            "type": refusal.kind,
            "param": refusal.param,
            "code": refusal.code,
        }
    )


def error_event() -> bytes:
    """The error inside a stream that began well; neither usage nor an end marker follows."""
    said = {"object": "error", "message": "Service unavailable.", "type": "unreachable_backend", "code": "1100"}
    return b"data: " + _encode({"error": said}) + b"\n\n"
