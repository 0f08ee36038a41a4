"""How long until a person is paged: seconds from a fault to the receiver, with rules and routes as they are shipped.

As `semhealth drill`, with a real Prometheus and a real Alertmanager, but no time is shortened: deploy/prometheus.yml's
scrapes and evaluations, alerts/semhealth.rules.yml and alerts/alertmanager.yml, whose receivers are a webhook here.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from collector.drill.drill import Report, drill
from collector.drill.faults import FAULTS
from collector.drill.stage import DrillError, Tempo, shipped_alerts

GOAL = 180.0  # seconds, issue 6
# With less good traffic before the fault, the windows of 30 minutes hold little but the fault, and fire too soon.
WARM = 900.0
PROMETHEUS = Path(__file__).resolve().parents[1] / "deploy" / "prometheus.yml"


def as_shipped() -> Tempo:
    """The times of the shipped files; alerts are sent again after Prometheus' default of a minute."""
    stated = yaml.safe_load(PROMETHEUS.read_text(encoding="utf-8"))["global"]
    scrape, evaluation = stated["scrape_interval"], stated["evaluation_interval"]
    return Tempo(scrape, evaluation, "1m", _unchanged, _unchanged, warm=WARM, limit=600.0, at_once=len(FAULTS))


def _unchanged(shipped: Any) -> Any:
    return shipped


def critical() -> list[str]:
    """The alerts that are a page."""
    rules = yaml.safe_load((shipped_alerts() / "semhealth.rules.yml").read_text(encoding="utf-8"))
    return [
        rule["alert"]
        for group in rules["groups"]
        for rule in group["rules"]
        if rule.get("labels", {}).get("severity") == "critical"
    ]


def table(report: Report) -> str:
    """In Markdown, the slowest last; what never came is the slowest."""
    lines = ["| alert | seconds to the receiver | at most 180 |", "| --- | ---: | --- |"]
    took = {name: float("inf") if each.seconds is None else each.seconds for name, each in report.alerts.items()}
    for name in sorted(took, key=lambda name: took[name]):
        shown = "never" if report.alerts[name].seconds is None else f"{took[name]:.0f}"
        lines.append(f"| {name} | {shown} | {'yes' if took[name] <= GOAL else 'NO'} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table in Markdown; 1 where a page took longer than the goal, or never came."""
    parser = argparse.ArgumentParser(prog="python -m bench.paging", description=__doc__)
    parser.add_argument("alerts", nargs="*", metavar="ALERT", help="alerts to try (default: all that are critical)")
    parser.add_argument("--warm", type=float, default=WARM, metavar="S", help="seconds of good traffic before")
    given = parser.parse_args(arguments)
    names = given.alerts or critical()
    if unknown := set(names) - set(FAULTS):
        parser.error(f"no alert is called {', '.join(sorted(unknown))}; alerts/README.md lists them")
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)  # simulated APIs hang up on purpose
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", file=sys.stderr, flush=True)

    try:
        report = asyncio.run(drill(names, 0.0, say, replace(as_shipped(), warm=given.warm)))
    except DrillError as error:
        say(str(error))
        return 1
    print(table(report))
    return 0 if all(each.seconds is not None and each.seconds <= GOAL for each in report.alerts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
