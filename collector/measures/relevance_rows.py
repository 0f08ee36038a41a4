"""Labelled rows of query, context and answer, and the harder ones that are made out of them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from collector.measures import relevance_lexicon as lexicon
from collector.measures.relevance_features import unit_rows
from collector.measures.relevance_texts import compose

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Vectors = NDArray[np.float32]
    Embed = Callable[[Sequence[str]], Vectors]

CALIBRATION_BINS = 10
CLOSEST = 40  # contexts, by their cosine, among which the nearest miss is looked for
CLOSEST_ANSWERS = 40  # queries, by their cosine, whose answers are tried


class Row(Struct, frozen=True):
    """One labelled row; other fields are ignored. `context_cut` is the context without what carries the answer."""

    query: str
    context: str
    answer: str | None = None
    context_relevant: bool | None = None
    answer_faithful: bool | None = None
    answer_relevant: bool | None = None
    context_cut: str | None = None


class Harder(Struct, frozen=True):
    """What can be made out of one row: None where nothing can. All are wrong but `same_context`."""

    near_miss: str | None = None  # the context of another row that is closest to the query
    altered: str | None = None  # the right answer with another number
    other_answer: str | None = None  # the right answer of the closest other query, which the context does not hold
    same_context: str | None = None  # the right answer of another query about this context: grounded but off-topic


def harder(rows: Sequence[Row], embed: Embed, seed: int = 0) -> list[Harder]:
    """Of every row, in order. Contexts and answers are looked for among the given rows only."""
    near = _near_misses(rows, embed)
    others = _other_answers(rows, embed)
    chance = random.Random(seed)  # noqa: S311 - it draws rows, not secrets
    return [
        Harder(near.get(index), _altered(row, chance), others.get(index), _of_same_context(row, rows))
        for index, row in enumerate(rows)
    ]


def _near_misses(rows: Sequence[Row], embed: Embed) -> dict[int, str]:
    """By meaning and words the closest context that shares no sentence with the row's own, nor holds its answer."""
    contexts = list(dict.fromkeys(row.context for row in rows))
    pieces = [compose("", "", [context]).context for context in contexts]
    vectors = [unit_rows(embed(piece)) for piece in pieces]
    held = lexicon.Places(lexicon.words(lexicon.normal(context)).weights for context in contexts)
    found: dict[int, str] = {}
    for index, row in enumerate(rows):
        if not row.context_relevant:
            continue
        own = frozenset(compose("", "", [row.context]).context)
        shares = held.shares(lexicon.words(lexicon.normal(row.query)))
        query = unit_rows(embed([row.query]))[0]
        cosines = np.array([float((of_context @ query).max()) for of_context in vectors])
        ranked = [
            (float(cosines[at]) + shares[at], contexts[at])
            for at in np.argsort(-cosines)[:CLOSEST]
            if own.isdisjoint(pieces[at]) and not _holds(contexts[at], row.answer if row.answer_faithful else None)
        ]
        if ranked:
            found[index] = max(ranked)[1]
    return found


def _holds(context: str, answer: str | None) -> bool:
    return answer is not None and lexicon.normal(answer).strip(" .") in lexicon.normal(context)


def _other_answers(rows: Sequence[Row], embed: Embed) -> dict[int, str]:
    right = [(index, row) for index, row in enumerate(rows) if row.answer_faithful and row.answer]
    if not right:
        return {}
    queries = unit_rows(embed([row.query for _, row in right]))
    found: dict[int, str] = {}
    for at, (index, row) in enumerate(right):
        for other in np.argsort(-(queries @ queries[at]))[:CLOSEST_ANSWERS]:
            candidate = right[other][1]
            if candidate.context != row.context and candidate.answer and not _holds(row.context, candidate.answer):
                found[index] = candidate.answer
                break
    return found


def _altered(row: Row, chance: random.Random) -> str | None:
    """The right answer with one of its numbers changed to one that the context does not hold."""
    if not row.answer_faithful or row.answer is None:
        return None
    numbers = list(re.finditer(r"\d+", row.answer))
    if not numbers:
        return None
    number = chance.choice(numbers)
    changed = str(int(number.group()) + chance.choice((1, 2, 3, 7, 10)))
    if re.search(rf"(?<!\d){changed}(?!\d)", row.context):
        return None
    return row.answer[: number.start()] + changed + row.answer[number.end() :]


def _of_same_context(row: Row, rows: Sequence[Row]) -> str | None:
    if not row.answer_faithful:
        return None
    return next(
        (
            other.answer
            for other in rows
            if other.answer_faithful
            and other.context == row.context
            and other.query != row.query
            and other.answer != row.answer
        ),
        None,
    )


# ---------------------------------------------------------------- figures


def auroc(positives: Sequence[float] | Floats, negatives: Sequence[float] | Floats) -> float:
    """The chance that a positive scores higher than a negative, ties counting half; NaN without both."""
    if len(positives) == 0 or len(negatives) == 0:
        return float("nan")
    ordered = np.sort(np.asarray(negatives))
    below = np.searchsorted(ordered, positives, side="left")
    up_to = np.searchsorted(ordered, positives, side="right")
    return float(np.mean((below + up_to) / 2) / len(ordered))


def calibration_error(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """The mean distance between score and share of positives over ten equal bins, weighted by their size."""
    values, truths = np.asarray(scores), np.asarray(labels, dtype=float)
    bins = np.minimum((values * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    distances = [
        abs(float(values[bins == index].mean() - truths[bins == index].mean())) * float((bins == index).mean())
        for index in range(CALIBRATION_BINS)
        if (bins == index).any()
    ]
    return sum(distances)
