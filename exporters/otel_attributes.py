"""What a record is called in OpenTelemetry: span names, attributes and evaluations, by the GenAI conventions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from collector.catalogue import BY_NAME
from collector.labels import model_label
from collector.model import Finding, RateLimit, Record, SpanFacts

AttributeValue = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, AttributeValue]

# gen_ai.* as open-telemetry/semantic-conventions v1.41 has it, and what semantic-conventions-genai calls otherwise.
NEWER_NAMES: Final[Mapping[str, str]] = {
    "gen_ai.usage.cache_creation.input_tokens": "gen_ai.usage.cache_write.input_tokens",
}
OURS = "semantic_health."
EVALUATION = "gen_ai.evaluation.result"
FINDING = "semantic_health.finding"

BROKEN = frozenset({"truncated", "error_event", "client_disconnect"})  # an answer that was begun and not ended
PHASES = ("queue", "prefill", "decode", "total")  # the normal names; others have no bound
MOST_LIMITS = 8  # rate limits told on one span
SCORES = ("context_relevance", "answer_relevance", "groundedness")
# An evaluation has the name of the metric that counts it.
VALIDITY = BY_NAME["semantic_health_model_output_validity_rate"].name
EVALUATIONS = {score: BY_NAME[f"semantic_health_{score}"].name for score in SCORES}


class Server(Struct, frozen=True):
    """Where a route's upstream is: the server behind the sidecar, as the conventions ask."""

    address: str
    port: int


class Told(Struct, frozen=True):
    """One exchange on its way out, with the ids that its span and its log records share."""

    facts: SpanFacts
    trace_id: int
    span_id: int
    is_sampled: bool


class Evaluation(Struct, frozen=True):
    """One `gen_ai.evaluation.result`. Without a score, `error` says why there is none."""

    name: str
    score: float | None = None
    label: str | None = None
    error: str | None = None


def span_name(record: Record) -> str:
    """`{operation} {model}`, as far as they are known; an exchange that is no operation is named by its method."""
    if record.operation is None:
        return record.method
    return record.operation if record.request_model is None else f"{record.operation} {record.request_model}"


def error_type(record: Record) -> str | None:
    """error.type: the provider's own word, else the status, else our word for it; None where nothing went wrong.

    A client that left is no error of the operation, and neither is an answer that the model or a filter ended early.
    """
    if record.outcome == "truncated":
        return "truncated"
    if record.outcome not in {"upstream_error", "error_event"}:
        return None
    error = record.error
    told = (error.code or error.type) if error is not None else None
    if told:
        return told
    if record.outcome == "upstream_error" and record.status is not None:
        return str(record.status)
    return error.kind if error is not None else "_OTHER"


def finish_reasons(record: Record) -> tuple[str, ...]:
    """One per choice; `error` where one was due and did not come. Empty where nothing is known."""
    if record.outcome in BROKEN:
        return tuple(reason or "error" for reason in record.finish_reasons) or ("error",)
    known = tuple(reason for reason in record.finish_reasons if reason is not None)
    return known if len(known) == len(record.finish_reasons) else ()


def evaluations(record: Record) -> tuple[Evaluation, ...]:
    """Validity, 1 or 0 with its result, and the relevance scores that there are."""
    found = []
    validity = record.validity
    if validity is not None and validity.checked:
        found.append(Evaluation(VALIDITY, float(bool(validity.valid)), validity.result))
    elif validity is not None:
        found.append(Evaluation(VALIDITY, error=validity.result))
    relevance = record.relevance
    for name, score in (
        ("context_relevance", relevance.context_relevance),
        ("answer_relevance", relevance.answer_relevance),
        ("groundedness", relevance.groundedness),
    ):
        if score is not None:
            found.append(Evaluation(EVALUATIONS[name], score))
    return tuple(found)


def log_records(facts: SpanFacts, *, newer: bool) -> int:
    """How many log records an exchange becomes."""
    return len(facts.record.findings) + (len(evaluations(facts.record)) if newer else 0)


def evaluation_attributes(evaluation: Evaluation) -> Attributes:
    return _said(
        ("gen_ai.evaluation.name", evaluation.name),
        ("gen_ai.evaluation.score.value", evaluation.score),
        ("gen_ai.evaluation.score.label", evaluation.label),
        ("error.type", evaluation.error),
    )


def finding_attributes(record: Record, finding: Finding) -> Attributes:
    """The rule, the facts that it saw, and the exchange that it was made on."""
    facts = {f"{FINDING}.{name}": value for name, value in finding.facts.items()}
    said = _said(
        (f"{FINDING}.rule", finding.rule),
        (f"{FINDING}.severity", finding.severity),
        (f"{OURS}route", record.route),
        (f"{OURS}exchange.id", record.id),
        (f"{OURS}upstream.request_id", record.upstream.request_id),
        ("gen_ai.operation.name", record.operation),
        ("gen_ai.provider.name", record.provider),
        ("gen_ai.response.model", model_label(record)),
    )
    return {**facts, **said}


def span_attributes(facts: SpanFacts, server: Server | None, *, newer: bool) -> Attributes:
    """Everything that a span tells; what is unknown is left out."""
    said = _said(
        *_operation(facts, server),
        *_usage(facts.record),
        *_measured(facts.record),
        *_upstream(facts.record),
        *_limits(facts.record.rate_limits),
    )
    if newer:
        return {NEWER_NAMES.get(name, name): value for name, value in said.items()}
    return said


_Rows = tuple[tuple[str, AttributeValue | None], ...]


def _said(*rows: tuple[str, AttributeValue | None]) -> Attributes:
    return {name: value for name, value in rows if value is not None and value != ()}


def _operation(facts: SpanFacts, server: Server | None) -> _Rows:
    record = facts.record
    return (
        ("gen_ai.operation.name", record.operation),
        ("gen_ai.provider.name", record.provider),
        ("gen_ai.request.model", record.request_model),
        ("gen_ai.request.stream", True if record.stream else None),
        ("gen_ai.request.max_tokens", facts.max_output_tokens),
        ("gen_ai.output.type", facts.output_type),
        ("gen_ai.response.model", record.response_model),
        ("gen_ai.response.id", facts.response_id),
        ("gen_ai.response.finish_reasons", finish_reasons(record) if record.operation is not None else ()),
        ("gen_ai.response.time_to_first_chunk", record.timing.first_byte if record.stream else None),
        ("server.address", server.address if server is not None else None),
        ("server.port", server.port if server is not None else None),
        ("http.request.method", record.method if record.method != "other" else "_OTHER"),
        ("http.response.status_code", record.status),
        ("error.type", error_type(record)),
    )


def _usage(record: Record) -> _Rows:
    usage = record.usage
    if usage is None:
        return ()
    return (
        ("gen_ai.usage.input_tokens", usage.input_tokens),
        ("gen_ai.usage.output_tokens", usage.output_tokens),
        ("gen_ai.usage.cache_read.input_tokens", usage.cache_read_input_tokens),
        ("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_input_tokens),
        ("gen_ai.usage.reasoning.output_tokens", usage.reasoning_output_tokens),
    )


def _measured(record: Record) -> _Rows:
    timing, gaps = record.timing, record.timing.chunk_gaps
    validity, relevance = record.validity, record.relevance
    return (
        (f"{OURS}exchange.id", record.id),
        (f"{OURS}route", record.route),
        (f"{OURS}dialect", record.dialect),
        (f"{OURS}transport", record.transport),
        (f"{OURS}outcome", record.outcome),
        (f"{OURS}phase", record.phase),
        (f"{OURS}error.kind", record.error.kind if record.error is not None else None),
        (f"{OURS}error.source", record.error.source if record.error is not None else None),
        (f"{OURS}retry_attempt", record.retry_attempt),
        (f"{OURS}client.request_id", record.client_request_id),
        (f"{OURS}time_to_first_token", timing.first_token),
        (f"{OURS}time_per_output_token", timing.time_per_output_token),
        (f"{OURS}stream.gap_stddev", gaps.stddev),
        (f"{OURS}stream.longest_gap", gaps.max),
        (f"{OURS}stream.stalls", timing.stalls),
        (f"{OURS}client_blocked", timing.client_blocked),
        (f"{OURS}added", timing.added),
        (f"{OURS}validity.result", validity.result if validity is not None else None),
        (f"{OURS}validity.valid", validity.valid if validity is not None else None),
        (f"{OURS}relevance.context", relevance.context_relevance),
        (f"{OURS}relevance.answer", relevance.answer_relevance),
        (f"{OURS}relevance.groundedness", relevance.groundedness),
        (f"{OURS}relevance.unscored", relevance.reason),
        (f"{OURS}correction_ratio", record.correction_ratio),
        (f"{OURS}cost_usd", record.cost_usd),
        (f"{OURS}findings", tuple(finding.rule for finding in record.findings)),
        (f"{OURS}anomalies", record.anomalies),
    )


def _upstream(record: Record) -> _Rows:
    upstream = record.upstream
    return (
        (f"{OURS}upstream.request_id", upstream.request_id),
        (f"{OURS}upstream.region", upstream.region),
        (f"{OURS}upstream.model_load", upstream.model_load),
        (f"{OURS}upstream.kv_cache_hit_ratio", upstream.kv_cache_hit_ratio),
        (f"{OURS}upstream.cache_hit", upstream.cache_hit),
        (f"{OURS}upstream.processing", upstream.processing),
        (f"{OURS}retry_after", record.retry_after),
        *((f"{OURS}upstream.phase.{phase}", upstream.phases.get(phase)) for phase in PHASES),
    )


def _limits(limits: tuple[RateLimit, ...]) -> _Rows:
    """What is left of each limit, by its scope and, where it has one, its window."""
    return tuple(
        (
            f"{OURS}rate_limit.{limit.scope}{'' if limit.window is None else f'.{limit.window}'}.remaining",
            limit.remaining,
        )
        for limit in limits[:MOST_LIMITS]
    )
