"""Ollama's own API: chat and generate, as lines of JSON or whole, and embeddings."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct

from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, UnreadableError, count, json_text, raw_bytes
from collector.dialects.errors import ErrorBody, bounded, error_of_body, says_limits, wire_error
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
    TextPiece,
    ToolPiece,
    Usage,
    WireError,
)

MAX_PHASE = 1e6  # seconds; what says more is no duration

# ---------------------------------------------------------------- the response on the wire


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: dict[str, Any] | str | None = None


class _ToolCall(Struct, gc=False):
    function: _Function | None = None


class _Message(Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Body(Struct, gc=False):
    """A line of a stream, or a whole answer: of chat in `message`, of generate in `response` and `thinking`."""

    model: str | None = None
    message: _Message | None = None
    response: str | None = None
    thinking: str | None = None
    done: bool | None = None
    done_reason: str | None = None
    error: ErrorBody | str | None = None
    prompt_eval_count: int | float | None = None
    eval_count: int | float | None = None
    total_duration: int | float | None = None
    load_duration: int | float | None = None
    prompt_eval_duration: int | float | None = None
    eval_duration: int | float | None = None


_decode = Decoder(_Body)


def _phases(body: _Body) -> tuple[tuple[str, float], ...]:
    """Durations are nanoseconds (Ollama docs, api.md)."""
    named = (
        ("total", body.total_duration),
        ("load", body.load_duration),
        ("prefill", body.prompt_eval_duration),
        ("decode", body.eval_duration),
    )
    return tuple((name, nanos / 1e9) for name, nanos in named if nanos is not None and 0 <= nanos / 1e9 < MAX_PHASE)


def _error(told: ErrorBody | str) -> WireError:
    """Errors are sentences: only an identifier is kept of one."""
    return wire_error(told) if isinstance(told, ErrorBody) else wire_error(ErrorBody(type=bounded(told)))


class OllamaReader:
    """Lines of a stream, or one whole answer."""

    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)
        self._calls = 0

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if self._status >= 400:
            return Delta(error=error_of_body(frame.data, self._status, self._limited))
        try:
            body = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True)
        if body.error:
            return Delta(error=_error(body.error))
        return self._delta(body)

    def ended_well(self) -> bool:
        """Only a line that is `done` ends a stream."""
        return False

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        return Usage(reported.input_tokens, reported.output_tokens)

    def _delta(self, body: _Body) -> Delta:
        message = body.message or _Message(body.response, body.thinking)
        done = body.done is True
        tokens = ReportedUsage(count(body.prompt_eval_count), count(body.eval_count))
        answers = body.message is not None or body.response is not None
        return Delta(
            text=(TextPiece(0, message.content),) if message.content else (),
            reasoning=(TextPiece(0, message.thinking),) if message.thinking else (),
            tools=tuple(self._call(call.function or _Function()) for call in message.tool_calls or ()),
            finish=(Finish(0, body.done_reason),) if done and body.done_reason else (),
            choices=1 if answers else 0,
            model=body.model or None,
            usage=tokens if tokens != ReportedUsage() else None,
            phases=_phases(body),
            terminal=done,
        )

    def _call(self, function: _Function) -> ToolPiece:
        """Calls come whole; their indices, where given, start anew in each line."""
        number = self._calls
        self._calls = min(number + 1, MAX_CALLS)
        given = function.arguments
        arguments = given if isinstance(given, str) else json_text({} if given is None else given)
        return ToolPiece(0, number, function.name, arguments)


# ---------------------------------------------------------------- the request


class _RequestMessage(Struct, gc=False):
    role: str | None = None
    content: str | None = None


class _RequestFunction(Struct, gc=False):
    name: str | None = None
    parameters: Raw = Raw()


class _Tool(Struct, gc=False):
    function: _RequestFunction | None = None


class _Options(Struct, gc=False):
    num_predict: int | None = None


class _Request(Struct, gc=False):
    model: str | None = None
    stream: bool | None = None
    messages: list[_RequestMessage] | None = None
    system: str | None = None
    prompt: str | None = None
    format: Raw = Raw()
    tools: list[_Tool] | None = None
    options: _Options | None = None


_decode_request = Decoder(_Request)


def _expectation(wish: Raw) -> Expectation | None:
    """`format` is `"json"`, a schema, or empty."""
    written = raw_bytes(wish)
    if written is None or not written.startswith(b"{"):
        return Expectation("json") if written == b'"json"' else None
    return Expectation("json_schema", written)


def _turns(asked: _Request) -> list[Turn]:
    turns = [Turn("system", "text", asked.system)] if asked.system else []
    for message in asked.messages or ():
        role = message.role or "user"
        if message.content:
            turns.append(Turn(role, "tool_result" if role == "tool" else "text", message.content))
    if asked.prompt:
        turns.append(Turn("user", "text", asked.prompt))
    return turns


class Ollama:
    """POST /api/chat and /api/generate."""

    name = "ollama"
    operation = "chat"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        return request.method == "POST" and request.path.rstrip("/").endswith(("/api/chat", "/api/generate"))

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        asked = _decode_request(body)
        turns = _turns(asked)
        query, context = split(turns)
        functions = [tool.function for tool in asked.tools or () if tool.function is not None]
        limit = asked.options.num_predict if asked.options is not None else None
        return RequestFacts(
            model=asked.model or None,
            stream=asked.stream is not False,  # streams are what it sends unless told not to
            expectation=_expectation(asked.format),
            tool_schemas={
                function.name: schema
                for function in functions
                if function.name and (schema := raw_bytes(function.parameters)) is not None
            },
            query=query,
            context=context,
            prompt=prompt_facts(turns),
            max_output_tokens=limit if limit is not None and limit > 0 else None,  # -1 and -2 are no limits
        )

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return OllamaReader(response)


class OllamaEmbeddings:
    """POST /api/embed and /api/embeddings."""

    name = "ollama.embeddings"
    operation = "embeddings"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        return request.method == "POST" and request.path.rstrip("/").endswith(("/api/embed", "/api/embeddings"))

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        return RequestFacts(model=_decode_request(body).model or None)

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return OllamaReader(response)
