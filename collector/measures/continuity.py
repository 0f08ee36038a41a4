"""Is the stream smooth?"""

from __future__ import annotations

from collector.model import Meters, Record


def measure(record: Record, met: int, missed: int, meters: Meters) -> None:
    """What one stream was like; nothing of what was not streamed. `met` and `missed` count deadlines (fluidity)."""
    if not record.stream:
        return
    timing = record.timing
    if timing.first_byte is not None:
        meters["semantic_health_time_to_first_chunk_seconds"](timing.first_byte)
    if timing.client_blocked:
        meters["semantic_health_client_blocked_seconds_total"](timing.client_blocked)
    if timing.first_token is None:
        return
    meters["semantic_health_streams_total"](1.0)
    meters["semantic_health_time_to_first_token_seconds"](timing.first_token)
    meters["semantic_health_stream_stalls_total"](float(timing.stalls or 0))
    meters["semantic_health_stream_deadlines_total", "met"](float(met))
    meters["semantic_health_stream_deadlines_total", "missed"](float(missed))
    if timing.chunk_gaps.max is not None:
        meters["semantic_health_stream_longest_gap_seconds"](timing.chunk_gaps.max)
    if timing.chunk_gaps.stddev is not None:
        meters["semantic_health_stream_gap_stddev_seconds"](timing.chunk_gaps.stddev)
        meters["semantic_health_stream_continuity_index_seconds"](timing.chunk_gaps.stddev)
    if timing.time_per_output_token is not None:
        meters["semantic_health_time_per_output_token_seconds"](timing.time_per_output_token)
