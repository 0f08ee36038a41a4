"""What does the upstream say of its limits, its load and its phases?"""

from __future__ import annotations

from collections.abc import Iterable

from collector.labels import UNKNOWN, model_label
from collector.model import Exchange, Reading, Record

THROTTLING = frozenset({429, 503, 529})


def readings(record: Record, arrived: float | None) -> Iterable[Reading]:
    """`arrived` is when the response came, in Unix seconds; without it there are no timestamps."""
    model, provider = model_label(record), record.provider or UNKNOWN
    for limit in record.rate_limits:
        labels = (record.route, provider, limit.scope, limit.window or UNKNOWN)
        if limit.limit is not None:
            yield Reading("semantic_health_rate_limit_limit", limit.limit, labels)
        if limit.remaining is not None:
            yield Reading("semantic_health_rate_limit_remaining", limit.remaining, labels)
        if arrived is not None:
            yield Reading("semantic_health_rate_limit_observed_timestamp_seconds", arrived, labels)
            if limit.reset_after is not None:
                reset_at = arrived + limit.reset_after
                yield Reading("semantic_health_rate_limit_reset_timestamp_seconds", reset_at, labels)
    if record.status in THROTTLING and record.error is not None:
        error = record.error
        throttled = (record.route, error.source, error.limiter or UNKNOWN, error.kind)
        yield Reading("semantic_health_throttled_total", 1.0, throttled)
    upstream = record.upstream
    if upstream.model_load is not None:
        yield Reading("semantic_health_model_load_ratio", upstream.model_load, (record.route, model))
    phases = dict(upstream.phases)
    if upstream.processing is not None:
        phases.setdefault("processing", upstream.processing)
    for phase, seconds in phases.items():
        yield Reading("semantic_health_upstream_phase_seconds", seconds, (record.route, model, phase))
    if upstream.kv_cache_hit_ratio is not None:
        where = (record.route, model, "prefill")
        yield Reading("semantic_health_kv_cache_hit_ratio", upstream.kv_cache_hit_ratio, where)


def warnings(exchange: Exchange) -> Iterable[Reading]:
    """What the response's headers give notice of: limits in a form that is not read, and what will go away."""
    route = exchange.record.route
    for name in exchange.unknown_headers:
        yield Reading("semantic_health_unknown_headers_total", 1.0, (route, name))
    if exchange.is_deprecated:
        yield Reading("semantic_health_deprecations_total", 1.0, (route, model_label(exchange.record)))
