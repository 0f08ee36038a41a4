"""Cohere's chat, version 2: requests read, answers and streams written (docs.cohere.com/reference/chat)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from collector.simulator.answers import Ask, Call, Ending, Reply, Tool, ToolChoice, identity
from collector.simulator.conversation import Role, Turn, Wishes, ask_of, digest_of
from collector.simulator.delivery import Identity, Part, Refusal, RequestError

DONE = b"data: [DONE]\n\n"

_FINISH: dict[Ending, str] = {
    "stop": "COMPLETE",
    "stop_sequence": "STOP_SEQUENCE",
    "length": "MAX_TOKENS",
    "tool_use": "TOOL_CALL",
}
_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "assistant": "assistant", "tool": "tool"}


class _DocumentContent(Struct):
    data: dict[str, Any] | str | None = None


class _ContentPart(Struct):
    text: str | None = None
    document: _DocumentContent | None = None


class _Message(Struct):
    role: str
    content: str | list[_ContentPart] | None = None


class _Function(Struct):
    name: str
    parameters: dict[str, Any] | None = None


class _Tool(Struct):
    function: _Function | None = None


class _ResponseFormat(Struct):
    type: str
    json_schema: dict[str, Any] | None = None
    schema: dict[str, Any] | None = None


class _Thinking(Struct):
    type: str


class _Request(Struct):
    model: str
    messages: list[_Message]
    stream: bool | None = None
    documents: list[_DocumentContent | str] | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | None = None
    response_format: _ResponseFormat | None = None
    max_tokens: int | None = None
    stop_sequences: list[str] | None = None
    thinking: _Thinking | None = None


_decode = msgspec.json.Decoder(_Request).decode
_encode = msgspec.json.Encoder().encode


def parse(body: bytes) -> Ask:
    """The request as an Ask, or RequestError with the reason of the refusal."""
    try:
        request = _decode(body)
        digest = digest_of(body, left_out=("stream",))
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"invalid request: {error}") from error
    turns = [Turn("system", _document(each)) for each in ([] if request.documents is None else request.documents)]
    for message in request.messages:
        turns += _turns(message)
    form = request.response_format
    wishes = Wishes(
        tools=tuple(
            Tool(tool.function.name, _parameters(tool.function))
            for tool in ([] if request.tools is None else request.tools)
            if tool.function is not None
        ),
        tool_choice=_tool_choice(request.tool_choice),
        wants_json=form is not None and form.type == "json_object",
        schema=None if form is None else form.schema if form.json_schema is None else form.json_schema,
        max_tokens=request.max_tokens,
        stops=() if request.stop_sequences is None else tuple(request.stop_sequences),
        thinks=request.thinking is not None and request.thinking.type == "enabled",
    )
    return ask_of(request.model, turns, digest, wishes, is_stream=request.stream is True)


def _document(told: _DocumentContent | str) -> str:
    given = told if isinstance(told, str) else told.data
    if isinstance(given, dict):
        return "\n".join(value for value in given.values() if isinstance(value, str))
    return "" if given is None else given


def _turns(message: _Message) -> list[Turn]:
    role = _ROLES.get(message.role, "user")
    if isinstance(message.content, str):
        return [Turn(role, message.content)]
    parts = [] if message.content is None else message.content
    texts = [part.text if part.document is None else _document(part.document) for part in parts]
    return [Turn(role, text) for text in texts if text is not None]


def _parameters(function: _Function) -> dict[str, Any]:
    return {"type": "object"} if function.parameters is None else function.parameters


def _tool_choice(said: str | None) -> ToolChoice:
    match said:
        case None:
            return "auto"
        case "REQUIRED":
            return "any"
        case "NONE":
            return "none"
        case _:
            raise RequestError(f"tool_choice must be REQUIRED or NONE, got {said!r}")


# ---------------------------------------------------------------- answers


def whole(ask: Ask, replies: list[Reply], who: Identity) -> bytes:
    """The body of an answer that is not streamed."""
    reply = replies[0]
    content = []
    if reply.thinking:
        content.append({"type": "thinking", "thinking": "".join(reply.thinking)})
    if reply.text:
        content.append({"type": "text", "text": "".join(reply.text)})
    message: dict[str, Any] = {"role": "assistant"}
    if content:
        message["content"] = content
    if reply.calls:
        message["tool_calls"] = [_call(call, call.arguments) for call in reply.calls]
    return _encode(
        {
            "id": identity(ask.digest, "answer"),
            "message": message,
            "finish_reason": _FINISH[reply.ending],
            "usage": _usage(ask, reply),
        }
    )


def _call(call: Call, arguments: str) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _usage(ask: Ask, reply: Reply) -> dict[str, Any]:
    counted = {"input_tokens": ask.input_tokens, "output_tokens": reply.token_count}
    return {"billed_units": counted, "tokens": counted}


def event(kind: str, **fields: Any) -> bytes:
    """One server-sent event, named by its type."""
    return b"event: " + kind.encode() + b"\ndata: " + _encode({"type": kind} | fields) + b"\n\n"


def stream(ask: Ask, replies: list[Reply], who: Identity) -> Iterator[Part]:
    """The parts of a streamed answer."""
    reply = replies[0]
    opening = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    answer = identity(ask.digest, "answer")
    yield Part(event("message-start", id=answer, delta={"message": opening}), "beside")
    index = 0
    for kind, pieces in (("thinking", reply.thinking), ("text", reply.text)):
        if pieces:
            yield Part(_content("content-start", index, {"type": kind, kind: ""}), "beside")
            for piece in pieces:
                yield Part(_content("content-delta", index, {kind: piece}), "token")
            yield Part(event("content-end", index=index), "beside")
            index += 1
    for number, call in enumerate(reply.calls):
        yield Part(_calling("tool-call-start", number, _call(call, "")), "beside")
        for piece in call.pieces:
            yield Part(_calling("tool-call-delta", number, {"function": {"arguments": piece}}), "token")
        yield Part(event("tool-call-end", index=number), "beside")
    last = {"finish_reason": _FINISH[reply.ending], "usage": _usage(ask, reply)}
    yield Part(event("message-end", id=answer, delta=last), "beside")
    yield Part(DONE, "beside")


def _content(kind: str, index: int, said: dict[str, str]) -> bytes:
    return event(kind, index=index, delta={"message": {"content": said}})


def _calling(kind: str, index: int, said: dict[str, Any]) -> bytes:
    return event(kind, index=index, delta={"message": {"tool_calls": said}})


# ---------------------------------------------------------------- errors


def error_body(refusal: Refusal) -> bytes:
    """The body of an error answer."""
    return _encode({"id": refusal.request_id, "message": refusal.message})


def error_event() -> bytes:
    """The error inside a stream that began well: a last event that says so."""
    return event("message-end", delta={"finish_reason": "ERROR", "error": "The model failed."}) + DONE
