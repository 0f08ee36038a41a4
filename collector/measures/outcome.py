"""How did the exchange end?"""

from __future__ import annotations

from collections.abc import Sequence

from collector.model import HowEnded, Meters, Record


def outcome(
    how: HowEnded,
    status: int | None,
    *,
    error: bool,
    terminal: bool,
    whole: bool,
    blocked: bool,
    endings: Sequence[str | None],
) -> str:
    """The first that applies, in the order of docs/exchange-record.md; with several choices one is enough.

    `terminal`: the end marker was seen. `whole`: the body ended as HTTP and its dialect say it should.
    """
    if how == "client_disconnect" and not terminal:
        return "client_disconnect"
    if how in ("connect_failed", "upstream_failed", "upstream_timeout") or status is None or status >= 400:
        return "upstream_error"
    if error or "error" in endings:
        return "error_event"
    if not (terminal or whole):
        return "truncated"
    if blocked or "blocked" in endings or "refusal" in endings:
        return "blocked"
    if "incomplete" in endings:
        return "incomplete"
    return "completed"


def measure(record: Record, meters: Meters) -> None:
    """How it ended and how long it took; its error and its oddities."""
    meters["semantic_health_exchanges_total", record.outcome](1.0)
    if record.timing.duration is not None:
        meters["semantic_health_operation_duration_seconds"](record.timing.duration)
    if record.error is not None:
        meters["semantic_health_errors_total", record.error.kind, record.error.source](1.0)
    for word in record.anomalies:
        meters["semantic_health_anomalies_total", word](1.0)
