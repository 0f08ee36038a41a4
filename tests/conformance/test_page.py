"""docs/transparency.md names the lines of the hop, the cases and their number as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from .hop import HOP_NAMES

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGE = (ROOT / "docs" / "transparency.md").read_text(encoding="utf-8")


def test_the_page_lists_the_lines_of_the_hop() -> None:
    listed = PAGE.partition("## Lines of the hop")[2].partition("\n## ")[0]
    names = {name.lower().encode() for name in re.findall(r"^\| `([A-Za-z-]+)` \|", listed, re.MULTILINE)}
    assert names == HOP_NAMES


def test_the_page_counts_the_cases() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", str(HERE)]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    counted = Counter(re.findall(r"^tests/conformance/(test_\w+)\.py::", listed, re.MULTILINE))
    counted.pop("test_page")
    told = {name: int(number) for name, number in re.findall(r"^\| `(test_\w+)` \| (\d+) \|", PAGE, re.MULTILINE)}
    assert told == counted
    assert f"{counted.total()} cases" in PAGE
    assert (
        PAGE.count("**Not yet.**")
        == sum(path.read_text(encoding="utf-8").count("pytest.mark.xfail(") for path in HERE.glob("test_*.py")) - 1
    )  # this file's own mention


def test_no_case_is_tolerated_without_being_told() -> None:
    for path in HERE.glob("test_*.py"):
        for mark in re.findall(r"mark\.xfail\(([^)]*)", path.read_text(encoding="utf-8")):
            assert path == Path(__file__) or "strict=True" in mark
