"""What a dashboard is made of, before it is written as Grafana's JSON."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from tools.expressions import VARIABLES


class Query(Struct, frozen=True):
    """One expression and the name that its series get, as a Grafana legend template."""

    expression: str
    legend: str


class Steps(Struct, frozen=True):
    """Where a number is doubtful and where it is bad; `low_is_bad` tells which side of them is."""

    doubtful: float
    bad: float
    low_is_bad: bool = False


class Panel(Struct, frozen=True):
    """One panel. `low` and `high` fix the axis; a `stat` shows the value of now, a `table` one row a
    series over the time that is looked at, the highest first, and a `heatmap` a distribution."""

    title: str
    description: str  # what it shows and what is good
    unit: str  # Grafana's name of it
    queries: tuple[Query, ...]
    kind: Literal["timeseries", "stat", "heatmap", "table"] = "timeseries"
    width: int = 8
    height: int = 8
    low: float | None = 0.0
    high: float | None = None
    steps: Steps | None = None


class Row(Struct, frozen=True):
    """Panels under a heading; `repeat` names a variable for each of whose values the row is shown again."""

    title: str
    panels: tuple[Panel, ...]
    repeat: str | None = None


class Annotation(Struct, frozen=True):
    """A mark on every time axis where an expression has series."""

    name: str
    expression: str
    text: str  # a template of labels


class Dashboard(Struct, frozen=True):
    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[str, ...] = VARIABLES
    annotations: tuple[Annotation, ...] = ()
