"""Synthetic records, with everything in them that a span can tell."""

from __future__ import annotations

from typing import Any

import msgspec

from collector import model
from collector.model import Record, SpanFacts, TraceParent

PARENT = TraceParent("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", True, "vendor=1")
STARTED, ENDED = 1_700_000_000.25, 1_700_000_002.5


def a_record(**changes: Any) -> Record:
    record = Record(
        id="e1", started_at="2023-11-14T22:13:20.250Z", route="r", method="POST", trace_id=PARENT.trace_id,
        client_request_id="c-1", retry_attempt=1, dialect="openai.chat", provider="openai", operation="chat",
        transport="sse", stream=True, status=200, outcome="completed", phase=None, request_model="gpt-4o",
        response_model="gpt-4o-2024-08-06", finish_reasons=("stop",),
        usage=model.Usage(12, 34, 5, 6, 7), usage_reported=model.ReportedUsage(), text=model.TextFacts("ab", 2),
        correction_ratio=None, tool_calls=(), error=None, frames=model.FrameCounts(data=2),
        timing=model.Timing(
            first_byte=0.2, first_token=0.25, duration=2.25, stalls=0, client_blocked=0.0, added=0.0001,
            chunk_gaps=model.ChunkGaps(3, 0.1, 0.02, 0.15), time_per_output_token=0.06,
        ),
        bytes_in=10, bytes_out=20,
        rate_limits=(model.RateLimit("requests", "minute", 100.0, 7.0), model.RateLimit("tokens", None, None, 0.0)),
        retry_after=None,
        upstream=model.UpstreamFacts("req_1", "eu", None, 0.4, 0.9, True, {"queue": 0.1, "odd-name": 1.0}, {}, 1.5),
        validity=model.Validity(True, False, "schema_violation", "json_schema", "s", ()),
        relevance=model.Relevance(True, None, "latin", 0.8, 0.7, 0.6),
        findings=(
            model.Finding("stream_stalls", "warning", {"stalls": 2, "longest_gap": 1.5}),
            model.Finding("wrong_region", "critical", {"asked": "eu", "served": "us"}),
        ),
        anomalies=("usage_missing",), cost_usd=0.002,
    )  # fmt: skip
    return msgspec.structs.replace(record, **changes)


def facts(parent: TraceParent | None = PARENT, **changes: Any) -> SpanFacts:
    return SpanFacts(a_record(**changes), STARTED, ENDED, parent, None, "chatcmpl-1", 300, "json")
