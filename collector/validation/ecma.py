"""Patterns of JSON Schema (ECMA-262) as patterns of Python."""

from __future__ import annotations

import re
from functools import lru_cache

# What differs between the two dialects and occurs in schemas; everything else means the same or is refused by `re`.
# ECMA's `\d` and `\w` are ASCII, its white space and line ends are lists of their own, and its `$` does not match
# before a final newline.
_SPACE = "\\t-\\r \\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
_NO_SPACE = (
    "\\0-\\x08\\x0e-\\x1f!-\\x9f\\xa1-\\u167f\\u1681-\\u1fff\\u200b-\\u2027\\u202a-\\u202e\\u2030-\\u205e"
    "\\u2060-\\u2fff\\u3001-\\ufefe\\uff00-\\U0010ffff"
)
_OUTSIDE = {
    r"\d": "[0-9]",
    r"\D": "[^0-9]",
    r"\w": "[A-Za-z0-9_]",
    r"\W": "[^A-Za-z0-9_]",
    r"\s": f"[{_SPACE}]",
    r"\S": f"[^{_SPACE}]",
    r"\b": r"(?a:\b)",
    r"\B": r"(?!(?a:\b))",  # Python's own `\B` is not found in an empty text.
    ".": "[^\\n\\r\\u2028\\u2029]",
    "$": r"\Z",
}
_INSIDE = {
    r"\d": "0-9",
    r"\D": r"\0-/:-\U0010ffff",
    r"\w": "A-Za-z0-9_",
    r"\W": r"\0-/:-@\[-\^`{-\U0010ffff",
    r"\s": _SPACE,
    r"\S": _NO_SPACE,
    "[": r"\[",
    "&": r"\&",  # Doubled, these are reserved in a class of Python's.
    "~": r"\~",
    "|": r"\|",
}
_CLASSES = frozenset({r"\d", r"\D", r"\w", r"\W", r"\s", r"\S"})
_TOKEN = re.compile(r"\\u\{[0-9A-Fa-f]{1,6}\}|\\k<\w+>|\\.|\(\?<(?![=!])|.", re.DOTALL)


@lru_cache(maxsize=128)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern for Python's `re`. Raises re.error where it has no equal there, such as `\\p{…}`."""
    made: list[str] = []
    inside = False
    before = ""
    for found in _TOKEN.finditer(pattern):
        piece = found[0]
        if piece.startswith(r"\u{"):
            code = int(piece[3:-1], 16)
            if code > 0x10FFFF:
                raise re.error("no such character", pattern, found.start())
            made.append(re.escape(chr(code)))
        elif inside:
            # A dash beside a class is no range: `[\w-.]`.
            if made[-1] == "-" and piece in _CLASSES:
                made[-1] = r"\-"
            made.append(r"\-" if piece == "-" and before in _CLASSES else _INSIDE.get(piece, piece))
            inside = piece != "]"
        elif piece == "(?<":
            made.append("(?P<")
        elif piece.startswith(r"\k<"):
            made.append(f"(?P={piece[3:-1]})")
        else:
            made.append(_OUTSIDE.get(piece, piece))
            inside = piece == "["
        before = piece
    return re.compile("".join(made))
