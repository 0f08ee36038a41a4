"""Ollama's chat: requests read, answers and lines of streams written (ollama, docs/api.md).

The durations of a last line are left out: `X-Trace-Detail` tells the phases.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from collector.simulator.answers import Ask, Ending, Reply, Tool
from collector.simulator.conversation import Role, Turn, Wishes, arguments_of, ask_of, digest_of
from collector.simulator.delivery import Identity, Part, Refusal, RequestError

_FINISH: dict[Ending, str] = {"stop": "stop", "stop_sequence": "stop", "length": "length", "tool_use": "stop"}
_ROLES: dict[str, Role] = {"system": "system", "assistant": "assistant", "tool": "tool"}


class _Message(Struct):
    role: str
    content: str | None = None


class _Function(Struct):
    name: str
    parameters: dict[str, Any] | None = None


class _Tool(Struct):
    function: _Function | None = None


class _Options(Struct):
    num_predict: int | None = None
    stop: list[str] | None = None


class _Request(Struct):
    model: str
    messages: list[_Message]
    stream: bool | None = None
    format: dict[str, Any] | str | None = None
    tools: list[_Tool] | None = None
    options: _Options | None = None
    think: bool | str | None = None


_decode = msgspec.json.Decoder(_Request).decode
_encode = msgspec.json.Encoder().encode


def parse(body: bytes) -> Ask:
    """The request as an Ask, or RequestError with the reason of the refusal. It streams unless told not to."""
    try:
        request = _decode(body)
        digest = digest_of(body, left_out=("stream",))
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"invalid request: {error}") from error
    turns = [
        Turn(_ROLES.get(message.role, "user"), message.content)
        for message in request.messages
        if message.content is not None
    ]
    options = _Options() if request.options is None else request.options
    limit = options.num_predict
    wishes = Wishes(
        tools=tuple(
            Tool(tool.function.name, _parameters(tool.function))
            for tool in ([] if request.tools is None else request.tools)
            if tool.function is not None
        ),
        wants_json=request.format == "json" or isinstance(request.format, dict),
        schema=request.format if isinstance(request.format, dict) else None,
        max_tokens=None if limit is None or limit < 1 else limit,  # -1 and -2 are no limits
        stops=() if options.stop is None else tuple(options.stop),
        thinks=request.think is not None and request.think is not False,
        arguments_must_parse=True,  # they are objects on the wire
    )
    return ask_of(request.model, turns, digest, wishes, is_stream=request.stream is not False)


def _parameters(function: _Function) -> dict[str, Any]:
    return {"type": "object"} if function.parameters is None else function.parameters


# ---------------------------------------------------------------- answers


def whole(ask: Ask, replies: list[Reply], who: Identity) -> bytes:
    """The body of an answer that is not streamed."""
    reply = replies[0]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(reply.text)}
    if reply.thinking:
        message["thinking"] = "".join(reply.thinking)
    if reply.calls:
        message["tool_calls"] = _calls(reply)
    return _encode(_line(who, message) | _last(ask, reply))


def _line(who: Identity, message: dict[str, Any]) -> dict[str, Any]:
    at = datetime.datetime.fromtimestamp(who.created, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"model": who.model, "created_at": at, "message": message, "done": False}


def _last(ask: Ask, reply: Reply) -> dict[str, Any]:
    return {
        "done": True,
        "done_reason": _FINISH[reply.ending],
        "prompt_eval_count": ask.input_tokens,
        "eval_count": reply.token_count,
    }


def _calls(reply: Reply) -> list[dict[str, Any]]:
    return [{"function": {"name": call.name, "arguments": arguments_of(call)}} for call in reply.calls]


def stream(ask: Ask, replies: list[Reply], who: Identity) -> Iterator[Part]:
    """The lines of a streamed answer."""
    reply = replies[0]
    messages: list[dict[str, Any]] = [{"content": "", "thinking": piece} for piece in reply.thinking]
    messages += [{"content": piece} for piece in reply.text]
    if reply.calls:  # calls come whole
        messages.append({"content": "", "tool_calls": _calls(reply)})
    for message in messages:
        yield Part(_encode(_line(who, {"role": "assistant"} | message)) + b"\n", "token")
    last = _line(who, {"role": "assistant", "content": ""}) | _last(ask, reply)
    yield Part(_encode(last) + b"\n", "beside")


# ---------------------------------------------------------------- errors


def error_body(refusal: Refusal) -> bytes:
    """The body of an error answer."""
    return _encode({"error": refusal.message})


def error_event() -> bytes:
    """The line of an error inside a stream that began well."""
    return _encode({"error": "an error was encountered while running the model"}) + b"\n"
