"""Writes docs/findings/README.md from the catalogue; --check only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from collector.catalogue import FINDING_RULES

INDEX = Path(__file__).resolve().parent.parent / "docs" / "findings" / "README.md"

INTRODUCTION = """\
# Findings

A finding says what is to be mended about a request or its answer. Each is in the exchange's record (`findings`, with
bounded facts and no content), in the counter `semantic_health_findings_total{route, model, rule, severity}`, and in the
sidecar's log (`semhealth.findings`): the first of a rule on a route at once, then at most one line a minute with their
number. `GET /records?finding=RULE` gives the exchanges; `semhealth inspect` makes findings on recorded ones.

Rules are set for all routes under `findings:` or for one under `routes[].findings:`, see
[configuration.md](../configuration.md); `off` switches rules off by their id. Rules that need a recent level keep it
per route and model in memory, for at most 500 pairs, and start anew with the analyst.
"""


def built() -> str:
    """The page as it should be."""
    parts = [INTRODUCTION]
    for side, title in (("request", "About the request"), ("response", "About the answer")):
        rows = [
            f"| [{rule.id}]({rule.id}.md) | {rule.severity} | {rule.saw} | {rule.remedy} |"
            for rule in FINDING_RULES
            if rule.side == side
        ]
        table = ["| rule | severity | what it saw | remedy |", "| --- | --- | --- | --- |", *rows]
        parts.append("\n".join((f"## {title}", "", *table, "")))
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Write the page, or with --check exit 1 where it is out of date."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m tools.build_findings_index [--check]", file=sys.stderr)
        return 2
    if INDEX.exists() and INDEX.read_text(encoding="utf-8") == built():
        return 0
    if arguments:
        print("docs/findings/README.md: out of date; run python -m tools.build_findings_index", file=sys.stderr)
        return 1
    INDEX.write_text(built(), encoding="utf-8")
    print("docs/findings/README.md: written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
