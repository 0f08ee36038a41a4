"""OpenAI chat completions, and the many who speak like it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Literal

from msgspec import Raw, Struct

from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, PlainDecoder, SomeText, UnreadableError, json_text, raw_bytes
from collector.dialects.errors import ErrorBody, error_of_body, says_limits, wire_error
from collector.dialects.google import retry_hint
from collector.dialects.openai_usage import (
    Account,
    CompletionUsage,
    PerfMetrics,
    PlainUsage,
    TimeInfo,
    Timings,
    is_writer,
    phases_of,
)
from collector.dialects.paths import raw_publisher
from collector.dialects.prompt import prompt_facts
from collector.dialects.structured import Guided, expected
from collector.model import (
    MAX_CALLS,
    MAX_CHOICES,
    Delta,
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
MAX_FALLBACKS = 8  # models of a request that may answer in place of its first
MAX_ID = 128  # characters of a call's id that are compared


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


class _GroqExtra(Struct, gc=False):
    usage: CompletionUsage | None = None
    error: str | None = None


class _Body(Struct, gc=False):
    """A chunk of a stream or a whole answer."""

    object: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: CompletionUsage | None = None
    timings: Timings | None = None
    time_info: TimeInfo | None = None
    perf_metrics: PerfMetrics | None = None
    error: ErrorBody | str | None = None
    x_groq: _GroqExtra | None = None
    type: str | None = None
    code: str | int | None = None


_decode = Decoder(_Body)


class _PlainMessage(Struct, gc=False):
    """A text and nothing else. `_Message`, narrowed."""

    content: SomeText
    reasoning_content: None = None
    reasoning: None = None
    refusal: None = None
    tool_calls: None = None
    function_call: None = None


class _PlainChoice(Struct, gc=False):
    delta: _PlainMessage
    index: Literal[0]
    message: None = None
    finish_reason: None = None
    error: None = None


class _PlainBody(Struct, gc=False):
    """The chunk that most chunks are: a piece of text of the first choice. `_Body`, narrowed."""

    choices: tuple[_PlainChoice]
    object: str | None = None
    model: str | None = None
    usage: None = None
    timings: None = None
    time_info: None = None
    perf_metrics: None = None
    error: None = None
    x_groq: None = None
    type: None = None
    code: None = None


_decode_plain = PlainDecoder(_PlainBody)


class _PlainAnswered(Struct, gc=False):
    message: _PlainMessage
    finish_reason: SomeText
    index: Literal[0] = 0
    delta: None = None
    error: None = None


class _PlainAnswer(Struct, gc=False):
    """The answer that most whole answers are: one text with its finish. `_Body`, narrowed."""

    choices: tuple[_PlainAnswered]
    object: str | None = None
    model: str | None = None
    usage: PlainUsage | None = None
    timings: None = None
    time_info: None = None
    perf_metrics: None = None
    error: None = None
    x_groq: None = None
    type: None = None
    code: None = None


_decode_answer = PlainDecoder(_PlainAnswer).one


class _Said:
    """What one body said, in lists that grow."""

    __slots__ = ("reasoning", "refusal", "text", "tools")

    def __init__(self) -> None:
        self.text: list[TextPiece] = []
        self.reasoning: list[TextPiece] = []
        self.refusal: list[TextPiece] = []
        self.tools: list[ToolPiece] = []


class _Calls:
    """Which tool call a piece of a stream belongs to: providers name calls by index, by id, by both, or by neither."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str | int], tuple[int, str | None]] = {}  # choice, index or id → call, its id
        self._next: dict[int, int] = {}  # choice → the number of its next call
        self._last: dict[int, int] = {}  # choice → the call last spoken of
        self._made = 0

    def number(self, choice: int, index: int | None, call_id: str | None, names: bool) -> int:
        """The call's number in its choice; MAX_CALLS once there are so many."""
        key: str | int | None = call_id if index is None else index
        known = self._known.get((choice, key)) if key is not None else None
        if known is None and key is None and not names and choice in self._last:
            return self._last[choice]
        # Gemini and Ollama give each call of a turn the index 0: another id with a name is another call.
        if known is None or (names and call_id is not None and known[1] is not None and known[1] != call_id):
            found = self._new(choice, index if known is None else None)
            if found == MAX_CALLS:
                return found
            for name in (index, call_id):
                if name is not None:
                    self._known[choice, name] = (found, call_id)
        else:
            found = known[0]
        self._last[choice] = found
        return found

    def _new(self, choice: int, index: int | None) -> int:
        number = self._next.get(choice, 0) if index is None else index
        if self._made >= MAX_CALLS or not 0 <= number < MAX_CALLS:
            return MAX_CALLS
        self._made += 1
        self._next[choice] = max(number + 1, self._next.get(choice, 0))
        return number


class ChatReader:
    """Chunks of a stream, or one whole answer, in any mix that providers send."""

    _model: str | None = None  # as last told
    _calls: _Calls | None = None

    def __init__(self, response: ResponseHead, request: RequestHead | None = None) -> None:
        self._response = response
        self._account = Account(request)
        self._seen_choices: set[int] = set()
        self._finished: set[int] = set()

    def read(self, frame: Frame) -> Delta | TextPiece | None:
        if frame.kind != "data":
            return None
        if len(frame.data) < 32 and frame.data.strip() == DONE:
            return Delta(terminal=True, marker=True)
        if frame.event == "ping":
            return Delta(ping=True)
        status = self._response.status
        if status >= 400:
            error = error_of_body(frame.data, status, says_limits(self._response.headers))
            return Delta(error=error, retry_after=retry_hint(frame.data))
        if not self._seen_choices and frame.event != "error":  # nothing came before, so it may be all there is
            answer = _decode_answer(frame.data)
            if answer is not None and answer.object != "error":
                return self._whole(answer)
        try:
            body = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True, error=wire_error(ErrorBody()) if frame.event == "error" else None)
        return self._plain_text(body) or self._delta(body, frame.event)

    def texts(self, payloads: Sequence[bytes]) -> list[str]:
        if 0 not in self._seen_choices:
            return []
        bodies = _decode_plain(payloads)
        if {body.model for body in bodies} - {self._model} or "error" in {body.object for body in bodies}:
            bodies = list(takewhile(self._goes_on, bodies))
        return [body.choices[0].delta.content for body in bodies]

    def _goes_on(self, body: _PlainBody) -> bool:
        return body.model == self._model and body.object != "error"

    def ended_well(self) -> bool:
        """Whether every choice seen has said how it finished: the end for those who send no marker."""
        return bool(self._seen_choices) and self._seen_choices == self._finished

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        """As OpenAI counts, with the reasoning that others leave out of the output."""
        return self._account.normal(reported)

    def _plain_text(self, body: _Body) -> TextPiece | None:
        """The frame that most frames are: one piece of text of a choice that is known. None for any other."""
        choices = body.choices
        if choices is None or len(choices) != 1 or body.usage is not None or body.error is not None:
            return None
        choice = choices[0]
        message = choice.delta
        if (
            message is None
            or choice.finish_reason is not None
            or choice.message is not None
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
            or body.model != self._model
        ):
            return None
        return TextPiece(choice.index or 0, message.content)

    def _whole(self, answer: _PlainAnswer) -> Delta:
        """What `_delta` makes of an answer of this kind."""
        choice = answer.choices[0]
        self._seen_choices.add(0)
        self._finished.add(0)
        self._model = answer.model
        return Delta(
            text=(TextPiece(0, choice.message.content),),
            finish=(Finish(0, choice.finish_reason),),
            choices=1,
            model=answer.model or None,
            usage=self._account.take_plain(answer.usage) if answer.usage is not None else None,
        )

    def _delta(self, body: _Body, event: str | None) -> Delta:
        said = _Said()
        finish: list[Finish] = []
        repeated: list[TextPiece] = []
        error = self._error(body, event)
        for position, choice in enumerate(body.choices or ()):
            index = choice.index if choice.index is not None else position
            seen = 0 <= index < MAX_CHOICES
            message = choice.delta if choice.delta is not None else choice.message
            repeated += _repeat(index, choice)
            if message is not None:
                if seen:
                    self._seen_choices.add(index)
                self._message(index, message, said, whole=choice.delta is None)
            # In a stream an empty word is no word; in a whole answer it is all that was said.
            if choice.finish_reason is not None and (choice.finish_reason != "" or choice.delta is None):
                if seen:
                    self._seen_choices.add(index)
                    self._finished.add(index)
                finish.append(Finish(index, str(choice.finish_reason)))
            if choice.error is not None and choice.error.says_something and error is None:
                error = wire_error(choice.error)
        self._model, usage = body.model, body.usage
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
            usage=self._account.take(usage) if usage is not None else None,
            phases=phases_of(usage, body.timings, body.time_info, body.perf_metrics),
            full_text=tuple(repeated),
            error=error,
            ping=body.type == "ping",
        )

    def _error(self, body: _Body, event: str | None) -> WireError | None:
        told = body.error
        if isinstance(told, ErrorBody) and told.says_something:
            return wire_error(told)
        if isinstance(told, str) and told:
            return wire_error(ErrorBody(type=told, code=body.code))
        if body.x_groq is not None and body.x_groq.error:
            return wire_error(ErrorBody(type=body.x_groq.error))
        if event == "error" or body.object == "error":
            return wire_error(ErrorBody(type=body.type, code=body.code))
        return None

    def _message(self, index: int, message: _Message, said: _Said, whole: bool) -> None:
        content = message.content
        if isinstance(content, str):
            if content:
                said.text.append(TextPiece(index, content))
        elif content is not None:
            for part in content:
                _part(index, part, said)
        thought = message.reasoning_content or message.reasoning
        if thought:
            said.reasoning.append(TextPiece(index, thought))
        if message.refusal:
            said.refusal.append(TextPiece(index, message.refusal))
        for position, call in enumerate(message.tool_calls or ()):
            function = call.function or _Function()
            number = position
            if not whole:
                name = call.id[:MAX_ID] if call.id else None
                if self._calls is None:
                    self._calls = _Calls()
                number = self._calls.number(index, call.index, name, bool(function.name))
            _call(index, number, function, whole, said)
        if message.function_call is not None:
            _call(index, 0, message.function_call, whole, said)


def _repeat(index: int, choice: _Choice) -> list[TextPiece]:
    """All that was said so far, which Perplexity sends beside what is new. Writer sends what is new twice."""
    if choice.delta is None or choice.message is None:
        return []
    said = choice.message.content
    return [TextPiece(index, said)] if isinstance(said, str) and said and said != choice.delta.content else []


def _part(choice: int, part: _Part, said: _Said) -> None:
    if part.text and part.type in (None, "text", "output_text"):
        said.text.append(TextPiece(choice, part.text))
    thought = part.thinking
    if isinstance(thought, list):
        thought = "".join(piece.text or "" for piece in thought)
    if thought:
        said.reasoning.append(TextPiece(choice, thought))
    if part.refusal:
        said.refusal.append(TextPiece(choice, part.refusal))


def _call(choice: int, number: int, function: _Function, whole: bool, said: _Said) -> None:
    """A stream's piece that names nothing and adds nothing says nothing; a whole answer's call is one, however bare."""
    arguments = function.arguments
    if isinstance(arguments, dict):
        arguments = json_text(arguments)
    if whole:
        said.tools.append(ToolPiece(choice, number, function.name, arguments or ""))
    elif function.name or arguments:
        said.tools.append(ToolPiece(choice, number, function.name or None, arguments or ""))


# ---------------------------------------------------------------- the request


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


class _StreamOptions(Struct, gc=False):
    include_usage: bool | None = None


class _Request(Guided, gc=False):
    model: str | None = None
    stream: bool | None = None
    messages: list[_RequestMessage] | None = None
    tools: list[_WishedTool] | None = None
    functions: list[_WishedFunction] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream_options: _StreamOptions | None = None
    models: list[str] | None = None  # OpenRouter


_decode_request = Decoder(_Request)


_ROLES = {"developer": "system", "function": "tool"}  # under other names


def _turns(messages: list[_RequestMessage]) -> list[Turn]:
    turns = []
    for message in messages:
        role = message.role or "user"
        role = _ROLES.get(role, role)
        kind = "tool_result" if role == "tool" else "text"
        content = message.content
        if isinstance(content, str):
            turns.append(Turn(role, kind, content))
        else:
            turns += [Turn(role, kind, part.text) for part in content or () if part.text]
    return turns


def _schemas(wished: list[_WishedFunction]) -> dict[str, bytes]:
    told = ((function.name, raw_bytes(function.parameters)) for function in wished)
    return {name: schema for name, schema in told if name and schema is not None}


class OpenAiChat:
    """POST …/chat/completions, Writer's …/chat, and Mistral's and AI21's models on Vertex AI."""

    name = "openai.chat"
    operation = "chat"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        path = request.path.rstrip("/")
        if request.method != "POST":
            return False
        if raw_publisher(path) in ("mistralai", "ai21"):
            return True
        return path.endswith("/chat/completions") or (path.endswith("/v1/chat") and is_writer(request))

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        asked = _decode_request(body)
        wished: list[_WishedFunction] = []
        if asked.tools or asked.functions:
            wished = [tool.function for tool in asked.tools or () if tool.function] + list(asked.functions or ())
        turns = _turns(asked.messages or [])
        query, context = split(turns)
        limit = asked.max_completion_tokens if asked.max_completion_tokens is not None else asked.max_tokens
        return RequestFacts(
            model=asked.model or None,
            stream=asked.stream is True,
            expectation=expected(asked),
            tool_schemas=_schemas(wished) if wished else {},
            query=query,
            context=context,
            prompt=prompt_facts(turns),
            max_output_tokens=limit,
            fallback_models=tuple(asked.models[:MAX_FALLBACKS]) if asked.models is not None else (),
            include_usage=asked.stream_options.include_usage if asked.stream_options is not None else None,
        )

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return ChatReader(response, request)
