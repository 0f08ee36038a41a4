"""The plainest record there is: one JSON exchange that ended well; tests replace what they are about. And meters that
keep what they are told."""

from __future__ import annotations

from collections.abc import Callable

from collector.catalogue import BY_NAME, label_names
from collector.labels import place_of, reading_of
from collector.model import (
    ChunkGaps,
    FrameCounts,
    Place,
    Reading,
    Record,
    Relevance,
    ReportedUsage,
    TextFacts,
    Timing,
    UpstreamFacts,
)

RECORD = Record(
    id="r", started_at=None, route="main", method="POST", trace_id=None, client_request_id=None, retry_attempt=None,
    dialect="openai.chat", provider="openai", operation="chat", transport="json", stream=False, status=200,
    outcome="completed", phase=None, request_model="m", response_model="m-1", finish_reasons=(), usage=None,
    usage_reported=ReportedUsage(), text=TextFacts(None, 0), correction_ratio=None, tool_calls=(), error=None,
    frames=FrameCounts(), timing=Timing(chunk_gaps=ChunkGaps(0)), bytes_in=0, bytes_out=0, rate_limits=(),
    retry_after=None, upstream=UpstreamFacts(), validity=None, relevance=Relevance(False), findings=(), anomalies=(),
)  # fmt: skip


class Heard(dict[str | tuple[str, ...], Callable[[float], object]]):
    """Meters that keep what they are told as readings, each of which has the labels of the catalogue."""

    def __init__(self, place: Place = place_of(RECORD)) -> None:  # noqa: B008 - a tuple
        super().__init__()
        self.readings: list[Reading] = []
        self._place = place

    def __missing__(self, series: str | tuple[str, ...]) -> Callable[[float], object]:
        def take(value: float) -> None:
            reading = reading_of(self._place, series, value)
            assert len(reading.labels) == len(label_names(BY_NAME[reading.metric])), series
            self.readings.append(reading)

        return take
