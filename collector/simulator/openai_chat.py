"""OpenAI's chat completions: requests read, answers and streams written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct

from collector.simulator import tokens
from collector.simulator.answers import Ask, Call, Ending, Reply, Tool, ToolChoice, identity
from collector.simulator.delivery import Identity, Part, RequestError

MOST_CHOICES = 16
# A prefix of the prompt is served from the cache in blocks of so many tokens.
CACHE_BLOCK = 32
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"

_FINISH: dict[Ending, str] = {"stop": "stop", "stop_sequence": "stop", "length": "length", "tool_use": "tool_calls"}


class _ContentPart(Struct):
    type: str = "text"
    text: str | None = None


class _Message(Struct):
    role: str
    content: str | list[_ContentPart] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        parts = [] if self.content is None else self.content
        return "\n".join(part.text for part in parts if part.text is not None)


class _Function(Struct):
    name: str
    parameters: dict[str, Any] | None = None


class _Tool(Struct):
    function: _Function | None = None


class _NamedFunction(Struct):
    name: str


class _NamedTool(Struct):
    function: _NamedFunction


class _JsonSchema(Struct):
    schema: dict[str, Any] | None = None


class _ResponseFormat(Struct):
    type: str
    json_schema: _JsonSchema | None = None
    schema: dict[str, Any] | None = None


class _StreamOptions(Struct):
    include_usage: bool | None = None


class _Request(Struct):
    model: str
    messages: list[_Message]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | _NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: _ResponseFormat | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None


_decode = msgspec.json.Decoder(_Request).decode
_encode = msgspec.json.Encoder().encode
_encode_in_order = msgspec.json.Encoder(order="deterministic").encode


def parse(body: bytes) -> Ask:
    """The request as an Ask, or RequestError with the reason of the refusal."""
    try:
        request = _decode(body)
        digest = digest_of(body, ("stream", "stream_options"))
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"We could not parse the body of your request: {error}") from error
    if not request.messages:
        raise RequestError("messages must not be empty", "messages")
    choices = 1 if request.n is None else request.n
    if not 1 <= choices <= MOST_CHOICES:
        raise RequestError(f"n must be from 1 to {MOST_CHOICES}, got {choices}", "n")
    tools = tuple(
        Tool(tool.function.name, {"type": "object"} if tool.function.parameters is None else tool.function.parameters)
        for tool in ([] if request.tools is None else request.tools)
        if tool.function is not None
    )
    choice, named = _tool_choice(request.tool_choice, tools)
    limit = request.max_completion_tokens if request.max_completion_tokens is not None else request.max_tokens
    if limit is not None and limit < 1:
        raise RequestError(f"max_tokens must be at least 1, got {limit}", "max_tokens")
    users = [message.text for message in request.messages if message.role == "user"]
    system = "\n".join(message.text for message in request.messages if message.role in ("system", "developer"))
    prompt = "\n".join(message.text for message in request.messages)
    results = []
    for message in reversed(request.messages):
        if message.role != "tool":
            break
        results.append(message.text)
    stops = [request.stop] if isinstance(request.stop, str) else ([] if request.stop is None else request.stop)
    form = request.response_format
    return Ask(
        model=request.model,
        is_stream=request.stream is True,
        prompt=prompt,
        question=users[-1] if users else "",
        digest=digest,
        input_tokens=3 + 4 * len(request.messages) + tokens.count(prompt),
        cached_tokens=tokens.count(system) // CACHE_BLOCK * CACHE_BLOCK,
        tool_result="\n".join(reversed(results)) if results else None,
        tools=tools,
        tool_choice=choice,
        tool_named=named,
        is_parallel=request.parallel_tool_calls is not False,
        wants_json=form is not None and form.type in ("json_object", "json_schema"),
        schema=_schema(form),
        max_tokens=limit,
        stops=tuple(stops),
        choices=choices,
        thinks="reason" in request.model,
        wants_usage=request.stream_options is not None and request.stream_options.include_usage is True,
    )


def digest_of(body: bytes, left_out: tuple[str, ...]) -> bytes:
    """A digest of a JSON object that does not depend on the order of keys, nor on the fields left out."""
    fields: dict[str, Any] = msgspec.json.decode(body)
    kept = {key: value for key, value in fields.items() if key not in left_out}
    return hashlib.blake2b(_encode_in_order(kept), digest_size=16).digest()


def _tool_choice(said: str | _NamedTool | None, tools: tuple[Tool, ...]) -> tuple[ToolChoice, str | None]:
    if isinstance(said, _NamedTool):
        if all(tool.name != said.function.name for tool in tools):
            raise RequestError(f"tool_choice names {said.function.name!r}, which is not among tools", "tool_choice")
        return "named", said.function.name
    match said:
        case None | "auto":
            return "auto", None
        case "none":
            return "none", None
        case "required":
            return "any", None
        case _:
            raise RequestError(f"tool_choice must be none, auto, required or a function, got {said!r}", "tool_choice")


def _schema(form: _ResponseFormat | None) -> dict[str, Any] | None:
    if form is None:
        return None
    if form.type == "json_schema":
        if form.json_schema is None or form.json_schema.schema is None:
            raise RequestError("response_format.json_schema.schema is missing", "response_format")
        return form.json_schema.schema
    return form.schema


# ---------------------------------------------------------------- answers


def whole(ask: Ask, replies: list[Reply], who: Identity) -> bytes:
    """The body of an answer that is not streamed."""
    return _encode(
        {
            "id": f"chatcmpl-{identity(ask.digest, 'answer')}",
            "object": "chat.completion",
            "created": who.created,
            "model": who.model,
            "choices": [
                {"index": index, "message": _message(reply), "logprobs": None, "finish_reason": _FINISH[reply.ending]}
                for index, reply in enumerate(replies)
            ],
            "usage": _usage(ask, replies),
            "service_tier": "default",
            "system_fingerprint": "fp_simulated",
        }
    )


def _message(reply: Reply) -> dict[str, Any]:
    text = "".join(reply.text)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text if text or not reply.calls else None,
        "refusal": None,
        "annotations": [],
    }
    if reply.thinking:
        message["reasoning_content"] = "".join(reply.thinking)
    if reply.calls:
        message["tool_calls"] = [
            {"id": _call_id(call), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.calls
        ]
    return message


def _call_id(call: Call) -> str:
    return f"call_{call.id}"


def _usage(ask: Ask, replies: list[Reply]) -> dict[str, Any]:
    output = sum(reply.token_count for reply in replies)
    return {
        "prompt_tokens": ask.input_tokens,
        "completion_tokens": output,
        "total_tokens": ask.input_tokens + output,
        "prompt_tokens_details": {"cached_tokens": ask.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": sum(len(reply.thinking) for reply in replies),
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def stream(ask: Ask, replies: list[Reply], who: Identity) -> Iterator[Part]:
    """The parts of a streamed answer. Choices advance together, one token each per step."""

    def chunk(choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        fields = {
            "id": f"chatcmpl-{identity(ask.digest, 'answer')}",
            "object": "chat.completion.chunk",
            "created": who.created,
            "model": who.model,
            "service_tier": "default",
            "system_fingerprint": "fp_simulated",
            "choices": choices,
        }
        if ask.wants_usage:
            fields["usage"] = usage
        return b"data: " + _encode(fields) + b"\n\n"

    def delta(index: int, said: dict[str, Any], finish: str | None = None, **beside: dict[str, Any]) -> bytes:
        return chunk([{"index": index, "delta": said, "logprobs": None, "finish_reason": finish} | beside])

    for index in range(len(replies)):
        yield Part(delta(index, {"role": "assistant", "content": "", "refusal": None}), "beside")
    for step in zip_longest(*(_deltas(reply) for reply in replies)):
        is_first = True
        for index, said in enumerate(step):
            if said is not None:
                yield Part(delta(index, said), "token" if is_first else "beside")
                is_first = False
    for index, reply in enumerate(replies):
        # The whole text once more beside the last delta, as Perplexity repeats it.
        repeat = {} if reply.corrected is None else {"message": {"role": "assistant", "content": reply.corrected}}
        yield Part(delta(index, {}, _FINISH[reply.ending], **repeat), "beside")
    if ask.wants_usage:
        yield Part(chunk([], _usage(ask, replies)), "beside")
    yield Part(DONE, "beside")


def _deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    for piece in reply.thinking:
        yield {"reasoning_content": piece}
    for piece in reply.text:
        yield {"content": piece}
    for index, call in enumerate(reply.calls):
        opening = {"index": index, "id": _call_id(call), "type": "function"}
        yield {"tool_calls": [opening | {"function": {"name": call.name, "arguments": ""}}]}
        for piece in call.pieces:
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


# ---------------------------------------------------------------- errors


def error_body(message: str, kind: str, code: str | None = None, param: str | None = None) -> bytes:
    """The body of an error answer."""
    return _encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def error_event() -> bytes:
    """The error inside a stream that began well; neither usage nor an end marker follows."""
    message = "The server had an error while processing your request. Sorry about that!"
    return b"data: " + error_body(message, "server_error", "internal_error") + b"\n\n"
