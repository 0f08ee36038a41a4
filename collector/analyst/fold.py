"""Events of one exchange → the exchange: the one path for live traffic, recordings and HAR files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from collector import catalogue
from collector.analyst.accumulate import NewDigest
from collector.analyst.answer import MAX_MODEL, Answer, Limits, dialect_of
from collector.analyst.body import Body
from collector.dialects.decoding import UnreadableError
from collector.dialects.paths import model_of, queried_model
from collector.measures import cost
from collector.measures.outcome import outcome
from collector.measures.retries import THROTTLING
from collector.model import (
    BytesSeen,
    Choice,
    ChunkGaps,
    ClientBlocked,
    Dialect,
    ErrorFact,
    Exchange,
    ExchangeEnded,
    Headers,
    RateLimit,
    Record,
    Relevance,
    ReportedUsage,
    RequestFacts,
    RequestHead,
    RequestSeen,
    ResponseHead,
    ResponseSeen,
    Timing,
    UpstreamFacts,
    Usage,
    WireError,
)
from collector.signals import present
from collector.signals.rate_limits import rate_limits
from collector.signals.retry import limiter, retry_after, retry_attempt
from collector.signals.timeout import client_timeout
from collector.signals.upstream import (
    as_the_provider_said,
    client_request_id,
    is_deprecated,
    load_is_unreadable,
    served_model,
    trace_id,
    upstream_facts,
)
from collector.wire.heads import path_of, request_head, response_head
from collector.wire.whole import WholeCodec

MAX_ANOMALIES = 16


class RouteFacts(Struct, frozen=True):
    """What the configuration says of a route that the fold needs."""

    name: str
    host: str
    dialect: str | None = None
    provider: str | None = None


class Rules(Struct, frozen=True):
    """How every exchange is read: the dialects in order (the last speaks anything), the bounds, the hash of texts,
    the prices, and whether the ids of answers are looked for, which only spans tell."""

    dialects: tuple[Dialect, ...]
    limits: Limits = Limits()
    new_digest: NewDigest = None
    prices: cost.Tables = ()
    reads_ids: bool = True


class ExchangeFold:
    """One exchange while it runs. Give it its events in order; `ended` returns the exchange.

    `arrived_wall` is when the response head came, in Unix seconds; None for a recording that does not say.
    """

    def __init__(self, exchange_id: str, seen: RequestSeen, route: RouteFacts, rules: Rules) -> None:
        self.id = exchange_id
        self.route = route
        self._dialects = rules.dialects
        self._prices = rules.prices
        self._seen = seen
        self._response: ResponseSeen | None = None
        self._body_hash: int | None = None
        self.arrived_wall: float | None = None
        method, target, headers = request_head(seen.head)
        self.request = RequestHead(method, path_of(target), route.host, headers, route.provider, route.dialect)
        self._target = target
        self._request_body = Body(headers, rules.limits.request)
        self._request_codec = WholeCodec(rules.limits.request)
        self._answer = Answer(rules.limits, rules.new_digest, reads_id=rules.reads_ids)
        self.answered = self._answer.bytes_seen  # takes bytes from the upstream

    # ------------------------------------------------------------ events

    def response_seen(self, event: ResponseSeen) -> None:
        self._response = event
        if self._seen.wall:
            self.arrived_wall = self._seen.wall + (event.at - self._seen.at)
        self._answer.begin(self.request, response_head(event.head), event, self._dialects)

    def bytes_seen(self, event: BytesSeen) -> None:
        if event.from_upstream:
            self.answered(event)
        elif self._answer.is_tunnel:
            self._answer.client_bytes(event.data, event.at)
        else:
            body = self._request_body
            if body.is_coded:
                for part in body.feed(event.data):
                    self._request_codec.feed(part)
            else:
                body.size += len(event.data)
                self._request_codec.feed(event.data)

    def client_blocked(self, event: ClientBlocked) -> None:
        self._answer.client_blocked(event.seconds)

    def ended(self, event: ExchangeEnded, *, may_repeat: bool = True) -> Exchange:
        """The exchange. `may_repeat`: whether a client was told to wait, so that its request would be known again."""
        answer, response, request = self._answer, self._response, self.request
        answer.close(event.at)
        status = answer.head.status if response is not None else event.status
        dialect = answer.dialect or dialect_of(request, ResponseHead(0, Headers()), self._dialects)
        told = answer.asked()
        facts, odd = (
            (told, None) if told is not None else self._request_facts(dialect, may_repeat or status in THROTTLING)
        )
        unread = answer.unread
        choices, more = answer.said.choices(), answer.said.has_others
        provider = request.hint or catalogue.provider_of(self.route.host) or _PROVIDERS.get(dialect.name)
        arrived = self.arrived_wall
        said = answer.head.headers
        says = present.said(said.shared)
        if says.passes_on:
            said = as_the_provider_said(said)
            says = present.said(said.shared)
        limits, odd_limits = rate_limits(said, provider, arrived)
        endings = [choice.ending for choice in choices]
        error = self._error(event, status, answer, choices if "error" in endings else ())
        how = outcome(
            "client_disconnect" if event.how == "complete" and answer.client_left else event.how,
            status,
            error=error is not None,
            terminal=answer.terminal,
            whole=event.how == "complete" and answer.is_whole(unread),
            blocked=answer.prompt_blocked,
            endings=endings,
        )
        hinted = retry_after(said, arrived) if says.retry_hint else None
        reported = answer.usage or _NOT_REPORTED
        usage = answer.reader.normal_usage(reported) if answer.reader is not None else None
        if usage == _NO_USAGE:  # asked even where the body told none: headers may tell it
            usage = None
        anomalies = [] if odd is None else [odd]
        if self._request_codec.anomalies or self._request_body.is_coded:
            anomalies += self._request_words()
        anomalies += answer.anomalies()
        if odd_limits or (says.load and load_is_unreadable(said)):
            anomalies.append("header_unreadable")
        if usage is None and how == "completed" and choices and dialect.name != "unknown" and not unread:
            anomalies.append("usage_missing")
        identifies = present.identifies(request.headers.shared)
        record = Record(
            id=self.id,
            started_at=_rfc3339(self._seen.wall),
            route=self.route.name,
            method=request.method if request.method in catalogue.METHODS else "other",
            trace_id=trace_id(request.headers) if identifies else None,
            client_request_id=client_request_id(request.headers) if identifies else None,
            retry_attempt=retry_attempt(request.headers) if identifies else None,
            dialect=dialect.name,
            provider=provider,
            operation=dialect.operation or None,
            transport=answer.transport or "opaque",
            stream=answer.is_stream,
            status=status,
            outcome=how,
            phase=_phase(how, answer.rhythm.first),
            request_model=_model(facts.model if facts.model is not None else self._model_asked()),
            response_model=_model(answer.model or (served_model(said) if says.model else None)),
            finish_reasons=_finishes(choices) if answer.said.shows_choices else (),
            usage=usage,
            usage_reported=reported,
            text=answer.said.text_facts(choices),
            correction_ratio=answer.said.correction() if more else None,
            tool_calls=answer.said.call_facts() if more else (),
            error=error if how in ("upstream_error", "error_event") else None,
            frames=answer.frame_counts(),
            timing=self._timing(event, usage.output_tokens if usage is not None else None, is_read=not unread),
            bytes_in=self._request_body.size + answer.tunnelled,
            bytes_out=answer.body_size,
            rate_limits=limits + self._body_limits(answer) if answer.limits else limits,
            retry_after=answer.retry_after if hinted is None else hinted,
            upstream=self._upstream(answer, said),
            validity=None,
            relevance=_UNSCORED,
            findings=(),
            anomalies=tuple(dict.fromkeys(anomalies))[:MAX_ANOMALIES] if anomalies else (),
        )
        paid = cost.parts(record, facts.service_tier, self._prices)
        if paid is not None:
            record = replace(record, cost_usd=sum(dollars for _, dollars in paid))
        return Exchange(
            record,
            facts,
            choices,
            answer.said.calls() if more else (),
            self._seen.wall + (event.at - self._seen.at),
            event.at,
            started=self._seen.at,
            answered=response.at if response is not None else None,
            body_hash=self._body_hash,
            cost=paid if paid is not None else (),
            unknown_headers=says.unknown,
            is_deprecated=says.warning and is_deprecated(said),
            request_headers=request.headers,
            client_timeout=client_timeout(request.headers) if identifies else None,
            span_id=self._seen.span_id,
            response_id=answer.response_id,
        )

    # ------------------------------------------------------------ parts

    @property
    def deadlines(self) -> tuple[int, int]:
        """Deadlines met and missed so far."""
        return self._answer.rhythm.deadlines

    def _request_facts(self, dialect: Dialect, may_repeat: bool) -> tuple[RequestFacts, str | None]:
        """What was asked, and the anomaly where that cannot be read."""
        body = self._request_codec.take()
        if body is None or (self._request_body.is_coded and self._request_body.bursts):
            return RequestFacts(), None
        if may_repeat:  # a large body takes long
            self._body_hash = hash((self.request.path, body))
        try:
            facts = dialect.request_facts(body)
        except UnreadableError:
            return RequestFacts(), "request_unreadable"
        return replace(facts, service_tier=_tier(body)) if _TIER in body else facts, None

    def _request_words(self) -> list[str]:
        words = self._request_codec.anomalies + self._request_body.anomalies
        return ["request_over_cap" if word == "frame_over_cap" else word for word in words]

    def _error(
        self, event: ExchangeEnded, status: int | None, answer: Answer, choices: tuple[Choice, ...]
    ) -> ErrorFact | None:
        """The error of the exchange. `choices` are there where one of them ended in an error."""
        made_here = _SIDECAR_ERRORS.get(event.how) if self._response is None else None
        if made_here is not None:
            kind = "timeout" if event.how == "upstream_timeout" else "server_error"
            return ErrorFact(made_here, None, kind, "sidecar", None, False)
        found = answer.error
        if found is None and status is not None and status >= 400:
            found = answer.bare_error()
        if found is None:
            if not choices:
                return None
            failed = next(choice.finish for choice in choices if choice.ending == "error")
            found = WireError(_word(failed), None, "server_error")
        mid_stream = status is not None and status < 400 and answer.is_stream
        named = limiter(as_the_provider_said(answer.head.headers)) or found.limiter
        return ErrorFact(found.type, found.code, found.kind, "upstream", named, mid_stream)

    def _model_asked(self) -> str | None:
        return model_of(self.request.path) or queried_model(self._target)

    def _body_limits(self, answer: Answer) -> tuple[RateLimit, ...]:
        """Limits that the body told, their resets counted from the response's head as those of headers are."""
        if self._response is None:
            return ()
        found = []
        for at, limit in answer.limits.values():
            after = limit.reset_after
            found.append(replace(limit, reset_after=after if after is None else after + at - self._response.at))
        return tuple(found)

    def _upstream(self, answer: Answer, said: Headers) -> UpstreamFacts:
        facts = upstream_facts(self.request.headers, said)
        for name, seconds in answer.phases.items():
            facts.phases.setdefault(name, seconds)
        return facts

    def _timing(self, event: ExchangeEnded, tokens: int | None, *, is_read: bool) -> Timing:
        answer, rhythm, response = self._answer, self._answer.rhythm, self._response
        forwarded = event.forwarded_at if response is None else response.forwarded_at
        start = forwarded if forwarded is not None else self._seen.at
        # Where nobody reads the wire, nothing is known of its tokens.
        is_read = rhythm.first is not None or (is_read and answer.dialect is not self._dialects[-1])
        gaps, per_token = _NO_GAPS if is_read else _UNKNOWN_GAPS, None
        if not answer.is_stream:
            return Timing(
                connect=event.connect if response is None else response.connect,
                headers=_since(start, response.at) if response is not None else None,
                first_byte=_since(start, answer.first_byte),
                duration=_since(start, event.at),
                chunk_gaps=gaps,
                max_byte_gap=answer.max_byte_gap,
                client_blocked=answer.blocked if response is not None else None,
                added=event.added,
            )
        if is_read:
            gaps = rhythm.gaps()
            if tokens is not None and tokens > 1 and gaps.count:
                per_token = rhythm.span / (tokens - 1)
        return Timing(
            connect=event.connect if response is None else response.connect,
            headers=_since(start, response.at) if response is not None else None,
            first_byte=_since(start, answer.first_byte),
            first_token=_since(answer.token_start, rhythm.first),
            first_visible_token=_since(answer.token_start, answer.first_visible),
            duration=_since(start, event.at),
            chunk_gaps=gaps,
            time_per_output_token=per_token,
            stalls=rhythm.stalls if is_read else None,
            max_byte_gap=answer.max_byte_gap,
            client_blocked=answer.blocked if response is not None else None,
            added=event.added,
        )


def _since(start: float, at: float | None) -> float | None:
    """Seconds from `start`, none of them below 0; None where it did not come."""
    if at is None:
        return None
    return at - start if at > start else 0.0


_NO_GAPS, _UNKNOWN_GAPS = ChunkGaps(0), ChunkGaps(None)
_NOT_REPORTED, _NO_USAGE, _UNSCORED = ReportedUsage(), Usage(), Relevance(False)
_PROVIDERS = {
    "openai.chat": "openai",
    "openai.responses": "openai",
    "openai.completions": "openai",
    "openai.embeddings": "openai",
    "openai.realtime": "openai",
    "anthropic.messages": "anthropic",
    "anthropic.completions": "anthropic",
    "gemini.generate": "gcp.gemini",
    "gemini.interactions": "gcp.gemini",
    "gemini.embeddings": "gcp.gemini",
    "bedrock.converse": "aws.bedrock",
    "bedrock.invoke": "aws.bedrock",
    "bedrock.embeddings": "aws.bedrock",
    "cohere.chat": "cohere",
    "cohere.embeddings": "cohere",
    "ollama": "ollama",
    "ollama.embeddings": "ollama",
    "replicate": "replicate",
    "watsonx": "ibm.watsonx.ai",
    "watsonx.chat": "ibm.watsonx.ai",
}
_SIDECAR_ERRORS = {
    "connect_failed": "upstream_unreachable",
    "upstream_failed": "upstream_closed",
    "upstream_timeout": "upstream_timeout",
}


_TIER = b'"service_tier"'


class _Asked(Struct):
    service_tier: object = None


_read_asked = msgspec.json.Decoder(_Asked).decode


def _tier(body: bytes) -> str | None:
    """The tier of service that a request asks for, in the key that OpenAI, Anthropic and Groq share."""
    try:
        tier = _read_asked(body).service_tier
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return tier[:64] if isinstance(tier, str) else None


def _phase(how: str, first_token: float | None) -> str | None:
    if how not in ("client_disconnect", "truncated"):
        return None
    return "before_first_token" if first_token is None else "streaming"


def _rfc3339(wall: float) -> str | None:
    if not wall:
        return None
    second = math.floor(wall)
    micro = round((wall - second) * 1e6)
    return f"{_to_the_second(second + micro // 1_000_000)}.{micro % 1_000_000 // 1000:03d}Z"


@lru_cache(maxsize=64)  # exchanges begin close together
def _to_the_second(wall: int) -> str:
    return datetime.fromtimestamp(wall, UTC).replace(tzinfo=None).isoformat()


def _model(name: str | None) -> str | None:
    """A model name as told, bounded; surrogates and control characters make it no name."""
    return _plain_name(name) if name is not None and len(name) <= MAX_MODEL else None


@lru_cache(maxsize=512)  # models; there are few
def _plain_name(name: str) -> str | None:
    return name if name.isprintable() and name.strip() else None


def _finishes(choices: Sequence[Choice]) -> tuple[str | None, ...]:
    return (_word(choices[0].finish),) if len(choices) == 1 else tuple(_word(choice.finish) for choice in choices)


def _word(reason: str | None) -> str | None:
    return reason[:64] if reason is not None and reason.isprintable() else None
