"""Amazon Bedrock's Converse and ConverseStream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct, field

from collector.dialects.aws import error_of_frame, error_of_response
from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, PlainDecoder, SomeText, UnreadableError, count, json_text, raw_bytes
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

MAX_PHASE = 1e6  # seconds; what says more is no duration

# ---------------------------------------------------------------- the response on the wire


class _ToolUse(Struct, gc=False):
    """A call, whole or as it starts; in a delta only `input`, a piece of JSON text. Server tools are told alike."""

    name: str | None = None
    input: dict[str, Any] | str | None = None


class _Reasoning(Struct, gc=False, rename="camel"):
    """Whole in `reasoningText`, a piece of a stream in `text`."""

    reasoning_text: _Reasoning | None = None
    text: str | None = None


class _Cited(Struct, gc=False):
    text: str | None = None


class _Citation(Struct, gc=False, rename="camel"):
    source_content: list[_Cited] | None = None


class _Citations(Struct, gc=False):
    content: list[_Cited] | None = None
    citations: list[_Citation] | None = None


class _Block(Struct, gc=False, rename="camel"):
    """A content block, the start of one, or a delta of one."""

    text: str | None = None
    tool_use: _ToolUse | None = None
    reasoning_content: _Reasoning | None = None
    citations_content: _Citations | None = None
    citation: _Citation | None = None  # in a stream, one by one


class _Message(Struct, gc=False):
    content: list[_Block] | None = None


class _Output(Struct, gc=False):
    message: _Message | None = None


class _Usage(Struct, gc=False, rename="camel"):
    """Nova's own names for cached tokens (`…TokenCount`) stand beside those of Converse."""

    input_tokens: int | float | None = None
    output_tokens: int | float | None = None
    cache_read_input_tokens: int | float | None = None
    cache_read_input_token_count: int | float | None = None
    cache_write_input_tokens: int | float | None = None
    cache_write_input_token_count: int | float | None = None


class _Metrics(Struct, gc=False, rename="camel"):
    latency_ms: float | int | None = None


class _Router(Struct, gc=False, rename="camel"):
    invoked_model_id: str | None = None


class _Trace(Struct, gc=False, rename="camel"):
    prompt_router: _Router | None = None


class _Body(Struct, gc=False, rename="camel"):
    """The payload of an event, or a whole answer."""

    output: _Output | None = None
    start: _Block | None = None
    delta: _Block | None = None
    content_block_index: int | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None
    metrics: _Metrics | None = None
    trace: _Trace | None = None


_decode = Decoder(_Body)


class _PlainBlock(Struct, gc=False, rename="camel"):
    text: SomeText
    tool_use: None = None
    reasoning_content: None = None
    citations_content: None = None
    citation: None = None


class _PlainBody(Struct, gc=False, rename="camel"):
    """The payload that most payloads are: a piece of text. `_Body`, narrowed."""

    delta: _PlainBlock
    content_block_index: int | None = None
    output: None = None
    start: None = None
    stop_reason: None = None
    usage: None = None
    metrics: None = None
    trace: None = None


_decode_plain = PlainDecoder(_PlainBody)


def _reported(usage: _Usage | None) -> ReportedUsage | None:
    if usage is None:
        return None
    read, written = count(usage.cache_read_input_tokens), count(usage.cache_write_input_tokens)
    return ReportedUsage(
        count(usage.input_tokens),
        count(usage.output_tokens),
        count(usage.cache_read_input_token_count) if read is None else read,
        count(usage.cache_write_input_token_count) if written is None else written,
    )


def _phases(metrics: _Metrics | None) -> tuple[tuple[str, float], ...]:
    millis = metrics.latency_ms if metrics is not None else None
    return (("total", millis / 1000),) if millis is not None and 0 <= millis / 1000 < MAX_PHASE else ()


def _served(trace: _Trace | None) -> str | None:
    """The model a prompt router chose: the only place where an answer names its model. Of an ARN, its last part."""
    chosen = trace.prompt_router.invoked_model_id if trace is not None and trace.prompt_router is not None else None
    return chosen.rpartition("/")[2] or None if chosen else None


def normal_usage(reported: ReportedUsage) -> Usage:
    """Bedrock counts cached tokens beside the input; the normal form counts them inside."""
    parts = (reported.input_tokens, reported.cached_input_tokens, reported.cache_creation_input_tokens)
    return Usage(
        None if reported.input_tokens is None else sum(part for part in parts if part is not None),
        reported.output_tokens,
        reported.cached_input_tokens,
        reported.cache_creation_input_tokens,
    )


class ConverseReader:
    """Events of a stream, each named by its frame, or one whole answer."""

    def __init__(self, response: ResponseHead) -> None:
        self._response = response
        self._calls: dict[int, int] = {}  # content block → tool call

    def read(self, frame: Frame) -> Delta | TextPiece | None:
        if frame.kind != "data":
            return None
        fault = error_of_frame(frame) if frame.event != "contentBlockDelta" else None  # most are
        if fault is not None:
            return Delta(error=fault)
        if self._response.status >= 400:
            return Delta(error=error_of_response(frame.data, self._response))
        try:
            body = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True)
        if frame.event == "contentBlockDelta":
            return self._piece(body.content_block_index or 0, body.delta or _Block())
        return self._delta(body, frame.event)

    def texts(self, payloads: Sequence[bytes]) -> list[str]:
        return [body.delta.text for body in _decode_plain(payloads)]

    def ended_well(self) -> bool:
        """Only `messageStop` ends a stream."""
        return False

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        return normal_usage(reported)

    def _delta(self, body: _Body, event: str | None) -> Delta:
        at = body.content_block_index or 0
        match event:
            case "messageStart":
                return Delta(choices=1)
            case "contentBlockStart":
                return self._begin(at, body.start or _Block())
            case "messageStop":
                return Delta(finish=(Finish(0, body.stop_reason),) if body.stop_reason else (), terminal=True)
            case "metadata":
                return Delta(usage=_reported(body.usage), phases=_phases(body.metrics), model=_served(body.trace))
            case None:
                return self._whole(body)
        return Delta()

    def _begin(self, at: int, start: _Block) -> Delta:
        if start.tool_use is None:
            return Delta()
        number = self._calls.get(at, len(self._calls))
        if number < MAX_CALLS:
            self._calls[at] = number
        return Delta(tools=(ToolPiece(0, number, start.tool_use.name),))

    def _piece(self, at: int, delta: _Block) -> Delta | TextPiece:
        if delta.text:
            return TextPiece(0, delta.text)
        if delta.reasoning_content is not None and delta.reasoning_content.text:
            return Delta(reasoning=(TextPiece(0, delta.reasoning_content.text),))
        if delta.tool_use is not None and at in self._calls:
            piece = delta.tool_use.input
            more = json_text(piece) if isinstance(piece, dict) else piece
            return Delta(tools=(ToolPiece(0, self._calls[at], None, more),)) if more else Delta()
        return Delta(sources=_quoted([delta.citation])) if delta.citation is not None else Delta()

    def _whole(self, body: _Body) -> Delta:
        text: list[TextPiece] = []
        reasoning: list[TextPiece] = []
        tools: list[ToolPiece] = []
        cited: list[_Citation] = []
        message = body.output.message if body.output is not None else None
        for block in (message.content if message is not None else None) or ():
            if block.text:
                text.append(TextPiece(0, block.text))
            if block.citations_content is not None:
                text += [TextPiece(0, said.text) for said in block.citations_content.content or () if said.text]
                cited += block.citations_content.citations or []
            thought = block.reasoning_content
            thought = thought.reasoning_text if thought is not None and thought.reasoning_text is not None else thought
            if thought is not None and thought.text:
                reasoning.append(TextPiece(0, thought.text))
            if block.tool_use is not None:
                given = block.tool_use.input
                arguments = given if isinstance(given, str) else json_text({} if given is None else given)
                tools.append(ToolPiece(0, len(tools), block.tool_use.name, arguments))
        return Delta(
            text=tuple(text),
            reasoning=tuple(reasoning),
            tools=tuple(tools),
            finish=(Finish(0, body.stop_reason),) if body.stop_reason else (),
            choices=1 if message is not None or body.stop_reason else 0,
            model=_served(body.trace),
            usage=_reported(body.usage),
            phases=_phases(body.metrics),
            terminal=body.stop_reason is not None,
            sources=_quoted(cited),
        )


def _quoted(citations: list[_Citation]) -> Sources | None:
    texts = tuple(part.text for citation in citations for part in citation.source_content or () if part.text)
    return Sources(texts) if texts else None


# ---------------------------------------------------------------- the request


class _GuardText(Struct, gc=False):
    text: str | None = None
    qualifiers: list[str] | None = None


class _Guarded(Struct, gc=False):
    text: _GuardText | None = None


class _Source(Struct, gc=False):
    text: str | None = None
    content: list[_RequestBlock] | None = None


class _Document(Struct, gc=False):
    source: _Source | None = None


class _ToolResult(Struct, gc=False):
    content: list[_RequestBlock] | None = None


class _SearchResult(Struct, gc=False):
    content: list[_RequestBlock] | None = None


class _RequestBlock(Struct, gc=False, rename="camel"):
    text: str | None = None
    json: Any = None
    guard_content: _Guarded | None = None
    document: _Document | None = None
    tool_result: _ToolResult | None = None
    search_result: _SearchResult | None = None


class _RequestMessage(Struct, gc=False):
    role: str | None = None
    content: list[_RequestBlock] | str | None = None


class _InputSchema(Struct, gc=False):
    json: Raw = Raw()


class _ToolSpec(Struct, gc=False, rename="camel"):
    name: str | None = None
    input_schema: _InputSchema | None = None


class _Tool(Struct, gc=False, rename="camel"):
    tool_spec: _ToolSpec | None = None


class _ToolConfig(Struct, gc=False):
    tools: list[_Tool] | None = None


class _JsonSchema(Struct, gc=False):
    schema: str | None = None
    name: str | None = None


class _Structure(Struct, gc=False, rename="camel"):
    json_schema: _JsonSchema | None = None


class _TextFormat(Struct, gc=False):
    type: str | None = None
    structure: _Structure | None = None


class _OutputConfig(Struct, gc=False, rename="camel"):
    text_format: _TextFormat | None = None


class _InferenceConfig(Struct, gc=False):
    max_tokens: int | None = field(default=None, name="maxTokens")
    max_new_tokens: int | None = None  # Nova's own body


class _Request(Struct, gc=False, rename="camel"):
    system: list[_RequestBlock] | None = None
    messages: list[_RequestMessage] | None = None
    inference_config: _InferenceConfig | None = None
    tool_config: _ToolConfig | None = None
    output_config: _OutputConfig | None = None


_decode_request = Decoder(_Request)
MAX_NESTING = 4  # of documents and results in the blocks of a message


def _turns(role: str, content: list[_RequestBlock] | str | None, kind: str = "text", depth: int = 0) -> list[Turn]:
    if isinstance(content, str):
        return [Turn(role, kind, content)]
    turns: list[Turn] = []
    for block in content or () if depth < MAX_NESTING else ():
        if block.text:
            turns.append(Turn(role, kind, block.text))
        elif block.guard_content is not None and block.guard_content.text is not None:
            guarded = block.guard_content.text
            grounds = "grounding_source" in (guarded.qualifiers or ())
            turns.append(Turn(role, "document" if grounds else kind, guarded.text or ""))
        elif block.tool_result is not None:
            turns += _turns("tool", block.tool_result.content, "tool_result", depth + 1)
        elif block.search_result is not None:
            turns += _turns(role, block.search_result.content, "document", depth + 1)
        elif block.document is not None and block.document.source is not None:
            if block.document.source.text:
                turns.append(Turn(role, "document", block.document.source.text))
            turns += _turns(role, block.document.source.content, "document", depth + 1)
        elif block.json is not None:
            turns.append(Turn(role, kind, json_text(block.json)))
    return turns


def _expectation(config: _OutputConfig | None) -> Expectation | None:
    """The schema stands in a string (AWS, OutputFormatStructure)."""
    wish = config.text_format if config is not None else None
    if wish is None or wish.type != "json_schema":
        return None
    told = wish.structure.json_schema if wish.structure is not None else None
    if told is None or not told.schema:
        return Expectation("json")
    return Expectation("json_schema", told.schema.encode("utf-8", "replace"), told.name)


class BedrockConverse:
    """POST /model/{model}/converse and /converse-stream."""

    name = "bedrock.converse"
    operation = "chat"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        path = request.path.rstrip("/")
        return request.method == "POST" and "/model/" in path and path.endswith(("/converse", "/converse-stream"))

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        asked = _decode_request(body)
        turns = _turns("system", asked.system)
        for message in asked.messages or ():
            turns += _turns(message.role or "user", message.content)
        query, context = split(turns)
        specs = [tool.tool_spec for tool in (asked.tool_config.tools if asked.tool_config else None) or ()]
        limits = asked.inference_config or _InferenceConfig()
        return RequestFacts(
            expectation=_expectation(asked.output_config),
            tool_schemas={
                spec.name: schema
                for spec in specs
                if spec is not None
                and spec.name
                and spec.input_schema is not None
                and (schema := raw_bytes(spec.input_schema.json)) is not None
            },
            query=query,
            context=context,
            prompt=prompt_facts(turns),
            max_output_tokens=limits.max_new_tokens if limits.max_tokens is None else limits.max_tokens,
        )

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return ConverseReader(response)
