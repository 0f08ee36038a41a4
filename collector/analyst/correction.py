"""How much of a streamed text its provider took back when it repeated the whole of it."""

from __future__ import annotations

from collections.abc import Iterable

MAX_COMPARED = 4096  # characters between the first and the last difference that are compared one by one


def correction_ratio(pairs: Iterable[tuple[str, str]]) -> float | None:
    """Share of characters that differ between streamed texts and their repeats, 0–1; None where there is no text.

    Per pair, what both have in common in the same order is taken from the longer text (longest common subsequence).
    Where texts differ over more than MAX_COMPARED characters, all between the first and the last difference counts.
    """
    different = whole = 0
    for streamed, repeated in pairs:
        whole += max(len(streamed), len(repeated))
        different += _different(streamed, repeated)
    return different / whole if whole else None


def _different(one: str, other: str) -> int:
    if one == other:
        return 0
    shorter = min(len(one), len(other))
    start = _common(one, other, shorter)
    end = _common(one[start:][::-1], other[start:][::-1], shorter - start)
    one, other = one[start : len(one) - end], other[start : len(other) - end]
    longer = max(len(one), len(other))
    return longer - _common_subsequence(one, other) if longer <= MAX_COMPARED else longer


def _common(one: str, other: str, most: int) -> int:
    """Length of the common beginning, found by halving: comparing slices is fast."""
    low = 0
    while low < most:
        middle = (low + most + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            most = middle - 1
    return low


def _common_subsequence(one: str, other: str) -> int:
    """Length of the longest common subsequence, a row of the table at once in the bits of an integer (Hyyrö, 2004)."""
    places: dict[str, int] = {}
    for place, letter in enumerate(one):
        places[letter] = places.get(letter, 0) | 1 << place
    every = (1 << len(one)) - 1
    row = every
    for letter in other:
        matched = row & places.get(letter, 0)
        row = (row + matched | row - matched) & every
    return len(one) - row.bit_count()
