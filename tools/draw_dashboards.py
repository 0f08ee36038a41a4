"""Draws the dashboards from a real Prometheus as pictures in docs/img/, by headless Chromium and without a Grafana.

The drawing is this file's own: it shows what Prometheus answered, laid out as the JSON says, not how Grafana looks.
"""

from __future__ import annotations

import argparse
import html
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from tools.dashboards.grafana import PALETTE
from tools.scene import Scene, playing

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "img"
CELL_WIDTH, CELL_HEIGHT = 50, 26  # pixels of a cell of the grid
GRID = 24
MARGIN_LEFT, TITLE, LEGEND, BOTTOM = 52, 22, 34, 16
MOST_LEGENDS = 8
SHADES = ("#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838")  # Cividis, dark to light
STYLE = """
body{margin:0;background:#f4f5f5;font:12px 'DejaVu Sans',sans-serif;color:#24292e}
h1{font-size:17px;margin:10px 8px 2px} .row{position:absolute;left:8px;font-weight:bold;font-size:14px;padding-top:5px}
.panel{position:absolute;background:#fff;border:1px solid #d8d9da;overflow:hidden;box-sizing:border-box}
.panel b{display:block;padding:4px 6px 0;font-size:11.5px;white-space:nowrap}
.stat{font-size:24px;padding:6px 8px 0;font-weight:bold} .stat span{font-size:10.5px;color:#555;font-weight:normal}
.legend{position:absolute;bottom:2px;left:6px;right:4px;font-size:9px;line-height:11px;height:32px;overflow:hidden}
.legend span{margin-right:7px;white-space:nowrap} table{font-size:10px;margin:4px 6px;border-spacing:7px 1px}
td,th{text-align:left} .none{color:#777;padding:24px;text-align:center}
"""

Json = dict[str, Any]
Points = list[tuple[float, float]]


class Line(Struct, frozen=True):
    name: str
    colour: str
    dashed: bool
    points: Points


class Tally(Struct):
    """How many panels and expressions there are, and how many of each answered with a number other than 0."""

    panels: int = 0
    panels_with_numbers: int = 0
    expressions: int = 0
    expressions_with_numbers: int = 0

    def count(self, said: Sequence[bool]) -> None:
        self.panels += 1
        self.panels_with_numbers += any(said)
        self.expressions += len(said)
        self.expressions_with_numbers += sum(said)


def page(dashboard: Json, scene: Scene, tally: Tally) -> tuple[str, int]:
    """HTML of a dashboard, and its height in pixels."""
    parts: list[str] = []
    below = 0  # cells that repeated rows have pushed the rest down
    for row, panels in _rows(dashboard["panels"]):
        for turn, route in enumerate(_repeats(row, scene)):
            height = 1 + max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in panels) - panels[0]["gridPos"]["y"]
            below += height if turn else 0
            title = row["title"].replace("$route", route)
            parts.append(f'<div class="row" style="top:{_top(row, below)}px">▾ {html.escape(title)}</div>')
            parts += [_panel(each, below, scene, route, tally if turn == 0 else Tally()) for each in panels]
    bottom = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in dashboard["panels"]) + below
    whole = f"<h1>{html.escape(dashboard['title'])}</h1>{''.join(parts)}"
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{whole}", 40 + bottom * CELL_HEIGHT


def _rows(panels: Sequence[Json]) -> Iterator[tuple[Json, list[Json]]]:
    starts = [i for i, each in enumerate(panels) if each["type"] == "row"]
    for start, end in zip(starts, [*starts[1:], len(panels)], strict=True):
        yield panels[start], list(panels[start + 1 : end])


def _repeats(row: Json, scene: Scene) -> Sequence[str]:
    """The values of the variable that a row is repeated for, as Grafana asks for them."""
    if "repeat" not in row:
        return (".+",)
    name = row["repeat"]
    counted = f"count by ({name}) (semantic_health_exchanges_total)"
    return sorted({labels[name] for labels, _ in scene.now(counted)} - {"other"})


def _top(panel: Json, below: int) -> int:
    return 36 + int(panel["gridPos"]["y"] + below) * CELL_HEIGHT


def _panel(panel: Json, below: int, scene: Scene, route: str, tally: Tally) -> str:
    place = panel["gridPos"]
    width, height = place["w"] * CELL_WIDTH, place["h"] * CELL_HEIGHT
    draw = {"stat": _stat, "table": _table, "heatmap": _heatmap, "timeseries": _lines}[panel["type"]]
    inside, said = draw(panel, scene, route, width, height)
    tally.count(said)
    style = f"left:{place['x'] * CELL_WIDTH}px;top:{_top(panel, below)}px;width:{width}px;height:{height}px"
    drawn = inside or '<div class="none">nothing measured</div>'
    return f'<div class="panel" style="{style}"><b>{html.escape(panel["title"])}</b>{drawn}</div>'


def _is_number(value: float) -> bool:
    return math.isfinite(value) and value != 0.0


# ---------------------------------------------------------------- kinds of panels


def _stat(panel: Json, scene: Scene, route: str, _width: int, _height: int) -> tuple[str, list[bool]]:
    inside, said = "", []
    for target in panel["targets"]:
        found = scene.now(scene.filled(target["expr"], route=route))
        said.append(any(_is_number(value) for _, value in found))
        for labels, value in found:
            colour = _step_colour(panel, value)
            name = html.escape(_legend(target, labels))
            inside += (
                f'<div class="stat" style="color:{colour}">{_shown(value, _unit(panel))} <span>{name}</span></div>'
            )
    return inside, said


def _table(panel: Json, scene: Scene, route: str, _width: int, height: int) -> tuple[str, list[bool]]:
    inside, said = "", []
    for target in panel["targets"]:
        found = sorted(scene.now(scene.filled(target["expr"], route=route)), key=lambda each: -each[1])
        said.append(any(_is_number(value) for _, value in found))
        if found:
            names = sorted({name for labels, _ in found for name in labels})
            inside += "<tr>" + "".join(f"<th>{name}</th>" for name in [*names, "Value"]) + "</tr>"
        for labels, value in found[: (height - 40) // 14]:
            cells = [*(html.escape(labels.get(name, "")) for name in names), f"{value:.0f}"]
            inside += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    return (f"<table>{inside}</table>" if inside else ""), said


def _heatmap(panel: Json, scene: Scene, route: str, width: int, height: int) -> tuple[str, list[bool]]:
    [target] = panel["targets"]
    series = scene.range(scene.filled(target["expr"], route=route))
    buckets = sorted(series, key=lambda each: float(each[0]["le"].replace("+Inf", "inf")))
    said = [any(_is_number(value) for _, points in buckets for _, value in points)]
    counts: list[tuple[str, dict[float, float]]] = []
    lower: dict[float, float] = {}
    for labels, points in buckets:  # cumulative → each bucket's own
        upper = dict(points)
        counts.append((labels["le"], {at: value - lower.get(at, 0.0) for at, value in upper.items()}))
        lower = upper
    most = max((value for _, own in counts for value in own.values()), default=0.0)
    if most <= 0:
        return "", said
    deep = (height - TITLE - BOTTOM - 6) / len(counts)
    wide = (width - MARGIN_LEFT - 8) / max(1.0, scene.ended - scene.began)
    parts = []
    for i, (le, own) in enumerate(counts):
        y = height - BOTTOM - (i + 1) * deep
        parts.append(f'<text x="{MARGIN_LEFT - 4}" y="{y + deep - 2:.1f}" text-anchor="end" font-size="8">{le}</text>')
        for at, value in own.items():
            if value > 0:
                shade = SHADES[min(len(SHADES) - 1, int(math.sqrt(value / most) * len(SHADES)))]
                x = MARGIN_LEFT + (at - scene.began) * wide
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide + 0.3:.1f}" height="{deep - 1:.1f}" fill="{shade}"/>'
                )
    return _svg("".join(parts), width, height), said


def _lines(panel: Json, scene: Scene, route: str, width: int, height: int) -> tuple[str, list[bool]]:
    lines: list[Line] = []
    said = []
    for target in panel["targets"]:
        series = scene.range(scene.filled(target["expr"], route=route))
        said.append(any(_is_number(value) for _, points in series for _, value in points))
        for labels, points in series:
            finite = [(at, value) for at, value in points if math.isfinite(value)]
            if finite:
                name = _legend(target, labels)
                colour = _fixed_colour(panel, name) or PALETTE[len(lines) % len(PALETTE)]
                lines.append(Line(name, colour, bool(re.match(r"p(9|10 )|.*, objective$", name)), finite))
    if not lines:
        return "", said
    defaults = panel["fieldConfig"]["defaults"]
    values = [value for line in lines for _, value in line.points]
    low = defaults.get("min", min(values))
    high = defaults.get("max", max(values))
    high = high if high > low else low + 1.0
    room = height - TITLE - LEGEND - BOTTOM
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = height - LEGEND - BOTTOM - share * room
        shown = _shown(low + share * (high - low), _unit(panel))
        parts.append(f'<line x1="{MARGIN_LEFT}" x2="{width - 8}" y1="{y}" y2="{y}" stroke="#e5e5e5"/>')
        parts.append(f'<text x="{MARGIN_LEFT - 4}" y="{y + 3}" text-anchor="end" font-size="9">{shown}</text>')
    across = (width - MARGIN_LEFT - 8) / max(1.0, scene.ended - scene.began)
    for line in lines:
        for stretch in _unbroken(line.points):
            drawn = " ".join(
                f"{MARGIN_LEFT + (at - scene.began) * across:.1f},"
                f"{height - LEGEND - BOTTOM - (min(max(value, low), high) - low) / (high - low) * room:.1f}"
                for at, value in stretch
            )
            dash = ' stroke-dasharray="6 4"' if line.dashed else ""
            parts.append(f'<polyline fill="none" stroke="{line.colour}" stroke-width="1.6"{dash} points="{drawn}"/>')
    named = [line for line in lines if any(value != 0.0 for _, value in line.points)]
    legend = " ".join(
        f'<span><i style="color:{line.colour}">{"╍" if line.dashed else "━"}</i> {html.escape(line.name)}</span>'
        for line in named[:MOST_LEGENDS]
    )
    more = f" <span>and {len(named) - MOST_LEGENDS} more</span>" if len(named) > MOST_LEGENDS else ""
    return _svg("".join(parts), width, height) + f'<div class="legend">{legend}{more}</div>', said


def _unbroken(points: Points) -> Iterator[Points]:
    """Stretches without a gap; a single point becomes a short dash."""
    stretch: Points = []
    for at, value in points:
        if stretch and at - stretch[-1][0] > 1.5:
            yield stretch
            stretch = []
        stretch.append((at, value))
    yield stretch if len(stretch) > 1 else [stretch[0], (stretch[0][0] + 0.5, stretch[0][1])]


def _svg(inside: str, width: int, height: int) -> str:
    return f'<svg width="{width}" height="{height}" style="position:absolute;left:0;top:0">{inside}</svg>'


# ---------------------------------------------------------------- words and colours


def _legend(target: Json, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), target["legendFormat"])


def _unit(panel: Json) -> str:
    return str(panel["fieldConfig"]["defaults"]["unit"])


def _shown(value: float, unit: str) -> str:
    match unit:
        case "percentunit":
            return f"{value * 100:.3g} %"
        case "s":
            if value >= 7200:
                return f"{value / 3600:.3g} h"
            if 0 < value < 1e-3:
                return f"{value * 1e6:.3g} µs"
            return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"
        case "currencyUSD":
            return f"${value:.3g}"
        case "reqps":
            return f"{value:.3g}/s"
        case "bytes":
            return f"{value / 1024:.3g} KiB"
        case _:
            return f"{value:.3g}"


def _step_colour(panel: Json, value: float) -> str:
    colour = PALETTE[0]
    for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]:
        if step["value"] is None or value >= step["value"]:
            colour = step["color"]
    return str(colour)


def _fixed_colour(panel: Json, name: str) -> str | None:
    for override in panel["fieldConfig"]["overrides"]:
        if override["matcher"] == {"id": "byName", "options": name}:
            return str(override["properties"][0]["value"]["fixedColor"])
    return None


def main(arguments: Sequence[str]) -> int:
    """Play the scene, draw every dashboard, and say how many panels and expressions answered."""
    parser = argparse.ArgumentParser(prog="python -m tools.draw_dashboards", description=__doc__)
    parser.add_argument("--seconds", type=float, default=90.0, help="of traffic (default %(default)g)")
    parser.add_argument("--to", type=Path, default=IMAGES, metavar="DIRECTORY")
    given = parser.parse_args(arguments)
    chromium = shutil.which("chromium")
    if chromium is None:
        print("chromium is not installed: apt-get install --no-install-recommends chromium", file=sys.stderr)
        return 1
    given.to.mkdir(parents=True, exist_ok=True)
    whole = Tally()
    with tempfile.TemporaryDirectory() as name, playing(Path(name), given.seconds) as scene:
        for path in sorted((ROOT / "dashboards").glob("semhealth-*.json")):
            tally = Tally()
            text, height = page(json.loads(path.read_text(encoding="utf-8")), scene, tally)
            source = Path(name) / f"{path.stem}.html"
            source.write_text(text, encoding="utf-8")
            subprocess.run(
                (chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                 "--force-device-scale-factor=0.85",
                 f"--user-data-dir={name}/chromium", f"--window-size={GRID * CELL_WIDTH},{height}",
                 f"--screenshot={given.to / path.stem}.png", source.as_uri()),
                check=True, capture_output=True, timeout=120,
            )  # fmt: skip
            print(f"{path.stem}: {_told(tally)}")
            for field in tally.__struct_fields__:
                setattr(whole, field, getattr(whole, field) + getattr(tally, field))
    print(f"all: {_told(whole)}")
    return 0


def _told(tally: Tally) -> str:
    return (
        f"{tally.panels_with_numbers} of {tally.panels} panels and {tally.expressions_with_numbers} of "
        f"{tally.expressions} expressions with numbers other than 0"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
