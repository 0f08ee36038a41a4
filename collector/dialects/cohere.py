"""Cohere's chat, v2 and v1, its legacy generate, and its embeddings."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Raw, Struct, field

from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, UnreadableError, count, json_text, raw_bytes
from collector.dialects.errors import error_of_body, says_limits
from collector.dialects.prompt import prompt_facts
from collector.model import (
    MAX_CALLS,
    MAX_CHOICES,
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
    WireError,
)

# ---------------------------------------------------------------- the response on the wire


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(Struct, gc=False):
    """A call of v2 (`function`) or of v1 (`name`, `parameters`)."""

    function: _Function | None = None
    name: str | None = None
    parameters: dict[str, Any] | str | None = None


class _Content(Struct, gc=False):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None


class _CitedSource(Struct, gc=False):
    """A document as the request gave it, or what a tool gave (`tool_output`)."""

    document: dict[str, Any] | None = None
    tool_output: dict[str, Any] | None = None


class _Citation(Struct, gc=False):
    sources: list[_CitedSource] | None = None


class _Message(Struct, gc=False):
    """Whole, its content and calls are lists; in an event, each is one object. The plan for tools is no answer."""

    content: list[_Content] | _Content | str | None = None
    tool_calls: list[_ToolCall] | _ToolCall | None = None
    tool_plan: str | None = None
    citations: list[_Citation] | _Citation | None = None


class _Tokens(Struct, gc=False):
    input_tokens: int | float | None = None
    output_tokens: int | float | None = None
    reasoning_tokens: int | float | None = None


class _Usage(Struct, gc=False):
    tokens: _Tokens | None = None
    billed_units: _Tokens | None = None
    cached_tokens: int | float | None = None


class _EventDelta(Struct, gc=False):
    message: _Message | None = None
    finish_reason: str | None = None
    usage: _Usage | None = None


class _CallDelta(Struct, gc=False):
    """A piece of a call in v1."""

    index: int | None = None
    name: str | None = None
    parameters: str | None = None


class _Response(Struct, gc=False):
    """The whole answer that v1 repeats at the end of a stream."""

    text: str | None = None
    meta: _Usage | None = None


class _Generation(Struct, gc=False):
    index: int | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Body(Struct, gc=False):
    """An event of a stream or a whole answer, of either version."""

    type: str | None = None
    event_type: str | None = None
    index: int | None = None
    delta: _EventDelta | None = None
    message: _Message | str | None = None
    finish_reason: str | None = None
    usage: _Usage | None = None
    text: str | None = None
    tool_calls: list[_ToolCall] | None = None
    call_delta: _CallDelta | None = field(default=None, name="tool_call_delta")
    meta: _Usage | None = None
    response: _Response | None = None
    is_finished: bool | None = None
    generations: list[_Generation] | None = None


_decode = Decoder(_Body)


class ChatReader:
    """Events of a stream (v2: server-sent events; v1: lines of JSON), or one whole answer."""

    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)
        self._calls: dict[int, int] = {}  # index on the wire → tool call
        self._billed = ReportedUsage()
        self._cached: int | None = None
        self._thought: int | None = None

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if len(frame.data) < 32 and frame.data.strip() == b"[DONE]":
            return Delta(terminal=True, marker=True)
        if self._status >= 400:
            return Delta(error=error_of_body(frame.data, self._status, self._limited))
        try:
            body = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True)
        if body.event_type is not None:
            return self._first_version(body, body.event_type)
        if body.type is not None or frame.event is not None:
            return self._event(body, body.type or frame.event or "")
        if body.is_finished is not None:
            return self._legacy_event(body)
        return self._whole(body)

    def ended_well(self) -> bool:
        """Only the last event or the marker after it ends a stream."""
        return False

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        """`tokens` are all that the model read and wrote, cached and thought ones among them."""
        into, out = reported.input_tokens, reported.output_tokens
        return Usage(
            self._billed.input_tokens if into is None else into,
            self._billed.output_tokens if out is None else out,
            self._cached,
            None,
            self._thought,
        )

    # ------------------------------------------------------------ v2

    def _event(self, body: _Body, kind: str) -> Delta:
        said = body.delta or _EventDelta()
        message = said.message or _Message()
        match kind:
            case "content-delta" | "content-start":
                return self._content(message)
            case "tool-plan-delta":
                return Delta(reasoning=(TextPiece(0, message.tool_plan),) if message.tool_plan else ())
            case "tool-call-start" | "tool-call-delta":
                calls = [message.tool_calls] if isinstance(message.tool_calls, _ToolCall) else message.tool_calls
                return Delta(tools=tuple(self._piece(body.index, call) for call in (calls or ())[:1]))
            case "citation-start":
                return Delta(sources=_quoted(message))
            case "message-start":
                return Delta(choices=1)
            case "message-end":
                return Delta(
                    choices=1,
                    finish=(Finish(0, said.finish_reason),) if said.finish_reason else (),
                    usage=self._reported(said.usage),
                    terminal=True,
                )
        return Delta()

    def _content(self, message: _Message) -> Delta:
        content = message.content
        if isinstance(content, str):
            return Delta(text=(TextPiece(0, content),) if content else ())
        parts = [content] if isinstance(content, _Content) else content or ()
        return Delta(
            text=tuple(TextPiece(0, part.text) for part in parts if part.text),
            reasoning=tuple(TextPiece(0, part.thinking) for part in parts if part.thinking),
        )

    def _piece(self, at: int | None, call: _ToolCall) -> ToolPiece:
        function = call.function or _Function()
        return ToolPiece(0, self._number(at or 0), function.name or None, function.arguments or "")

    def _number(self, at: int) -> int:
        number = self._calls.get(at, len(self._calls))
        if number < MAX_CALLS:
            self._calls[at] = number
        return number

    # ------------------------------------------------------------ v1

    def _first_version(self, body: _Body, kind: str) -> Delta:
        match kind:
            case "text-generation":
                return Delta(text=(TextPiece(0, body.text),) if body.text else ())
            case "tool-calls-chunk":
                piece = body.call_delta
                if piece is None:  # a plan for the tools
                    return Delta(reasoning=(TextPiece(0, body.text),) if body.text else ())
                number = self._number(piece.index or 0)
                return Delta(tools=(ToolPiece(0, number, piece.name or None, piece.parameters or ""),))
            case "tool-calls-generation":
                # The same calls as in the pieces before, whole.
                return Delta(tools=() if self._calls else _whole_calls(body.tool_calls))
            case "stream-start":
                return Delta(choices=1)
            case "stream-end":
                repeated = body.response or _Response()
                return Delta(
                    choices=1,
                    finish=(Finish(0, body.finish_reason),) if body.finish_reason else (),
                    usage=self._reported(repeated.meta),
                    full_text=(TextPiece(0, repeated.text),) if repeated.text else (),
                    terminal=True,
                )
        return Delta()

    def _legacy_event(self, body: _Body) -> Delta:
        """A line of a stream of `generate`."""
        choice = body.index or 0
        return Delta(
            text=(TextPiece(choice, body.text),) if body.text else (),
            finish=(Finish(choice, body.finish_reason),) if body.finish_reason else (),
            choices=choice + 1 if body.finish_reason and 0 <= choice < MAX_CHOICES else 0,
            usage=self._reported(body.response.meta) if body.response is not None else None,
            terminal=body.is_finished is True,
        )

    # ------------------------------------------------------------ whole answers

    def _whole(self, body: _Body) -> Delta:
        usage = self._reported(body.usage if body.usage is not None else body.meta)
        if body.generations is not None:
            numbered = [(at if one.index is None else one.index, one) for at, one in enumerate(body.generations)]
            return Delta(
                text=tuple(TextPiece(at, one.text) for at, one in numbered if one.text),
                finish=tuple(Finish(at, one.finish_reason) for at, one in numbered if one.finish_reason),
                choices=len(numbered),
                usage=usage,
            )
        finish = (Finish(0, body.finish_reason),) if body.finish_reason else ()
        if isinstance(body.message, _Message):
            said = self._content(body.message)
            plan = body.message.tool_plan
            calls = body.message.tool_calls
            return Delta(
                text=said.text,
                reasoning=((TextPiece(0, plan),) if plan else ()) + said.reasoning,
                tools=_whole_calls([calls] if isinstance(calls, _ToolCall) else calls),
                finish=finish,
                choices=1,
                usage=usage,
                sources=_quoted(body.message),
            )
        if isinstance(body.message, str) and body.text is None and not finish:
            return Delta(error=WireError(None, None, "unclassified"))
        return Delta(
            text=(TextPiece(0, body.text),) if body.text else (),
            tools=_whole_calls(body.tool_calls),
            finish=finish,
            choices=1 if finish or body.text is not None else 0,
            usage=usage,
        )

    def _reported(self, usage: _Usage | None) -> ReportedUsage | None:
        if usage is None:
            return None
        tokens, billed = usage.tokens or _Tokens(), usage.billed_units or _Tokens()
        self._billed = ReportedUsage(count(billed.input_tokens), count(billed.output_tokens))
        self._cached = count(usage.cached_tokens)
        self._thought = count(tokens.reasoning_tokens)
        return ReportedUsage(count(tokens.input_tokens), count(tokens.output_tokens))


def _quoted(message: _Message) -> Sources | None:
    """The documents that a v2 answer cites. They come whole: which of their words it rests on is not told."""
    listed = [message.citations] if isinstance(message.citations, _Citation) else message.citations or []
    sources = (source for citation in listed for source in citation.sources or ())
    texts = (_document(source.tool_output if source.document is None else source.document) for source in sources)
    quoted = tuple(dict.fromkeys(text for text in texts if text))
    return Sources(quoted) if quoted else None


def _whole_calls(calls: list[_ToolCall] | None) -> tuple[ToolPiece, ...]:
    found = []
    for number, call in enumerate(calls or ()):
        name, given = call.name, call.parameters
        if call.function is not None:
            name, given = call.function.name, call.function.arguments
        arguments = given if isinstance(given, str) else json_text({} if given is None else given)
        found.append(ToolPiece(0, number, name, arguments))
    return tuple(found)


# ---------------------------------------------------------------- the request


class _RequestDocument(Struct, gc=False):
    data: dict[str, Any] | str | None = None


class _RequestPart(Struct, gc=False):
    type: str | None = None
    text: str | None = None
    document: _RequestDocument | None = None


class _RequestMessage(Struct, gc=False):
    """A message of v2, or a turn of v1's history, whose roles are in capitals."""

    role: str | None = None
    content: str | list[_RequestPart] | None = None
    message: str | None = None
    tool_results: Any = None


class _RequestFunction(Struct, gc=False):
    name: str | None = None
    parameters: Raw = Raw()


class _Parameter(Struct, gc=False):
    type: str | None = None
    required: bool | None = None


class _Tool(Struct, gc=False):
    function: _RequestFunction | None = None
    name: str | None = None
    parameter_definitions: dict[str, _Parameter] | None = None


class _Format(Struct, gc=False):
    type: str | None = None
    schema: Raw = Raw()
    json_schema: Raw = Raw()


class _ToolResult(Struct, gc=False):
    outputs: Any = None


class _Request(Struct, gc=False):
    model: str | None = None
    stream: bool | None = None
    messages: list[_RequestMessage] | None = None
    message: str | None = None
    prompt: str | None = None
    preamble: str | None = None
    chat_history: list[_RequestMessage] | None = None
    documents: list[Any] | None = None
    tool_results: list[_ToolResult] | None = None
    tools: list[_Tool] | None = None
    response_format: _Format | None = None
    max_tokens: int | None = None


_decode_request = Decoder(_Request)
_ROLES = {"chatbot": "assistant", "tool": "tool", "system": "system", "assistant": "assistant"}
# The types of v1's parameters, which are Python's (docs.cohere.com, tool use v1).
_PYTHON_TYPES = {
    "str": "string", "string": "string", "int": "integer", "integer": "integer", "float": "number", "number": "number",
    "bool": "boolean", "boolean": "boolean", "list": "array", "array": "array", "dict": "object", "object": "object",
}  # fmt: skip


def _document(told: Any) -> str:
    """A document's text: a string, or the text of its fields."""
    if isinstance(told, str):
        return told
    if not isinstance(told, dict):
        return ""
    inner = told.get("data", told)
    if not isinstance(inner, dict):
        return inner if isinstance(inner, str) else ""
    for key in ("text", "snippet", "content"):
        if isinstance(inner.get(key), str):
            return str(inner[key])
    return "\n".join(value for key, value in inner.items() if isinstance(value, str) and key != "id")


def _message_turns(message: _RequestMessage) -> list[Turn]:
    role = _ROLES.get((message.role or "user").lower(), "user")
    kind = "tool_result" if role == "tool" else "text"
    content = message.content if message.content is not None else message.message
    if isinstance(content, str):
        return [Turn(role, kind, content)]
    turns: list[Turn] = []
    for part in content or ():
        if part.document is not None:
            turns.append(Turn(role, "document", _document(part.document.data)))
        elif part.text:
            turns.append(Turn(role, kind, part.text))
    if message.tool_results is not None:
        turns.append(Turn("tool", "tool_result", json_text(message.tool_results)))
    return turns


def _turns(asked: _Request) -> list[Turn]:
    turns = [Turn("system", "text", asked.preamble)] if asked.preamble else []
    turns += [Turn("system", "document", text) for text in map(_document, asked.documents or ()) if text]
    for message in [*(asked.chat_history or ()), *(asked.messages or ())]:
        turns += _message_turns(message)
    asking = asked.message if asked.message is not None else asked.prompt
    if asking:
        turns.append(Turn("user", "text", asking))
    for result in asked.tool_results or ():
        turns.append(Turn("tool", "tool_result", json_text(result.outputs)))
    return turns


def _expectation(wish: _Format | None) -> Expectation | None:
    if wish is None or wish.type != "json_object":
        return None
    schema = raw_bytes(wish.json_schema)
    schema = raw_bytes(wish.schema) if schema is None else schema
    return Expectation("json" if schema is None else "json_schema", schema)


def _tool_schemas(tools: list[_Tool] | None) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for tool in tools or ():
        if tool.function is not None:
            schema = raw_bytes(tool.function.parameters)
            if tool.function.name and schema is not None:
                found[tool.function.name] = schema
        elif tool.name and tool.parameter_definitions is not None:
            found[tool.name] = _definitions(tool.parameter_definitions)
    return found


def _definitions(parameters: dict[str, _Parameter]) -> bytes:
    """v1's parameter definitions as JSON Schema; a type that is not known says nothing."""
    properties: dict[str, Any] = {}
    for name, parameter in parameters.items():
        kind = _PYTHON_TYPES.get((parameter.type or "").split("[", 1)[0].strip().lower())
        properties[name] = {"type": kind} if kind is not None else {}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    required = [name for name, parameter in parameters.items() if parameter.required]
    if required:
        schema["required"] = required
    return json.dumps(schema, separators=(",", ":")).encode()


class CohereChat:
    """POST /v2/chat, /v1/chat and /v1/generate."""

    name = "cohere.chat"
    operation = "chat"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        path = request.path.rstrip("/")
        if request.method != "POST" or not path.endswith(("/v2/chat", "/v1/chat", "/v1/generate")):
            return False
        return path.endswith("/v2/chat") or request.hint == "cohere" or "cohere" in request.host

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        asked = _decode_request(body)
        turns = _turns(asked)
        query, context = split(turns)
        return RequestFacts(
            model=asked.model or None,
            stream=asked.stream is True,
            expectation=_expectation(asked.response_format),
            tool_schemas=_tool_schemas(asked.tools),
            query=query,
            context=context,
            prompt=prompt_facts(turns),
            max_output_tokens=asked.max_tokens,
        )

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return ChatReader(response)


# ---------------------------------------------------------------- embeddings


class _Embedded(Struct, gc=False):
    meta: _Usage | None = None


_decode_embedded = Decoder(_Embedded)


class EmbedReader:
    """Vectors, of which only the counts are read."""

    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)
        self._billed: int | None = None

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if self._status >= 400:
            return Delta(error=error_of_body(frame.data, self._status, self._limited))
        try:
            told = _decode_embedded(frame.data).meta or _Usage()
        except UnreadableError:
            return Delta(malformed=True)
        self._billed = count((told.billed_units or _Tokens()).input_tokens)
        tokens = count((told.tokens or _Tokens()).input_tokens)
        return Delta(usage=ReportedUsage(tokens) if tokens is not None else None)

    def ended_well(self) -> bool:
        """There are no streams of embeddings."""
        return True

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        """What is billed is what was embedded."""
        return Usage(self._billed if reported.input_tokens is None else reported.input_tokens)


class CohereEmbeddings:
    """POST /v2/embed and /v1/embed."""

    name = "cohere.embeddings"
    operation = "embeddings"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        return request.method == "POST" and request.path.rstrip("/").endswith(("/v2/embed", "/v1/embed"))

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        return RequestFacts(model=_decode_request(body).model or None)

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return EmbedReader(response)
