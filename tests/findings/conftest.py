"""Ended exchanges to judge, made from a plain one by changing what a test is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from collector.model import (
    Choice,
    Exchange,
    FrameCounts,
    Record,
    Relevance,
    ReportedUsage,
    RequestFacts,
    TextFacts,
    Timing,
    UpstreamFacts,
    Usage,
)

TEXT = "The invoice is due within 30 days of its date."
RECORD = Record(
    id="x", started_at=None, route="r", method="POST", trace_id=None, client_request_id=None, retry_attempt=None,
    dialect="openai.chat", provider="openai", operation="chat", transport="json", stream=False, status=200,
    outcome="completed", phase=None, request_model="gpt-4o", response_model="gpt-4o-2024-11-20",
    finish_reasons=("stop",), usage=Usage(100, 20, 0), usage_reported=ReportedUsage(100, 20),
    text=TextFacts("0", len(TEXT)), correction_ratio=None, tool_calls=(), error=None, frames=FrameCounts(),
    timing=Timing(duration=1.0), bytes_in=0, bytes_out=0, rate_limits=(), retry_after=None,
    upstream=UpstreamFacts(), validity=None, relevance=Relevance(False), findings=(), anomalies=(),
)  # fmt: skip


def made(text: str = TEXT, finish: str | None = "stop", ending: str | None = "completed", **changes: Any) -> Exchange:
    """The plain exchange with other fields of the record, of the request's facts (`request=`) or of itself."""
    own = {name: changes.pop(name) for name in list(changes) if name in Exchange.__struct_fields__}
    changes["text"] = TextFacts("0", len(text))
    at = own.pop("monotonic", own.get("answered") or 0.0)
    base = Exchange(
        replace(RECORD, **changes), RequestFacts(model="gpt-4o"), (Choice(0, text, True, finish, ending),), (), 0.0, at
    )
    return replace(base, **own)


Make = Callable[..., Exchange]


@pytest.fixture(scope="session")
def make() -> Make:
    return made
