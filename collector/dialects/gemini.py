"""Gemini's generateContent and streamGenerateContent, on the Gemini API and on Vertex AI."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Raw, Struct, field

from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, UnreadableError, count, json_text, read_json, salvage
from collector.dialects.errors import says_limits
from collector.dialects.google import GoogleError, error_delta, error_of_answer, json_schema, named
from collector.dialects.paths import model_of
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
)

MAX_ELEMENTS = 10_000  # of an answer that is an array
MAX_ARGUMENTS = 1000  # pieces of streamed arguments of one call
MAX_STEPS = 4096  # steps of their paths in all
MAX_ARGUMENT_CHARS = 256 * 1024  # characters of their paths and texts in all
MAX_OPEN = 8  # candidates whose calls' arguments may be streamed at the same time
UNSPECIFIED = ("", "0", "FINISH_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED")

# ---------------------------------------------------------------- the response on the wire


class _PartialArgument(Struct, gc=False, rename="camel"):
    json_path: str | None = None
    string_value: str | None = None
    number_value: float | int | None = None
    bool_value: bool | None = None
    will_continue: bool | None = None


class _Call(Struct, gc=False, rename="camel"):
    name: str | None = None
    args: dict[str, Any] | None = None
    partial_args: list[_PartialArgument] | None = None
    will_continue: bool | None = None


class _Part(Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    function_call: _Call | None = None


class _Content(Struct, gc=False):
    parts: list[_Part] | None = None


class _Retrieved(Struct, gc=False):
    text: str | None = None


class _GroundingChunk(Struct, gc=False, rename="camel"):
    """What was retrieved from a store of the caller's; one of the web has a title and an address only."""

    retrieved_context: _Retrieved | None = None


class _Grounding(Struct, gc=False, rename="camel"):
    grounding_chunks: list[_GroundingChunk] | None = None


class _Candidate(Struct, gc=False, rename="camel"):
    index: int | None = None
    content: _Content | None = None
    finish_reason: str | int | None = None
    grounding_metadata: _Grounding | None = None


class _Feedback(Struct, gc=False, rename="camel"):
    block_reason: str | int | None = None


class _Usage(Struct, gc=False, rename="camel"):
    prompt_token_count: int | float | None = None
    candidates_token_count: int | float | None = None
    thoughts_token_count: int | float | None = None
    cached_content_token_count: int | float | None = None
    tool_use_prompt_token_count: int | float | None = None


class _Body(Struct, gc=False, rename="camel"):
    """A chunk of a stream, or a whole answer. Errors come in the same place."""

    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Usage | None = None
    model_version: str | None = None
    error: GoogleError | None = None


_decode = Decoder(_Body)


def _bodies(data: bytes) -> list[_Body]:
    """The chunks of a frame: one, or those of a stream that came whole as an array. Raises UnreadableError."""
    if not data.lstrip().startswith(b"["):
        return [_decode(data)]
    told = read_json(data)
    return [salvage(each, _Body) for each in told[:MAX_ELEMENTS]] if isinstance(told, list) else []


def _specified(reason: str | int | None) -> str | None:
    """The word, or a proto number as text; None for unspecified."""
    return None if reason is None or str(reason) in UNSPECIFIED else str(reason)


# ---------------------------------------------------------------- calls whose arguments are streamed

_STEP = re.compile(r"""\.([^.\[\]'"]+)|\[([0-9]{1,4})\]|\['([^']*)'\]|\["([^"]*)"\]""")


class _OpenCall:
    """A call whose arguments come by path (`$.city`, `$.stops[0].name`), put together as a JSON object."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._root: dict[str, Any] = {}
        self._pieces = self._steps = self._chars = 0
        self._goes_on: str | None = None  # the path whose text the next piece goes on with

    def take(self, piece: _PartialArgument) -> None:
        """One piece; what its path cannot reach is left out."""
        path = piece.json_path or ""
        self._pieces += 1
        self._chars += len(path) + len(piece.string_value or "")
        if self._pieces > MAX_ARGUMENTS or self._chars > MAX_ARGUMENT_CHARS:
            return
        steps = [match.group(match.lastindex or 0) for match in _STEP.finditer(path.removeprefix("$"))]
        self._steps += len(steps)
        if self._steps > MAX_STEPS or not 0 < len(steps) <= 64:
            return
        value: Any = piece.string_value
        if value is None:
            value = piece.bool_value if piece.bool_value is not None else piece.number_value
        at: Any = self._root
        *above, last = steps
        for step, after in zip(above, steps[1:], strict=True):
            at = _child(at, step, [] if after.isdigit() else {})
        before = _child(at, last, None)
        if self._goes_on == path and isinstance(before, str) and isinstance(value, str):
            value = before + value
        _place(at, last, value)
        self._goes_on = path if piece.will_continue else None

    def arguments(self) -> str:
        return json_text(self._root)


def _child(at: Any, step: str, new: Any) -> Any:
    """What stands at a step, made `new` where there is nothing yet."""
    if isinstance(at, list) and step.isdigit():
        if int(step) < len(at):
            return at[int(step)]
    elif isinstance(at, dict) and step in at:
        return at[step]
    if new is not None:
        _place(at, step, new)
    return new


def _place(at: Any, step: str, value: Any) -> None:
    if isinstance(at, dict):
        at[step] = value
    elif isinstance(at, list) and step.isdigit():
        if int(step) < len(at):
            at[int(step)] = value
        elif int(step) == len(at):
            at.append(value)


class GenerateReader:
    """Chunks of a stream, as events or as an array, or one whole answer. Only candidates say that they ended."""

    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)
        self._calls: dict[int, int] = {}  # candidate → calls so far
        self._open: dict[int, _OpenCall] = {}  # candidate → the call whose arguments are being streamed
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self._blocked = False
        self._tool_prompt: int | None = None

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if self._status >= 400:
            return error_of_answer(frame.data, self._status, self._limited)
        try:
            deltas = [self._delta(body) for body in _bodies(frame.data)]
        except UnreadableError:
            return Delta(malformed=True)
        return deltas[0] if len(deltas) == 1 else _joined(deltas)

    def ended_well(self) -> bool:
        """Whether every candidate seen has said how it finished, or the prompt was blocked."""
        return self._blocked or (bool(self._seen) and self._seen == self._finished)

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        """Thoughts are counted beside the candidates' tokens, what tools found beside the prompt's, cached inside."""
        return Usage(
            _sum(reported.input_tokens, self._tool_prompt),
            _sum(reported.output_tokens, reported.reasoning_tokens),
            reported.cached_input_tokens,
            None,
            reported.reasoning_tokens,
        )

    def _delta(self, body: _Body) -> Delta:
        if body.error is not None and body.error.says_something:
            return error_delta(body.error)
        text: list[TextPiece] = []
        reasoning: list[TextPiece] = []
        tools: list[ToolPiece] = []
        finish: list[Finish] = []
        retrieved: list[str] = []
        for position, candidate in enumerate(body.candidates or ()):
            index = position if candidate.index is None else candidate.index
            reason = _specified(candidate.finish_reason)
            if 0 <= index < MAX_CHOICES:
                self._seen.add(index)
                if reason is not None:
                    self._finished.add(index)
            for part in (candidate.content.parts if candidate.content is not None else None) or ():
                if part.text:
                    (reasoning if part.thought else text).append(TextPiece(index, part.text))
                if part.function_call is not None:
                    tools += self._call(index, part.function_call)
            if reason is not None:
                finish.append(Finish(index, reason))
            if index == 0 and candidate.grounding_metadata is not None:
                retrieved += _retrieved(candidate.grounding_metadata)
        blocked = body.prompt_feedback is not None and _specified(body.prompt_feedback.block_reason) is not None
        self._blocked = self._blocked or blocked
        return Delta(
            text=tuple(text),
            reasoning=tuple(reasoning),
            tools=tuple(tools),
            finish=tuple(finish),
            choices=max(self._seen, default=-1) + 1,
            model=body.model_version or None,
            usage=self._reported(body.usage_metadata),
            blocked=blocked,
            sources=Sources(retrieved=tuple(retrieved)) if retrieved else None,
        )

    def _reported(self, usage: _Usage | None) -> ReportedUsage | None:
        if usage is None:
            return None
        told = count(usage.tool_use_prompt_token_count)
        self._tool_prompt = told if told is not None else self._tool_prompt
        return ReportedUsage(
            count(usage.prompt_token_count),
            count(usage.candidates_token_count),
            count(usage.cached_content_token_count),
            None,
            count(usage.thoughts_token_count),
        )

    def _call(self, choice: int, call: _Call) -> list[ToolPiece]:
        """A whole call, or a piece of one whose arguments are streamed (Vertex AI, streamFunctionCallArguments)."""
        known = self._open.get(choice)
        if known is None:
            number = self._number(choice)
            if not call.will_continue and not call.partial_args:
                return [ToolPiece(choice, number, call.name, json_text({} if call.args is None else call.args))]
            if number < MAX_CALLS and len(self._open) >= MAX_OPEN:
                return [ToolPiece(choice, MAX_CALLS, call.name)]
            known = _OpenCall(number)
            if number < MAX_CALLS:
                self._open[choice] = known
        for piece in call.partial_args or ():
            known.take(piece)
        if call.will_continue:
            return [ToolPiece(choice, known.number, call.name)]
        self._open.pop(choice, None)
        return [ToolPiece(choice, known.number, call.name, known.arguments())]

    def _number(self, choice: int) -> int:
        if not 0 <= choice < MAX_CHOICES:
            return MAX_CALLS
        number = self._calls.get(choice, 0)
        self._calls[choice] = min(number + 1, MAX_CALLS)
        return number


def _sum(*parts: int | None) -> int | None:
    told = [part for part in parts if part is not None]
    return sum(told) if told else None


def _joined(deltas: list[Delta]) -> Delta:
    """What several chunks said, as one."""
    return Delta(
        text=tuple(piece for delta in deltas for piece in delta.text),
        reasoning=tuple(piece for delta in deltas for piece in delta.reasoning),
        tools=tuple(piece for delta in deltas for piece in delta.tools),
        finish=tuple(end for delta in deltas for end in delta.finish),
        choices=max((delta.choices for delta in deltas), default=0),
        model=next((delta.model for delta in reversed(deltas) if delta.model is not None), None),
        usage=next((delta.usage for delta in reversed(deltas) if delta.usage is not None), None),
        error=next((delta.error for delta in deltas if delta.error is not None), None),
        retry_after=next((delta.retry_after for delta in deltas if delta.retry_after is not None), None),
        blocked=any(delta.blocked for delta in deltas),
    )


def _retrieved(grounding: _Grounding) -> list[str]:
    chunks = (chunk.retrieved_context for chunk in grounding.grounding_chunks or ())
    return [chunk.text for chunk in chunks if chunk is not None and chunk.text]


# ---------------------------------------------------------------- the request

# Proto JSON takes the names of fields in camelCase and in snake_case; what SDKs and people send is both.


class _FunctionResponse(Struct, gc=False):
    response: Any = None


class _RequestPart(Struct, gc=False):
    text: str | None = None
    thought: bool | None = None
    camel_result: _FunctionResponse | None = field(default=None, name="functionResponse")
    snake_result: _FunctionResponse | None = field(default=None, name="function_response")


class _RequestContent(Struct, gc=False):
    role: str | None = None
    parts: list[_RequestPart] | _RequestPart | None = None


class _Declaration(Struct, gc=False):
    name: str | None = None
    parameters: Raw = Raw()
    camel_schema: Raw = field(default_factory=Raw, name="parametersJsonSchema")
    snake_schema: Raw = field(default_factory=Raw, name="parameters_json_schema")


class _Tool(Struct, gc=False):
    camel: list[_Declaration] | None = field(default=None, name="functionDeclarations")
    snake: list[_Declaration] | None = field(default=None, name="function_declarations")


class _Config(Struct, gc=False):
    camel_type: str | None = field(default=None, name="responseMimeType")
    snake_type: str | None = field(default=None, name="response_mime_type")
    camel_schema: Raw = field(default_factory=Raw, name="responseSchema")
    snake_schema: Raw = field(default_factory=Raw, name="response_schema")
    camel_json: Raw = field(default_factory=Raw, name="responseJsonSchema")
    snake_json: Raw = field(default_factory=Raw, name="response_json_schema")
    hidden_json: Raw = field(default_factory=Raw, name="_responseJsonSchema")
    camel_limit: int | None = field(default=None, name="maxOutputTokens")
    snake_limit: int | None = field(default=None, name="max_output_tokens")


class _Request(Struct, gc=False):
    model: str | None = None
    contents: list[_RequestContent] | _RequestContent | None = None
    camel_system: _RequestContent | str | None = field(default=None, name="systemInstruction")
    snake_system: _RequestContent | str | None = field(default=None, name="system_instruction")
    camel_config: _Config | None = field(default=None, name="generationConfig")
    snake_config: _Config | None = field(default=None, name="generation_config")
    tools: list[_Tool] | _Tool | None = None


_decode_request = Decoder(_Request)


def _content_turns(role: str, content: _RequestContent | str | None) -> list[Turn]:
    if content is None or isinstance(content, str):
        return [Turn(role, "text", content)] if content else []
    parts = content.parts if isinstance(content.parts, list) else [content.parts] if content.parts else []
    turns: list[Turn] = []
    for part in parts:
        result = part.camel_result if part.camel_result is not None else part.snake_result
        if result is not None and result.response is not None:
            turns.append(Turn("tool", "tool_result", json_text(result.response)))
        elif part.text and not part.thought:
            turns.append(Turn(role, "text", part.text))
    return turns


def _expectation(config: _Config | None) -> Expectation | None:
    """What the configuration asks for: JSON, or with `text/x.enum` one of the schema's texts, bare (ai.google.dev)."""
    if config is None:
        return None
    kind = config.camel_type if config.camel_type is not None else config.snake_type
    media = "" if kind is None else kind.split(";", 1)[0].strip().lower()
    if media not in ("application/json", "text/x.enum"):
        return None
    schema = named(config.camel_json, config.snake_json, config.hidden_json)
    if schema is None:
        schema = json_schema(config.camel_schema) or json_schema(config.snake_schema)
    if media == "text/x.enum":
        return None if schema is None else Expectation("json_schema", schema, is_text=True)
    return Expectation("json" if schema is None else "json_schema", schema)


def _tool_schemas(tools: list[_Tool] | _Tool | None) -> dict[str, bytes]:
    each = tools if isinstance(tools, list) else [tools] if tools is not None else []
    found: dict[str, bytes] = {}
    for declared in (one for tool in each for one in [*(tool.camel or ()), *(tool.snake or ())]):
        schema = named(declared.camel_schema, declared.snake_schema) or json_schema(declared.parameters)
        if declared.name and schema is not None:
            found[declared.name] = schema
    return found


class GeminiGenerate:
    """POST …/models/{model}:generateContent and :streamGenerateContent."""

    name = "gemini.generate"
    operation = "generate_content"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        verb = request.path.rstrip("/").replace("%3A", ":").replace("%3a", ":").rpartition(":")[2]
        return request.method == "POST" and verb in ("generateContent", "streamGenerateContent")

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        asked = _decode_request(body)
        turns = _content_turns("system", asked.snake_system if asked.camel_system is None else asked.camel_system)
        contents = asked.contents if isinstance(asked.contents, list) else [asked.contents] if asked.contents else []
        for content in contents:
            roles = {"model": "assistant", "function": "tool"}
            role = content.role or "user"
            turns += _content_turns(roles.get(role, role), content)
        query, context = split(turns)
        config = asked.snake_config if asked.camel_config is None else asked.camel_config
        limit = None
        if config is not None:
            limit = config.snake_limit if config.camel_limit is None else config.camel_limit
        return RequestFacts(
            model=(asked.model or "").removeprefix("models/") or None,
            expectation=_expectation(config),
            tool_schemas=_tool_schemas(asked.tools),
            query=query,
            context=context,
            prompt=prompt_facts(turns),
            max_output_tokens=limit,
        )

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return GenerateReader(response)


# ---------------------------------------------------------------- embeddings


class _Statistics(Struct, gc=False):
    token_count: int | float | None = None


class _Embedding(Struct, gc=False):
    statistics: _Statistics | None = None


class _Prediction(Struct, gc=False):
    embeddings: _Embedding | None = None


class _Embedded(Struct, gc=False, rename="camel"):
    predictions: list[_Prediction] | None = None
    usage_metadata: _Usage | None = None
    error: GoogleError | None = None


_decode_embedded = Decoder(_Embedded)


class EmbeddingsReader:
    """Vectors, of which only the counts are read."""

    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if self._status >= 400:
            return error_of_answer(frame.data, self._status, self._limited)
        try:
            told = _decode_embedded(frame.data)
        except UnreadableError:
            return Delta(malformed=True)
        if told.error is not None and told.error.says_something:
            return error_delta(told.error)
        tokens = count(told.usage_metadata.prompt_token_count) if told.usage_metadata is not None else None
        if tokens is None:
            # Vertex AI counts each text for itself.
            each = [one.embeddings.statistics for one in told.predictions or () if one.embeddings is not None]
            tokens = _sum(*(count(one.token_count) for one in each if one is not None))
        return Delta(usage=ReportedUsage(tokens))

    def ended_well(self) -> bool:
        """There are no streams of embeddings."""
        return True

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        return Usage(reported.input_tokens)


class GeminiEmbeddings:
    """POST …:embedContent, :batchEmbedContents, and :predict of Vertex AI's embedding models."""

    name = "gemini.embeddings"
    operation = "embeddings"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        path = request.path.rstrip("/").replace("%3A", ":").replace("%3a", ":")
        verb = path.rpartition(":")[2]
        embeds = verb == "predict" and "embed" in (model_of(path) or "")
        return request.method == "POST" and (embeds or verb in ("embedContent", "batchEmbedContents"))

    def request_facts(self, body: bytes) -> RequestFacts:
        """Only the path names the model."""
        return RequestFacts()

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return EmbeddingsReader(response)
