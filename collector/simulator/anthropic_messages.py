"""Anthropic's messages: requests read, answers and streams written."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from collector.simulator import tokens
from collector.simulator.answers import Ask, Call, Citation, Document, Ending, Reply, Tool, ToolChoice, identity
from collector.simulator.delivery import Identity, Part, RequestError
from collector.simulator.openai_chat import digest_of

# One prompt in so many finds its cache entry gone and writes it anew.
CACHE_WRITE_EVERY = 16

_STOP_REASON: dict[Ending, str] = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "tool_use": "tool_use",
}


class _Source(Struct):
    type: str
    data: str | None = None
    content: str | list[_Block] | None = None


class _Citations(Struct):
    enabled: bool | None = None


class _Block(Struct):
    type: str
    text: str | None = None
    title: str | None = None
    source: _Source | str | None = None
    content: str | list[_Block] | None = None
    citations: _Citations | list[Any] | None = None
    cache_control: dict[str, Any] | None = None


class _Message(Struct):
    role: str
    content: str | list[_Block]


class _Tool(Struct):
    name: str
    input_schema: dict[str, Any] | None = None


class _ToolChoice(Struct):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Format(Struct):
    type: str
    schema: dict[str, Any] | None = None


class _OutputConfig(Struct):
    format: _Format | None = None


class _Thinking(Struct):
    type: str


class _Request(Struct):
    model: str
    messages: list[_Message]
    max_tokens: int | None = None
    system: str | list[_Block] | None = None
    stream: bool | None = None
    tools: list[_Tool] | None = None
    tool_choice: _ToolChoice | None = None
    output_config: _OutputConfig | None = None
    output_format: _Format | None = None
    thinking: _Thinking | None = None
    stop_sequences: list[str] | None = None


_decode = msgspec.json.Decoder(_Request).decode
_encode = msgspec.json.Encoder().encode


def parse(body: bytes, needs_max_tokens: bool = True) -> Ask:
    """The request as an Ask, or RequestError with the reason of the refusal."""
    try:
        request = _decode(body)
        digest = digest_of(body, ("stream",))
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"The request body is not valid: {error}") from error
    if not request.messages:
        raise RequestError("messages: at least one message is required")
    if needs_max_tokens and request.max_tokens is None:
        raise RequestError("max_tokens: Field required")
    if request.max_tokens is not None and request.max_tokens < 1:
        raise RequestError("max_tokens: must be greater than or equal to 1")
    tools = tuple(
        Tool(tool.name, tool.input_schema)
        for tool in ([] if request.tools is None else request.tools)
        if tool.input_schema is not None
    )
    choice, named = _tool_choice(request.tool_choice, tools)
    texts = [_system_text(request.system)]
    texts += [_content_text(message.content) for message in request.messages]
    prompt = "\n".join(texts)
    last_user = next((message for message in reversed(request.messages) if message.role == "user"), None)
    form = request.output_format
    if request.output_config is not None and request.output_config.format is not None:
        form = request.output_config.format
    if form is not None and (form.type != "json_schema" or form.schema is None):
        raise RequestError("output_config.format: expected type json_schema with a schema")
    total = 8 + 4 * len(request.messages) + tokens.count(prompt)
    cached = min(_cacheable_tokens(request), total)
    writes = digest[1] % CACHE_WRITE_EVERY == 0
    return Ask(
        model=request.model,
        is_stream=request.stream is True,
        prompt=prompt,
        question="" if last_user is None else _question(request.messages),
        digest=digest,
        input_tokens=total,
        cached_tokens=0 if writes else cached,
        cache_written_tokens=cached if writes else 0,
        tool_result=None if last_user is None else _tool_result(last_user.content),
        tools=tools,
        tool_choice=choice,
        tool_named=named,
        is_parallel=not (request.tool_choice is not None and request.tool_choice.disable_parallel_tool_use is True),
        speaks_before_tools=True,
        wants_json=form is not None,
        schema=None if form is None else form.schema,
        max_tokens=request.max_tokens,
        stops=() if request.stop_sequences is None else tuple(request.stop_sequences),
        thinks=request.thinking is not None and request.thinking.type in ("enabled", "adaptive"),
        arguments_must_parse=request.stream is not True,
        cited=_cited(request.messages),
    )


def _tool_choice(said: _ToolChoice | None, tools: tuple[Tool, ...]) -> tuple[ToolChoice, str | None]:
    if said is None:
        return "auto", None
    match said.type:
        case "auto" | "any" | "none":
            return said.type, None
        case "tool":
            if all(tool.name != said.name for tool in tools):
                raise RequestError(f"tool_choice.name: {said.name!r} is not among tools")
            return "named", said.name
        case _:
            raise RequestError(f"tool_choice.type: expected auto, any, tool or none, got {said.type!r}")


def _system_text(system: str | list[_Block] | None) -> str:
    return "" if system is None else _content_text(system)


def _content_text(content: str | list[_Block]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(filter(None, (_block_text(block) for block in content)))


def _block_text(block: _Block) -> str:
    if block.type == "document":
        return _document_text(block)
    if block.content is not None:  # tool results and search results
        return _content_text(block.content)
    return "" if block.text is None else block.text


def _document_text(block: _Block) -> str:
    if not isinstance(block.source, _Source):
        return ""
    if block.source.content is not None:
        return _content_text(block.source.content)
    if block.source.type == "text" and block.source.data is not None:
        return block.source.data
    return ""


def _question(messages: list[_Message]) -> str:
    """The text that the user wrote last; tool results are not written by the user."""
    for message in reversed(messages):
        if message.role != "user":
            continue
        if isinstance(message.content, str):
            return message.content
        written = [block.text for block in message.content if block.type == "text" and block.text is not None]
        if written:
            return "\n".join(written)
    return ""


def _tool_result(content: str | list[_Block]) -> str | None:
    if isinstance(content, str):
        return None
    results = [_block_text(block) for block in content if block.type == "tool_result"]
    return "\n".join(results) if results else None


def _cited(messages: list[_Message]) -> tuple[Document, ...]:
    """The plain-text documents for which citations are switched on."""
    found: list[Document] = []
    index = 0
    for message in messages:
        for block in [] if isinstance(message.content, str) else message.content:
            if block.type != "document":
                continue
            is_plain = isinstance(block.source, _Source) and block.source.type == "text"
            if is_plain and isinstance(block.citations, _Citations) and block.citations.enabled is True:
                found.append(Document(index, block.title, _document_text(block)))
            index += 1
    return tuple(found)


def _cacheable_tokens(request: _Request) -> int:
    """Tokens up to the last block with cache_control."""
    blocks: list[_Block] = []
    for content in (request.system, *(message.content for message in request.messages)):
        if isinstance(content, str):
            blocks.append(_Block("text", content))
        elif content is not None:
            blocks.extend(content)
    marked = [at for at, block in enumerate(blocks) if block.cache_control is not None]
    return sum(tokens.count(_block_text(block)) for block in blocks[: marked[-1] + 1]) if marked else 0


# ---------------------------------------------------------------- answers


def whole(ask: Ask, replies: list[Reply], who: Identity) -> bytes:
    """The body of an answer that is not streamed."""
    reply = replies[0]
    content: list[dict[str, Any]] = []
    if reply.thinking:
        content.append({"type": "thinking", "thinking": "".join(reply.thinking), "signature": _signature(ask)})
    if reply.text:
        block: dict[str, Any] = {"type": "text", "text": "".join(reply.text)}
        if reply.citation is not None:
            block["citations"] = [_citation(reply.citation)]
        content.append(block)
    content += [
        {"type": "tool_use", "id": _call_id(call), "name": call.name, "input": _input(call)} for call in reply.calls
    ]
    return _encode(
        _envelope(ask, who)
        | {
            "content": content,
            "stop_reason": _STOP_REASON[reply.ending],
            "stop_sequence": reply.stopped_by,
            "usage": _usage(ask) | {"output_tokens": reply.token_count},
        }
    )


def _envelope(ask: Ask, who: Identity) -> dict[str, Any]:
    return {
        "id": f"msg_{identity(ask.digest, 'answer')}",
        "type": "message",
        "role": "assistant",
        "model": who.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
    }


def _usage(ask: Ask) -> dict[str, Any]:
    # Input tokens exclude what the cache served or took (Anthropic docs, prompt caching).
    return {
        "input_tokens": ask.input_tokens - ask.cached_tokens - ask.cache_written_tokens,
        "cache_creation_input_tokens": ask.cache_written_tokens,
        "cache_read_input_tokens": ask.cached_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": ask.cache_written_tokens,
            "ephemeral_1h_input_tokens": 0,
        },
        "service_tier": "standard",
    }


def _input(call: Call) -> dict[str, Any]:
    """The arguments as an object; empty where the answer was cut inside them."""
    try:
        decoded = msgspec.json.decode(call.arguments.encode())
    except msgspec.DecodeError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _call_id(call: Call) -> str:
    return f"toolu_{call.id}"


def _signature(ask: Ask) -> str:
    return base64.b64encode(bytes.fromhex(identity(ask.digest, "signature"))).decode()


def _citation(citation: Citation) -> dict[str, Any]:
    return {
        "type": "char_location",
        "cited_text": citation.document.text[citation.start : citation.end],
        "document_index": citation.document.index,
        "document_title": citation.document.title,
        "start_char_index": citation.start,
        "end_char_index": citation.end,
        "file_id": None,
    }


def event(fields: dict[str, Any]) -> bytes:
    """One server-sent event, named by its type."""
    name: str = fields["type"]
    return b"event: " + name.encode() + b"\ndata: " + _encode(fields) + b"\n\n"


PING = event({"type": "ping"})


def stream(ask: Ask, replies: list[Reply], who: Identity) -> Iterator[Part]:
    """The parts of a streamed answer."""
    reply = replies[0]
    message = _envelope(ask, who) | {"usage": _usage(ask) | {"output_tokens": 1}}
    yield Part(event({"type": "message_start", "message": message}), "beside")
    yield Part(PING, "beside")
    for index, (start, deltas) in enumerate(_blocks(ask, reply)):
        yield Part(event({"type": "content_block_start", "index": index, "content_block": start}), "beside")
        for kind, delta in deltas:
            yield Part(
                event({"type": "content_block_delta", "index": index, "delta": delta}),
                "token" if kind == "token" else "beside",
            )
        yield Part(event({"type": "content_block_stop", "index": index}), "beside")
    # The usage of the delta is cumulative (Anthropic docs, streaming).
    usage = {key: value for key, value in _usage(ask).items() if key not in ("cache_creation", "service_tier")} | {
        "output_tokens": reply.token_count
    }
    delta = {"stop_reason": _STOP_REASON[reply.ending], "stop_sequence": reply.stopped_by}
    yield Part(event({"type": "message_delta", "delta": delta, "usage": usage}), "beside")
    yield Part(event({"type": "message_stop"}), "beside")


def _blocks(ask: Ask, reply: Reply) -> Iterator[tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]]:
    """Each content block as it starts, and its deltas with whether they are tokens."""
    if reply.thinking:
        thoughts = [("token", {"type": "thinking_delta", "thinking": piece}) for piece in reply.thinking]
        signature = ("beside", {"type": "signature_delta", "signature": _signature(ask)})
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, signature]
    if reply.text:
        deltas: list[tuple[str, dict[str, Any]]] = []
        if reply.citation is not None:
            deltas.append(("beside", {"type": "citations_delta", "citation": _citation(reply.citation)}))
        deltas += [("token", {"type": "text_delta", "text": piece}) for piece in reply.text]
        yield {"type": "text", "text": ""} | ({} if reply.citation is None else {"citations": []}), deltas
    for call in reply.calls:
        opening = ("beside", {"type": "input_json_delta", "partial_json": ""})
        arguments = [("token", {"type": "input_json_delta", "partial_json": piece}) for piece in call.pieces]
        yield {"type": "tool_use", "id": _call_id(call), "name": call.name, "input": {}}, [opening, *arguments]


# ---------------------------------------------------------------- errors


def error_body(message: str, kind: str, request_id: str) -> bytes:
    """The body of an error answer."""
    return _encode({"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id})


def error_event() -> bytes:
    """The error inside a stream that began well."""
    return event({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
