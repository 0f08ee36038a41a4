"""Lines of the Prometheus text formats, as prometheus-client writes them; what stays of a line is written once.

prometheus-client takes some 20 µs for a line, most of them for labels that never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

EOF = "# EOF\n"
PLAIN_BELOW = 1e6  # from here on Go writes exponents, which Python does not
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class _Only(Collector):
    """A collector of one family."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterable[Family]:
        yield self._family


def heads(family: Family) -> tuple[str, str]:
    """HELP, TYPE and UNIT of a family without samples, as text and as OpenMetrics."""
    only = _Only(family)
    openmetrics = generate_openmetrics(only).decode()  # type: ignore[no-untyped-call] # theirs
    return generate_latest(only).decode(), openmetrics.removesuffix(EOF)


def prefix(name: str, labels: Sequence[str], values: Sequence[str]) -> str:
    """What comes before a sample's value: its name, its labels in the order of their names, and a space."""
    pairs = sorted(zip(labels, values, strict=True))
    told = ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in pairs)
    return f"{name}{{{told}}} " if told else f"{name} "


def number(value: float) -> str:
    """A value as Go writes it."""
    return repr(value) if -PLAIN_BELOW < value < PLAIN_BELOW else str(floatToGoString(value))  # type: ignore[no-untyped-call]


def after(exemplar: Exemplar | None) -> str:
    """What comes after a value in OpenMetrics: the line's end, and before it the exemplar where there is one."""
    if exemplar is None:
        return "\n"
    labels = prefix("", tuple(exemplar.labels), tuple(exemplar.labels.values()))
    return f" # {labels}{number(exemplar.value)} {exemplar.timestamp}\n"
