"""OpenAI realtime events over a WebSocket, also as Azure speaks them."""

from __future__ import annotations

import math
import re
from collections import deque

from msgspec import Raw, Struct

from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, UnreadableError, count, raw_bytes
from collector.dialects.errors import ErrorBody, bounded, error_of_body, kind_of, says_limits, wire_error
from collector.model import (
    MAX_CALLS,
    MAX_CHOICES,
    Delta,
    Finish,
    Frame,
    RateLimit,
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

MAX_ID = 128  # characters of a response's id that are compared
MAX_HEARD = 1024 * 1024  # bytes of a client's event that is read
MAX_TURN = 65_536  # characters kept of one turn of the conversation
MAX_TURNS = 64
MAX_TALK = 262_144  # characters kept of all of them
MAX_LIMITS = 16
MAX_NAME = 256  # characters of the name of a model or a tool
MAX_SCHEMAS = 1024 * 1024  # bytes kept of the schemas of all tools
AUDIO = b"input_audio_buffer.append"  # most of what a client sends

# ---------------------------------------------------------------- what the server says


class _Part(Struct, gc=False):
    """Of an item that was said: `text`, or the `transcript` of what was spoken."""

    type: str | None = None
    text: str | None = None
    transcript: str | None = None


class _Item(Struct, gc=False):
    type: str | None = None
    id: str | None = None
    role: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | None = None
    content: list[_Part] | None = None


class _InputDetails(Struct, gc=False):
    cached_tokens: int | float | None = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: int | float | None = None


class _Usage(Struct, gc=False):
    input_tokens: int | float | None = None
    output_tokens: int | float | None = None
    input_token_details: _InputDetails | None = None
    output_token_details: _OutputDetails | None = None


class _StatusDetails(Struct, gc=False):
    reason: str | None = None
    error: ErrorBody | None = None


class _Response(Struct, gc=False):
    id: str | None = None
    model: str | None = None
    status: str | None = None
    status_details: _StatusDetails | None = None
    output: list[_Item] | None = None
    usage: _Usage | None = None


class _ServedSession(Struct, gc=False):
    model: str | None = None


class _Limit(Struct, gc=False):
    name: str | None = None
    limit: float | None = None
    remaining: float | None = None
    reset_seconds: float | None = None


class _Event(Struct, gc=False):
    type: str | None = None
    response_id: str | None = None
    item_id: str | None = None
    output_index: int | None = None
    delta: str | None = None
    transcript: str | None = None
    arguments: str | None = None
    item: _Item | None = None
    response: _Response | None = None
    session: _ServedSession | None = None
    rate_limits: list[_Limit] | None = None
    error: ErrorBody | None = None


_decode = Decoder(_Event)

# Names before and since general availability.
_TEXTS = frozenset({
    "response.text.delta", "response.output_text.delta", "response.audio_transcript.delta",
    "response.output_audio_transcript.delta",
})  # fmt: skip
_SPOKEN_PARTS = frozenset({None, "text", "output_text", "audio", "output_audio"})
_WELL_CLOSED = frozenset({None, "1000", "1001", "1005"})  # 1001 also ends a session that has had its time
_CLOSED_KINDS = {
    "1002": "invalid_request", "1003": "invalid_request", "1007": "invalid_request", "1008": "invalid_request",
    "1009": "invalid_request", "1010": "invalid_request", "1011": "server_error", "1012": "overloaded",
    "1013": "overloaded", "1014": "server_error",
}  # fmt: skip
_SCOPE = re.compile(r"[a-z][a-z_]{0,39}")


def _add(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other


def _sum(so_far: ReportedUsage, usage: _Usage) -> ReportedUsage:
    details, made = usage.input_token_details, usage.output_token_details
    return ReportedUsage(
        _add(so_far.input_tokens, count(usage.input_tokens)),
        _add(so_far.output_tokens, count(usage.output_tokens)),
        _add(so_far.cached_input_tokens, count(details.cached_tokens) if details else None),
        None,
        _add(so_far.reasoning_tokens, count(made.reasoning_tokens) if made else None),
    )


class _Running:
    """A response that has begun and is not done."""

    __slots__ = ("calls", "given", "number", "spoken")

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls: dict[int | str, int] = {}  # output index, or the item's id → number of the tool call
        self.given: set[int] = set()  # tool calls whose arguments have begun to come
        self.spoken = False  # whether any of its text has come


class RealtimeReader:
    """Events of one connection, which may bear many responses: each of them is a choice, in the order they began.

    Each `response.done` has the usage of that response alone, so here usage is the sum over all of them. Audio is not
    read, but its transcript is, as text. An `error` event makes the exchange one with an error, though the connection
    may go on. The connection is whole when every response that began is done. What transcribing the user's own words
    costs is told apart from the responses and left out.
    """

    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)
        self._running: dict[str, _Running] = {}
        self._numbers: dict[str, int] = {}  # responses by id, ended ones too
        self._last = ""  # the id of the response that began last
        self._made = 0
        self._usage = ReportedUsage()
        self._heard = _Heard()

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind == "close":
            return _closed(frame)
        if frame.kind != "data" or frame.event == "binary":
            return None
        if self._status >= 400:
            return Delta(error=error_of_body(frame.data, self._status, self._limited))
        try:
            event = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True)
        return self._delta(event, event.type or "")

    def ended_well(self) -> bool:
        """Nothing ends a connection but its close; no response may be left half told."""
        return not self._running

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        """Cached tokens are inside the input, and audio and reasoning inside the output."""
        return Usage(
            reported.input_tokens,
            reported.output_tokens,
            reported.cached_input_tokens,
            None,
            reported.reasoning_tokens,
        )

    def hear(self, frame: Frame) -> bool:
        """Whether the client's event asks for a response."""
        return frame.kind == "data" and frame.event is None and self._heard.take(frame.data)

    def asked(self) -> RequestFacts:
        """What was asked; query and context only where one response can have been the answer."""
        return self._heard.facts(self._made <= 1)

    # ------------------------------------------------------------ events

    def _delta(self, event: _Event, kind: str) -> Delta:
        if kind in _TEXTS:
            return self._text(event)
        match kind:
            case "response.function_call_arguments.delta":
                return self._arguments(event, event.delta)
            case "response.function_call_arguments.done":
                return self._arguments(event, event.arguments, whole=True)
            case "response.output_item.added" | "response.output_item.done":
                return self._item(event, event.item or _Item(), ended=kind.endswith("done"))
            case "response.created":
                response = event.response or _Response()
                begun = self._begin(response.id or "")
                return Delta(choices=begun.number + 1, model=response.model or None, begins=True)
            case "response.done":
                return self._done(event.response or _Response())
            case "session.created" | "session.updated":
                return Delta(model=event.session.model or None) if event.session is not None else Delta()
            case "rate_limits.updated":
                return Delta(limits=_limits(event.rate_limits or []))
            case "conversation.item.input_audio_transcription.completed":
                self._heard.say("user", event.transcript or "")
                return Delta()
            case "error":
                return Delta(error=wire_error(event.error or ErrorBody()))
        return Delta()

    def _begin(self, name: str) -> _Running:
        """The response of this id; it begins if it is not known. Of too many only the number is kept."""
        name = name[:MAX_ID]
        running = self._running.get(name)
        if running is not None:
            return running
        if name in self._numbers:
            return _Running(self._numbers[name])
        running = _Running(self._made)
        self._made += 1
        self._last = name
        if len(self._numbers) < MAX_CHOICES:
            self._running[name] = running
            if name:
                self._numbers[name] = running.number
        return running

    def _of(self, event: _Event) -> _Running:
        return self._begin(self._last if event.response_id is None else event.response_id)

    def _text(self, event: _Event) -> Delta:
        response = self._of(event)
        if not event.delta:
            return Delta()
        response.spoken = True
        return Delta(text=(TextPiece(response.number, event.delta),))

    def _item(self, event: _Event, item: _Item, ended: bool) -> Delta:
        if item.type != "function_call":
            return Delta()
        response = self._of(event)
        key: int | str = event.output_index if event.output_index is not None else (item.id or "")[:MAX_ID]
        known = response.calls.get(key)
        if known is None:
            known = len(set(response.calls.values()))
            if known >= MAX_CALLS:
                return Delta(tools=(ToolPiece(response.number, MAX_CALLS, item.name),))
            response.calls[key] = known
            if item.id:
                response.calls.setdefault(item.id[:MAX_ID], known)
        elif not ended or known in response.given:
            return Delta()
        arguments = item.arguments or "" if ended else ""
        if arguments:
            response.given.add(known)
        if not (item.name or arguments):
            return Delta()
        return Delta(tools=(ToolPiece(response.number, known, item.name, arguments),))

    def _arguments(self, event: _Event, piece: str | None, whole: bool = False) -> Delta:
        response = self._of(event)
        known = response.calls.get(event.output_index) if event.output_index is not None else None
        known = response.calls.get((event.item_id or "")[:MAX_ID]) if known is None else known
        if known is None or not piece or (whole and known in response.given):
            return Delta()
        response.given.add(known)
        return Delta(tools=(ToolPiece(response.number, known, None, piece),))

    def _done(self, told: _Response) -> Delta:
        name = (told.id or self._last)[:MAX_ID]
        if name in self._numbers and name not in self._running:
            return Delta()  # told again
        response = self._begin(name)
        self._running.pop(name, None)
        if told.usage is not None:
            self._usage = _sum(self._usage, told.usage)
        number, status = response.number, told.status or "completed"
        details = told.status_details or _StatusDetails()
        error = None
        if details.error is not None and details.error.says_something:
            error = wire_error(details.error)
        elif status == "failed":
            error = WireError(None, None, "server_error")
        text = _said(told.output or [])
        return Delta(
            text=(TextPiece(number, text),) if text and not response.spoken else (),
            tools=() if response.calls else _calls(told.output or [], number),
            full_text=(TextPiece(number, text),) if text and response.spoken and status == "completed" else (),
            choices=number + 1,
            finish=(Finish(number, status),),
            model=told.model or None,
            usage=self._usage if told.usage is not None else None,
            error=error,
            blocked=details.reason == "content_filter",
        )


def _said(items: list[_Item]) -> str:
    parts = [part for item in items if item.type == "message" for part in item.content or ()]
    return "".join(part.text or part.transcript or "" for part in parts if part.type in _SPOKEN_PARTS)


def _calls(items: list[_Item], number: int) -> tuple[ToolPiece, ...]:
    calls = [item for item in items if item.type == "function_call"][:MAX_CALLS]
    return tuple(ToolPiece(number, index, call.name, call.arguments or "") for index, call in enumerate(calls))


def _limits(told: list[_Limit]) -> tuple[RateLimit, ...]:
    found = []
    for one in told[:MAX_LIMITS]:
        if one.name is not None and _SCOPE.fullmatch(one.name):
            numbers = [_amount(value) for value in (one.limit, one.remaining, one.reset_seconds)]
            if numbers != [None, None, None]:
                found.append(RateLimit(one.name, None, numbers[0], numbers[1], None, numbers[2]))
    return tuple(found)


def _amount(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) and 0 <= value < 1e15 else None


def _closed(frame: Frame) -> Delta | None:
    """What the server's close says: a code of RFC 6455 (7.4.1) or of its own, and a reason such as `type.code`."""
    if frame.event in _WELL_CLOSED:
        return None
    reason = bounded(frame.data.decode("utf-8", "replace"))
    kind = kind_of(None, reason)
    if kind == "unclassified":
        kind = _CLOSED_KINDS.get(frame.event or "", kind)
    return Delta(error=WireError(reason, frame.event, kind))


# ---------------------------------------------------------------- what the client says


class _Tool(Struct, gc=False):
    type: str | None = None
    name: str | None = None
    parameters: Raw = Raw()


class _Wish(Struct, gc=False):
    """A session, or one response, as the client wants it."""

    model: str | None = None
    instructions: str | None = None
    tools: list[_Tool] | None = None
    max_response_output_tokens: int | str | None = None
    max_output_tokens: int | str | None = None
    input: list[_Item] | None = None


class _ClientEvent(Struct, gc=False):
    type: str | None = None
    item: _Item | None = None
    session: _Wish | None = None
    response: _Wish | None = None


_decode_client = Decoder(_ClientEvent)


class _Heard:
    """What the client has said so far, bounded: the last turns, the tools, the wishes."""

    def __init__(self) -> None:
        self._turns: deque[Turn] = deque()
        self._chars = 0
        self._instructions: str | None = None
        self._tools: dict[str, bytes] = {}
        self._schemas = 0  # bytes of them
        self._model: str | None = None
        self._most: int | None = None

    def take(self, data: bytes) -> bool:
        """Whether the event asks for a response."""
        if len(data) > MAX_HEARD or AUDIO in data[:200]:
            return False
        try:
            event = _decode_client(data)
        except UnreadableError:
            return False
        match event.type:
            case "session.update":
                self._wish(event.session or _Wish())
            case "conversation.item.create":
                self._item(event.item or _Item())
            case "response.create":
                self._wish(event.response or _Wish())
                return True
        return False

    def say(self, role: str, text: str, kind: str = "text") -> None:
        if not text:
            return
        turn = Turn(role, kind, text[:MAX_TURN])
        self._turns.append(turn)
        self._chars += len(turn.text)
        while self._chars > MAX_TALK or len(self._turns) > MAX_TURNS:
            self._chars -= len(self._turns.popleft().text)

    def facts(self, one_answer: bool) -> RequestFacts:
        turns = [Turn("system", "text", self._instructions)] if self._instructions else []
        query, context = split([*turns, *self._turns]) if one_answer else (None, ())
        return RequestFacts(
            model=self._model,
            stream=True,
            tool_schemas=dict(self._tools),
            query=query,
            context=context,
            max_output_tokens=self._most,
        )

    def _item(self, item: _Item) -> None:
        if item.type == "function_call_output":
            self.say("tool", item.output or "", "tool_result")
        elif item.type == "message":
            for part in item.content or ():
                self.say(item.role or "user", part.text or part.transcript or "")

    def _wish(self, wish: _Wish) -> None:
        self._model = wish.model[: MAX_NAME + 1] if wish.model else self._model  # one that is longer is no name
        if wish.instructions is not None:
            self._instructions = wish.instructions[:MAX_TURN]
        for limit in (wish.max_output_tokens, wish.max_response_output_tokens):
            if isinstance(limit, int):
                self._most = limit
        for tool in wish.tools or ():
            schema = raw_bytes(tool.parameters)
            if tool.name and len(tool.name) <= MAX_NAME and schema is not None:
                self._tool(tool.name, schema)
        for item in wish.input or ():
            self._item(item)

    def _tool(self, name: str, schema: bytes) -> None:
        kept = len(self._tools.get(name, b""))
        if len(self._tools) - (name in self._tools) >= MAX_CALLS or self._schemas - kept + len(schema) > MAX_SCHEMAS:
            return
        self._tools[name] = schema
        self._schemas += len(schema) - kept


class OpenAiRealtime:
    """GET …/realtime that becomes a WebSocket (`/v1/realtime`, Azure's `/openai/realtime` and `/openai/v1/realtime`).

    An answer that refuses the upgrade has a body like any other.
    """

    name = "openai.realtime"
    operation = "realtime"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        return request.method == "GET" and request.path.rstrip("/").endswith("/realtime")

    def request_facts(self, body: bytes) -> RequestFacts:
        """The request that opens the connection has no body; what is asked comes over it."""
        return RequestFacts()

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return RealtimeReader(response)
