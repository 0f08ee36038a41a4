"""Patterns mean what JSON Schema says, not what Python's `re` makes of them."""

from __future__ import annotations

import re

import pytest

from collector.validation.ecma import compiled


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"^\d+$", "123", True),
        (r"^\d+$", "123\n", False),
        (r"^\d+$", "\u0661\u0662", False),
        (r"^\w+$", "é", False),
        (r"^[\w-]+$", "a-b", True),
        (r"^[\w-]+$", "é", False),
        (r"^[^\d]$", "5", False),
        (r"^\D\W$", "a-", True),
        (r"es", "tests", True),
        (r"^(?<year>\d{4})-\k<year>$", "2026-2026", True),
        (r"^(?<!a)b$", "b", True),
        (r"(?<=a)b", "ab", True),
        (r"^\u{1F600}$", "\U0001f600", True),
        (r"^\u00e9$", "é", True),
        (r"^\$\\d$", r"$\d", True),
        (r"^[$]$", "$", True),
        (r"^[[a]+$", "[a", True),
        (r"^[\]$]$", "$", True),
        (r"^a\/b$", "a/b", True),
        (r"^[\w-.]+@[\w-]+$", "a-b.c@d-e", True),
        (r"^[\w-.]+$", "a`b", False),
        (r"^[.-\w]+$", ".-a", True),
        (r"^.$", "\r", False),
        (r"^.$", "\u2028", False),
        (r"^.$", "\x85", True),
        (r"^\s$", "\ufeff", True),
        (r"^\s$", "\x1c", False),
        (r"^[\s]$", "\x85", False),
        (r"^[^\S]$", "\u3000", True),
        (r"^[\W]$", "é", True),
        (r"^[\W]$", "a", False),
        (r"^[\D]$", "\u0661", True),
        (r"^[\D]$", "5", False),
        (r"\bb", "éb", True),
        (r"\B", "", True),
        (r"^[a&&b]+$", "&a", True),
    ],
)
def test_a_pattern_is_read_as_ecma_262(pattern: str, text: str, matches: bool) -> None:
    assert (compiled(pattern).search(text) is not None) is matches


@pytest.mark.parametrize("pattern", [r"\p{L}", "(", "[a", r"\u{110000}", "*"])
def test_what_python_cannot_express_is_refused(pattern: str) -> None:
    with pytest.raises(re.error):
        compiled(pattern)
