"""Writes docs/config.schema.json and the tables in docs/configuration.md from the types; --check only compares."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from collector.config_reference import key_tables, schema, variable_table

DOCS = Path(__file__).resolve().parent.parent / "docs"
SCHEMA = DOCS / "config.schema.json"
PAGE = DOCS / "configuration.md"


def built() -> dict[Path, str]:
    """The files as they should be."""
    page = PAGE.read_text(encoding="utf-8")
    for name, table in (("variables", variable_table()), ("keys", key_tables())):
        page = _between(page, name, table)
    return {SCHEMA: json.dumps(schema(), indent=2, ensure_ascii=False) + "\n", PAGE: page}


def _between(page: str, name: str, table: str) -> str:
    marked = re.compile(rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    replaced, count = marked.subn(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", page)
    if count != 1:
        raise ValueError(f"{PAGE.name}: expected the markers of {name!r} once, found them {count} times")
    return replaced


def main(arguments: list[str]) -> int:
    """Write the files, or with --check exit 1 naming those that are out of date."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m tools.build_config_docs [--check]", file=sys.stderr)
        return 2
    files = built()
    stale = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if arguments:
            print(f"{path.name}: out of date; run python -m tools.build_config_docs", file=sys.stderr)
        else:
            path.write_text(files[path], encoding="utf-8")
            print(f"{path.name}: written")
    return 1 if arguments and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
