"""The proxy benchmark's results as Markdown tables, ratios with their targets, and a plot."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from bench.load import Timed

BEGIN, END = "<!-- bench.proxy begins -->", "<!-- bench.proxy ends -->"


class Work(Protocol):
    @property
    def title(self) -> str: ...
    @property
    def unit(self) -> str: ...


class Round(Protocol):
    @property
    def timed(self) -> Timed: ...
    @property
    def units(self) -> int: ...
    @property
    def cpu(self) -> dict[str, float]: ...
    @property
    def rss(self) -> dict[str, int]: ...
    @property
    def drops(self) -> int | None: ...


# What issue 7 asks for: workload, of whom, what, the highest ratio that meets the target.
TARGETS = (
    ("paced", "semhealth", "Envoy", 0.8),
    ("json16", "semhealth", "Envoy", 0.8),
    ("burst", "semhealth", "Envoy", 1.0),
    ("json16", "semhealth, TLS", "Envoy, TLS", 1.1),
    ("paced", "semhealth, TLS", "Envoy, TLS", 1.1),
    ("paced", "semhealth", "nginx", None),
    ("json16", "semhealth", "nginx", None),
    ("burst", "semhealth", "nginx", None),
)


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of the values lies; nan when there is none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def cpu_of(rounds: Sequence[Round], *parts: str) -> float:
    """µs of CPU per unit in these parts of a target, the median of rounds."""
    return statistics.median(sum(each.cpu.get(part, 0.0) for part in parts) / each.units for each in rounds) * 1e6


def ratio(ours: Sequence[Round], theirs: Sequence[Round], measure: Callable[[Sequence[Round]], float]) -> float:
    """The median over rounds of the ratio within one round, since rounds differ more than targets do."""
    return statistics.median(measure([a]) / measure([b]) for a, b in zip(ours, theirs, strict=True))


def table(work: Work, results: Mapping[str, Sequence[Round]]) -> list[str]:
    """One row a target. Latencies are what it adds to `direct` in the same round."""
    is_stream = work.unit == "frame"
    first = "first frame" if is_stream else "answer"
    lines = [
        "",
        f"### {work.title}",
        "",
        f"| target | {first} p50 added, µs | p99 | "
        + ("frame delay p50 added, µs | p99 | " if is_stream else "")
        + f"{work.unit}s a second | CPU µs per {work.unit} | proxy | analyst | RSS proxy, MB | analyst | drops |",
        "| --- " + "| ---: " * (11 if is_stream else 9) + "|",
    ]
    direct = results["direct"]
    for name, rounds in results.items():
        lines.append("| " + " | ".join([name, *_cells(rounds, direct, is_stream=is_stream)]) + " |")
    return lines


def _cells(rounds: Sequence[Round], direct: Sequence[Round], *, is_stream: bool) -> list[str]:
    cells = []
    kinds: list[Callable[[Timed], list[float]]] = [lambda timed: timed.first if is_stream else timed.whole]
    if is_stream:
        kinds.append(lambda timed: timed.chunks)
    for kind in kinds:
        for share in (0.5, 0.99):
            own = [percentile(kind(each.timed), share) for each in rounds]
            base = [percentile(kind(each.timed), share) for each in direct]
            if rounds is direct:
                cells.append(f"({statistics.median(own) * 1e6:,.0f})")
            else:
                cells.append(f"{statistics.median(a - b for a, b in zip(own, base, strict=True)) * 1e6:+,.0f}")
    cells.append(f"{statistics.median(each.units / each.timed.elapsed for each in rounds):,.0f}")
    if not rounds[0].cpu:
        return [*cells, "", "", "", "", "", ""]
    has_analyst = "analyst" in rounds[0].cpu
    proxy, analyst = cpu_of(rounds, "proxy"), cpu_of(rounds, "analyst")
    drops = [each.drops for each in rounds if each.drops is not None]
    cells += [
        f"{cpu_of(rounds, 'proxy', 'analyst'):.2f}",
        f"{proxy:.2f}",
        f"{analyst:.2f}" if has_analyst else "",
        f"{rounds[0].rss['proxy'] / 1e6:.0f}",  # before the large bodies, which come last in the first round
        f"{rounds[0].rss['analyst'] / 1e6:.0f}" if has_analyst else "",
        f"{sum(drops):,}" if drops else "",
    ]
    return cells


def ratios(results: Mapping[str, Mapping[str, Sequence[Round]]], works: Mapping[str, Work]) -> list[str]:
    """CPU and latency as ratios, with the targets beside them."""
    lines = [
        "",
        "### Ratios in this run",
        "",
        "| what | of | to | ratio | target | |",
        "| --- | --- | --- | ---: | ---: | --- |",
    ]

    def row(what: str, ours: str, theirs: str, value: float, target: float | None) -> None:
        verdict = "" if target is None else "met" if value <= target else "missed"
        goal = "" if target is None else f"≤ {target:g}"
        lines.append(f"| {what} | {ours} | {theirs} | {value:.2f} | {goal} | {verdict} |")

    for work, ours, theirs, target in TARGETS:
        there = results.get(work, {})
        if ours in there and theirs in there:
            value = ratio(there[ours], there[theirs], lambda rounds: cpu_of(rounds, "proxy"))
            row(f"proxy's CPU per {works[work].unit}, {work}", ours, theirs, value, target)
    for work in ("json16", "paced"):
        there = results.get(work, {})
        if "semhealth" in there and "aiohttp" in there:
            value = ratio(there["semhealth"], there["aiohttp"], lambda rounds: cpu_of(rounds, "proxy", "analyst"))
            row(f"all CPU per {works[work].unit}, {work}", "semhealth", "aiohttp", value, 1.0)
    there = results.get("json1", {})
    for ours, share, target in (("semhealth", 0.5, 1.2), ("semhealth, drained", 0.99, 2.0), ("semhealth", 0.99, None)):
        if ours in there and "nginx" in there:
            added = [
                statistics.median(
                    percentile(each.timed.whole, share) - percentile(base.timed.whole, share)
                    for each, base in zip(there[name], there["direct"], strict=True)
                )
                for name in (ours, "nginx")
            ]
            row(f"latency added, p{share * 100:g}, json1", ours, "nginx", added[0] / added[1], target)
    for work, target in (("json16", 4.0), ("paced", 2.5)):
        there = results.get(work, {})
        if "semhealth, drained" in there and "semhealth, proxy alone" in there:
            pairs = zip(there["semhealth, drained"], there["semhealth, proxy alone"], strict=True)
            cost = statistics.median(cpu_of([a], "proxy") - cpu_of([b], "proxy") for a, b in pairs)
            row(f"the tap, µs per {works[work].unit}, {work}", "semhealth, drained", "proxy alone", cost, target)
    there = results.get("json16", {})
    if "LiteLLM" in there and "semhealth" in there:
        per_core = [1e6 / cpu_of(there[name], "proxy") for name in ("semhealth", "LiteLLM")]
        row("requests a second and core, ×", "semhealth", "LiteLLM", per_core[0] / per_core[1], None)
    return lines


def memory(idle: Mapping[str, float]) -> list[str]:
    """What an idle stream takes."""
    if not idle:
        return []
    lines = ["", "### Memory of an idle stream", "", "| target | KB | target |", "| --- | ---: | ---: |"]
    goals = {"semhealth": "≤ 8", "semhealth, TLS": "≤ 50"}
    lines += [f"| {name} | {size / 1024:.1f} | {goals.get(name, '')} |" for name, size in idle.items()]
    return lines


def plot(results: Mapping[str, Mapping[str, Sequence[Round]]], works: Mapping[str, Work]) -> str:
    """Bars of CPU per unit as SVG: a group for each workload, the analyst's part lighter."""
    rows: list[tuple[str, str, float, float]] = []
    groups = [name for name in ("json16", "paced", "burst") if name in results]
    for group in groups:
        for name, rounds in results[group].items():
            if rounds[0].cpu and name != "LiteLLM":
                rows.append((group, name, cpu_of(rounds, "proxy"), cpu_of(rounds, "analyst")))
    width, bar, left = 760, 18, 190
    parts, y = [], 10
    for group in groups:
        here = [row for row in rows if row[0] == group]
        most = max(proxy + analyst for _, _, proxy, analyst in here)
        parts.append(
            f'<text x="8" y="{y + 14}" font-weight="bold">CPU µs per {works[group].unit}: {works[group].title}</text>'
        )
        y += 24
        for _, name, proxy, analyst in here:
            scale = (width - left - 110) / most
            colour = "#1f5fa8" if name.startswith("semhealth") else "#8a8f98"
            said = f"{proxy:.1f} + {analyst:.1f}" if analyst else f"{proxy:.1f}"
            parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{name}</text>')
            parts.append(f'<rect x="{left}" y="{y}" width="{proxy * scale:.1f}" height="{bar - 3}" fill="{colour}"/>')
            parts.append(
                f'<rect x="{left + proxy * scale:.1f}" y="{y}" width="{analyst * scale:.1f}" height="{bar - 3}" '
                f'fill="{colour}" fill-opacity="0.35"/>'
            )
            parts.append(f'<text x="{left + (proxy + analyst) * scale + 6:.1f}" y="{y + 13}">{said}</text>')
            y += bar
        y += 12
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}" '
        f'font-family="sans-serif" font-size="12" role="img">\n<title>CPU per request and per frame</title>\n'
        f'<rect width="{width}" height="{y}" fill="white"/>\n{body}\n</svg>\n'
    )


def write_report(
    results: Mapping[str, Mapping[str, Sequence[Round]]],
    works: Mapping[str, Work],
    idle: Mapping[str, float],
    missing: list[str],
    *,
    command: str,
    rounds: int,
    docs: Path | None,
) -> None:
    """Print all tables; with `docs`, put them between the marks of benchmarks.md there, and the plot beside it."""
    lines = [
        f"`{command}`: {rounds} rounds on {os.cpu_count()} cores ({_processor()}), Python {platform.python_version()}, "
        f"load average {os.getloadavg()[0]:.1f} at the end.",
    ]
    if missing:
        lines.append(f"Left out, since not installed or not asked for: {', '.join(missing)}.")
    lines += ratios(results, works)
    for name, there in results.items():
        lines += table(works[name], there)
    lines += memory(idle)
    print("\n".join(lines))
    if docs is None:
        return
    page = docs / "benchmarks.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{after}")
    (docs / "img").mkdir(exist_ok=True)
    (docs / "img" / "benchmarks.svg").write_text(plot(results, works))
    print(f"\nwritten to {page}", file=sys.stderr)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
