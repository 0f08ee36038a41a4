"""What does a usual exchange tell: the same series as those before it of its kind, with other values?

Most exchanges of a service are alike: no error, no anomaly, no finding, nothing scored. Which readings such a one gives
is decided by a few facts, its kind. So the readings of the first of a kind are made one by one by the measures, and
kept as series; of those that follow only the values are looked up, in the order of `varying` and for a fraction of the
cost. Whatever is not usual is told by the measures alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import structs

from collector.labels import model_label
from collector.measures.cost import Parts
from collector.measures.objectives import Prompt
from collector.model import Reading, Record

Kind = tuple[object, ...]

# Readings that are 1 for each exchange that gives them.
STEADY = frozenset({
    "semantic_health_exchanges_total", "semantic_health_relevance_unscored_total",
    "semantic_health_relevance_eligible_total", "semantic_health_prompts_total",
})  # fmt: skip
# The order in which values are told: counts that grow by what the exchange says, gauges, all else as the measures do.
ORDER = {
    "semantic_health_tokens_total": 0, "semantic_health_cost_usd_total": 0, "semantic_health_rate_limit_limit": 1,
    "semantic_health_rate_limit_remaining": 1, "semantic_health_rate_limit_observed_timestamp_seconds": 1,
}  # fmt: skip
LAST = 2


class Told(NamedTuple):
    """The kind of a usual exchange, and the values of its readings but the steady ones."""

    kind: Kind
    values: list[float]


def told(record: Record, arrived: float | None, cost: Parts, prompt: Prompt | None) -> Told | None:
    """None where the exchange is not usual. `arrived` is when the response came, in Unix seconds; `cost` is by kind of
    token."""
    scores, usage, upstream, duration = record.relevance, record.usage, record.upstream, record.timing.duration
    if (
        record.error is not None
        or record.anomalies
        or record.findings
        or record.validity is not None
        or record.stream
        or scores.scored
        or scores.answer_relevance is not None
        or duration is None
    ):
        return None
    counts: tuple[int | None, ...] = () if usage is None else structs.astuple(usage)
    values = [float(count) for count in counts if count is not None]
    share = None
    if usage is not None and usage.cache_read_input_tokens is not None and usage.input_tokens:
        share = usage.cache_read_input_tokens / usage.input_tokens
        share = share if share <= 1.0 else None
    values += [dollars for _, dollars in cost]
    limits: list[object] = []
    resets: list[float] = []
    for limit in record.rate_limits:
        amount, remaining, after = limit.limit, limit.remaining, limit.reset_after
        limits += (limit.scope, limit.window)
        if arrived is not None and amount is not None and remaining is not None and after is not None:  # most
            values += (amount, remaining, arrived)
            resets.append(arrived + after)
            continue
        limits.append((amount is None, remaining is None, after is None))
        if amount is not None:
            values.append(amount)
        if remaining is not None:
            values.append(remaining)
        if arrived is not None:
            values.append(arrived)
            if after is not None:
                resets.append(arrived + after)
    values.append(duration)
    if share is not None:
        values.append(share)
    values += resets
    if upstream.model_load is not None:
        values.append(upstream.model_load)
    values += upstream.phases.values()
    is_processing = upstream.processing is not None and "processing" not in upstream.phases
    if is_processing and upstream.processing is not None:
        values.append(upstream.processing)
    if upstream.kv_cache_hit_ratio is not None:
        values.append(upstream.kv_cache_hit_ratio)
    return Told(
        (
            record.route,
            record.provider,
            model_label(record),
            record.operation,
            record.outcome,
            scores.reason,
            prompt,
            tuple([count is None for count in counts]),
            share is None,
            tuple([kind for kind, _ in cost]),
            tuple(limits),
            arrived is None,
            tuple(upstream.phases),
            is_processing,
            upstream.model_load is None,
            upstream.kv_cache_hit_ratio is None,
        ),
        values,
    )


def steady(readings: Iterable[Reading]) -> list[Reading]:
    """Those of them that are 1 for each exchange."""
    return [reading for reading in readings if reading.metric in STEADY]


def varying(readings: Sequence[Reading]) -> list[Reading]:
    """The others, in the order in which `told` has their values."""
    rest = [reading for reading in readings if reading.metric not in STEADY]
    return sorted(rest, key=lambda reading: ORDER.get(reading.metric, LAST))
