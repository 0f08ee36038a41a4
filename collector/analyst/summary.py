"""The state of things in a few numbers, for a person at a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median

from msgspec import Struct

from collector.catalogue import VALIDITY_CHECKED
from collector.labels import UNKNOWN, model_label
from collector.model import Record


class RouteSummary(Struct, frozen=True):
    """One route and model over the records at hand. Seconds and ratios; None is not known."""

    route: str
    model: str
    exchanges: int
    outcomes: dict[str, int]
    validity_rate: float | None
    validity_checked: int
    context_relevance: float | None
    groundedness: float | None
    relevance_scored: int
    continuity_index: float | None
    streams: int
    stalls: int
    first_token_p50: float | None
    first_token_p95: float | None


class LimitSummary(Struct, frozen=True):
    provider: str
    scope: str
    window: str | None
    limit: float | None
    remaining: float | None


class Totals(Struct, frozen=True):
    """Since the analyst and the proxy started."""

    recorded: int = 0
    outcomes: dict[str, int] = {}
    forwarded: int = 0
    in_flight: int = 0
    queue_bytes: int = 0
    unobserved: dict[str, int] = {}
    refused: dict[str, int] = {}
    relevance_ready: bool = False


class Summary(Struct, frozen=True):
    totals: Totals
    overall: RouteSummary
    routes: tuple[RouteSummary, ...]
    limits: tuple[LimitSummary, ...]


def summarise(totals: Totals, records: Iterable[Record]) -> Summary:
    """Totals beside what the records at hand show; `records` come newest first."""
    groups: dict[tuple[str, str], list[Record]] = {}
    limits: dict[tuple[str, str, str | None], LimitSummary] = {}
    kept = list(records)
    for record in kept:
        groups.setdefault((record.route, model_label(record)), []).append(record)
        for limit in record.rate_limits:
            provider = record.provider or UNKNOWN
            told = LimitSummary(provider, limit.scope, limit.window, limit.limit, limit.remaining)
            limits.setdefault((provider, limit.scope, limit.window), told)
    routes = tuple(_group(route, model, members) for (route, model), members in sorted(groups.items()))
    return Summary(totals, _group("", "", kept), routes, tuple(limits.values())[:12])


def _group(route: str, model: str, records: list[Record]) -> RouteSummary:
    judged = [
        each.result == "valid" for r in records if r.validity for each in r.validity.judgements if _counts(each.result)
    ]
    relevances = [r.relevance.context_relevance for r in records if r.relevance.context_relevance is not None]
    grounded = [r.relevance.groundedness for r in records if r.relevance.groundedness is not None]
    spreads = [r.timing.chunk_gaps.stddev for r in records if r.timing.chunk_gaps.stddev is not None]
    waits = sorted(r.timing.first_token for r in records if r.timing.first_token is not None)
    return RouteSummary(
        route=route,
        model=model,
        exchanges=len(records),
        outcomes=dict(Counter(record.outcome for record in records)),
        validity_rate=sum(judged) / len(judged) if judged else None,
        validity_checked=len(judged),
        context_relevance=median(relevances) if relevances else None,
        groundedness=median(grounded) if grounded else None,
        relevance_scored=len(relevances),
        continuity_index=median(spreads) if spreads else None,
        streams=sum(record.stream for record in records),
        stalls=sum(record.timing.stalls or 0 for record in records),
        first_token_p50=waits[len(waits) // 2] if waits else None,
        first_token_p95=waits[min(len(waits) - 1, int(len(waits) * 0.95))] if waits else None,
    )


def _counts(result: str) -> bool:
    return result in VALIDITY_CHECKED
