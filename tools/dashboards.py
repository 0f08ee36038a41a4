"""What a dashboard is made of, and how it is written as Grafana's JSON.

Classic dashboard JSON, which Grafana 10 to 13 load; the newer schema is one that only 12 and 13 know.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from tools.expressions import VARIABLES

SCHEMA_VERSION = 39
GRID = 24  # columns of a Grafana dashboard

# Okabe and Ito's colours, which colour-blind people can tell apart. Blue is good; descriptions say it in words too.
GOOD, DOUBTFUL, BAD = "#0072B2", "#E69F00", "#D55E00"

Json = dict[str, Any]


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
    title: str
    panels: tuple[Panel, ...]


class Dashboard(Struct, frozen=True):
    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]


# ---------------------------------------------------------------- to Grafana's JSON

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}


def dashboard_json(dashboard: Dashboard) -> Json:
    """Grafana's classic model of a dashboard."""
    return {
        "annotations": {"list": []},
        "description": dashboard.description,
        "editable": False,
        "graphTooltip": 1,  # a shared crosshair
        "id": None,
        "links": [],
        "panels": _laid_out(dashboard.rows),
        "refresh": "30s",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["semhealth", "llm"],
        "templating": {"list": [_datasource_variable(), *(_variable(name) for name in VARIABLES)]},
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "",
        "title": dashboard.title,
        "uid": dashboard.uid,
        "weekStart": "",
    }


def _laid_out(rows: tuple[Row, ...]) -> list[Json]:
    """Row headings and panels from left to right, a new line where the width is used up."""
    panels: list[Json] = []
    y = 0
    for row in rows:
        heading = {"collapsed": False, "id": len(panels) + 1, "panels": [], "title": row.title, "type": "row"}
        panels.append(heading | {"gridPos": {"h": 1, "w": GRID, "x": 0, "y": y}})
        y += 1
        x = tallest = 0
        for panel in row.panels:
            if x + panel.width > GRID:
                x, y, tallest = 0, y + tallest, 0
            place = {"h": panel.height, "w": panel.width, "x": x, "y": y}
            panels.append(_panel(panel, len(panels) + 1) | {"gridPos": place})
            x += panel.width
            tallest = max(tallest, panel.height)
        y += tallest
    return panels


def _panel(panel: Panel, number: int) -> Json:
    defaults: Json = {"unit": panel.unit, "mappings": [], "noValue": "nothing measured"}
    if panel.low is not None:
        defaults["min"] = panel.low
    if panel.high is not None:
        defaults["max"] = panel.high
    defaults["thresholds"] = _thresholds(panel.steps)
    match panel.kind:
        case "stat":
            defaults["color"] = {"mode": "thresholds"}
            options = _stat_options()
        case "timeseries":
            defaults["color"] = {"mode": "palette-classic"}
            style = "off" if panel.steps is None else "dashed"
            defaults["custom"] = {"fillOpacity": 0, "lineWidth": 2, "showPoints": "auto", "spanNulls": False,
                                  "thresholdsStyle": {"mode": style}}  # fmt: skip
            options = {
                "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        case "heatmap":
            options = _heatmap_options(panel.unit)
        case "table":
            options = {"cellHeight": "sm", "showHeader": True, "sortBy": [{"desc": True, "displayName": "Value"}]}
    drawn: Json = {"transformations": [_WITHOUT_TIME]} if panel.kind == "table" else {}
    return drawn | {
        "datasource": DATASOURCE,
        "description": panel.description,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "id": number,
        "options": options,
        "targets": [_target(query, panel.kind, chr(ord("A") + i)) for i, query in enumerate(panel.queries)],
        "title": panel.title,
        "type": panel.kind,
    }


_WITHOUT_TIME: Json = {"id": "organize", "options": {"excludeByName": {"Time": True}}}


def _target(query: Query, kind: str, letter: str) -> Json:
    # A stat asks for now alone: over a range, the last point of a gauge that has vanished would still be shown.
    return {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expression,
        "format": kind if kind in ("heatmap", "table") else "time_series",
        "instant": kind in ("stat", "table"),
        "legendFormat": query.legend,
        "range": kind not in ("stat", "table"),
        "refId": letter,
    }


def _thresholds(steps: Steps | None) -> Json:
    if steps is None:
        colours: list[tuple[str, float | None]] = [(GOOD, None)]
    elif steps.low_is_bad:
        colours = [(BAD, None), (DOUBTFUL, steps.bad), (GOOD, steps.doubtful)]
    else:
        colours = [(GOOD, None), (DOUBTFUL, steps.doubtful), (BAD, steps.bad)]
    return {"mode": "absolute", "steps": [{"color": colour, "value": value} for colour, value in colours]}


def _stat_options() -> Json:
    return {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "value_and_name",
        "wideLayout": True,
    }


def _heatmap_options(unit: str) -> Json:
    return {
        "calculate": False,
        "cellGap": 1,
        "color": {"exponent": 0.5, "fill": GOOD, "mode": "scheme", "reverse": False, "scale": "exponential",
                  "scheme": "Blues", "steps": 64},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "yHistogram": True},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }  # fmt: skip


def _datasource_variable() -> Json:
    return {"hide": 0, "includeAll": False, "label": "Data source", "multi": False, "name": "datasource",
            "options": [], "query": "prometheus", "refresh": 1, "regex": "", "type": "datasource"}  # fmt: skip


def _variable(name: str) -> Json:
    """The values of a label, narrowed by the variables before it."""
    series = "semantic_health_build_info" if name in ("job", "instance") else "semantic_health_exchanges_total"
    before = [f'{each}=~"${each}"' for each in VARIABLES[: VARIABLES.index(name)]]
    query = f"label_values({series}{{{', '.join(before)}}}, {name})" if before else f"label_values({series}, {name})"
    return {
        "allValue": ".+",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "datasource": DATASOURCE,
        "definition": query,
        "hide": 0,
        "includeAll": True,
        "label": name,
        "multi": True,
        "name": name,
        "options": [],
        "query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "refresh": 2,  # when the time range changes
        "regex": "",
        "sort": 1,
        "type": "query",
    }
