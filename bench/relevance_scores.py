"""How well the relevance scores tell right from wrong on labelled rows.

    python -m bench.relevance_scores FILE.jsonl …

A row is a JSON object with `query`, `context`, `answer` (or null), the labels `context_relevant`, `answer_faithful`
and `answer_relevant` (true, false or null), and maybe `context_cut`: the context without the sentences that carry the
answer. Printed per file: AUROC and expected calibration error of each score, the AUROC of answer relevance from query
and answer alone, and the share of cut contexts where context relevance or groundedness fell.

The weights were fitted on open rows of Natural Questions, HotpotQA and Wizard of Wikipedia: figures on those very rows
say that this code follows the study, not how well it generalises. For that, give rows that nobody has fitted on.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from collector.embedding.use import UseEmbedder
from collector.measures import relevance
from collector.model import Relevance

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FELL = 0.02  # a score that is lower by this much has fallen
CALIBRATION_BINS = 10


class Row(msgspec.Struct, frozen=True):
    """One labelled row; other fields are ignored."""

    query: str
    context: str
    answer: str | None = None
    context_relevant: bool | None = None
    answer_faithful: bool | None = None
    answer_relevant: bool | None = None
    context_cut: str | None = None


class Scored(msgspec.Struct, frozen=True):
    """A row with its scores: with the whole context, with the cut one, and with none."""

    row: Row
    whole: Relevance
    cut: Relevance | None
    alone: Relevance | None


def auroc(positives: Sequence[float], negatives: Sequence[float]) -> float:
    """The chance that a positive scores higher than a negative, ties counting half; NaN without both."""
    if not positives or not negatives:
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


def score(rows: Iterable[Row], embedder: UseEmbedder) -> list[Scored]:
    """Every row with its scores. A row without answer is scored for its context alone."""

    def scores_of(row: Row, *passages: str) -> Relevance:
        given = relevance.compose(row.query, "" if row.answer is None else row.answer, passages)
        return relevance.relevance(given, embedder.embed(given.pieces))

    return [
        Scored(
            row,
            scores_of(row, row.context),
            None if row.context_cut is None else scores_of(row, row.context_cut),
            None if row.answer is None else scores_of(row),
        )
        for row in rows
    ]


def figures(scored: Sequence[Scored]) -> dict[str, tuple[float, str]]:
    """Named figures, each with what else is worth knowing about it."""
    found: dict[str, tuple[float, str]] = {}
    for name, label, alone in (
        ("context_relevance", "context_relevant", False),
        ("groundedness", "answer_faithful", False),
        ("answer_relevance", "answer_relevant", False),
        ("answer_relevance", "answer_relevant", True),
    ):
        pairs = [
            (value, truth)
            for one in scored
            if (truth := getattr(one.row, label)) is not None
            and (scores := one.alone if alone else one.whole) is not None
            and (value := getattr(scores, name)) is not None
        ]
        if not pairs:
            continue
        values, truths = [value for value, _ in pairs], [truth for _, truth in pairs]
        positives = [value for value, truth in pairs if truth]
        negatives = [value for value, truth in pairs if not truth]
        found[f"{name}{' (no context)' if alone else ''}"] = (
            auroc(positives, negatives),
            f"{len(positives)}/{len(negatives)} rows, calibration error {calibration_error(values, truths):.3f}",
        )
    cut = [(one.whole, one.cut) for one in scored if one.cut is not None and one.row.answer_faithful]
    if cut:
        context, ground = (
            [_fell(getattr(whole, name), getattr(less, name)) for whole, less in cut]
            for name in ("context_relevance", "groundedness")
        )
        either = [one or other for one, other in zip(context, ground, strict=True)]
        detail = f"{len(cut)} rows; context relevance {np.mean(context):.3f}, groundedness {np.mean(ground):.3f}"
        found["context_cut noticed"] = (float(np.mean(either)), detail)
    return found


def _fell(before: float | None, after: float | None) -> bool:
    return before is not None and (after is None or before - after >= FELL)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="relevance_scores", description="AUROC of the scores on labelled rows.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.jsonl")
    options = parser.parse_args(arguments)
    embedder = UseEmbedder()
    decoder = msgspec.json.Decoder(Row)
    everything: list[Scored] = []
    for path in options.files:
        rows = decoder.decode_lines(path.read_bytes())
        began = time.process_time()
        scored = score(rows, embedder)
        everything += scored
        _show(path.stem, scored, (time.process_time() - began) / max(len(rows), 1))
    if len(options.files) > 1:
        _show("all", everything, None)
    return 0


def _show(name: str, scored: Sequence[Scored], cost: float | None) -> None:
    cost_text = "" if cost is None else f", {cost * 1000:.1f} CPU ms a row (all its variants, nothing cached)"
    print(f"{name}: {len(scored)} rows{cost_text}")
    for figure, (value, detail) in figures(scored).items():
        print(f"  {figure:32} {value:.3f}  {detail}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
