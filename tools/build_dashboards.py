"""Writes the Grafana dashboards in dashboards/ from tools/ and the catalogue; --check only compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tools.dashboards import dashboard_json
from tools.overview import OVERVIEW

DASHBOARDS = Path(__file__).resolve().parent.parent / "dashboards"
ALL = (OVERVIEW,)


def built() -> dict[Path, str]:
    """The files as they should be."""
    return {
        DASHBOARDS / f"{each.uid}.json": json.dumps(dashboard_json(each), indent=2, sort_keys=True) + "\n"
        for each in ALL
    }


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
