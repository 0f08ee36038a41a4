"""OpenAI chat completions, and the many who speak like it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, UnreadableError, count, raw_bytes
from collector.dialects.errors import ErrorBody, error_of_body, wire_error
from collector.model import (
    Delta,
    Expectation,
    Finish,
    Frame,
    Reader,
    ReportedUsage,
    RequestFacts,
    RequestHead,
    ResponseHead,
    TextPiece,
    ToolPiece,
    Usage,
    WireError,
)

DONE = b"[DONE]"


# ---------------------------------------------------------------- the response on the wire


class _Part(Struct, gc=False):
    """A part of content that is a list (Mistral); `text` may itself be wrapped."""

    type: str | None = None
    text: str | None = None
    thinking: list[_Part] | str | None = None
    refusal: str | None = None


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolCall(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Message(Struct, gc=False):
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None


class _Choice(Struct, gc=False):
    index: int | None = None
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | int | None = None
    error: ErrorBody | None = None


class _InputDetails(Struct, gc=False):
    cached_tokens: int | float | None = None
    cache_creation_tokens: int | float | None = None
    cache_write_tokens: int | float | None = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: int | float | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: int | float | None = None
    completion_tokens: int | float | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    prompt_cache_hit_tokens: int | float | None = None
    queue_time: float | None = None
    prompt_time: float | None = None
    completion_time: float | None = None
    total_time: float | None = None


class _GroqExtra(Struct, gc=False):
    usage: _Usage | None = None
    error: str | None = None


class _Body(Struct, gc=False):
    """A chunk of a stream or a whole answer."""

    id: str | None = None
    object: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: ErrorBody | str | None = None
    x_groq: _GroqExtra | None = None
    type: str | None = None
    code: str | int | None = None


_decode = Decoder(_Body)


def _reported(usage: _Usage) -> ReportedUsage:
    details, made = usage.prompt_tokens_details, usage.completion_tokens_details
    cached = count(details.cached_tokens) if details else None
    written = None
    if details:
        written = count(details.cache_creation_tokens)
        written = count(details.cache_write_tokens) if written is None else written
    return ReportedUsage(
        count(usage.prompt_tokens),
        count(usage.completion_tokens),
        count(usage.prompt_cache_hit_tokens) if cached is None else cached,
        written,
        count(made.reasoning_tokens) if made else None,
    )


def _phases(usage: _Usage) -> tuple[tuple[str, float], ...]:
    """Groq tells its phases in seconds beside the usage."""
    named = (
        ("queue", usage.queue_time),
        ("prefill", usage.prompt_time),
        ("decode", usage.completion_time),
        ("total", usage.total_time),
    )
    return tuple((name, seconds) for name, seconds in named if seconds is not None and 0 <= seconds < 1e6)


class _Said:
    """What one body said, in lists that grow."""

    __slots__ = ("reasoning", "refusal", "text", "tools")

    def __init__(self) -> None:
        self.text: list[TextPiece] = []
        self.reasoning: list[TextPiece] = []
        self.refusal: list[TextPiece] = []
        self.tools: list[ToolPiece] = []


class ChatReader:
    """Chunks of a stream, or one whole answer, in any mix that providers send."""

    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = any("ratelimit" in name or name == "retry-after" for name, _ in response.headers.lines)
        self._calls: dict[tuple[int, str], int] = {}  # (choice, id) → index, where no index is sent
        self._open: dict[int, int] = {}  # choice → the call last spoken of
        self._seen_choices: set[int] = set()
        self._finished: set[int] = set()

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if frame.data.startswith(b"[") and frame.data.strip() == DONE:
            return Delta(terminal=True, marker=True)
        if self._status >= 400:
            return Delta(error=error_of_body(frame.data, self._status, self._limited))
        try:
            body = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True)
        return self._plain_text(body) or self._delta(body, frame.event)

    def ended_well(self) -> bool:
        """Whether every choice seen has said how it finished: the end for those who send no marker."""
        return bool(self._seen_choices) and self._seen_choices == self._finished

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        """OpenAI counts cached tokens inside the input and reasoning inside the output."""
        return Usage(
            reported.input_tokens,
            reported.output_tokens,
            reported.cached_input_tokens,
            reported.cache_creation_input_tokens,
            reported.reasoning_tokens,
        )

    def _plain_text(self, body: _Body) -> Delta | None:
        """The frame that most frames are: one piece of text of a choice that is known. None for any other."""
        choices = body.choices
        if choices is None or len(choices) != 1 or body.usage is not None or body.error is not None:
            return None
        choice = choices[0]
        message = choice.delta
        if (
            message is None
            or choice.finish_reason is not None
            or choice.index not in self._seen_choices
            or type(message.content) is not str
            or not message.content
            or message.tool_calls is not None
            or message.reasoning_content is not None
            or message.reasoning is not None
            or message.refusal is not None
            or message.function_call is not None
            or choice.error is not None
            or body.x_groq is not None
            or body.object == "error"
        ):
            return None
        return Delta(text=(TextPiece(choice.index or 0, message.content),), model=body.model or None)

    def _delta(self, body: _Body, event: str | None) -> Delta:
        said = _Said()
        finish: list[Finish] = []
        error = self._error(body, event)
        for position, choice in enumerate(body.choices or ()):
            index = choice.index if choice.index is not None else position
            message = choice.delta if choice.delta is not None else choice.message
            if message is not None:
                self._seen_choices.add(index)
                self._message(index, message, said)
            if choice.finish_reason is not None and choice.finish_reason != "":
                self._seen_choices.add(index)
                self._finished.add(index)
                finish.append(Finish(index, str(choice.finish_reason)))
            if choice.error is not None and error is None:
                error = wire_error(choice.error)
        usage = body.usage
        if usage is None and body.x_groq is not None:
            usage = body.x_groq.usage
        return Delta(
            text=tuple(said.text),
            reasoning=tuple(said.reasoning),
            refusal=tuple(said.refusal),
            tools=tuple(said.tools),
            finish=tuple(finish),
            choices=max(self._seen_choices, default=-1) + 1,
            model=body.model or None,
            usage=_reported(usage) if usage is not None else None,
            phases=_phases(usage) if usage is not None else (),
            error=error,
            response_id=body.id or None,
        )

    def _error(self, body: _Body, event: str | None) -> WireError | None:
        if isinstance(body.error, ErrorBody):
            return wire_error(body.error)
        if isinstance(body.error, str):
            return wire_error(ErrorBody(type=body.error))
        if body.x_groq is not None and body.x_groq.error:
            return wire_error(ErrorBody(type=body.x_groq.error))
        if event == "error" or body.object == "error":
            return wire_error(ErrorBody(type=body.type, code=body.code))
        return None

    def _message(self, index: int, message: _Message, said: _Said) -> None:
        content = message.content
        if isinstance(content, str):
            if content:
                said.text.append(TextPiece(index, content))
        elif content is not None:
            for part in content:
                if part.text and part.type in (None, "text", "output_text"):
                    said.text.append(TextPiece(index, part.text))
                thought = part.thinking
                if isinstance(thought, list):
                    thought = "".join(piece.text or "" for piece in thought)
                if thought:
                    said.reasoning.append(TextPiece(index, thought))
                if part.refusal:
                    said.refusal.append(TextPiece(index, part.refusal))
        thought = message.reasoning_content or message.reasoning
        if thought:
            said.reasoning.append(TextPiece(index, thought))
        if message.refusal:
            said.refusal.append(TextPiece(index, message.refusal))
        for position, call in enumerate(message.tool_calls or ()):
            said.tools.append(self._call(index, position, call))
        if message.function_call is not None:
            said.tools.append(_piece(index, 0, message.function_call))

    def _call(self, choice: int, position: int, call: _ToolCall) -> ToolPiece:
        """A call's index: as sent, else by its id, else a continuation of the last one (no name), else the next."""
        index = call.index
        if index is None and call.id:
            known = sum(1 for where, _ in self._calls if where == choice)
            index = self._calls.setdefault((choice, call.id), known)
        elif index is None and (call.function is None or not call.function.name):
            index = self._open.get(choice, position)
        elif index is None:
            index = self._open.get(choice, -1) + 1
        self._open[choice] = index
        return _piece(choice, index, call.function)


def _piece(choice: int, index: int, function: _Function | None) -> ToolPiece:
    if function is None:
        return ToolPiece(choice, index)
    arguments = function.arguments
    if isinstance(arguments, dict):
        arguments = msgspec.json.encode(arguments).decode()
    return ToolPiece(choice, index, function.name or None, arguments or "")


# ---------------------------------------------------------------- the request


class _SchemaWish(Struct, gc=False):
    name: str | None = None
    schema: Raw = Raw()


class _Format(Struct, gc=False):
    type: str | None = None
    json_schema: _SchemaWish | None = None
    schema: Raw = Raw()


class _WishedFunction(Struct, gc=False):
    name: str | None = None
    parameters: Raw = Raw()


class _WishedTool(Struct, gc=False):
    type: str | None = None
    function: _WishedFunction | None = None


class _RequestPart(Struct, gc=False):
    type: str | None = None
    text: str | None = None


class _RequestMessage(Struct, gc=False):
    role: str | None = None
    content: str | list[_RequestPart] | None = None


class _Request(Struct, gc=False):
    model: str | None = None
    stream: bool | None = None
    messages: list[_RequestMessage] | None = None
    response_format: _Format | None = None
    tools: list[_WishedTool] | None = None
    functions: list[_WishedFunction] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


_decode_request = Decoder(_Request)


def expectation_of(wish: _Format | None) -> Expectation | None:
    """What `response_format` asks for; None for text."""
    if wish is None or wish.type not in ("json_object", "json_schema"):
        return None
    inner = wish.json_schema
    schema = raw_bytes(inner.schema) if inner is not None else None
    if schema is None:
        schema = raw_bytes(wish.schema)
    if schema is None:
        return Expectation("json")
    return Expectation("json_schema", schema, inner.name if inner is not None else None)


def _turns(messages: list[_RequestMessage]) -> list[Turn]:
    turns = []
    for message in messages:
        role = {"developer": "system", "function": "tool"}.get(message.role or "user", message.role or "user")
        kind = "tool_result" if role == "tool" else "text"
        if isinstance(message.content, str):
            turns.append(Turn(role, kind, message.content))
        else:
            turns += [Turn(role, kind, part.text) for part in message.content or () if part.text]
    return turns


class OpenAiChat:
    """POST …/chat/completions."""

    name = "openai.chat"
    operation = "chat"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        return request.method == "POST" and request.path.rstrip("/").endswith("/chat/completions")

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        asked = _decode_request(body)
        wished = [tool.function for tool in asked.tools or () if tool.function] + list(asked.functions or ())
        query, context = split(_turns(asked.messages or []))
        limit = asked.max_completion_tokens if asked.max_completion_tokens is not None else asked.max_tokens
        return RequestFacts(
            model=asked.model or None,
            stream=asked.stream is True,
            expectation=expectation_of(asked.response_format),
            tool_schemas={
                function.name: schema
                for function in wished
                if function.name and (schema := raw_bytes(function.parameters)) is not None
            },
            query=query,
            context=context,
            max_output_tokens=limit,
        )

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return ChatReader(response)
