"""Is the stream smooth? Readings of streams, and of nothing else."""

from __future__ import annotations

import msgspec
import pytest

from collector.measures.continuity import measure
from collector.model import (
    ChunkGaps,
    Timing,
)

from . import records

SMOOTH = Timing(
    first_byte=0.2, first_token=0.3, chunk_gaps=ChunkGaps(3, 0.1, 0.02, 0.13, (0.1, 0.07, 0.13)), stalls=0,
    time_per_output_token=0.05, client_blocked=0.0, duration=1.0,
)  # fmt: skip
RECORD = msgspec.structs.replace(records.RECORD, transport="sse", stream=True, timing=SMOOTH)


def read(timing: Timing = SMOOTH, *, stream: bool = True) -> dict[str, float]:
    """Values by metric, the deadlines by their verdict."""
    found = {}
    heard = records.Heard()
    measure(msgspec.structs.replace(RECORD, timing=timing, stream=stream), 4, 2, heard)
    for reading in heard.readings:
        name = reading.metric.removeprefix("semantic_health_")
        found[f"{name} {reading.labels[-1]}" if "deadlines" in name else name] = reading.value
    return found


def test_a_stream_has_all_its_readings() -> None:
    assert read() == {
        "time_to_first_chunk_seconds": 0.2,
        "streams_total": 1.0,
        "time_to_first_token_seconds": 0.3,
        "stream_stalls_total": 0.0,
        "stream_deadlines_total met": 4.0,
        "stream_deadlines_total missed": 2.0,
        "stream_longest_gap_seconds": 0.13,
        "stream_gap_stddev_seconds": 0.02,
        "stream_continuity_index_seconds": 0.02,
        "time_per_output_token_seconds": 0.05,
    }


def test_what_was_not_streamed_has_none() -> None:
    assert read(stream=False) == {}


def test_a_stream_without_a_token_is_no_stream_with_a_rhythm() -> None:
    assert read(Timing(first_byte=0.2, chunk_gaps=ChunkGaps(0), stalls=0)) == {"time_to_first_chunk_seconds": 0.2}
    assert read(Timing(chunk_gaps=ChunkGaps(None))) == {}


@pytest.mark.parametrize("gaps", [ChunkGaps(0), ChunkGaps(1, 0.5, None, 0.5, (0.5,))])
def test_a_deviation_that_is_not_known_is_not_0(gaps: ChunkGaps) -> None:
    found = read(msgspec.structs.replace(SMOOTH, chunk_gaps=gaps))
    assert "stream_gap_stddev_seconds" not in found
    assert "stream_continuity_index_seconds" not in found
    assert ("stream_longest_gap_seconds" in found) == (gaps.max is not None)


def test_the_time_a_client_blocked_is_counted_where_it_did() -> None:
    assert read(msgspec.structs.replace(SMOOTH, client_blocked=3.0))["client_blocked_seconds_total"] == 3.0
