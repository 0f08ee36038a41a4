"""Gemini's generateContent and streamGenerateContent: requests read, answers written (ai.google.dev/api)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct, field

from collector.simulator.answers import Ask, Ending, Reply, Tool, ToolChoice, identity
from collector.simulator.conversation import Role, Turn, Wishes, arguments_of, ask_of, digest_of
from collector.simulator.delivery import Identity, Part, Refusal, RequestError

MOST_CANDIDATES = 8
MOST_DEPTH = 32  # of a schema

_FINISH: dict[Ending, str] = {"stop": "STOP", "stop_sequence": "STOP", "length": "MAX_TOKENS", "tool_use": "STOP"}
_STATUS = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}


class _FunctionResponse(Struct):
    response: Any = None


class _Part(Struct, rename="camel"):
    text: str | None = None
    function_response: _FunctionResponse | None = None


class _Content(Struct):
    parts: list[_Part] = field(default_factory=list)
    role: str | None = None


class _Declaration(Struct, rename="camel"):
    name: str
    parameters: dict[str, Any] | None = None
    parameters_json_schema: dict[str, Any] | None = None


class _Tool(Struct, rename="camel"):
    function_declarations: list[_Declaration] | None = None


class _CallingConfig(Struct, rename="camel"):
    mode: str | None = None
    allowed_function_names: list[str] | None = None


class _ToolConfig(Struct, rename="camel"):
    function_calling_config: _CallingConfig | None = None


class _Thinking(Struct, rename="camel"):
    include_thoughts: bool | None = None


class _Config(Struct, rename="camel"):
    response_mime_type: str | None = None
    response_schema: dict[str, Any] | None = None
    response_json_schema: dict[str, Any] | None = None
    max_output_tokens: int | None = None
    candidate_count: int | None = None
    stop_sequences: list[str] | None = None
    thinking_config: _Thinking | None = None


class _Request(Struct, rename="camel"):
    contents: list[_Content]
    system_instruction: _Content | None = None
    generation_config: _Config | None = None
    tools: list[_Tool] | None = None
    tool_config: _ToolConfig | None = None


_decode = msgspec.json.Decoder(_Request).decode
_encode = msgspec.json.Encoder().encode


def parse(body: bytes, model: str, *, is_stream: bool) -> Ask:
    """The request as an Ask, or RequestError with the reason of the refusal. The path names model and stream."""
    try:
        request = _decode(body)
        digest = digest_of(body, model)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"Invalid JSON payload received: {error}") from error
    config = _Config() if request.generation_config is None else request.generation_config
    choices = 1 if config.candidate_count is None else config.candidate_count
    if not 1 <= choices <= MOST_CANDIDATES:
        raise RequestError(f"candidateCount must be from 1 to {MOST_CANDIDATES}, got {choices}")
    schema = config.response_json_schema
    if schema is None and config.response_schema is not None:
        schema = _json_schema(config.response_schema)
    turns = [] if request.system_instruction is None else _turns("system", request.system_instruction)
    for content in request.contents:
        turns += _turns("assistant" if content.role == "model" else "user", content)
    choice, named = _tool_choice(request.tool_config)
    wishes = Wishes(
        tools=tuple(
            Tool(declared.name, _parameters(declared))
            for tool in ([] if request.tools is None else request.tools)
            for declared in ([] if tool.function_declarations is None else tool.function_declarations)
        ),
        tool_choice=choice,
        tool_named=named,
        wants_json=config.response_mime_type == "application/json",
        schema=schema,
        max_tokens=config.max_output_tokens,
        stops=() if config.stop_sequences is None else tuple(config.stop_sequences),
        choices=choices,
        thinks=config.thinking_config is not None and config.thinking_config.include_thoughts is True,
        arguments_must_parse=True,  # they are objects on the wire
    )
    return ask_of(model, turns, digest, wishes, is_stream=is_stream)


def _turns(role: Role, content: _Content) -> list[Turn]:
    turns: list[Turn] = []
    for part in content.parts:
        if part.function_response is not None:
            turns.append(Turn("tool", _encode(part.function_response.response).decode()))
        elif part.text is not None:
            turns.append(Turn(role, part.text))
    return turns


def _tool_choice(config: _ToolConfig | None) -> tuple[ToolChoice, str | None]:
    calling = None if config is None else config.function_calling_config
    match None if calling is None else calling.mode:
        case "ANY":
            names = [] if calling is None or calling.allowed_function_names is None else calling.allowed_function_names
            return ("named", names[0]) if len(names) == 1 else ("any", None)
        case "NONE":
            return "none", None
        case _:
            return "auto", None


def _parameters(declared: _Declaration) -> dict[str, Any]:
    if declared.parameters_json_schema is not None:
        return declared.parameters_json_schema
    return {"type": "object"} if declared.parameters is None else _json_schema(declared.parameters)


def _json_schema(schema: dict[str, Any], depth: int = 0) -> dict[str, Any]:
    """A schema in the manner of OpenAPI as JSON Schema: types in small letters, `nullable` as a further type."""
    if depth > MOST_DEPTH:
        raise RequestError(f"the schema nests deeper than {MOST_DEPTH}")
    told = {key: value for key, value in schema.items() if key not in ("nullable", "propertyOrdering")}
    if isinstance(told.get("type"), str):
        told["type"] = [told["type"].lower(), "null"] if schema.get("nullable") is True else told["type"].lower()
    if isinstance(told.get("properties"), dict):
        told["properties"] = {
            name: _json_schema(rule, depth + 1) if isinstance(rule, dict) else rule
            for name, rule in told["properties"].items()
        }
    if isinstance(told.get("items"), dict):
        told["items"] = _json_schema(told["items"], depth + 1)
    if isinstance(told.get("anyOf"), list):
        told["anyOf"] = [_json_schema(rule, depth + 1) if isinstance(rule, dict) else rule for rule in told["anyOf"]]
    return told


# ---------------------------------------------------------------- answers


def whole(ask: Ask, replies: list[Reply], who: Identity) -> bytes:
    """The body of an answer that is not streamed."""
    candidates = [_candidate(index, _parts(reply), _FINISH[reply.ending]) for index, reply in enumerate(replies)]
    return _encode(_envelope(ask, who, candidates, _usage(ask, replies)))


def _envelope(ask: Ask, who: Identity, candidates: list[dict[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
    return {
        "candidates": candidates,
        "usageMetadata": usage,
        "modelVersion": who.model,
        "responseId": identity(ask.digest, "answer"),
    }


def _candidate(index: int, parts: list[dict[str, Any]], finish: str | None = None) -> dict[str, Any]:
    said: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": index}
    return said if finish is None else said | {"finishReason": finish}


def _parts(reply: Reply) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    if reply.thinking:
        parts.append({"text": "".join(reply.thinking), "thought": True})
    if reply.text:
        parts.append({"text": "".join(reply.text)})
    return parts + [_call_part(call.name, arguments_of(call)) for call in reply.calls]


def _call_part(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": arguments}}


def _usage(ask: Ask, replies: list[Reply]) -> dict[str, Any]:
    # Thoughts are counted beside the candidates (ai.google.dev, UsageMetadata).
    thoughts = sum(len(reply.thinking) for reply in replies)
    said = sum(reply.token_count for reply in replies) - thoughts
    told = {"promptTokenCount": ask.input_tokens, "candidatesTokenCount": said}
    if thoughts:
        told["thoughtsTokenCount"] = thoughts
    return told | {"totalTokenCount": ask.input_tokens + said + thoughts}


def stream(ask: Ask, replies: list[Reply], who: Identity) -> Iterator[Part]:
    """The parts of an answer streamed as server-sent events (`alt=sse`)."""
    for chunk, is_token in _chunks(ask, replies, who):
        yield Part(b"data: " + _encode(chunk) + b"\r\n\r\n", "token" if is_token else "beside")


def stream_array(ask: Ask, replies: list[Reply], who: Identity) -> Iterator[Part]:
    """The parts of an answer streamed as one JSON array."""
    before = b"["
    for chunk, is_token in _chunks(ask, replies, who):
        yield Part(before + _encode(chunk), "token" if is_token else "beside")
        before = b",\r\n"
    yield Part(b"\n]\n", "beside")


def _chunks(ask: Ask, replies: list[Reply], who: Identity) -> Iterator[tuple[dict[str, Any], bool]]:
    """Each chunk with whether it is a token. Candidates advance together; only the last chunk counts their tokens."""
    before = {"promptTokenCount": ask.input_tokens, "totalTokenCount": ask.input_tokens}
    has_begun = False
    for step in zip_longest(*(_deltas(reply) for reply in replies)):
        said = [_candidate(index, [part]) for index, part in enumerate(step) if part is not None]
        yield _envelope(ask, who, said, before), True
        has_begun = True
    ends = [_candidate(index, [{"text": ""}], _FINISH[reply.ending]) for index, reply in enumerate(replies)]
    yield _envelope(ask, who, ends, _usage(ask, replies)), not has_begun


def _deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    for piece in reply.thinking:
        yield {"text": piece, "thought": True}
    for piece in reply.text:
        yield {"text": piece}
    for call in reply.calls:  # calls come whole
        yield _call_part(call.name, arguments_of(call))


# ---------------------------------------------------------------- errors


def error_body(refusal: Refusal) -> bytes:
    """The body of an error answer (google.rpc.Status as JSON)."""
    status = _STATUS.get(refusal.status, "UNAVAILABLE")
    return _encode({"error": {"code": refusal.status, "message": refusal.message, "status": status}})


_BROKEN = {
    "error": {"code": 503, "message": "The model is overloaded. Please try again later.", "status": "UNAVAILABLE"}
}


def error_event() -> bytes:
    """The error inside a stream of events that began well."""
    return b"data: " + _encode(_BROKEN) + b"\r\n\r\n"


def error_element() -> bytes:
    """The error inside an array that began well; it ends the array."""
    return b",\r\n" + _encode(_BROKEN) + b"\n]\n"
