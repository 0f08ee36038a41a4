"""Is the stream smooth?"""

from __future__ import annotations

from collections.abc import Iterable

from collector.labels import UNKNOWN, model_label
from collector.model import Reading, Record


def readings(record: Record, met: int, missed: int) -> Iterable[Reading]:
    """Readings of one stream; none of what was not streamed. `met` and `missed` count deadlines (fluidity)."""
    timing, where = record.timing, (record.route, model_label(record))
    if not record.stream:
        return
    if timing.first_byte is not None:
        labels = (record.route, record.provider or UNKNOWN, where[1], record.operation or UNKNOWN)
        yield Reading("semantic_health_time_to_first_chunk_seconds", timing.first_byte, labels)
    if timing.client_blocked:
        yield Reading("semantic_health_client_blocked_seconds_total", timing.client_blocked, (record.route,))
    if timing.first_token is None:
        return
    yield Reading("semantic_health_streams_total", 1.0, where)
    yield Reading("semantic_health_time_to_first_token_seconds", timing.first_token, where)
    yield Reading("semantic_health_stream_stalls_total", float(timing.stalls or 0), where)
    yield Reading("semantic_health_stream_deadlines_total", float(met), (*where, "met"))
    yield Reading("semantic_health_stream_deadlines_total", float(missed), (*where, "missed"))
    if timing.chunk_gaps.max is not None:
        yield Reading("semantic_health_stream_longest_gap_seconds", timing.chunk_gaps.max, where)
    if timing.chunk_gaps.stddev is not None:
        yield Reading("semantic_health_stream_gap_stddev_seconds", timing.chunk_gaps.stddev, where)
        yield Reading("semantic_health_stream_continuity_index_seconds", timing.chunk_gaps.stddev, where)
    if timing.time_per_output_token is not None:
        yield Reading("semantic_health_time_per_output_token_seconds", timing.time_per_output_token, where)
