"""How a record is named in labels."""

from __future__ import annotations

from functools import lru_cache

from collector.catalogue import BY_NAME, label_names
from collector.model import Place, Reading, Record

UNKNOWN = "unknown"
PLACE = ("route", "provider", "model", "operation")  # the labels of a Place


def model_label(record: Record) -> str:
    """The served model; a requested one only where the answer was a success, so that typos make no series."""
    if record.response_model is not None:
        return record.response_model
    if record.request_model is not None and record.status is not None and 200 <= record.status < 300:
        return record.request_model
    return UNKNOWN


def place_of(record: Record) -> Place:
    """Where the exchange belongs: what nearly all its readings have as labels."""
    model = record.response_model
    if model is None:
        model = model_label(record)
    return (record.route, record.provider or UNKNOWN, model, record.operation or UNKNOWN)


def reading_of(place: Place | None, series: str | tuple[str, ...], value: float) -> Reading:
    """The reading that meters of this place take as `meters[series](value)`.

    Where too few or too many labels are said it has too few or too many, so that no exporter takes it.
    """
    metric, *said = (series,) if isinstance(series, str) else series
    if place is None:
        return Reading(metric, value, tuple(said))
    names = _names(metric)
    free = [name for name in names if name not in PLACE]
    if len(free) != len(said):
        return Reading(metric, value, () if names else tuple(said))
    given = {**dict(zip(PLACE, place, strict=True)), **dict(zip(free, said, strict=True))}
    return Reading(metric, value, tuple(given[name] for name in names))


@lru_cache(maxsize=256)  # more than the catalogue has metrics
def _names(metric: str) -> tuple[str, ...]:
    known = BY_NAME.get(metric)
    return () if known is None else label_names(known)
