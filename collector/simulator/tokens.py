"""Texts cut into pieces of the size of tokens."""

from __future__ import annotations

import re

# A word keeps the space before it, as in byte-pair vocabularies; Chinese comes in one or two characters.
_PIECE = re.compile(r" ?[A-Za-z']{1,9}| ?\d{1,3}|[一-鿿]{1,2}| ?[^\sA-Za-z'\d一-鿿]|\s+")
# Longer prompts are estimated: counting must not be what a benchmark measures.
MOST_COUNTED_CHARACTERS = 100_000
CHARACTERS_A_TOKEN = 4


def pieces(text: str) -> list[str]:
    """The pieces of a text; joined they are the text."""
    return _PIECE.findall(text)


def count(text: str) -> int:
    """How many pieces a text has; estimated for long texts."""
    if len(text) > MOST_COUNTED_CHARACTERS:
        return len(text) // CHARACTERS_A_TOKEN
    return len(_PIECE.findall(text))
