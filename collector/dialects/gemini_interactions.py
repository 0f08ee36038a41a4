"""Gemini's interactions: steps of thought, of output and of calls, whole or as events."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Raw, Struct

from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, UnreadableError, count, json_text, raw_bytes
from collector.dialects.errors import says_limits
from collector.dialects.google import GoogleError, error_delta, error_of_answer
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
)

RUNNING = frozenset({"", "in_progress", "queued"})
_PATH = re.compile(r"/v[0-9][a-z0-9]{0,12}/(?:[\w.-]+/)*interactions$")

# ---------------------------------------------------------------- the response on the wire


class _Content(Struct, gc=False):
    type: str | None = None
    text: str | None = None


class _Step(Struct, gc=False):
    """`model_output` has content, `thought` a summary, `function_call` a name and arguments.

    In the API's first form steps were called outputs, and one of type `text` had its text itself.
    """

    type: str | None = None
    text: str | None = None
    content: list[_Content] | None = None
    summary: list[_Content] | None = None
    name: str | None = None
    arguments: dict[str, Any] | str | None = None


class _StepDelta(Struct, gc=False):
    type: str | None = None
    text: str | None = None
    content: _Content | None = None
    arguments: str | dict[str, Any] | None = None
    partial_arguments: str | None = None


class _Usage(Struct, gc=False):
    total_input_tokens: int | float | None = None
    total_output_tokens: int | float | None = None
    total_cached_tokens: int | float | None = None
    total_thought_tokens: int | float | None = None
    total_tool_use_tokens: int | float | None = None


class _Metadata(Struct, gc=False):
    usage: _Usage | None = None
    total_usage: _Usage | None = None


class _Interaction(Struct, gc=False):
    model: str | None = None
    status: str | None = None
    usage: _Usage | None = None
    error: GoogleError | None = None


class _Body(Struct, gc=False):
    """An event of a stream, or a whole interaction."""

    event_type: str | None = None
    index: int | None = None
    interaction: _Interaction | None = None
    step: _Step | None = None
    content: _Step | None = None
    delta: _StepDelta | None = None
    metadata: _Metadata | None = None
    steps: list[_Step] | None = None
    outputs: list[_Step] | None = None
    model: str | None = None
    status: str | None = None
    usage: _Usage | None = None
    error: GoogleError | None = None


_decode = Decoder(_Body)


class InteractionReader:
    """Events of a stream, or one whole interaction. Usage is cumulative."""

    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)
        self._calls: dict[int, int] = {}  # step → tool call
        self._tool_tokens: int | None = None

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if frame.data.strip() == b"[DONE]":
            return Delta(terminal=True, marker=True)
        if self._status >= 400:
            return error_of_answer(frame.data, self._status, self._limited)
        try:
            body = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True, error=error_delta(GoogleError()).error if frame.event == "error" else None)
        return self._delta(body, body.event_type or frame.event)

    def ended_well(self) -> bool:
        """Only its last event or the marker after it ends a stream."""
        return False

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        """As with generateContent, thoughts and the tokens of tools stand beside output and input."""
        into, out, thought = reported.input_tokens, reported.output_tokens, reported.reasoning_tokens
        if into is not None and self._tool_tokens is not None:
            into += self._tool_tokens
        if out is not None and thought is not None:
            out += thought
        return Usage(into, out, reported.cached_input_tokens, None, thought)

    def _delta(self, body: _Body, kind: str | None) -> Delta:
        match kind:
            case "step.start" | "content.start":
                begun = body.step if body.step is not None else body.content
                return self._step(body.index or 0, begun or _Step(), starts=True, usage=self._reported(body.metadata))
            case "step.delta" | "content.delta":
                return self._step_delta(body.index or 0, body.delta or _StepDelta(), self._reported(body.metadata))
            case "error":
                return error_delta(body.error or GoogleError())
            case None:
                return self._whole(body)
        told = body.interaction
        if told is None:
            return Delta(usage=self._reported(body.metadata))
        ended = (told.status or "") not in RUNNING
        failed = told.error if told.error is not None and told.error.says_something else None
        usage = self._counts(told.usage)
        return Delta(
            choices=1,
            model=told.model or None,
            finish=(Finish(0, told.status),) if ended and told.status else (),
            usage=usage if usage is not None else self._reported(body.metadata),
            error=error_delta(failed).error if failed is not None else None,
            terminal=ended,
        )

    def _whole(self, body: _Body) -> Delta:
        if body.error is not None and body.error.says_something:
            return error_delta(body.error)
        steps = body.steps if body.steps is not None else body.outputs
        said = [self._step(at, step, starts=False) for at, step in enumerate(steps or ())]
        status = body.status or ""
        return Delta(
            text=tuple(piece for delta in said for piece in delta.text),
            reasoning=tuple(piece for delta in said for piece in delta.reasoning),
            tools=tuple(piece for delta in said for piece in delta.tools),
            finish=(Finish(0, status),) if status else (),
            choices=1 if status else 0,
            model=body.model or None,
            usage=self._counts(body.usage),
            terminal=status not in RUNNING,
        )

    def _step(self, at: int, step: _Step, *, starts: bool, usage: ReportedUsage | None = None) -> Delta:
        """A step that is whole or, where it `starts`, only begins: then empty arguments stand for those that follow."""
        text = [TextPiece(0, one.text) for one in step.content or () if one.text and one.type in (None, "text")]
        if step.text:
            text.append(TextPiece(0, step.text))
        thought = [TextPiece(0, one.text) for one in step.summary or () if one.text]
        tools: tuple[ToolPiece, ...] = ()
        if step.type == "function_call":
            number = self._calls.get(at, len(self._calls))
            if number < MAX_CALLS:
                self._calls[at] = number
            given = step.arguments if isinstance(step.arguments, str) else ""
            if isinstance(step.arguments, dict) and (step.arguments or not starts):
                given = json_text(step.arguments)
            tools = (ToolPiece(0, number, step.name, given),)
        if step.type == "thought":
            return Delta(reasoning=(*thought, *text), usage=usage)
        return Delta(text=tuple(text), reasoning=tuple(thought), tools=tools, usage=usage)

    def _step_delta(self, at: int, delta: _StepDelta, usage: ReportedUsage | None) -> Delta:
        match delta.type:
            case "text":
                return Delta(text=(TextPiece(0, delta.text),) if delta.text else (), usage=usage)
            case "thought_summary":
                told = delta.content.text if delta.content is not None else delta.text
                return Delta(reasoning=(TextPiece(0, told),) if told else (), usage=usage)
            case "arguments_delta" if at in self._calls:
                piece = delta.partial_arguments if delta.partial_arguments is not None else delta.arguments
                more = json_text(piece) if isinstance(piece, dict) else piece
                return Delta(tools=(ToolPiece(0, self._calls[at], None, more),) if more else (), usage=usage)
        return Delta(usage=usage)

    def _reported(self, metadata: _Metadata | None) -> ReportedUsage | None:
        if metadata is None:
            return None
        return self._counts(metadata.usage if metadata.total_usage is None else metadata.total_usage)

    def _counts(self, usage: _Usage | None) -> ReportedUsage | None:
        if usage is None:
            return None
        told = count(usage.total_tool_use_tokens)
        self._tool_tokens = told if told is not None else self._tool_tokens
        return ReportedUsage(
            count(usage.total_input_tokens),
            count(usage.total_output_tokens),
            count(usage.total_cached_tokens),
            None,
            count(usage.total_thought_tokens),
        )


# ---------------------------------------------------------------- the request


class _Input(Struct, gc=False):
    """One of `input`: a content part, or a step or turn with content of its own."""

    type: str | None = None
    role: str | None = None
    text: str | None = None
    content: str | list[_Content] | None = None
    result: Any = None


class _Tool(Struct, gc=False):
    type: str | None = None
    name: str | None = None
    parameters: Raw = Raw()


class _Format(Struct, gc=False):
    type: str | None = None
    mime_type: str | None = None
    schema: Raw = Raw()


class _Config(Struct, gc=False):
    max_output_tokens: int | None = None


class _Request(Struct, gc=False):
    model: str | None = None
    agent: str | None = None
    stream: bool | None = None
    input: str | list[_Input] | _Input | None = None
    system_instruction: str | None = None
    tools: list[_Tool] | None = None
    response_format: Raw = Raw()
    response_mime_type: str | None = None
    generation_config: _Config | None = None


_decode_request = Decoder(_Request)
_decode_format = Decoder(_Format)


def _turns(asked: str | list[_Input] | _Input | None) -> list[Turn]:
    if isinstance(asked, str):
        return [Turn("user", "text", asked)]
    each = asked if isinstance(asked, list) else [asked] if asked is not None else []
    turns: list[Turn] = []
    for one in each:
        role = "assistant" if one.role in ("model", "assistant") or one.type in ("model_output", "thought") else "user"
        if one.type == "function_result":
            told = one.result if isinstance(one.result, str) else json_text(one.result)
            turns.append(Turn("tool", "tool_result", told))
        elif one.text:
            turns.append(Turn(role, "text", one.text))
        elif isinstance(one.content, str):
            turns.append(Turn(role, "text", one.content))
        else:
            turns += [Turn(role, "text", part.text) for part in one.content or () if part.text]
    return turns


def _expectation(asked: _Request) -> Expectation | None:
    """`response_format` is a schema itself, or names its type and schema."""
    written = raw_bytes(asked.response_format)
    if written is None:
        return Expectation("json") if asked.response_mime_type == "application/json" else None
    if not written.lstrip().startswith(b"{"):
        return None
    told = _decode_format(written)
    inner = raw_bytes(told.schema)
    if inner is not None:
        return Expectation("json_schema", inner)
    if told.type == "text":
        return Expectation("json") if told.mime_type == "application/json" else None
    return Expectation("json_schema", written)


class GeminiInteractions:
    """POST …/interactions."""

    name = "gemini.interactions"
    operation = "generate_content"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        path = request.path.rstrip("/")
        return request.method == "POST" and path.endswith("/interactions") and _PATH.search(path) is not None

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        asked = _decode_request(body)
        system = [Turn("system", "text", asked.system_instruction)] if asked.system_instruction else []
        turns = [*system, *_turns(asked.input)]
        query, context = split(turns)
        return RequestFacts(
            model=asked.model or asked.agent or None,
            stream=asked.stream is True,
            expectation=_expectation(asked),
            tool_schemas={
                tool.name: schema
                for tool in asked.tools or ()
                if tool.name and (schema := raw_bytes(tool.parameters)) is not None
            },
            query=query,
            context=context,
            prompt=prompt_facts(turns),
            max_output_tokens=asked.generation_config.max_output_tokens
            if asked.generation_config is not None
            else None,
        )

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return InteractionReader(response)
