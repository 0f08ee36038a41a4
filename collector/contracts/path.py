"""Paths into an answer's JSON: `amount`, `patient.age`, `diagnoses[*].code`, `rows[0]`."""

from __future__ import annotations

import re

from collector.contracts.answer import NotEvaluatedError

EVERY = "*"
MAX_STEPS = 20
MAX_FOUND = 10_000  # values that one path may lead to

Step = str | int  # a member's name, an index; EVERY is told from a member by its type, Each
_STEP = re.compile(r"\.?([^.\[\]\s][^.\[\]]*)|\[(\d{1,6}|\*)\]")


class Each:
    """The step `[*]`: every item of a list."""


class PathError(ValueError):
    """The path cannot be read; the message says where."""


def parse_path(path: str) -> tuple[Step | Each, ...]:
    """The steps of a path. A leading `output` is what CEL calls the same document, and left out."""
    steps: list[Step | Each] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None or (at == 0 and found[0].startswith(".")) or (at > 0 and found[0][0] not in ".["):
            raise PathError(f"position {at + 1}: expected a name, [0] or [*], as in diagnoses[*].code")
        if found[1] is not None:
            steps.append(found[1].rstrip())
        else:
            steps.append(Each() if found[2] == EVERY else int(found[2]))
        at = found.end()
    if steps and steps[0] == "output":
        steps = steps[1:]
    if not 1 <= len(steps) <= MAX_STEPS:
        raise PathError(f"expected 1 to {MAX_STEPS} steps, as in diagnoses[*].code")
    return tuple(steps)


def found_at(value: object, steps: tuple[Step | Each, ...]) -> list[object]:
    """The values that a path leads to; none where `[*]` meets an empty list. Raises NotEvaluatedError."""
    values = [value]
    for step in steps:
        values = [inner for outer in values for inner in _into(outer, step)]
        if len(values) > MAX_FOUND:
            raise NotEvaluatedError("over_bounds")
    return values


def _into(value: object, step: Step | Each) -> list[object]:
    match value, step:
        case dict(), str() if step in value:
            return [value[step]]
        case list(), Each():
            return value
        case list(), int() if step < len(value):
            return [value[step]]
        case (dict(), str()) | (list(), int()):
            raise NotEvaluatedError("missing")
        case _:
            raise NotEvaluatedError("type")
