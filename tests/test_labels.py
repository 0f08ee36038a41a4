"""How a record is named in labels."""

from __future__ import annotations

import msgspec
import pytest

from collector.labels import UNKNOWN, model_label
from collector.model import ChunkGaps, FrameCounts, Record, Relevance, ReportedUsage, TextFacts, Timing, UpstreamFacts

RECORD = Record(
    id="r", started_at=None, route="r", method="POST", trace_id=None, client_request_id=None, retry_attempt=None,
    dialect="openai.chat", provider=None, operation="chat", transport="json", stream=False, status=200,
    outcome="completed", phase=None, request_model=None, response_model=None, finish_reasons=(), usage=None,
    usage_reported=ReportedUsage(), text=TextFacts(None, 0), correction_ratio=None, tool_calls=(), error=None,
    frames=FrameCounts(), timing=Timing(chunk_gaps=ChunkGaps(0)), bytes_in=0, bytes_out=0, rate_limits=(),
    retry_after=None, upstream=UpstreamFacts(), validity=None, relevance=Relevance(False), findings=(), anomalies=(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("served", "asked", "status", "label"),
    [
        ("m-1", "alias", 200, "m-1"), ("m-1", "alias", 500, "m-1"), (None, "alias", 200, "alias"),
        (None, "typo", 404, UNKNOWN), (None, "alias", None, UNKNOWN), (None, None, 200, UNKNOWN),
    ],
)  # fmt: skip
def test_a_requested_model_is_a_label_of_successes_only(
    served: str | None, asked: str | None, status: int | None, label: str
) -> None:
    record = msgspec.structs.replace(RECORD, response_model=served, request_model=asked, status=status)
    assert model_label(record) == label
