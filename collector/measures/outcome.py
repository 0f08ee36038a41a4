"""How did the exchange end?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collector.labels import UNKNOWN, model_label
from collector.model import HowEnded, Reading, Record


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


def readings(record: Record) -> Iterable[Reading]:
    route, provider, model = record.route, record.provider or UNKNOWN, model_label(record)
    operation = record.operation or UNKNOWN
    yield Reading("semantic_health_exchanges_total", 1.0, (route, provider, model, operation, record.outcome))
    if record.timing.duration is not None:
        where = (route, provider, model, operation)
        yield Reading("semantic_health_operation_duration_seconds", record.timing.duration, where)
    if record.error is not None:
        labels = (route, provider, record.error.kind, record.error.source)
        yield Reading("semantic_health_errors_total", 1.0, labels)
    for word in record.anomalies:
        yield Reading("semantic_health_anomalies_total", 1.0, (route, word))
