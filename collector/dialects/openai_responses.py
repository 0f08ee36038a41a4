"""OpenAI responses, also as Azure, xAI, DeepSeek, LM Studio and Bedrock's own front end speak them."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, UnreadableError, count, json_text, raw_bytes
from collector.dialects.errors import ErrorBody, error_of_body, says_limits, wire_error
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
    WireError,
)

DONE = b"[DONE]"
MAX_ID = 128  # characters of an item's id that are compared
MAX_PARTS = 1024  # parts of an answer that are told apart
MAX_REPEATED = 1024 * 1024  # characters of repeated text that are kept until the end

# ---------------------------------------------------------------- the response on the wire


class _Part(Struct, gc=False):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None


class _SearchResult(Struct, gc=False):
    text: str | None = None


class _Item(Struct, gc=False):
    """What the model puts out: a message, its reasoning, a call. What a server-side tool does is no call to the client.

    `input` is what a custom tool is called with: text of any kind.
    """

    type: str | None = None
    id: str | None = None
    name: str | None = None
    arguments: str | dict[str, Any] | None = None
    input: str | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None
    results: list[_SearchResult] | None = None  # of a file search, where the request asked to include them


class _InputDetails(Struct, gc=False):
    cached_tokens: int | float | None = None
    cache_creation_tokens: int | float | None = None
    cache_write_tokens: int | float | None = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: int | float | None = None


class _Usage(Struct, gc=False):
    input_tokens: int | float | None = None
    output_tokens: int | float | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Incomplete(Struct, gc=False):
    reason: str | None = None


class _Response(Struct, gc=False):
    model: str | None = None
    status: str | None = None
    output: list[_Item] | None = None
    usage: _Usage | None = None
    error: ErrorBody | None = None
    incomplete_details: _Incomplete | None = None


class _Body(Struct, gc=False):
    """An event of a stream, or a whole response."""

    type: str | None = None
    delta: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    item_id: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    input: str | None = None
    item: _Item | None = None
    response: _Response | None = None
    code: str | int | None = None
    object: str | None = None
    model: str | None = None
    status: str | None = None
    output: list[_Item] | None = None
    usage: _Usage | None = None
    error: ErrorBody | str | None = None
    incomplete_details: _Incomplete | None = None


_decode = Decoder(_Body)

# Events after which nothing follows. Some servers end with `response.done` for every status.
_ENDS = frozenset({
    "response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done",
})  # fmt: skip
_REASONING = frozenset({
    "response.reasoning_text.delta", "response.reasoning_summary_text.delta", "response.reasoning.delta",
    "response.reasoning_summary.delta",
})  # fmt: skip
_ARGUMENTS = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
_ARGUMENTS_DONE = frozenset({"response.function_call_arguments.done", "response.custom_tool_call_input.done"})
_CALLS = frozenset({"function_call", "custom_tool_call"})


def _reported(usage: _Usage | None) -> ReportedUsage | None:
    if usage is None:
        return None
    details, made = usage.input_tokens_details, usage.output_tokens_details
    return ReportedUsage(
        count(usage.input_tokens),
        count(usage.output_tokens),
        count(details.cached_tokens) if details else None,
        count(details.cache_creation_tokens) if details else None,
        count(made.reasoning_tokens) if made else None,
        count(details.cache_write_tokens) if details else None,
    )


class ResponsesReader:
    """Events of a stream, or one whole response. Everything it says is choice 0."""

    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)
        self._calls: dict[int | str, int] = {}  # output index, or the item's id → number of the tool call
        self._made = 0
        self._given: set[int] = set()  # tool calls whose arguments have begun to come
        self._streamed: set[tuple[int, int]] = set()  # parts whose text has begun to come
        self._refused: set[tuple[int, int]] = set()
        self._spoken = False  # whether anything of the output has come before the end
        self._repeated: list[str] | None = []  # texts told again; None once they are more than is kept
        self._repeated_chars = 0

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if len(frame.data) < 32 and frame.data.strip() == DONE:
            return Delta(terminal=True, marker=True)
        if self._status >= 400:
            return Delta(error=error_of_body(frame.data, self._status, self._limited))
        try:
            body = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True, error=wire_error(ErrorBody()) if frame.event == "error" else None)
        return self._delta(body, body.type or frame.event or "")

    def ended_well(self) -> bool:
        """Only an event that says so ends a stream."""
        return False

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        """Cached tokens are inside the input and reasoning is inside the output, with every provider seen."""
        return Usage(
            reported.input_tokens,
            reported.output_tokens,
            reported.cached_input_tokens,
            reported.cache_write_tokens
            if reported.cache_creation_input_tokens is None
            else reported.cache_creation_input_tokens,
            reported.reasoning_tokens,
        )

    # ------------------------------------------------------------ events

    def _delta(self, body: _Body, kind: str) -> Delta:
        part = (-1 if body.output_index is None else body.output_index, body.content_index or 0)
        match kind:
            case "response.output_text.delta":
                self._begin(self._streamed, part)
                return Delta(text=(TextPiece(0, body.delta),)) if body.delta else Delta()
            case "response.refusal.delta":
                self._begin(self._refused, part)
                return Delta(refusal=(TextPiece(0, body.delta),)) if body.delta else Delta()
            case "response.output_text.done":
                return self._text_done(part, body.text or "")
            case "response.refusal.done":
                told = _has_come(self._refused, part)
                return Delta(refusal=(TextPiece(0, body.refusal),)) if body.refusal and not told else Delta()
            case "response.output_item.added" | "response.output_item.done":
                return self._item(body.item or _Item(), body.output_index, ended=kind.endswith("done"))
            case "error":
                return Delta(error=_event_error(body), terminal=True)
            case "ping" | "keepalive":
                return Delta(ping=True)
        if kind in _REASONING:
            self._spoken = True
            return Delta(reasoning=(TextPiece(0, body.delta),)) if body.delta else Delta()
        if kind in _ARGUMENTS:
            return self._arguments(body, body.delta or "")
        if kind in _ARGUMENTS_DONE:
            return self._arguments_done(body)
        if kind in _ENDS or body.response is not None:
            return self._state(body.response or _Response(), kind)
        if body.object in ("response", "response.compaction") or body.output is not None:
            return self._whole(body)
        if body.error is not None:
            return Delta(error=_event_error(body), terminal=True)
        return Delta()

    def _begin(self, parts: set[tuple[int, int]], part: tuple[int, int]) -> None:
        self._spoken = True
        if len(parts) < MAX_PARTS:
            parts.add(part)

    def _text_done(self, part: tuple[int, int], text: str) -> Delta:
        """A part's text told again, or for the first time by those who stream no pieces of it."""
        self._repeat(text)
        if not text or _has_come(self._streamed, part):
            return Delta()
        self._begin(self._streamed, part)
        return Delta(text=(TextPiece(0, text),))

    def _repeat(self, text: str) -> None:
        if self._repeated is None:
            return
        self._repeated.append(text)
        self._repeated_chars += len(text)
        if self._repeated_chars > MAX_REPEATED or len(self._repeated) > MAX_PARTS:
            self._repeated = None

    def _item(self, item: _Item, index: int | None, ended: bool) -> Delta:
        if item.type == "file_search_call":
            return Delta(sources=_retrieved([item]))
        if item.type not in _CALLS:
            return Delta()
        self._spoken = True
        name = (item.id or "")[:MAX_ID]
        key: int | str = index if index is not None else name
        known = self._calls.get(key)
        if known is None:
            if self._made >= MAX_CALLS:
                return Delta(tools=(ToolPiece(0, MAX_CALLS, item.name),))
            known = self._calls[key] = self._made
            self._made += 1
            if name:
                self._calls.setdefault(name, known)
        elif not ended or known in self._given:
            return Delta()
        arguments = _arguments_of(item) if ended else ""
        if arguments:
            self._given.add(known)
        return Delta(tools=(ToolPiece(0, known, item.name, arguments),)) if item.name or arguments else Delta()

    def _call_of(self, body: _Body) -> int | None:
        known = self._calls.get(body.output_index) if body.output_index is not None else None
        return self._calls.get((body.item_id or "")[:MAX_ID]) if known is None else known

    def _arguments(self, body: _Body, piece: str) -> Delta:
        call = self._call_of(body)
        if call is None or not piece:
            return Delta()
        self._given.add(call)
        return Delta(tools=(ToolPiece(0, call, None, piece),))

    def _arguments_done(self, body: _Body) -> Delta:
        call = self._call_of(body)
        if call is None or call in self._given:
            return Delta()
        return self._arguments(body, body.arguments or body.input or "")

    def _state(self, response: _Response, kind: str) -> Delta:
        """The response as a whole, which events at the start and at the end of a stream carry."""
        model, usage = response.model or None, _reported(response.usage)
        if kind not in _ENDS:
            return Delta(choices=1, model=model, usage=usage)
        status = response.status or kind.removeprefix("response.").replace("done", "completed")
        said = Delta() if self._spoken else _output(response.output or [])
        repeated = "".join(self._repeated) if self._repeated is not None else ""
        if self._repeated == [] and self._spoken:
            repeated = "".join(piece.text for piece in _output(response.output or []).text)
        return replace(
            said,
            choices=1,
            finish=(Finish(0, status),),
            model=model,
            usage=usage,
            error=_failure(response.error, status),
            blocked=_is_blocked(response.incomplete_details),
            terminal=True,
            full_text=(TextPiece(0, repeated),) if repeated else (),
        )

    def _whole(self, body: _Body) -> Delta:
        return replace(
            _output(body.output or []),
            choices=1,
            finish=(Finish(0, body.status),) if body.status else (),
            model=body.model or None,
            usage=_reported(body.usage),
            error=_failure(body.error if isinstance(body.error, ErrorBody) else None, body.status),
            blocked=_is_blocked(body.incomplete_details),
            terminal=True,
        )


def _has_come(parts: set[tuple[int, int]], part: tuple[int, int]) -> bool:
    """Whether pieces of a part have come, as far as that is known: some name no part, and not all parts are kept."""
    return part in parts or len(parts) >= MAX_PARTS or any(index == -1 for index, _ in parts)


def _output(items: list[_Item]) -> Delta:
    """What whole items say."""
    text, refusal, reasoning = [], [], []
    tools: list[ToolPiece] = []
    for item in items:
        if item.type in _CALLS:
            tools.append(ToolPiece(0, len(tools), item.name, _arguments_of(item)))
        elif item.type == "reasoning":
            thoughts = [*(item.summary or ()), *(item.content or ())]
            reasoning += [TextPiece(0, part.text) for part in thoughts if part.text]
        elif item.type == "message":
            for part in item.content or ():
                if part.refusal:
                    refusal.append(TextPiece(0, part.refusal))
                elif part.text and part.type in (None, "output_text", "text"):
                    text.append(TextPiece(0, part.text))
    return Delta(
        text=tuple(text),
        reasoning=tuple(reasoning),
        refusal=tuple(refusal),
        tools=tuple(tools),
        sources=_retrieved(items),
    )


def _retrieved(items: list[_Item]) -> Sources | None:
    """What a file search found."""
    found = (result.text for item in items if item.type == "file_search_call" for result in item.results or ())
    texts = tuple(text for text in found if text)
    return Sources(retrieved=texts) if texts else None


def _arguments_of(item: _Item) -> str:
    if isinstance(item.arguments, dict):
        return json_text(item.arguments)
    return item.arguments or item.input or ""


def _event_error(body: _Body) -> WireError:
    """`{"type": "error", "code": …}`, or the same in an envelope."""
    if isinstance(body.error, ErrorBody):
        return wire_error(body.error)
    return wire_error(ErrorBody(type=body.error if isinstance(body.error, str) else None, code=body.code))


def _failure(error: ErrorBody | None, status: str | None) -> WireError | None:
    if error is not None and error.says_something:
        return wire_error(error)
    return WireError(None, None, "server_error") if status == "failed" else None


def _is_blocked(details: _Incomplete | None) -> bool:
    return details is not None and details.reason == "content_filter"


# ---------------------------------------------------------------- the request


class _RequestPart(Struct, gc=False):
    type: str | None = None
    text: str | None = None


class _InputItem(Struct, gc=False):
    type: str | None = None
    role: str | None = None
    content: str | list[_RequestPart] | None = None
    output: str | list[_RequestPart] | None = None
    results: list[_SearchResult] | None = None


class _Format(Struct, gc=False):
    type: str | None = None
    name: str | None = None
    schema: Raw = Raw()


class _Text(Struct, gc=False):
    format: _Format | None = None


class _Tool(Struct, gc=False):
    type: str | None = None
    name: str | None = None
    parameters: Raw = Raw()


class _Request(Struct, gc=False):
    model: str | None = None
    stream: bool | None = None
    instructions: str | None = None
    input: str | list[_InputItem] | None = None
    text: _Text | None = None
    tools: list[_Tool] | None = None
    max_output_tokens: int | None = None


_decode_request = Decoder(_Request)


def _texts(content: str | list[_RequestPart] | None) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part.text for part in content or () if part.text]


def _turns(asked: _Request) -> list[Turn]:
    turns = [Turn("system", "text", asked.instructions)] if asked.instructions else []
    if isinstance(asked.input, str):
        return [*turns, Turn("user", "text", asked.input)]
    for item in asked.input or ():
        if item.type == "file_search_call":
            turns += [Turn("tool", "tool_result", result.text) for result in item.results or () if result.text]
        elif item.type is not None and item.type.endswith("_output"):
            turns += [Turn("tool", "tool_result", text) for text in _texts(item.output)]
        elif item.type in (None, "message"):
            role = "system" if item.role == "developer" else item.role or "user"
            turns += [Turn(role, "text", text) for text in _texts(item.content)]
    return turns


def _expectation(wish: _Format | None) -> Expectation | None:
    if wish is None or wish.type not in ("json_object", "json_schema"):
        return None
    schema = raw_bytes(wish.schema) if wish.type == "json_schema" else None
    return Expectation("json") if schema is None else Expectation("json_schema", schema, wish.name)


class OpenAiResponses:
    """POST …/responses."""

    name = "openai.responses"
    operation = "chat"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        return request.method == "POST" and request.path.rstrip("/").endswith("/responses")

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        asked = _decode_request(body)
        turns = _turns(asked)
        query, context = split(turns)
        return RequestFacts(
            model=asked.model or None,
            stream=asked.stream is True,
            expectation=_expectation(asked.text.format if asked.text is not None else None),
            tool_schemas={
                tool.name: schema
                for tool in asked.tools or ()
                if tool.name and tool.type == "function" and (schema := raw_bytes(tool.parameters)) is not None
            },
            query=query,
            context=context,
            prompt=prompt_facts(turns),
            max_output_tokens=asked.max_output_tokens,
        )

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return ResponsesReader(response)
