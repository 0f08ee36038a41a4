"""A dashboard as Grafana's classic JSON, by the builders of its foundation SDK.

Classic dashboard JSON, which Grafana 10 to 13 load; the newer schema is one that only 12 and 13 know.
"""

from __future__ import annotations

import json
import re
from typing import Any

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, heatmap, stat, table, timeseries
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat, QueryEditorMode

from tools.dashboards.model import Annotation, Dashboard, Panel, Query, Row, Steps
from tools.expressions import VARIABLES, closed_values, has_exemplars

SCHEMA_VERSION = 39  # of Grafana 10.4; nothing here needs a newer one
GRID = 24  # columns of a Grafana dashboard
TAG = "semhealth"
GOAL_LEGEND = ", objective"  # ends the name of a line that another one should stay above

# Okabe and Ito's colours, which colour-blind people can tell apart. Blue is good; descriptions say it in words too.
GOOD, DOUBTFUL, BAD = "#0072B2", "#E69F00", "#D55E00"
PALETTE = (GOOD, DOUBTFUL, "#009E73", BAD, "#CC79A7", "#56B4E9", "#F0E442", "#999999")
DATASOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")


def dashboard_json(dashboard: Dashboard) -> str:
    """The file of a dashboard: sorted keys, two spaces, a line end."""
    built = (
        build.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.description)
        .tags([TAG, "llm"])
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("")
        .timepicker(build.TimePicker())
        .link(_link())
        .with_variable(build.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for name in dashboard.variables:
        built.with_variable(_variable(name))
    built.annotations([_annotation(each) for each in dashboard.annotations])
    _lay_out(built, dashboard.rows)
    whole = built.build()
    whole.schema_version = SCHEMA_VERSION
    written = json.loads(JSONEncoder().encode(whole))
    written["annotations"].setdefault("list", [])  # which Grafana expects, and the SDK leaves out when it is empty
    for shown in (*written["links"], *written["annotations"]["list"]):
        del shown["placement"]  # the SDK would hide them in a menu
    return json.dumps(written, indent=2, sort_keys=True) + "\n"


def _link() -> build.DashboardLink:
    """To the other dashboards, with the same time and the same choice of routes."""
    link = build.DashboardLink("semhealth").type(model.DashboardLinkType.DASHBOARDS).tags([TAG])
    return link.include_vars(True).keep_time(True).as_dropdown(False).icon("dashboard").tooltip("")


def _lay_out(built: build.Dashboard, rows: tuple[Row, ...]) -> None:
    """Row headings and panels from left to right, a new line where the width is used up."""
    number = y = 0
    for row in rows:
        number += 1
        heading = build.Row(row.title).id(number).grid_pos(model.GridPos(h=1, w=GRID, x=0, y=y))
        built.with_row(heading if row.repeat is None else heading.repeat(row.repeat))
        y += 1
        x = tallest = 0
        for panel in row.panels:
            if x + panel.width > GRID:
                x, y, tallest = 0, y + tallest, 0
            number += 1
            place = model.GridPos(h=panel.height, w=panel.width, x=x, y=y)
            built.with_panel(_panel(panel, number).grid_pos(place))
            x += panel.width
            tallest = max(tallest, panel.height)
        y += tallest


def _panel(panel: Panel, number: int) -> build.Panel:
    drawn = (
        build.Panel()
        .type(panel.kind)
        .id(number)
        .title(panel.title)
        .description(panel.description)
        .datasource(DATASOURCE)
        .unit(panel.unit)
        .no_value("nothing measured")
        .thresholds(_thresholds(panel.steps))
        .options(_options(panel))
        .targets([_target(query, panel.kind, chr(ord("A") + i)) for i, query in enumerate(panel.queries)])
    )
    if panel.low is not None:
        drawn.min(panel.low)
    if panel.high is not None:
        drawn.max(panel.high)
    match panel.kind:
        case "stat":
            drawn.color_scheme(build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        case "timeseries":
            drawn.color_scheme(build.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
            drawn.custom(_lines(panel.steps))
            _tell_series_apart(drawn, panel)
            drawn.with_override(
                model.MatcherConfig("byValue", {"reducer": "allIsZero", "op": "gte", "value": 0}),
                [model.DynamicConfigValue("custom.hideFrom", {"legend": True, "tooltip": True, "viz": False})],
            )  # what never happened is drawn at 0, and named nowhere
        case "heatmap":
            pass
        case "table":
            drawn.with_transformation(
                model.DataTransformerConfig(id_val="organize", options={"excludeByName": {"Time": True}})
            )
    return drawn


def _tell_series_apart(drawn: build.Panel, panel: Panel) -> None:
    """Dashes for objectives and all but the first quantile, and Okabe and Ito's colours for names that are known."""
    "known."
    for style, query in zip((None, _dashes("dash", 10), _dashes("dot", 2)), panel.queries, strict=False):
        if style is not None and re.match(r"p\d", query.legend):
            drawn.override_by_regexp(f"/^{re.escape(query.legend.split()[0])}( |$)/", [style])
    if any(query.legend.endswith(GOAL_LEGEND) for query in panel.queries):
        drawn.override_by_regexp(f"/{GOAL_LEGEND}$/", [_dashes("dash", 10)])
    for query in panel.queries:
        for name, colour in zip(_known_names(query), PALETTE, strict=False):
            drawn.override_by_name(name, [model.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})])


def _dashes(fill: str, length: int) -> model.DynamicConfigValue:
    return model.DynamicConfigValue("custom.lineStyle", {"fill": fill, "dash": [length, 6]})


def _known_names(query: Query) -> tuple[str, ...]:
    """The names of the series of a query, where a closed label of at most as many values as colours makes them."""
    label = re.fullmatch(r"\{\{(\w+)\}\}", query.legend)
    values = None if label is None else closed_values(query.expression, label[1])
    return values if values is not None and len(values) <= len(PALETTE) else ()


def _target(query: Query, kind: str, letter: str) -> prometheus.Dataquery:
    target = (
        prometheus.Dataquery()
        .datasource(DATASOURCE)
        .editor_mode(QueryEditorMode.CODE)
        .expr(query.expression)
        .legend_format(query.legend)
        .ref_id(letter)
        .format(PromQueryFormat(kind if kind in ("heatmap", "table") else "time_series"))
        .exemplar(kind in ("timeseries", "heatmap") and has_exemplars(query.expression))
    )
    # A stat asks for now alone: over a range, the last point of a gauge that has vanished would still be shown.
    return target.instant() if kind in ("stat", "table") else target.range()


def _thresholds(steps: Steps | None) -> build.ThresholdsConfig:
    if steps is None:
        colours: list[tuple[str, float | None]] = [(GOOD, None)]
    elif steps.low_is_bad:
        colours = [(BAD, None), (DOUBTFUL, steps.bad), (GOOD, steps.doubtful)]
    else:
        colours = [(GOOD, None), (DOUBTFUL, steps.doubtful), (BAD, steps.bad)]
    made = build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE)
    return made.steps([model.Threshold(value, colour) for colour, value in colours])


def _lines(steps: Steps | None) -> common.GraphFieldConfig:
    mode = common.GraphThresholdsStyleMode.OFF if steps is None else common.GraphThresholdsStyleMode.DASHED
    return common.GraphFieldConfig(
        draw_style=common.GraphDrawStyle.LINE,
        line_width=2,
        fill_opacity=0,
        show_points=common.VisibilityMode.AUTO,
        span_nulls=False,
        thresholds_style=common.GraphThresholdsStyleConfig(mode=mode),
    )


def _options(panel: Panel) -> object:
    match panel.kind:
        case "stat":
            return stat.Options(
                graph_mode=common.BigValueGraphMode.NONE,
                color_mode=common.BigValueColorMode.VALUE,
                justify_mode=common.BigValueJustifyMode.AUTO,
                text_mode=common.BigValueTextMode.VALUE_AND_NAME,
                reduce_options=common.ReduceDataOptions(values=False, calcs=["lastNotNull"], fields=""),
                orientation=common.VizOrientation.AUTO,
            )
        case "timeseries":
            return timeseries.Options(
                legend=common.VizLegendOptions(
                    display_mode=common.LegendDisplayMode.LIST,
                    placement=common.LegendPlacement.BOTTOM,
                    show_legend=True,
                ),
                tooltip=common.VizTooltipOptions(
                    mode=common.TooltipDisplayMode.MULTI, sort=common.SortOrder.DESCENDING
                ),
            )
        case "heatmap":
            return heatmap.Options(
                color=heatmap.HeatmapColorOptions(
                    mode=heatmap.HeatmapColorMode.SCHEME, scheme="Cividis", fill=GOOD, exponent=0.5, steps=64
                ),
                filter_values=heatmap.FilterValueRange(le=1e-9),
                rows_frame=heatmap.RowsHeatmapOptions(layout=common.HeatmapCellLayout.AUTO),
                y_axis=heatmap.YAxisConfig(unit=panel.unit),
                legend=heatmap.HeatmapLegend(show=True),
                tooltip=heatmap.HeatmapTooltip(mode=common.TooltipDisplayMode.SINGLE, y_histogram=True),
            )
        case "table":
            return table.Options(
                cell_height=common.TableCellHeight.SM,
                sort_by=[common.TableSortByFieldState(display_name="Value", desc=True)],
            )


def _annotation(annotation: Annotation) -> build.AnnotationQuery:
    made = build.AnnotationQuery().name(annotation.name).datasource(DATASOURCE).enable(True).icon_color(PALETTE[4])
    return made.expr(annotation.expression).title_format(annotation.name).text_format(annotation.text).step("60s")


def _variable(name: str) -> build.QueryVariable:
    """The values of a label, narrowed by the variables before it."""
    series = "semantic_health_build_info" if name in ("job", "instance") else "semantic_health_exchanges_total"
    before = [f'{each}=~"${each}"' for each in VARIABLES[: VARIABLES.index(name)]]
    query = f"label_values({series}{{{', '.join(before)}}}, {name})" if before else f"label_values({series}, {name})"
    asked: dict[str, Any] = {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"}
    return (
        build.QueryVariable(name)
        .label(name)
        .datasource(DATASOURCE)
        .definition(query)
        .query(asked)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(model.VariableOption(selected=True, text=["All"], value=["$__all"]))
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
    )
