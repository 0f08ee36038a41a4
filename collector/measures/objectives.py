"""Did the exchange keep what its route promises?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from collector.model import Meters, Objective, Reading, Record

Verdict = Literal[
    "good", "bad", "not_answered", "not_streamed", "too_few_gaps", "unchecked", "unscored", "not_stated", "client_left",
    "client_fault",
]  # fmt: skip

LONG_CONTEXT = 4000  # input tokens; longer prompts are long contexts
BYTES_PER_TOKEN = 4  # of a request's body, where no tokens are reported

ANSWERED = frozenset({"completed", "incomplete", "blocked"})
BROKEN = frozenset({"truncated", "error_event"})
# Kinds of error that are the upstream's doing. A limit that was met, a wrong key or a bad request is the client's.
UPSTREAM_FAULTS = frozenset({"server_error", "overloaded", "timeout"})


def measure(record: Record, objectives: Sequence[Objective], meters: Meters, long_context: int = LONG_CONTEXT) -> None:
    """The class of the prompt, and one event per objective that applies to the exchange; a reason where it applies and
    cannot be judged."""
    prompt = prompt_of(record, long_context)
    if prompt is not None:
        meters["semantic_health_prompts_total", prompt.name, prompt.basis](1.0)
    for objective in objectives:
        if objective.prompts is not None and (prompt is None or objective.prompts != prompt.name):
            continue
        verdict = judged(record, objective)
        if verdict in ("good", "bad"):
            meters["semantic_health_slo_events_total", objective.name, verdict](1.0)
        elif verdict is not None:
            meters["semantic_health_slo_unjudged_total", objective.name, verdict](1.0)


class Prompt(Struct, frozen=True):
    """Which class a prompt is of, and whether its length was reported or is estimated."""

    name: Literal["short_prompt", "long_context"]
    basis: Literal["reported", "estimated"]


def prompt_of(record: Record, long_context: int = LONG_CONTEXT) -> Prompt | None:
    """The class of the prompt (R4) by its input tokens; None where the exchange is no model call."""
    if record.dialect == "unknown":
        return None
    reported = record.usage.input_tokens if record.usage is not None else None
    tokens = record.bytes_in / BYTES_PER_TOKEN if reported is None else reported
    name: Literal["short_prompt", "long_context"] = "long_context" if tokens > long_context else "short_prompt"
    return Prompt(name, "estimated" if reported is None else "reported")


def stated(route: str, objectives: Sequence[Objective], cost_per_hour: float | None = None) -> Iterable[Reading]:
    """The objectives themselves, so that rules read thresholds as metrics."""
    for objective in objectives:
        yield Reading("semantic_health_slo_objective_ratio", objective.share, (route, objective.name))
        bound = objective.at_least if objective.at_most is None else objective.at_most
        if bound is not None:
            yield Reading("semantic_health_slo_threshold", bound, (route, objective.name, objective.measure))
    if cost_per_hour is not None:
        yield Reading("semantic_health_cost_budget_usd_per_hour", cost_per_hour, (route,))


def judged(record: Record, objective: Objective) -> Verdict | None:
    """None where the objective does not apply: no structured output was asked for, or it is no model call."""
    match objective.measure:
        case "errors":
            return _errors(record)
        case "validity":
            return _validity(record)
        case "duration":
            value = record.timing.duration
            return _within(value, objective.at_most) if record.outcome in ANSWERED else _unanswered(record)
        case "first_token":
            if record.timing.first_token is None:
                return _unanswered(record) if record.outcome not in ANSWERED else "not_streamed"
            return _within(record.timing.first_token, objective.at_most)
        case "jitter":
            if record.timing.first_token is None:
                return _unanswered(record) if record.outcome not in ANSWERED else "not_streamed"
            spread = record.timing.chunk_gaps.stddev
            return "too_few_gaps" if spread is None else _within(spread, objective.at_most)
        case "kv_cache_hit":
            return _kv_cache_hit(record, objective.at_least)
    return _score(record, objective)


def _within(value: float | None, most: float | None) -> Verdict:
    if value is None or most is None:
        return "not_answered"
    return "good" if value <= most else "bad"


def _unanswered(record: Record) -> Verdict:
    return "client_left" if record.outcome == "client_disconnect" else "not_answered"


def _errors(record: Record) -> Verdict:
    if record.outcome in ANSWERED:
        return "good"
    if record.outcome in BROKEN:
        return "bad"
    if record.outcome == "client_disconnect":
        return "client_left"
    return "bad" if record.error is not None and record.error.kind in UPSTREAM_FAULTS else "client_fault"


def _validity(record: Record) -> Verdict | None:
    if record.validity is None:
        return None
    if not record.validity.checked:
        return "unchecked"
    return "good" if record.validity.valid else "bad"


def _kv_cache_hit(record: Record, least: float | None) -> Verdict | None:
    """A contract with the upstream (R5, R16): what it says of its cache, where it answered at all."""
    if record.dialect == "unknown" or record.outcome not in ANSWERED:
        return None
    told = record.upstream.kv_cache_hit_ratio
    if told is None or least is None:
        return "not_stated"
    return "good" if told >= least else "bad"


def _score(record: Record, objective: Objective) -> Verdict | None:
    scores = {
        "context_relevance": record.relevance.context_relevance,
        "answer_relevance": record.relevance.answer_relevance,
        "groundedness": record.relevance.groundedness,
    }
    if record.dialect == "unknown":
        return None
    value = scores.get(objective.measure)
    if value is None or objective.at_least is None:
        return "unscored"
    return "good" if value >= objective.at_least else "bad"
