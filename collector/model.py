"""The facts that pass between the rooms: events, frames, deltas, exchanges, readings, and the small protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import msgspec
from msgspec import UNSET, Struct, UnsetType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# ---------------------------------------------------------------- events: what the proxy tells the analyst

HowEnded = Literal[
    "complete",  # the response's framing was satisfied, or the tunnel closed
    "client_disconnect",  # the service went away first
    "upstream_cut",  # upstream closed or reset inside the response, or broke the protocol
    "connect_failed",  # no connection to the upstream; the proxy answered 502
    "upstream_failed",  # the connection broke before any response; the proxy answered 502
    "upstream_timeout",  # connecting or the response head took too long; the proxy answered 504
    "shutdown",  # the proxy's own deadline ended it
]


class RequestSeen(Struct, frozen=True, array_like=True, tag="q", gc=False):
    """A request head has arrived in full. `at` is monotonic seconds, `wall` Unix seconds (0 for a recording that does
    not say).

    `head` is the client's bytes up to and including the empty line; its body follows as `BytesSeen`. `span_id` is what
    `traceparent` was given as its parent, where the proxy rewrites it.
    """

    id: int
    at: float
    wall: float
    route: str
    head: bytes
    span_id: str | None = None


class ResponseSeen(Struct, frozen=True, array_like=True, tag="p", gc=False):
    """A final (not 1xx, but 101) response head has arrived in full.

    `forwarded_at` is when the request head was written upstream; `connect` the seconds spent connecting, None when
    a pooled connection served.
    """

    id: int
    at: float
    forwarded_at: float
    connect: float | None
    head: bytes


class BytesSeen(Struct, frozen=True, array_like=True, tag="b", gc=False):
    """Bytes after a head, exactly as on the wire (transfer coding included), at the time they were read."""

    id: int
    at: float
    from_upstream: bool
    data: bytes


class ClientBlocked(Struct, frozen=True, array_like=True, tag="c", gc=False):
    """The client did not read for `seconds`, until `at`; the upstream was not read meanwhile."""

    id: int
    at: float
    seconds: float


class ExchangeEnded(Struct, frozen=True, array_like=True, tag="e", gc=False):
    """The last event of an exchange. `added` is the sidecar's own share of the time, in seconds.

    `status` is what the client was sent when the proxy itself answered, else None.
    """

    id: int
    at: float
    how: HowEnded
    added: float
    status: int | None = None
    forwarded_at: float | None = None
    connect: float | None = None


class ExchangeDropped(Struct, frozen=True, array_like=True, tag="d", gc=False):
    """The proxy stopped telling of this exchange; it was counted there, and the analyst forgets it."""

    id: int


class ProxyVitals(Struct, frozen=True, array_like=True, tag="v", gc=False):
    """Cumulative totals of one proxy worker, sent when it connects and about once a second.

    `boot` names the life of the worker: totals start at 0 with a new one.
    """

    worker: int
    boot: str
    at: float
    forwarded: int
    unobserved: dict[str, int]
    refused: dict[str, int]
    in_flight: int
    queue_bytes: int
    loop_lag: float
    starved: int = 0  # how often a connection could not be accepted, for want of descriptors or memory


Event = RequestSeen | ResponseSeen | BytesSeen | ClientBlocked | ExchangeEnded | ExchangeDropped | ProxyVitals


class Acknowledged(Struct, frozen=True, array_like=True):
    """The analyst's answer: how many more batches it has taken in, and which ended exchanges are recorded now.

    A record may come after its batch, when an answer has been validated and scored. The first answer on a connection
    is a greeting: `ended` are then exchanges of this worker that were recorded before, be it by an analyst that died.
    """

    batches: int
    ended: list[int]
    is_greeting: bool = False


# On the socket: 4-byte big-endian length, then msgpack. Lists of events flow to the analyst, acknowledgements back.
encode_events: Callable[[list[Event]], bytes] = msgspec.msgpack.Encoder().encode
decode_events: Callable[[bytes | memoryview], list[Event]] = msgspec.msgpack.Decoder(list[Event]).decode
encode_acknowledged: Callable[[Acknowledged], bytes] = msgspec.msgpack.Encoder().encode
decode_acknowledged: Callable[[bytes | memoryview], Acknowledged] = msgspec.msgpack.Decoder(Acknowledged).decode


# ---------------------------------------------------------------- heads


_first_of: Callable[[tuple[str, str]], str] = itemgetter(0)
_second_of: Callable[[tuple[str, str]], str] = itemgetter(1)


class Names:
    """The names of a head's lines, lower-cased and in order. Heads that have the same share one: what follows from
    names alone can be remembered by it.
    """

    __slots__ = ("all", "places")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.all = names
        self.places = {name: place for place, name in reversed(tuple(enumerate(names)))}  # where each stands first


class Headers:
    """Header lines in order. Names are lower-cased; values are stripped text (latin-1 when not UTF-8)."""

    __slots__ = ("shared", "values")

    def __init__(self, lines: Iterable[tuple[str, str]] = ()) -> None:
        told = tuple(lines)
        self.shared = Names(tuple(map(_first_of, told)))
        self.values = tuple(map(_second_of, told))

    @classmethod
    def of(cls, shared: Names, values: tuple[str, ...]) -> Headers:
        """As many values as there are names."""
        headers = cls.__new__(cls)
        headers.shared, headers.values = shared, values
        return headers

    @property
    def names(self) -> tuple[str, ...]:
        return self.shared.all

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        return tuple(zip(self.shared.all, self.values, strict=True))

    def first(self, name: str) -> str | None:
        """The first value of a lower-case name, or None."""
        place = self.shared.places.get(name)
        return None if place is None else self.values[place]

    def all(self, name: str) -> list[str]:
        """Every value of a lower-case name, in order."""
        return [value for key, value in self.lines if key == name] if name in self.shared.places else []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and self.lines == other.lines

    def __hash__(self) -> int:
        return hash(self.lines)

    def __repr__(self) -> str:
        return f"Headers({self.names!r})"  # values may be keys


class RequestHead(Struct, frozen=True):
    """`path` is the path the upstream sees, without its query; `host` is the upstream's, with its port if any."""

    method: str
    path: str
    host: str
    headers: Headers
    hint: str | None = None  # a provider named by the route or the recording
    dialect: str | None = None  # a dialect named by the route


class ResponseHead(Struct, frozen=True):
    status: int
    headers: Headers


# ---------------------------------------------------------------- wire and dialects


class Frame(Struct, frozen=True, gc=False):
    """One message of a transport: an SSE event, an NDJSON line, a whole body. Its data is not yet decoded.

    `kind` is `data`, or `comment` (an SSE comment), or `empty` (an event or line with no data), or `text` (bytes of
    UTF-8 that were generated themselves, in a transport without JSON), or a WebSocket's `ping` or `close`.
    """

    data: bytes
    event: str | None = None
    kind: Literal["data", "comment", "empty", "text", "ping", "close"] = "data"
    terminated: bool = True  # False: the end of the body cut it off


class Codec(Protocol):
    """Bytes → frames, incremental. `anomalies` are words of the catalogue; past a bound nothing more is read."""

    anomalies: list[str]

    def feed(self, data: bytes) -> Iterable[Frame]: ...
    def close(self) -> Iterable[Frame]: ...


MAX_CHOICES = 128  # choices of one answer that are followed
MAX_CALLS = 256  # and tool calls


class ReportedUsage(Struct, frozen=True, gc=False):
    """The provider's own numbers; None is not said."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_tokens: int | None = None  # as OpenRouter calls what it wrote to a cache


class Usage(Struct, frozen=True, gc=False):
    """Normal form: input includes cached tokens, output includes reasoning."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None
    reasoning_output_tokens: int | None = None


class WireError(Struct, frozen=True):
    """An error as the provider words it. `kind` is of the catalogue's ERROR_KINDS."""

    type: str | None
    code: str | None
    kind: str
    limiter: str | None = None


class TextPiece(Struct, frozen=True, gc=False):
    choice: int
    text: str


class ToolPiece(Struct, frozen=True, gc=False):
    """Part of a tool call. The key (choice, index) names the call; a name is given once, arguments grow."""

    choice: int
    index: int
    name: str | None = None
    arguments: str = ""


class Finish(Struct, frozen=True, gc=False):
    choice: int
    reason: str


class Sources(Struct, frozen=True, gc=False):
    """What an answer rests on, as the response tells: texts it cites word for word, and passages that the provider
    itself retrieved.
    """

    quoted: tuple[str, ...] = ()
    retrieved: tuple[str, ...] = ()


class Delta(Struct, frozen=True, gc=False):
    """What one frame said. Everything is optional."""

    text: tuple[TextPiece, ...] = ()
    reasoning: tuple[TextPiece, ...] = ()
    refusal: tuple[TextPiece, ...] = ()
    tools: tuple[ToolPiece, ...] = ()
    finish: tuple[Finish, ...] = ()
    choices: int = 0  # how many choices the body shows; those without a finish are reported as None
    model: str | None = None
    usage: ReportedUsage | None = None
    error: WireError | None = None
    blocked: bool = False  # the prompt was refused, with no choice to say so
    ping: bool = False
    terminal: bool = False  # the dialect's end of stream
    marker: bool = False  # this frame is nothing but the end marker, such as [DONE]
    malformed: bool = False
    phases: tuple[tuple[str, float], ...] = ()  # seconds, told in the body
    full_text: tuple[TextPiece, ...] = ()  # the provider's repeat of all that a choice has said so far
    retry_after: float | None = None  # seconds to wait before trying again, told in the body
    begins: bool = False  # one of several answers begins: the time before it is no gap
    limits: tuple[RateLimit, ...] = ()  # told in the body; resets count from this frame
    sources: Sources | None = None  # of the first choice


class Reader(Protocol):
    """Frames of one response → deltas. `normal_usage` is asked once, at the end.

    A frame that says one piece of text and nothing else may be told as that piece: most frames of a stream are such.
    `ended_well` tells whether a stream that HTTP ended cleanly is whole although no end marker came.
    """

    def read(self, frame: Frame) -> Delta | TextPiece | None: ...
    def ended_well(self) -> bool: ...
    def normal_usage(self, reported: ReportedUsage) -> Usage: ...


class FrameSource(Codec, Protocol):
    """A codec that can tell many events at once whether each is plain.

    `take_back` gives what was fed of an event that has not ended, to be fed again before what follows; None where that
    cannot be. `split` gives the whole events that bytes between events begin with. `payloads` gives the data of the
    first of these, as far as each is exactly one frame of kind `data` with this name, to which `feed` would add
    nothing. These count as fed; the first that is no such frame is not touched.
    """

    def take_back(self) -> bytes | None: ...
    def split(self, data: bytes) -> list[bytes]: ...
    def payloads(self, events: Sequence[bytes], name: str | None) -> list[bytes]: ...


class TextSource(Reader, Protocol):
    """A reader that can read many frames at once where each is plain text.

    The frames have the name of one that it told as a `TextPiece`. `texts` gives the text of the first payloads, as far
    as `read` would tell each as a `TextPiece` of choice 0. These count as read; the first that is none is not touched.
    """

    def texts(self, payloads: Sequence[bytes]) -> list[str]: ...


@runtime_checkable
class Listener(Protocol):
    """A reader that follows the client too, where both sides talk. `asked` is asked once, at the end.

    `hear` takes a frame from the client and tells whether it asked for an answer.
    """

    def hear(self, frame: Frame) -> bool: ...
    def asked(self) -> RequestFacts: ...


class Expectation(Struct, frozen=True):
    """The structured output that the request asked for; `schema` is JSON text, None for plain JSON.

    With `is_text` no JSON was asked for but a bare text, which the schema describes as a JSON string.
    """

    kind: Literal["json", "json_schema"]
    schema: bytes | None = None
    name: str | None = None
    is_text: bool = False


class PromptFacts(Struct, frozen=True, gc=False):
    """What the words of a prompt are like, without the words. Tokens are estimated, see dialects/prompt.py.

    `late_constraint` is `vague` or `conflict`; `longest_answer_tokens` is of the assistant's turns in the history.
    """

    system_tokens: int | None = None
    system_comments: int = 0  # markup comments in the system prompt
    has_cr_lf: bool = False  # in the system prompt
    late_constraint: str | None = None
    longest_answer_tokens: int | None = None


NO_WORDS = PromptFacts()  # of a prompt with nothing of these


class RequestFacts(Struct, frozen=True):
    """What a dialect reads out of the request. `context` are passages as sent; `query` is the last user turn."""

    model: str | None = None
    stream: bool = False
    expectation: Expectation | None = None
    tool_schemas: dict[str, bytes] = {}
    query: str | None = None
    context: tuple[str, ...] = ()
    max_output_tokens: int | None = None
    service_tier: str | None = None  # as asked for; it decides what tokens cost
    prompt: PromptFacts | None = None
    fallback_models: tuple[str, ...] = ()  # that may answer in place of `model`, as the request says
    include_usage: bool | None = None  # whether a stream was asked to tell its usage; None where that is no question


class Dialect(Protocol):
    """One provider's wire, in both directions. Stateless; readers hold the state of one response."""

    name: str
    operation: str

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool: ...
    def request_facts(self, body: bytes) -> RequestFacts: ...
    def reader(self, request: RequestHead, response: ResponseHead) -> Reader: ...


# ---------------------------------------------------------------- the parts of a record (docs/exchange-record.md)


class TextFact(Struct, frozen=True):
    """Hash and length (code points) of a text; the text itself is never exported."""

    sha256: str | None
    chars: int


class TextFacts(Struct, frozen=True):
    sha256: str | None
    chars: int
    choices: tuple[TextFact, ...] = ()


class ToolCallFact(Struct, frozen=True):
    choice: int
    index: int
    name: str | None
    arguments_sha256: str | None
    arguments_chars: int


class ErrorFact(Struct, frozen=True):
    type: str | None
    code: str | None
    kind: str
    source: Literal["upstream", "sidecar"]
    limiter: str | None
    mid_stream: bool


class FrameCounts(Struct, frozen=True):
    data: int | None = None
    comments: int = 0
    pings: int = 0
    malformed: int = 0
    content: int = 0
    done_marker: bool = False


class ChunkGaps(Struct, frozen=True):
    """Seconds between content frames; the statistics are None with no gap, `stddev` with fewer than two."""

    count: int | None
    mean: float | None = None
    stddev: float | None = None
    max: float | None = None
    gaps: tuple[float, ...] = ()


class Timing(Struct, frozen=True):
    connect: float | None = None
    headers: float | None = None
    first_byte: float | None = None
    first_token: float | None = None
    first_visible_token: float | None = None
    duration: float | None = None
    chunk_gaps: ChunkGaps = ChunkGaps(0)
    time_per_output_token: float | None = None
    stalls: int | None = None
    max_byte_gap: float | None = None
    client_blocked: float | None = None
    added: float | None = None


class RateLimit(Struct, frozen=True):
    scope: str
    window: str | None = None
    limit: float | None = None
    remaining: float | None = None
    used_ratio: float | None = None
    reset_after: float | None = None


class UpstreamFacts(Struct, frozen=True):
    request_id: str | None = None
    region: str | None = None
    residency_requested: str | None = None
    model_load: float | None = None
    kv_cache_hit_ratio: float | None = None
    cache_hit: bool | None = None
    phases: dict[str, float] = {}
    load: dict[str, float] = {}
    processing: float | None = None


class RuleResult(Struct, frozen=True):
    """What one rule of a contract says of an answer: `result` is of the catalogue's RULE_RESULTS, `reason` of its
    RULE_REASONS or None."""

    rule: str
    result: str
    reason: str | None = None


class RuleSet(Struct, frozen=True):
    """The rules of a contract as they travel to the validator, and their names in order."""

    text: bytes
    names: tuple[str, ...]


class Judgement(Struct, frozen=True):
    """`rules` is there where a contract with rules was applied."""

    choice: int
    tool_index: int | None
    kind: str
    result: str
    schema_id: str | None = None
    keyword: str | None = None
    rules: tuple[RuleResult, ...] | UnsetType = UNSET


class ValidationTask(Struct, frozen=True):
    """One output to judge. With a `result` it is decided already; else `text` is to be read against `schema`.

    `schema` is JSON text; None is any JSON (for kind `json`: any JSON object). With `rules`, None is any text.
    """

    choice: int
    tool_index: int | None
    kind: str
    text: str = ""
    schema: bytes | None = None
    schema_id: str | None = None
    result: str | None = None
    rules: RuleSet | None = None


class Validity(Struct, frozen=True):
    checked: bool
    valid: bool | None
    result: str
    kind: str
    schema_id: str | None
    judgements: tuple[Judgement, ...]
    tool_arguments: dict[str, str] = {}


class RawRelevance(Struct, frozen=True):
    context_relevance: float | None = None
    answer_relevance: float | None = None
    groundedness: float | None = None


class Relevance(Struct, frozen=True):
    scored: bool
    reason: str | None = None
    language: str | None = None
    context_relevance: float | None = None
    answer_relevance: float | None = None
    groundedness: float | None = None
    raw: RawRelevance | None = None
    windows: int | None = None
    truncated: bool | None = None


class Finding(Struct, frozen=True):
    """A rule of the catalogue that held, and what it saw: names and bounded values, no content."""

    rule: str
    severity: str
    facts: dict[str, float | str | bool] = {}


class Record(Struct, frozen=True):
    """The public record of one exchange, field for field as in docs/exchange-record.md."""

    id: str
    started_at: str | None
    route: str
    method: str
    trace_id: str | None
    client_request_id: str | None
    retry_attempt: int | None
    dialect: str
    provider: str | None
    operation: str | None
    transport: str
    stream: bool
    status: int | None
    outcome: str
    phase: str | None
    request_model: str | None
    response_model: str | None
    finish_reasons: tuple[str | None, ...]
    usage: Usage | None
    usage_reported: ReportedUsage
    text: TextFacts
    correction_ratio: float | None
    tool_calls: tuple[ToolCallFact, ...]
    error: ErrorFact | None
    frames: FrameCounts
    timing: Timing
    bytes_in: int
    bytes_out: int
    rate_limits: tuple[RateLimit, ...]
    retry_after: float | None
    upstream: UpstreamFacts
    validity: Validity | None
    relevance: Relevance
    findings: tuple[Finding, ...]
    anomalies: tuple[str, ...]
    cost_usd: float | None = None
    variant: str | None = None


# ---------------------------------------------------------------- exchanges and readings


class Choice(Struct, frozen=True):
    """One answer, with its content. `finish` is the provider's word, `ending` the catalogue's reading of it."""

    index: int
    text: str  # capped, see `text_complete`
    text_complete: bool
    finish: str | None
    ending: str | None
    refusal_chars: int = 0
    reasoning_chars: int = 0
    sources: Sources = Sources()  # capped


class ToolCall(Struct, frozen=True):
    choice: int
    index: int
    name: str | None
    arguments: str
    arguments_complete: bool


class Exchange(Struct, frozen=True):
    """An ended exchange: the record so far, and the content that measures need and nobody exports."""

    record: Record
    request: RequestFacts
    choices: tuple[Choice, ...]
    tool_calls: tuple[ToolCall, ...]
    ended_at: float  # Unix seconds
    monotonic: float
    started: float = 0.0  # monotonic seconds, as is `answered`: when the response head came
    answered: float | None = None
    body_hash: int | None = None  # of the request's body, to know a repeat by; differs from process to process
    cost: tuple[tuple[str, float], ...] = ()  # US dollars by kind of token
    unknown_headers: tuple[str, ...] = ()  # names that speak of rate limits in a way that is not read
    is_deprecated: bool = False  # the response warns that what was asked for will go away
    request_headers: Headers = Headers()
    client_timeout: float | None = None  # seconds, as the request states it
    span_id: str | None = None  # that the upstream was told as its parent
    response_id: str | None = None  # the provider's id of the answer, from its body


class TraceParent(Struct, frozen=True):
    """Where the client stands in a trace (W3C Trace Context): lower-case hex ids, and its `tracestate` as told."""

    trace_id: str
    span_id: str
    is_sampled: bool
    state: str = ""


class SpanFacts(Struct, frozen=True):
    """What a span is made of beside the record; no content. Times are Unix seconds."""

    record: Record
    started: float
    ended: float
    parent: TraceParent | None = None
    span_id: str | None = None  # None: any
    response_id: str | None = None
    max_output_tokens: int | None = None
    output_type: str | None = None  # as gen_ai.output.type has it


ANY_PROVIDER = "*"  # in a price table: whoever serves the model


class Rates(Struct, frozen=True):
    """US dollars per million tokens of each kind; None is no rate of its own."""

    input: float | None = None
    cached_input: float | None = None
    cache_write: float | None = None
    output: float | None = None
    reasoning: float | None = None


class Price(Struct, frozen=True):
    """What a model costs. Requests with more than `above` input tokens have the rates `long`.

    `batch` is the share of these rates that is paid for work without haste; None where there is no such tier.
    """

    rates: Rates
    above: int | None = None
    long: Rates | None = None
    batch: float | None = None


class Objective(Struct, frozen=True):
    """What a route promises of its exchanges: `measure` at most or at least so much, for a `share` of them.

    `prompts` is the class of prompts that it is about, None for all.
    """

    name: str
    measure: str
    share: float
    at_most: float | None = None
    at_least: float | None = None
    prompts: str | None = None


class Reading(Struct, frozen=True, array_like=True, gc=False):
    """One number for one metric of the catalogue; `labels` are values in the order the catalogue names them."""

    metric: str
    value: float
    labels: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()  # values of the configured labels, for metrics with a route


Place = tuple[str, str, str, str]  # route, provider, model and operation of an exchange, as labels


class Meters(Protocol):
    """What takes the numbers of one moment, by metric and by what its labels are beside those of the place:
    `meters["semantic_health_tokens_total", "input"](32.0)`.
    """

    def __getitem__(self, series: str | tuple[str, ...], /) -> Callable[[float], object]: ...


class Exporter(Protocol):
    """`trace_id` is of the sampled trace that readings come from, for exemplars.

    `record_all` takes readings of one moment; `extra` are the values of the configured labels of them all. `meters`
    take the same without a Reading for each; they are for one thread, and until these are asked for again.
    """

    def record(self, reading: Reading, trace_id: str | None = None) -> None: ...
    def record_all(
        self, readings: Iterable[Reading], extra: tuple[str, ...] = (), trace_id: str | None = None
    ) -> None: ...
    def meters(self, place: Place, extra: tuple[str, ...] = (), trace_id: str | None = None) -> Meters: ...


class EmbeddingModel(Struct, frozen=True, array_like=True):
    """What makes the vectors. Coefficients that were fitted for one `name` and `version` hold for no other."""

    name: str
    version: str  # of the weights
    dimensions: int
    max_tokens: int | None = None  # read at once; longer texts are read in windows. None: no limit, or not known
    languages: tuple[str, ...] | None = None  # ISO 639-1 codes; None: not known


class Embedder(Protocol):
    """Texts → unit vectors, float32, shape (texts, dimensions); zeros for a blank text."""

    @property
    def model(self) -> EmbeddingModel: ...
    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]: ...


class Clock(Protocol):
    def monotonic(self) -> float: ...
    def wall(self) -> float: ...
