"""Patterns of JSON Schema (ECMA-262) as patterns of Python."""

from __future__ import annotations

import re
from functools import lru_cache

# What differs between the two dialects and occurs in schemas; everything else means the same or is refused by `re`.
# ECMA's classes are ASCII and its `$` does not match before a final newline.
_OUTSIDE = {r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[A-Za-z0-9_]", r"\W": "[^A-Za-z0-9_]", "$": r"\Z"}
_INSIDE = {r"\d": "0-9", r"\w": "A-Za-z0-9_", "[": r"\["}
_TOKEN = re.compile(r"\\u\{[0-9A-Fa-f]{1,6}\}|\\k<\w+>|\\.|\(\?<(?![=!])|.", re.DOTALL)


@lru_cache(maxsize=128)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern for Python's `re`. Raises re.error where it has no equal there, such as `\\p{…}`."""
    made: list[str] = []
    inside = False
    for found in _TOKEN.finditer(pattern):
        piece = found[0]
        if piece.startswith(r"\u{"):
            code = int(piece[3:-1], 16)
            if code > 0x10FFFF:
                raise re.error("no such character", pattern, found.start())
            made.append(re.escape(chr(code)))
        elif inside:
            made.append(_INSIDE.get(piece, piece))
            inside = piece != "]"
        elif piece == "(?<":
            made.append("(?P<")
        elif piece.startswith(r"\k<"):
            made.append(f"(?P={piece[3:-1]})")
        else:
            made.append(_OUTSIDE.get(piece, piece))
            inside = piece == "["
    return re.compile("".join(made))
