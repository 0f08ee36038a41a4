"""Events of one exchange → the exchange: the one path for live traffic, recordings and HAR files."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from collector import catalogue
from collector.analyst.accumulate import NewDigest
from collector.analyst.answer import Answer, Body, Limits, dialect_of
from collector.dialects.decoding import UnreadableError
from collector.dialects.paths import model_of
from collector.measures.outcome import outcome
from collector.model import (
    BytesSeen,
    ChunkGaps,
    ClientBlocked,
    Dialect,
    ErrorFact,
    Exchange,
    ExchangeEnded,
    Headers,
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
from collector.signals.rate_limits import rate_limits
from collector.signals.retry import limiter, retry_after, retry_attempt
from collector.signals.upstream import client_request_id, load_is_unreadable, served_model, trace_id, upstream_facts
from collector.wire.heads import path_of, request_head, response_head
from collector.wire.sniff import STREAMS
from collector.wire.whole import WholeCodec

MAX_ANOMALIES = 16


class RouteFacts(Struct, frozen=True):
    """What the configuration says of a route that the fold needs."""

    name: str
    host: str
    dialect: str | None = None
    provider: str | None = None


class Rules(Struct, frozen=True):
    """How every exchange is read: the dialects in order (the last speaks anything), the bounds, the hash of texts."""

    dialects: tuple[Dialect, ...]
    limits: Limits = Limits()
    new_digest: NewDigest = None


class ExchangeFold:
    """One exchange while it runs. Give it its events in order; `ended` returns the exchange."""

    def __init__(self, exchange_id: str, seen: RequestSeen, route: RouteFacts, rules: Rules) -> None:
        self.id = exchange_id
        self.route = route
        self._dialects = rules.dialects
        self._seen = seen
        method, target, headers = request_head(seen.head)
        self.request = RequestHead(method, path_of(target), route.host, headers, route.provider, route.dialect)
        self._request_body = Body(headers, rules.limits.request)
        self._request_codec = WholeCodec(rules.limits.request)
        self._response: ResponseSeen | None = None
        self._answer = Answer(rules.limits, rules.new_digest)

    # ------------------------------------------------------------ events

    def response_seen(self, event: ResponseSeen) -> None:
        self._response = event
        self._answer.begin(self.request, response_head(event.head), event, self._dialects)

    def bytes_seen(self, event: BytesSeen) -> None:
        if event.from_upstream:
            self._answer.bytes_seen(event.data, event.at)
        else:
            for part in self._request_body.feed(event.data):
                self._request_codec.feed(part)

    def client_blocked(self, event: ClientBlocked) -> None:
        self._answer.blocked += event.seconds

    def ended(self, event: ExchangeEnded) -> Exchange:
        answer = self._answer
        answer.close(event.at)
        forwarded = self._response.forwarded_at if self._response is not None else event.forwarded_at
        connect = self._response.connect if self._response is not None else event.connect
        status = answer.head.status if self._response is not None else event.status
        dialect = answer.dialect or dialect_of(self.request, ResponseHead(0, Headers()), self._dialects)
        facts, odd = self._request_facts(dialect)
        choices = answer.all_choices()
        calls = answer.all_calls()
        provider = self.request.hint or catalogue.provider_of(self.route.host) or _PROVIDERS.get(dialect.name)
        arrived = self.arrived_wall
        limits, odd_limits = rate_limits(answer.head.headers, provider, arrived)
        error = self._error(event, status, answer)
        how = outcome(
            event.how,
            status,
            error=error is not None,
            terminal=answer.terminal,
            whole=event.how == "complete" and answer.whole,
            blocked=answer.prompt_blocked,
            endings=[choice.ending for choice in choices],
        )
        hinted = retry_after(answer.head.headers, arrived)
        reported = answer.usage or ReportedUsage()
        normal = answer.reader.normal_usage(reported) if answer.reader is not None else Usage()
        usage = normal if normal != Usage() else None  # asked even where the body told none: headers may tell it
        anomalies = [*odd, *self._request_codec_words(), *answer.anomalies()]
        if odd_limits or load_is_unreadable(answer.head.headers):
            anomalies.append("header_unreadable")
        if how == "completed" and usage is None and choices and dialect.name != "unknown" and not answer.unread:
            anomalies.append("usage_missing")
        record = Record(
            id=self.id,
            started_at=_rfc3339(self._seen.wall),
            route=self.route.name,
            method=self.request.method if self.request.method in catalogue.METHODS else "other",
            trace_id=trace_id(self.request.headers),
            client_request_id=client_request_id(self.request.headers),
            retry_attempt=retry_attempt(self.request.headers),
            dialect=dialect.name,
            provider=provider,
            operation=dialect.operation or None,
            transport=answer.transport or "opaque",
            stream=answer.transport in STREAMS,
            status=status,
            outcome=how,
            phase=_phase(how, answer.rhythm.first),
            request_model=_model(facts.model if facts.model is not None else model_of(self.request.path)),
            response_model=_model(answer.model or served_model(answer.head.headers)),
            finish_reasons=tuple(_word(choice.finish) for choice in choices) if answer.shows_choices else (),
            usage=usage,
            usage_reported=reported,
            text=answer.text_facts(),
            correction_ratio=answer.correction(),
            tool_calls=answer.call_facts(),
            error=error if how in ("upstream_error", "error_event") else None,
            frames=answer.frame_counts(),
            timing=self._timing(event, forwarded, connect, usage.output_tokens if usage is not None else None),
            bytes_in=self._request_body.size,
            bytes_out=answer.body_size,
            rate_limits=limits,
            retry_after=answer.retry_after if hinted is None else hinted,
            upstream=self._upstream(answer),
            validity=None,
            relevance=Relevance(False),
            findings=(),
            anomalies=tuple(dict.fromkeys(anomalies))[:MAX_ANOMALIES],
        )
        return Exchange(record, facts, choices, calls, self._seen.wall + (event.at - self._seen.at), event.at)

    # ------------------------------------------------------------ parts

    @property
    def deadlines(self) -> tuple[int, int]:
        """Deadlines met and missed so far."""
        return self._answer.rhythm.met, self._answer.rhythm.missed

    @property
    def arrived_wall(self) -> float | None:
        """When the response head came, in Unix seconds; None for a recording that does not say."""
        if self._response is None or not self._seen.wall:
            return None
        return self._seen.wall + (self._response.at - self._seen.at)

    def _request_facts(self, dialect: Dialect) -> tuple[RequestFacts, list[str]]:
        frames = list(self._request_codec.close())
        if not frames or "decompress_over_cap" in self._request_body.decoder.anomalies:
            return RequestFacts(), []
        try:
            return dialect.request_facts(frames[0].data), []
        except UnreadableError:
            return RequestFacts(), ["request_unreadable"]

    def _request_codec_words(self) -> list[str]:
        words = {"frame_over_cap": "request_over_cap"}
        return [words.get(word, word) for word in (*self._request_codec.anomalies, *self._request_body.anomalies)]

    def _error(self, event: ExchangeEnded, status: int | None, answer: Answer) -> ErrorFact | None:
        made_here = _SIDECAR_ERRORS.get(event.how)
        if made_here is not None and self._response is None:
            kind = "timeout" if event.how == "upstream_timeout" else "server_error"
            return ErrorFact(made_here, None, kind, "sidecar", None, False)
        found = answer.error
        if found is None and status is not None and status >= 400:
            found = answer.bare_error()
        if found is None:
            endings = [c.finish for c in answer.all_choices() if catalogue.ending_of(c.finish) == "error"]
            if not endings:
                return None
            found = WireError(_word(endings[0]), None, "server_error")
        mid_stream = status is not None and status < 400 and answer.transport in STREAMS
        named = limiter(answer.head.headers) or found.limiter
        return ErrorFact(found.type, found.code, found.kind, "upstream", named, mid_stream)

    def _upstream(self, answer: Answer) -> UpstreamFacts:
        facts = upstream_facts(self.request.headers, answer.head.headers)
        for name, seconds in answer.phases.items():
            facts.phases.setdefault(name, seconds)
        return facts

    def _timing(
        self, event: ExchangeEnded, forwarded: float | None, connect: float | None, tokens: int | None
    ) -> Timing:
        answer, rhythm = self._answer, self._answer.rhythm
        start = forwarded if forwarded is not None else self._seen.at
        streamed = answer.transport in STREAMS
        # Where nobody reads the wire, nothing is known of its tokens.
        is_read = rhythm.first is not None or not (answer.unread or answer.dialect is self._dialects[-1])

        def since(at: float | None) -> float | None:
            return None if at is None else max(0.0, at - start)

        per_token = None
        if streamed and tokens is not None and tokens > 1 and rhythm.count:
            per_token = rhythm.span / (tokens - 1)
        return Timing(
            connect=connect,
            headers=since(self._response.at) if self._response is not None else None,
            first_byte=since(answer.first_byte),
            first_token=since(rhythm.first),
            first_visible_token=since(answer.first_visible),
            duration=since(event.at),
            chunk_gaps=rhythm.gaps() if is_read else ChunkGaps(None),
            time_per_output_token=per_token,
            stalls=rhythm.stalls if streamed and is_read else None,
            max_byte_gap=answer.max_byte_gap,
            client_blocked=answer.blocked if self._response is not None else None,
            added=event.added,
        )


_PROVIDERS = {
    "openai.chat": "openai",
    "openai.responses": "openai",
    "openai.completions": "openai",
    "openai.embeddings": "openai",
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


def _phase(how: str, first_token: float | None) -> str | None:
    if how not in ("client_disconnect", "truncated"):
        return None
    return "before_first_token" if first_token is None else "streaming"


def _rfc3339(wall: float) -> str | None:
    if not wall:
        return None
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _model(name: str | None) -> str | None:
    """A model name as told, bounded; surrogates and control characters make it no name."""
    if name is None or not name.strip() or len(name) > 256 or not name.isprintable():
        return None
    return name


def _word(reason: str | None) -> str | None:
    return reason[:64] if reason is not None and reason.isprintable() else None
