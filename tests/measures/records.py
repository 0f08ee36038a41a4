"""The plainest record there is: one JSON exchange that ended well. Tests replace what they are about."""

from __future__ import annotations

from collector.model import (
    ChunkGaps,
    FrameCounts,
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
