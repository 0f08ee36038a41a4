"""Writes the Grafana dashboards in dashboards/ from tools/ and the catalogue; --check only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.dashboards.grafana import dashboard_json
from tools.dashboards.limits import LIMITS_AND_COST
from tools.dashboards.overview import OVERVIEW
from tools.dashboards.semantic import SEMANTIC
from tools.dashboards.sidecar import SIDECAR
from tools.dashboards.streams import STREAMS
from tools.dashboards.upstream import UPSTREAM

DASHBOARDS = Path(__file__).resolve().parent.parent / "dashboards"
ALL = (OVERVIEW, SEMANTIC, STREAMS, UPSTREAM, LIMITS_AND_COST, SIDECAR)


def built() -> dict[Path, str]:
    """The files as they should be."""
    return {DASHBOARDS / f"{each.uid}.json": dashboard_json(each) for each in ALL}


def main(arguments: list[str]) -> int:
    """Write the files, or with --check exit 1 naming those that are out of date."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m tools.build_dashboards [--check]", file=sys.stderr)
        return 2
    files = built()
    stale = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if arguments:
            print(f"{path.name}: out of date; run python -m tools.build_dashboards", file=sys.stderr)
        else:
            path.write_text(files[path], encoding="utf-8")
            print(f"{path.name}: written")
    return 1 if arguments and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
