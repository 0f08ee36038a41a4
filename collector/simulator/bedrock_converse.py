"""Amazon Bedrock's Converse and ConverseStream: requests read, answers and streams written (AWS, Converse API)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct, field

from collector.simulator import eventstream
from collector.simulator.answers import Ask, Call, Ending, Reply, Tool, ToolChoice
from collector.simulator.conversation import Role, Turn, Wishes, arguments_of, ask_of, digest_of
from collector.simulator.delivery import Identity, Part, Refusal, RequestError

_STOP_REASON: dict[Ending, str] = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "tool_use": "tool_use",
}
_EXCEPTION = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    429: "ThrottlingException",
}


class _ResultBlock(Struct):
    text: str | None = None
    json: Any = None


class _ToolResult(Struct):
    content: list[_ResultBlock] = field(default_factory=list)


class _Block(Struct, rename="camel"):
    text: str | None = None
    tool_result: _ToolResult | None = None


class _Message(Struct):
    role: str
    content: list[_Block]


class _InputSchema(Struct):
    json: dict[str, Any] | None = None


class _ToolSpec(Struct, rename="camel"):
    name: str
    input_schema: _InputSchema | None = None


class _Tool(Struct, rename="camel"):
    tool_spec: _ToolSpec | None = None


class _Named(Struct):
    name: str


class _ToolChoice(Struct):
    auto: dict[str, Any] | None = None
    any: dict[str, Any] | None = None
    tool: _Named | None = None


class _ToolConfig(Struct, rename="camel"):
    tools: list[_Tool] = field(default_factory=list)
    tool_choice: _ToolChoice | None = None


class _JsonSchema(Struct):
    schema: str


class _Structure(Struct, rename="camel"):
    json_schema: _JsonSchema | None = None


class _TextFormat(Struct):
    type: str
    structure: _Structure | None = None


class _OutputConfig(Struct, rename="camel"):
    text_format: _TextFormat | None = None


class _InferenceConfig(Struct, rename="camel"):
    max_tokens: int | None = None
    stop_sequences: list[str] | None = None


class _Request(Struct, rename="camel"):
    messages: list[_Message]
    system: list[_Block] | None = None
    inference_config: _InferenceConfig | None = None
    tool_config: _ToolConfig | None = None
    output_config: _OutputConfig | None = None
    additional_model_request_fields: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Request).decode
_encode = msgspec.json.Encoder().encode


def parse(body: bytes, model: str, *, is_stream: bool) -> Ask:
    """The request as an Ask, or RequestError with the reason of the refusal. The path names model and stream."""
    try:
        request = _decode(body)
        digest = digest_of(body, model)
        schema = _schema(request.output_config)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"Malformed input request: {error}") from error
    turns = _turns("system", [] if request.system is None else request.system)
    for message in request.messages:
        turns += _turns("assistant" if message.role == "assistant" else "user", message.content)
    config = _ToolConfig() if request.tool_config is None else request.tool_config
    limits = _InferenceConfig() if request.inference_config is None else request.inference_config
    choice, named = _tool_choice(config.tool_choice)
    more = request.additional_model_request_fields
    wishes = Wishes(
        tools=tuple(
            Tool(tool.tool_spec.name, _parameters(tool.tool_spec))
            for tool in config.tools
            if tool.tool_spec is not None
        ),
        tool_choice=choice,
        tool_named=named,
        wants_json=schema is not None,
        schema=schema,
        max_tokens=limits.max_tokens,
        stops=() if limits.stop_sequences is None else tuple(limits.stop_sequences),
        thinks=more is not None and "thinking" in more,
        arguments_must_parse=not is_stream,  # objects in a whole answer, text in a stream
    )
    return ask_of(model, turns, digest, wishes, is_stream=is_stream)


def _turns(role: Role, blocks: list[_Block]) -> list[Turn]:
    turns: list[Turn] = []
    for block in blocks:
        if block.tool_result is not None:
            texts = [
                part.text if part.text is not None else _encode(part.json).decode()
                for part in block.tool_result.content
            ]
            turns.append(Turn("tool", "\n".join(texts)))
        elif block.text is not None:
            turns.append(Turn(role, block.text))
    return turns


def _parameters(spec: _ToolSpec) -> dict[str, Any]:
    schema = None if spec.input_schema is None else spec.input_schema.json
    return {"type": "object"} if schema is None else schema


def _tool_choice(said: _ToolChoice | None) -> tuple[ToolChoice, str | None]:
    if said is None or said.auto is not None:
        return "auto", None
    return ("named", said.tool.name) if said.tool is not None else ("any", None)


def _schema(config: _OutputConfig | None) -> dict[str, Any] | None:
    """The schema asked for, which stands in a string (AWS, OutputFormatStructure)."""
    form = None if config is None else config.text_format
    if form is None or form.structure is None or form.structure.json_schema is None:
        return None
    return msgspec.json.decode(form.structure.json_schema.schema, type=dict[str, Any])


# ---------------------------------------------------------------- answers


def whole(ask: Ask, replies: list[Reply], who: Identity) -> bytes:
    """The body of an answer that is not streamed."""
    reply = replies[0]
    content: list[dict[str, Any]] = []
    if reply.thinking:
        content.append({"reasoningContent": {"reasoningText": {"text": "".join(reply.thinking)}}})
    if reply.text:
        content.append({"text": "".join(reply.text)})
    content += [{"toolUse": _use(call) | {"input": arguments_of(call)}} for call in reply.calls]
    return _encode(
        {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": _STOP_REASON[reply.ending],
            "usage": _usage(ask, reply),
        }
    )


def _use(call: Call) -> dict[str, Any]:
    return {"toolUseId": f"tooluse_{call.id}", "name": call.name}


def _usage(ask: Ask, reply: Reply) -> dict[str, int]:
    output = reply.token_count
    return {"inputTokens": ask.input_tokens, "outputTokens": output, "totalTokens": ask.input_tokens + output}


def stream(ask: Ask, replies: list[Reply], who: Identity) -> Iterator[Part]:
    """The messages of a streamed answer."""
    reply = replies[0]
    yield _event("messageStart", role="assistant")
    index = 0
    for pieces, is_thinking in ((reply.thinking, True), (reply.text, False)):
        if pieces:
            for piece in pieces:
                said: dict[str, Any] = {"text": piece}
                yield _delta(index, {"reasoningContent": said} if is_thinking else said)
            yield _event("contentBlockStop", contentBlockIndex=index)
            index += 1
    for call in reply.calls:
        yield _event("contentBlockStart", start={"toolUse": _use(call)}, contentBlockIndex=index)
        for piece in call.pieces:
            yield _delta(index, {"toolUse": {"input": piece}})
        yield _event("contentBlockStop", contentBlockIndex=index)
        index += 1
    yield _event("messageStop", stopReason=_STOP_REASON[reply.ending])
    yield _event("metadata", usage=_usage(ask, reply))


def _event(kind: str, **fields: Any) -> Part:
    return Part(eventstream.event(kind, _encode(fields)), "beside")


def _delta(index: int, said: dict[str, Any]) -> Part:
    payload = _encode({"delta": said, "contentBlockIndex": index})
    return Part(eventstream.event("contentBlockDelta", payload), "token")


# ---------------------------------------------------------------- errors


def exception_of(status: int) -> str:
    """The name of the exception that a status stands for, as `x-amzn-ErrorType` tells it."""
    return _EXCEPTION.get(status, "ServiceUnavailableException")


def error_body(refusal: Refusal) -> bytes:
    """The body of an error answer; its name stands in a header."""
    return _encode({"message": refusal.message})


def error_event() -> bytes:
    """The exception inside a stream that began well."""
    payload = _encode({"message": "The model stopped in the middle of its answer.", "originalStatusCode": 500})
    return eventstream.exception("modelStreamErrorException", payload)
