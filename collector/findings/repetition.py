"""Does a text end in one passage repeated over and over?"""

from __future__ import annotations

from typing import NamedTuple

SHORTEST = 400  # characters of an answer that is looked at
NEEDLE = 40  # characters at its end, whose last occurrence before tells the period
LONGEST_PERIOD = 800
MAX_CHARS = 8192  # at the end that are looked at
LEAST_REPEATS = 4
MOST_REPEATS = 64  # that are counted
LEAST_COVERED = 240  # characters


class Loop(NamedTuple):
    """A passage of `period` characters that stands `repeats` times in a row at the end, or more often than is seen."""

    period: int
    repeats: int


def loop_at_end(text: str) -> Loop | None:
    """The loop that a text ends in; None where it ends in none, or is shorter than SHORTEST.

    Rules of dashes, blanks and numbers (tables, vectors) are no loops: the passage must have letters, and two kinds of
    them.
    """
    if len(text) < SHORTEST:
        return None
    end = text[-MAX_CHARS:].rstrip()
    start = len(end) - NEEDLE
    if start <= 0:
        return None
    found = end.rfind(end[start:], max(0, start - LONGEST_PERIOD), len(end) - 1)
    if found < 0:
        return None
    period = start - found
    passage = end[-period:]
    if len({letter for letter in passage if letter.isalpha()}) < 2:
        return None
    most = max(MOST_REPEATS, -(-LEAST_COVERED // period))
    repeats, at = 0, len(end)
    while at >= period and repeats < most and end.startswith(passage, at - period):
        repeats += 1
        at -= period
    return Loop(period, repeats) if repeats >= LEAST_REPEATS and repeats * period >= LEAST_COVERED else None
