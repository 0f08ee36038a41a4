"""Anthropic messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, PlainDecoder, SomeText, UnreadableError, count, json_text, raw_bytes
from collector.dialects.errors import ErrorBody, error_of_body, says_limits, wire_error
from collector.dialects.paths import raw_publisher
from collector.dialects.prompt import prompt_facts
from collector.model import (
    MAX_CALLS,
    Delta,
    Expectation,
    Finish,
    Frame,
    Reader,
    ReportedUsage,
    RequestFacts,
    RequestHead,
    ResponseHead,
    Sources,
    TextPiece,
    ToolPiece,
    Usage,
)

# ---------------------------------------------------------------- the response on the wire


class _Citation(Struct, gc=False):
    cited_text: str | None = None


class _Block(Struct, gc=False):
    """A content block, whole or as it starts. Server-side tools (`server_tool_use`) are no calls to the client."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    name: str | None = None
    input: dict[str, Any] | str | None = None
    citations: list[_Citation] | None = None


class _BlockDelta(Struct, gc=False):
    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    stop_reason: str | None = None
    citation: _Citation | None = None


class _OutputDetails(Struct, gc=False):
    thinking_tokens: int | float | None = None
    reasoning_tokens: int | float | None = None


class _Usage(Struct, gc=False):
    input_tokens: int | float | None = None
    output_tokens: int | float | None = None
    cache_read_input_tokens: int | float | None = None
    cache_creation_input_tokens: int | float | None = None
    output_tokens_details: _OutputDetails | None = None


class _Message(Struct, gc=False):
    model: str | None = None
    content: list[_Block] | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None


class _Body(Struct, gc=False):
    """An event of a stream, or a whole message."""

    type: str | None = None
    index: int | None = None
    delta: _BlockDelta | None = None
    message: _Message | str | None = None
    content_block: _Block | None = None
    usage: _Usage | None = None
    error: ErrorBody | None = None
    model: str | None = None
    content: list[_Block] | None = None
    stop_reason: str | None = None


_decode = Decoder(_Body)


class _PlainDelta(Struct, gc=False):
    type: Literal["text_delta"]
    text: SomeText
    partial_json: None = None
    thinking: None = None
    stop_reason: None = None
    citation: None = None


class _PlainBody(Struct, gc=False):
    """The event that most events are: a piece of text. `_Body`, narrowed."""

    type: Literal["content_block_delta"]
    delta: _PlainDelta
    index: int | None = None
    message: None = None
    content_block: None = None
    usage: None = None
    error: None = None
    model: None = None
    content: None = None
    stop_reason: None = None


_decode_plain = PlainDecoder(_PlainBody)


def _reported(usage: _Usage | None) -> ReportedUsage | None:
    if usage is None:
        return None
    details = usage.output_tokens_details
    thought = None
    if details is not None:
        thought = count(details.thinking_tokens)
        thought = count(details.reasoning_tokens) if thought is None else thought
    return ReportedUsage(
        count(usage.input_tokens),
        count(usage.output_tokens),
        count(usage.cache_read_input_tokens),
        count(usage.cache_creation_input_tokens),
        thought,
    )


class MessagesReader:
    """Events of a stream, or one whole message. Usage of the last event is cumulative (Anthropic docs, streaming)."""

    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)
        self._calls: dict[int, int] = {}  # content block index → tool call index
        self._given: set[int] = set()  # tool calls whose input came whole at the start

    def read(self, frame: Frame) -> Delta | TextPiece | None:
        if frame.kind != "data":
            return None
        if frame.event == "ping":
            return Delta(ping=True)
        if self._status >= 400:
            return Delta(error=error_of_body(frame.data, self._status, self._limited))
        try:
            body = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True, error=wire_error(ErrorBody()) if frame.event == "error" else None)
        kind = body.type or frame.event
        if kind == "content_block_delta":  # most
            return self._block_delta(body.index or 0, body.delta or _BlockDelta())
        return self._delta(body, kind)

    def texts(self, payloads: Sequence[bytes]) -> list[str]:
        return [body.delta.text for body in _decode_plain(payloads)]

    def ended_well(self) -> bool:
        """Only `message_stop` ends a stream."""
        return False

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        """Anthropic counts cached tokens beside the input; the normal form counts them inside."""
        parts = (reported.input_tokens, reported.cached_input_tokens, reported.cache_creation_input_tokens)
        whole = None if reported.input_tokens is None else sum(part for part in parts if part is not None)
        return Usage(
            whole,
            reported.output_tokens,
            reported.cached_input_tokens,
            reported.cache_creation_input_tokens,
            reported.reasoning_tokens,
        )

    def _delta(self, body: _Body, kind: str | None) -> Delta:
        match kind:
            case "content_block_start":
                return self._blocks([body.content_block or _Block()], body.index or 0, starts=True)
            case "message_start":
                message = body.message if isinstance(body.message, _Message) else _Message()
                return Delta(
                    choices=1,
                    model=message.model or None,
                    usage=_reported(message.usage),
                )
            case "message_delta":
                reason = body.delta.stop_reason if body.delta is not None else None
                return Delta(finish=(Finish(0, reason),) if reason else (), usage=_reported(body.usage))
            case "message_stop":
                return Delta(terminal=True, usage=_reported(body.usage))
            case "ping":
                return Delta(ping=True)
            case "error":
                return Delta(error=wire_error(body.error or ErrorBody()))
            case "message":
                return self._whole(body)
        if body.error is not None:
            return Delta(error=wire_error(body.error))
        return self._whole(body) if body.content is not None else Delta()

    def _whole(self, body: _Body) -> Delta:
        said = self._blocks(body.content or [], 0, starts=False)
        return msgspec.structs.replace(
            said,
            choices=1,
            finish=(Finish(0, body.stop_reason),) if body.stop_reason else (),
            model=body.model or None,
            usage=_reported(body.usage),
            terminal=True,
        )

    def _blocks(self, blocks: list[_Block], first: int, starts: bool) -> Delta:
        """Blocks that are whole or, where `starts`, only begin: then an empty input stands for one that follows."""
        text, reasoning, tools = [], [], []
        quoted = tuple(cited.cited_text for block in blocks for cited in block.citations or () if cited.cited_text)
        for at, block in enumerate(blocks, first):
            if block.type == "tool_use":
                index = self._calls.get(at, len(self._calls))
                if index < MAX_CALLS:
                    self._calls[at] = index
                given = block.input if isinstance(block.input, str) else ""
                if isinstance(block.input, dict) and (block.input or not starts):
                    given = json_text(block.input)
                if given:
                    self._given.add(index)
                tools.append(ToolPiece(0, index, block.name, given))
            elif block.type == "text" and block.text:
                text.append(TextPiece(0, block.text))
            elif block.type == "thinking" and block.thinking:
                reasoning.append(TextPiece(0, block.thinking))
        sources = Sources(quoted) if quoted else None
        return Delta(text=tuple(text), reasoning=tuple(reasoning), tools=tuple(tools), sources=sources)

    def _block_delta(self, at: int, delta: _BlockDelta) -> Delta | TextPiece:
        if delta.type == "text_delta" and delta.text:
            return TextPiece(0, delta.text)
        if delta.type == "input_json_delta" and at in self._calls:
            index = self._calls[at]
            if index in self._given:
                return Delta()
            # Every call begins with an empty piece, in which nothing was generated.
            return Delta(tools=(ToolPiece(0, index, None, delta.partial_json),)) if delta.partial_json else Delta()
        if delta.type == "thinking_delta" and delta.thinking:
            return Delta(reasoning=(TextPiece(0, delta.thinking),))
        if delta.type == "citations_delta" and delta.citation is not None and delta.citation.cited_text:
            return Delta(sources=Sources((delta.citation.cited_text,)))
        return Delta()


# ---------------------------------------------------------------- the request


class _Source(Struct, gc=False):
    type: str | None = None
    data: str | None = None
    content: str | list[_RequestBlock] | None = None


class _RequestBlock(Struct, gc=False):
    type: str | None = None
    text: str | None = None
    title: str | None = None
    source: _Source | str | None = None
    content: str | list[_RequestBlock] | None = None


class _RequestMessage(Struct, gc=False):
    role: str | None = None
    content: str | list[_RequestBlock] | None = None


class _Tool(Struct, gc=False):
    name: str | None = None
    input_schema: Raw = Raw()


class _Format(Struct, gc=False):
    type: str | None = None
    schema: Raw = Raw()
    name: str | None = None


class _OutputConfig(Struct, gc=False):
    format: _Format | None = None


class _Request(Struct, gc=False):
    model: str | None = None
    stream: bool | None = None
    system: str | list[_RequestBlock] | None = None
    messages: list[_RequestMessage] | None = None
    tools: list[_Tool] | None = None
    output_format: _Format | None = None
    output_config: _OutputConfig | None = None
    max_tokens: int | None = None


_decode_request = Decoder(_Request)


def _block_turns(role: str, content: str | list[_RequestBlock] | None, depth: int = 0) -> list[Turn]:
    if isinstance(content, str):
        return [Turn(role, "text", content)]
    turns: list[Turn] = []
    for block in content or () if depth < 4 else ():
        if block.type == "tool_result":
            turns += [Turn("tool", "tool_result", inner.text) for inner in _block_turns(role, block.content, depth + 1)]
        elif block.type in ("document", "search_result"):
            inner = block.source.content if isinstance(block.source, _Source) else block.content
            if isinstance(block.source, _Source) and block.source.type == "text" and block.source.data:
                turns.append(Turn(role, "document", block.source.data))
            turns += [Turn(role, "document", turn.text) for turn in _block_turns(role, inner, depth + 1)]
        elif block.text:
            turns.append(Turn(role, "text", block.text))
    return turns


class AnthropicMessages:
    """POST …/v1/messages, and the same bodies on Vertex AI, where the path names the model."""

    name = "anthropic.messages"
    operation = "chat"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        path = request.path.rstrip("/")
        if request.method != "POST":
            return False
        if raw_publisher(path) == "anthropic":
            return True
        return path.endswith("/messages") and "/threads/" not in path

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        asked = _decode_request(body)
        turns = _block_turns("system", asked.system)
        for message in asked.messages or ():
            turns += _block_turns(message.role or "user", message.content)
        query, context = split(turns)
        wish = asked.output_format
        if wish is None and asked.output_config is not None:
            wish = asked.output_config.format
        expectation = None
        if wish is not None and wish.type == "json_schema":
            schema = raw_bytes(wish.schema)
            expectation = Expectation("json_schema" if schema is not None else "json", schema, wish.name)
        return RequestFacts(
            model=asked.model or None,
            stream=asked.stream is True,
            expectation=expectation,
            tool_schemas={
                tool.name: schema
                for tool in asked.tools or ()
                if tool.name and (schema := raw_bytes(tool.input_schema)) is not None
            },
            query=query,
            context=context,
            prompt=prompt_facts(turns),
            max_output_tokens=asked.max_tokens,
        )

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return MessagesReader(response)
