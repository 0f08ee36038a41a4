"""Fits a calibration of relevance on labelled rows.

Logistic with L2 on standardised features, each weight bounded to the sign that its feature means. Harder rows than the
labelled ones take a share of the negatives' weight, and copies of the positives whose words do not match take a share
of theirs, since labelled rows reward word overlap. Copies of wrong contexts that hold the query's names take another,
since a service about one product has its name everywhere. At last bias and scale are set on the labelled rows alone
(Platt).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec import Struct

from collector.measures.relevance_features import (
    AnswerParts,
    Compared,
    ContextFeatures,
    Features,
    GroundednessFeatures,
    Weighed,
)
from collector.measures.relevance_texts import compose
from collector.measures.relevance_weights import FEATURES, LOWERING, Calibration, Logistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from collector.measures.relevance_rows import Embed, Harder, Row

    Floats = NDArray[np.float64]

PENALTY = 1e-3  # L2, on standardised features
STEPS = 2000
STILL = 1e-8  # a step so small ends the fit


class Recipe(Struct, frozen=True):
    """Shares of the weight: `harder` and `named` of the negatives', `unworded` of the positives'."""

    context_harder: float = 0.1
    context_named: float = 0.2
    context_unworded: float = 0.1
    groundedness_harder: float = 0.2
    groundedness_unworded: float = 0.15
    answer_harder: float = 0.05
    answer_unworded: float = 0.1


class Seen(Struct, frozen=True):
    """The features of one row and of the harder ones made out of it; None or empty where there are none."""

    row: Row
    context: ContextFeatures
    near_miss: ContextFeatures | None = None
    sentences: tuple[Weighed, ...] = ()
    answer: AnswerParts | None = None
    wrong_sentences: tuple[tuple[Weighed, ...], ...] = ()
    wrong_answers: tuple[AnswerParts, ...] = ()


class _Example(Struct, frozen=True):
    features: Features
    positive: bool
    weight: float


def seen(row: Row, made: Harder, embed: Embed) -> Seen:
    """The features of a row. A row without answer has those of its context only."""

    def compared(answer: str, context: str) -> Compared:
        given = compose(row.query, answer, (context,))
        return Compared(given, embed(given.pieces))

    answer = "" if row.answer is None else row.answer
    own = compared(answer, row.context)
    near = None if made.near_miss is None else compared(answer, made.near_miss)
    if not answer:
        return Seen(row, own.context(), None if near is None else near.context())
    wrong = [compared(text, row.context) for text in (made.altered, made.other_answer) if text is not None]
    off_topic = [compared(text, row.context) for text in (made.other_answer, made.same_context) if text is not None]
    lost = [near] if near is not None and row.answer_faithful else []
    return Seen(
        row,
        own.context(),
        None if near is None else near.context(),
        own.groundedness(),
        own.answer_parts(),
        tuple(one.groundedness() for one in (*wrong, *lost)),
        tuple(one.answer_parts() for one in off_topic),
    )


def fit(rows: Sequence[Seen], model: str, versions: tuple[str, ...], recipe: Recipe | None = None) -> Calibration:
    """The calibration for one model. Raises ValueError where a score has no positive or no negative row."""
    chosen = Recipe() if recipe is None else recipe
    context = _fit("context", *_context_examples(rows, chosen))
    groundedness = _fit("groundedness", *_groundedness_examples(rows, chosen))
    answer = _fit("answer", *_answer_examples(rows, chosen))
    judged = [(one.answer, bool(one.row.answer_relevant)) for one in rows if _is_judged(one)]
    alone = _fit("alone", [_Example(parts.alone, right, 1.0) for parts, right in judged if parts is not None], [])
    relevant = [bool(one.row.context_relevant) for one in rows if one.row.context_relevant is not None]
    priors = {"context": _mean(relevant), "answer": _mean([right for _, right in judged])}
    return Calibration(model, versions, context, groundedness, answer, alone, priors)


def _is_judged(one: Seen) -> bool:
    return one.answer is not None and one.row.answer_relevant is not None


def _mean(values: Sequence[bool]) -> float:
    return round(sum(values) / len(values), 3) if values else 0.0


# ---------------------------------------------------------------- examples: the labelled ones, and the added ones

_Examples = tuple[list[_Example], list[_Example]]


def _context_examples(rows: Sequence[Seen], recipe: Recipe) -> _Examples:
    known = [one for one in rows if one.row.context_relevant is not None]
    base = [_Example(one.context, bool(one.row.context_relevant), 1.0) for one in known]
    near = [one.near_miss for one in known if one.near_miss is not None and one.row.answer_faithful]
    copies = [unworded_context(one.context) for one in known if one.row.context_relevant]
    wrong = [*(one.context for one in known if not one.row.context_relevant), *near]
    named = [msgspec.structs.replace(features, names_missing=0.0) for features in wrong]
    added = ((near, recipe.context_harder), (named, recipe.context_named))
    return _shared(base, added, copies, recipe.context_unworded)


def _groundedness_examples(rows: Sequence[Seen], recipe: Recipe) -> _Examples:
    known = [one for one in rows if one.sentences and one.row.answer_faithful is not None]
    base = [
        _Example(sentence.features, bool(one.row.answer_faithful), sentence.share)
        for one in known
        for sentence in one.sentences
    ]
    wrong = [sentence.features for one in known for answer in one.wrong_sentences for sentence in answer]
    copies = [unworded_sentence(each) for one in known if one.row.answer_faithful for each in one.sentences]
    return _shared(base, ((wrong, recipe.groundedness_harder),), copies, recipe.groundedness_unworded)


def _answer_examples(rows: Sequence[Seen], recipe: Recipe) -> _Examples:
    known = [(one.row, one.answer, one.wrong_answers) for one in rows if _is_judged(one)]
    base = [_Example(parts.features(), bool(row.answer_relevant), 1.0) for row, parts, _ in known if parts is not None]
    wrong = [parts.features() for *_, more in known for parts in more]
    copies = [unworded_answer(parts) for row, parts, _ in known if parts is not None and row.answer_relevant]
    return _shared(base, ((wrong, recipe.answer_harder),), copies, recipe.answer_unworded)


def _shared(
    base: list[_Example],
    wrong: Sequence[tuple[Sequence[Features], float]],
    copies: Sequence[Features],
    unworded: float,
) -> _Examples:
    """The labelled examples, and all with the added ones, which take their shares of the same total weight."""
    positive = sum(one.weight for one in base if one.positive)
    negative = sum(one.weight for one in base if not one.positive)
    wrong = [(features, share) for features, share in wrong if features]
    unworded = unworded if copies else 0.0
    kept_wrong = 1 - sum(share for _, share in wrong)
    kept = [
        msgspec.structs.replace(one, weight=one.weight * (1 - unworded if one.positive else kept_wrong)) for one in base
    ]
    added = [
        _Example(features, False, share * negative / len(listed)) for listed, share in wrong for features in listed
    ]
    copied = [_Example(features, True, unworded * positive / len(copies)) for features in copies]
    return base, [*kept, *added, *copied]


# What the features of a right row would be if it shared hardly a word: the paraphrase, or the other language.
_COSINES_LEFT = 0.8


def unworded_context(features: ContextFeatures) -> ContextFeatures:
    closest = features.closest * _COSINES_LEFT
    return ContextFeatures(closest, 0.1, 0.08, closest * 0.9, features.names_missing)


def unworded_sentence(sentence: Weighed) -> GroundednessFeatures:
    features = sentence.features
    return GroundednessFeatures(
        in_pair=0.0,
        drawn_closer=features.drawn_closer * _COSINES_LEFT,
        unknown_number=features.unknown_number,
        in_whole=0.05,
        closest_unsaid=sentence.closest * _COSINES_LEFT,
    )


def unworded_answer(parts: AnswerParts) -> Features:
    alone = msgspec.structs.replace(parts.alone, to_query=parts.alone.to_query * _COSINES_LEFT)
    return AnswerParts(alone, parts.drawn_closer * _COSINES_LEFT, 0.03, parts.both * _COSINES_LEFT**2).features()


# ---------------------------------------------------------------- logistic


def _fit(name: str, base: Sequence[_Example], all_examples: Sequence[_Example]) -> Logistic:
    names = FEATURES[name].__struct_fields__
    signs = np.array([-1.0 if feature in LOWERING else 1.0 for feature in names])
    weights = _logistic(*_arrays(all_examples or base, names), signs, PENALTY)
    if all_examples:
        features, truths, shares = _arrays(base, names)
        scale = _logistic((weights[0] + features @ weights[1:])[:, None], truths, shares, np.ones(1), PENALTY / 1000)
        weights = np.array([scale[0] + scale[1] * weights[0], *(scale[1] * weights[1:])])
    bias, *each = (round(float(weight), 3) for weight in weights)
    return Logistic(bias, dict(zip(names, each, strict=True)))


def _arrays(examples: Iterable[_Example], names: Sequence[str]) -> tuple[Floats, Floats, Floats]:
    listed = list(examples)
    if len({one.positive for one in listed}) < 2:
        raise ValueError("expected labelled rows of both kinds, right and wrong, for each score")
    return (
        np.array([[getattr(one.features, name) for name in names] for one in listed], dtype=np.float64),
        np.array([one.positive for one in listed], dtype=np.float64),
        np.array([one.weight for one in listed], dtype=np.float64),
    )


def _logistic(features: Floats, truths: Floats, shares: Floats, signs: Floats, penalty: float) -> Floats:
    """Bias and weights: accelerated projected gradient, whose step is the inverse of the steepest curvature."""
    means = np.average(features, axis=0, weights=shares)
    spreads = np.sqrt(np.average((features - means) ** 2, axis=0, weights=shares)) + 1e-9
    inputs = np.column_stack([np.ones(len(features)), (features - means) / spreads])
    shares = shares / shares.sum()
    penalties = np.array([0.0, *[penalty] * features.shape[1]])
    bounds = np.array([0.0, *signs])
    step = 1 / (0.25 * float(np.linalg.eigvalsh((inputs * shares[:, None]).T @ inputs)[-1]) + penalty)
    best = ahead = np.zeros(inputs.shape[1])
    pace = 1.0
    for _ in range(STEPS):
        slope = inputs.T @ (shares * (_sigmoid(inputs @ ahead) - truths)) + penalties * ahead
        moved = ahead - step * slope
        moved = np.where(bounds * moved < 0, 0.0, moved)
        faster = (1 + np.sqrt(1 + 4 * pace * pace)) / 2
        ahead = moved + (pace - 1) / faster * (moved - best)
        stands = bool(np.abs(moved - best).max() < STILL)
        best, pace = moved, faster
        if stands:
            break
    weights = best[1:] / spreads
    return np.array([best[0] - float(weights @ means), *weights])


def _sigmoid(logits: Floats) -> Floats:
    shares: Floats = 1 / (1 + np.exp(-np.clip(logits, -40.0, 40.0)))
    return shares
