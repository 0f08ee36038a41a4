"""What does the upstream say of its limits, its load and its phases?"""

from __future__ import annotations

from collector.labels import UNKNOWN
from collector.model import Exchange, Meters, Record

THROTTLING = frozenset({429, 503, 529})


def measure(record: Record, arrived: float | None, meters: Meters) -> None:
    """`arrived` is when the response came, in Unix seconds; without it there are no timestamps."""
    for limit in record.rate_limits:
        scope, window = limit.scope, limit.window or UNKNOWN
        if limit.limit is not None:
            meters["semantic_health_rate_limit_limit", scope, window](limit.limit)
        if limit.remaining is not None:
            meters["semantic_health_rate_limit_remaining", scope, window](limit.remaining)
        if arrived is not None:
            meters["semantic_health_rate_limit_observed_timestamp_seconds", scope, window](arrived)
            if limit.reset_after is not None:
                reset_at = arrived + limit.reset_after
                meters["semantic_health_rate_limit_reset_timestamp_seconds", scope, window](reset_at)
    if record.status in THROTTLING and record.error is not None:
        error = record.error
        meters["semantic_health_throttled_total", error.source, error.limiter or UNKNOWN, error.kind](1.0)
    upstream = record.upstream
    if upstream.model_load is not None:
        meters["semantic_health_model_load_ratio"](upstream.model_load)
    for phase, seconds in upstream.phases.items():
        meters["semantic_health_upstream_phase_seconds", phase](seconds)
    if upstream.processing is not None and "processing" not in upstream.phases:
        meters["semantic_health_upstream_phase_seconds", "processing"](upstream.processing)
    if upstream.kv_cache_hit_ratio is not None:
        meters["semantic_health_kv_cache_hit_ratio", "prefill"](upstream.kv_cache_hit_ratio)


def warn(exchange: Exchange, meters: Meters) -> None:
    """What the response's headers give notice of: limits in a form that is not read, and what will go away."""
    for name in exchange.unknown_headers:
        meters["semantic_health_unknown_headers_total", name](1.0)
    if exchange.is_deprecated:
        meters["semantic_health_deprecations_total"](1.0)
