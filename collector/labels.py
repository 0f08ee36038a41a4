"""How a record is named in labels."""

from __future__ import annotations

from collector.model import Record

UNKNOWN = "unknown"


def model_label(record: Record) -> str:
    """The served model; a requested one only where the answer was a success, so that typos make no series."""
    if record.response_model is not None:
        return record.response_model
    if record.request_model is not None and record.status is not None and 200 <= record.status < 300:
        return record.request_model
    return UNKNOWN
