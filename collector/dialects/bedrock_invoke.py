"""Amazon Bedrock's InvokeModel and InvokeModelWithResponseStream: each model family in its own words.

Which words a body is in is read off the body: inference profiles and imported models hide the family from the path.
Bodies of families that have a dialect of their own are read by it; those dialects are passed in.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from collector.dialects.aws import error_of_frame, error_of_response
from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, UnreadableError, count, json_text, raw_bytes
from collector.dialects.errors import ErrorBody, wire_error
from collector.dialects.paths import model_of
from collector.model import (
    MAX_CALLS,
    MAX_CHOICES,
    Delta,
    Dialect,
    Finish,
    Frame,
    Headers,
    Reader,
    ReportedUsage,
    RequestFacts,
    RequestHead,
    ResponseHead,
    TextPiece,
    ToolPiece,
    Usage,
)

METRICS = b'"amazon-bedrock-invocationMetrics"'
GUARDED = b'"amazon-bedrock-guardrailAction"'
MAX_PHASE = 1e6  # seconds; what says more is no duration
MAX_PROMPT = 65_536  # characters of a prompt in which turns are looked for
CONVERSE_EVENTS = (
    "messageStart",
    "contentBlockStart",
    "contentBlockDelta",
    "contentBlockStop",
    "messageStop",
    "metadata",
)
MESSAGES_TYPES = re.compile(rb'"(?:message|message_\w+|content_block_\w+|ping|error)"')


class Families(Struct, frozen=True):
    """The dialects that the families speak who have one."""

    messages: Dialect  # Anthropic
    converse: Dialect  # Nova
    chat: Dialect  # Jamba, DeepSeek, gpt-oss, Qwen, Writer and others who speak like OpenAI
    cohere: Dialect  # Command R


# ---------------------------------------------------------------- the response on the wire


class _Chunk(Struct, gc=False):
    """The payload of an event of type `chunk`: what the model said, in base64."""

    bytes: str | None = None


class _Metrics(Struct, gc=False, rename="camel"):
    input_token_count: int | float | None = None
    output_token_count: int | float | None = None
    cache_read_input_token_count: int | float | None = None
    cache_write_input_token_count: int | float | None = None
    invocation_latency: int | float | None = None
    first_byte_latency: int | float | None = None


class _Added(Struct, gc=False):
    """What Bedrock adds to a model's own words."""

    metrics: _Metrics | None = field(default=None, name="amazon-bedrock-invocationMetrics")
    guardrail: str | None = field(default=None, name="amazon-bedrock-guardrailAction")


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolCall(Struct, gc=False):
    function: _Function | None = None


class _Message(Struct, gc=False):
    content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Reason(Struct, gc=False):
    reason: str | None = None


class _Inner(Struct, gc=False):
    text: str | None = None


class _Item(Struct, gc=False):
    """One choice, whatever its family calls it: Titan's result, Mistral's output, Cohere's generation."""

    index: int | None = None
    text: str | None = None
    output_text: str | None = field(default=None, name="outputText")
    inner: _Inner | None = field(default=None, name="data")
    message: _Message | None = None
    stop_reason: str | None = None
    finish_reason: str | None = None
    completion_reason: str | None = field(default=None, name="completionReason")
    inner_reason: _Reason | None = field(default=None, name="finishReason")
    tokens: int | float | None = field(default=None, name="tokenCount")


class _Said(_Item, gc=False):
    """A body with its choices in a list, or with the one choice in itself."""

    results: list[_Item] | None = None  # Titan
    outputs: list[_Item] | None = None  # Mistral
    generations: list[_Item] | None = None  # Cohere
    completions: list[_Item] | None = None  # Jurassic
    choices: list[_Item] | None = None  # DeepSeek, Mistral's chat models
    completion: str | None = None  # Claude's first API
    generation: str | None = None  # Llama
    prompt_token_count: int | float | None = None
    generation_token_count: int | float | None = None
    titan_input: int | float | None = field(default=None, name="inputTextTokenCount")
    titan_output: int | float | None = field(default=None, name="totalOutputTextTokenCount")
    is_finished: bool | None = None
    error: ErrorBody | str | None = None


_decode_chunk = Decoder(_Chunk)
_decode_added = Decoder(_Added)
_decode = Decoder(_Said)
_keys = msgspec.json.Decoder(dict[str, Raw]).decode


class InvokeReader:
    """Chunks of a stream, or one whole answer."""

    def __init__(self, families: Families, request: RequestHead, response: ResponseHead) -> None:
        self._families = families
        self._request = request
        self._response = response
        self._inner: Reader | None = None  # of the family's own dialect, once a body has shown it
        self._by_events = False  # that dialect is Converse's, whose events have their names inside
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self._reported = ReportedUsage()

    def read(self, frame: Frame) -> Delta | TextPiece | None:
        if frame.kind != "data":
            return None
        fault = error_of_frame(frame)
        if fault is not None:
            return Delta(error=fault)
        if self._response.status >= 400:
            return Delta(error=error_of_response(frame.data, self._response))
        if frame.event is None:
            return self._payload(frame.data, whole=True)
        if frame.event != "chunk":
            return Delta()
        try:
            told = _decode_chunk(frame.data).bytes
            payload = b64decode(told or "", validate=True)
        except (UnreadableError, binascii.Error, ValueError):
            return Delta(malformed=True)
        return self._payload(payload, whole=False) if payload else Delta()

    def ended_well(self) -> bool:
        """Whether every choice seen has said how it finished, where Bedrock's own numbers do not end the stream."""
        if self._inner is not None:
            return self._inner.ended_well()
        return bool(self._seen) and self._seen == self._finished

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        """As the family's dialect has it, with the counts of the headers where the body has none."""
        headers = self._response.headers
        filled = _filled(
            reported,
            _header(headers, "input"),
            _header(headers, "output"),
            _header(headers, "cache-read-input"),
            _header(headers, "cache-write-input"),
        )
        if self._inner is not None:
            return self._inner.normal_usage(filled)
        return self._families.converse.reader(self._request, self._response).normal_usage(filled)

    def _payload(self, data: bytes, whole: bool) -> Delta | TextPiece:
        try:
            if self._inner is None and not self._seen:  # a choice seen was one of plain text: so are those that follow
                self._choose(data)
            said = self._read_inner(data) if self._inner is not None else self._plain(_decode(data), whole)
        except UnreadableError:
            return Delta(malformed=True)
        if isinstance(said, Delta) and said.usage is not None:
            self._reported = _merged(self._reported, said.usage)
        if METRICS in data or GUARDED in data:
            return self._with_added(Delta(text=(said,)) if isinstance(said, TextPiece) else said, data)
        return said

    def _choose(self, data: bytes) -> None:
        """Take the dialect whose words a body is in, if it is in those of one."""
        try:
            keys = _keys(data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return
        families, chosen = self._families, None
        if not keys.keys().isdisjoint(CONVERSE_EVENTS):
            chosen, self._by_events = families.converse, True
        elif "output" in keys and "stopReason" in keys:
            chosen = families.converse
        elif MESSAGES_TYPES.fullmatch(bytes(keys.get("type", Raw()))):
            chosen = families.messages
        elif "event_type" in keys or ("text" in keys and "generation_id" in keys):
            chosen = families.cohere
        elif _is_chat(keys.get("choices", Raw())):
            chosen = families.chat
        if chosen is not None:
            self._inner = chosen.reader(self._request, self._response)

    def _read_inner(self, data: bytes) -> Delta | TextPiece:
        if self._inner is None:
            return Delta()
        if not self._by_events:
            return self._inner.read(Frame(data)) or Delta()
        try:
            keys = _keys(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise UnreadableError from error
        for name in CONVERSE_EVENTS:
            if name in keys:
                return self._inner.read(Frame(bytes(keys[name]), name)) or Delta()
        return Delta()

    def _plain(self, body: _Said, whole: bool) -> Delta:
        """What the families say that have but a text, its end and perhaps counts.

        In a stream an empty word is no word for the end; in a whole answer it is all that was said.
        """
        if (isinstance(body.error, ErrorBody) and body.error.says_something) or (
            isinstance(body.error, str) and body.error
        ):
            return Delta(error=wire_error(body.error if isinstance(body.error, ErrorBody) else ErrorBody()))
        lists = (body.results, body.outputs, body.generations, body.completions, body.choices)
        items = next((items for items in lists if items is not None), None)
        text: list[TextPiece] = []
        finish: list[Finish] = []
        tools: list[ToolPiece] = []
        for position, item in enumerate([body] if items is None else items):
            choice = position if item.index is None else item.index
            told, reason = _text(item), _reason(item)
            reason = reason if reason or whole else None
            if told is None and reason is None:
                continue
            if told:
                text.append(TextPiece(choice, told))
            if 0 <= choice < MAX_CHOICES:
                self._seen.add(choice)
                if reason is not None:
                    self._finished.add(choice)
            if reason is not None:
                finish.append(Finish(choice, reason))
            calls = item.message.tool_calls if item.message is not None else None
            tools += [_tool(choice, number, call) for number, call in enumerate((calls or ())[: MAX_CALLS + 1])]
        return Delta(
            text=tuple(text),
            tools=tuple(tools),
            finish=tuple(finish),
            choices=max(self._seen, default=-1) + 1,
            usage=_counted(body),
        )

    def _with_added(self, said: Delta, data: bytes) -> Delta:
        """Bedrock's own numbers end a stream, and tell the usage where the model does not; a guardrail may block."""
        try:
            added = _decode_added(data)
        except UnreadableError:
            return said
        if added.guardrail == "INTERVENED":
            said = msgspec.structs.replace(said, blocked=True)
        metrics = added.metrics
        if metrics is None:
            return said
        told = (
            metrics.input_token_count,
            metrics.output_token_count,
            metrics.cache_read_input_token_count,
            metrics.cache_write_input_token_count,
        )
        self._reported = _filled(self._reported, *map(count, told))
        named = (("total", metrics.invocation_latency), ("first_token", metrics.first_byte_latency))
        phases = tuple(
            (name, millis / 1000) for name, millis in named if millis is not None and 0 <= millis / 1000 < MAX_PHASE
        )
        return msgspec.structs.replace(said, usage=self._reported, phases=(*said.phases, *phases), terminal=True)


def _is_chat(choices: Raw) -> bool:
    """Whether choices are OpenAI's: Mistral's on Bedrock have a `stop_reason`, DeepSeek's a bare text."""
    written = bytes(choices)
    return b'"delta"' in written or (b'"message"' in written and b'"stop_reason"' not in written)


def _text(item: _Item) -> str | None:
    if isinstance(item, _Said):
        if item.completion is not None:
            return item.completion
        if item.generation is not None:
            return item.generation
    if item.output_text is not None:
        return item.output_text
    if item.inner is not None:
        return item.inner.text
    if item.message is not None:
        return item.message.content or ""
    return item.text


def _reason(item: _Item) -> str | None:
    """The word for the end."""
    inner = item.inner_reason.reason if item.inner_reason is not None else None
    words = (item.stop_reason, item.finish_reason, item.completion_reason, inner)
    return next((word for word in words if word is not None), None)


def _tool(choice: int, number: int, call: _ToolCall) -> ToolPiece:
    function = call.function or _Function()
    given = function.arguments
    arguments = given if isinstance(given, str) else json_text({} if given is None else given)
    return ToolPiece(choice, number, function.name, arguments)


def _counted(body: _Said) -> ReportedUsage | None:
    """Llama's and Titan's counts; Titan gives them per result, and as fractions of nothing (`24.0`)."""
    into = count(body.prompt_token_count)
    out = count(body.generation_token_count)
    if into is None:
        into = count(body.titan_input)
    if out is None:
        out = count(body.titan_output)
    if out is None and body.results:
        each = [count(result.tokens) for result in body.results]
        told = [tokens for tokens in each if tokens is not None]
        out = sum(told) if told and len(told) == len(each) else None
    return ReportedUsage(into, out) if into is not None or out is not None else None


def _merged(old: ReportedUsage, new: ReportedUsage) -> ReportedUsage:
    """The last number of each field."""
    return msgspec.structs.replace(
        old, **{name: value for name in old.__struct_fields__ if (value := getattr(new, name)) is not None}
    )


def _filled(
    told: ReportedUsage, into: int | None, out: int | None, read: int | None, written: int | None
) -> ReportedUsage:
    """The same, with these numbers where it has none. Cached tokens go with the input: nobody's are mixed."""
    if told.input_tokens is None:
        told = msgspec.structs.replace(
            told,
            input_tokens=into,
            cached_input_tokens=read if told.cached_input_tokens is None else told.cached_input_tokens,
            cache_creation_input_tokens=written
            if told.cache_creation_input_tokens is None
            else told.cache_creation_input_tokens,
        )
    return msgspec.structs.replace(told, output_tokens=out) if told.output_tokens is None else told


def _header(headers: Headers, what: str) -> int | None:
    value = headers.first(f"x-amzn-bedrock-{what}-token-count")
    return int(value) if value is not None and re.fullmatch(r"[0-9]{1,12}", value) else None


# ---------------------------------------------------------------- the request


class _Asked(Struct, gc=False):
    anthropic_version: str | None = None
    schema_version: str | None = field(default=None, name="schemaVersion")
    inference_config: Raw = field(default_factory=Raw, name="inferenceConfig")
    messages: Raw = Raw()
    message: str | None = None  # Command R
    prompt: str | None = None
    input_text: str | None = field(default=None, name="inputText")
    max_tokens: int | None = None
    max_gen_len: int | None = None
    max_tokens_to_sample: int | None = None
    jurassic_limit: int | None = field(default=None, name="maxTokens")


_decode_asked = Decoder(_Asked)
# Turns of a prompt: Claude's first API, Llama 3, Llama 2 and Mistral. What is in none of these is one turn of the user.
_CLAUDE = re.compile(r"\n[ \t]{0,8}(Human|Assistant|User|Bot):")


def prompt_turns(prompt: str) -> list[Turn]:
    """The turns of a prompt that its model's template wraps into one text."""
    text = prompt[-MAX_PROMPT:]
    if "<|start_header_id|>" in text:
        told = [part.partition("<|end_header_id|>") for part in text.split("<|start_header_id|>")[1:]]
        turns = [Turn(role.strip()[:20], "text", said.partition("<|eot_id|>")[0]) for role, _, said in told]
    elif "[INST]" in text:
        turns = []
        for part in text.split("[INST]")[1:]:
            said, _, answer = part.partition("[/INST]")
            before, begun, rest = said.partition("<<SYS>>")
            system, _, after = rest.partition("<</SYS>>")
            turns += [Turn("system", "text", system), Turn("user", "text", before + after if begun else said)]
            turns.append(Turn("assistant", "text", answer.replace("</s>", "").replace("<s>", "")))
    else:
        before, *named = _CLAUDE.split(f"\n{text}")
        if not named:
            return [Turn("user", "text", text)]
        turns = [Turn("system", "text", before)]
        for who, said in zip(named[::2], named[1::2], strict=True):
            turns.append(Turn("user" if who in ("Human", "User") else "assistant", "text", said))
    return [turn._replace(text=turn.text.strip()) for turn in turns if turn.text.strip()]


class BedrockInvoke:
    """POST /model/{model}/invoke and /invoke-with-response-stream, but for models that embed."""

    name = "bedrock.invoke"
    operation = "chat"
    embeds = False

    def __init__(self, families: Families) -> None:
        self._families = families

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        path = request.path.rstrip("/")
        invokes = "/model/" in path and path.endswith(("/invoke", "/invoke-with-response-stream"))
        return request.method == "POST" and invokes and ("embed" in (model_of(path) or "")) is self.embeds

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        asked = _decode_asked(body)
        families = self._families
        messages = raw_bytes(asked.messages)
        if asked.anthropic_version is not None:
            facts = families.messages.request_facts(body)
        elif asked.schema_version is not None or raw_bytes(asked.inference_config) is not None:
            facts = families.converse.request_facts(body)
        elif messages is not None:
            facts = families.chat.request_facts(body)
        elif asked.message is not None:
            facts = families.cohere.request_facts(body)
        else:
            prompt = asked.prompt if asked.prompt is not None else asked.input_text
            query, context = split(prompt_turns(prompt)) if prompt is not None else (None, ())
            limits = (asked.max_tokens, asked.max_gen_len, asked.max_tokens_to_sample, asked.jurassic_limit)
            limit = next((each for each in limits if each is not None), None)
            facts = RequestFacts(query=query, context=context, max_output_tokens=limit)
        # A model named in the body is not what is invoked.
        return msgspec.structs.replace(facts, model=None)

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return InvokeReader(self._families, request, response)


class BedrockEmbeddings(BedrockInvoke):
    """POST /model/{model}/invoke for models that embed."""

    name = "bedrock.embeddings"
    operation = "embeddings"
    embeds = True

    def request_facts(self, body: bytes) -> RequestFacts:
        """Texts that are embedded ask nothing."""
        return RequestFacts()
