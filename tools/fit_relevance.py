"""Fits the relevance scores on labelled rows and tells how well they do, by cross-validation grouped by context.

    python -m tools.fit_relevance --rows DIR [--embedder use | packaged | FOLDER] [--write]

DIR holds one `.jsonl` of rows a set, as `collector.measures.relevance_rows.Row` tells. Without `--embedder` the default
model is fitted; `packaged` is all-MiniLM-L6-v2
as its package brings it, FOLDER another model of sentence-transformers. With `--write` the model's entry in
`collector/measures/relevance_table.py` is replaced. The hand-written rows of `tests/measures/relevance_rows` are only
measured, never fitted on.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec import Struct

from collector.config import TransformerSettings
from collector.measures import relevance
from collector.measures.relevance_features import Compared, Weighed
from collector.measures.relevance_fit import Recipe, Seen, fit, seen
from collector.measures.relevance_rows import Harder, Row, auroc, calibration_error, harder
from collector.measures.relevance_table import CALIBRATIONS
from collector.measures.relevance_texts import compose
from collector.measures.relevance_weights import Calibration, sigmoid
from collector.model import Relevance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from collector.measures.relevance_rows import Embed
    from collector.model import Embedder

FOLDS = 5
FELL = 0.02  # a score that is lower by this much has fallen
DRAWS = 500  # of the bootstrap
BATCH = 256  # texts embedded at a time
HAND_WRITTEN = Path(__file__).parent.parent / "tests" / "measures" / "relevance_rows"
TABLE = Path(__file__).parent.parent / "collector" / "measures" / "relevance_table.py"
# What was chosen for each model, by the figures that this tool prints.
RECIPES: dict[str, Recipe] = {
    "use-multilingual-3": Recipe(),
    "all-MiniLM-L6-v2": Recipe(groundedness_unworded=0.1),
}


class Remembering:
    """An embedder that embeds no text twice."""

    def __init__(self, embed: Embed) -> None:
        self._embed = embed
        self._known: dict[str, NDArray[np.float32]] = {}

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        for at in range(0, len(new), BATCH):
            batch = new[at : at + BATCH]
            self._known.update(zip(batch, self._embed(batch), strict=True))
        return np.stack([self._known[text] for text in texts])


class Case(Struct, frozen=True):
    """One row with all that is scored of it."""

    set: str
    seen: Seen
    made: Harder


class Scored(Struct, frozen=True):
    """Probabilities of one case by a calibration that was fitted without its context; None where not applicable."""

    set: str
    row: Row
    context: float
    groundedness: float | None
    answer: float | None
    alone: float | None
    near_miss: float | None
    lost: float | None  # groundedness of the right answer on the nearest miss
    altered: float | None
    other_answer: float | None
    off_topic: float | None  # answer relevance of a grounded answer to another question
    off_topic_grounded: float | None
    cut_context: float | None
    cut_groundedness: float | None


# ---------------------------------------------------------------- scoring


def cases(rows: Mapping[str, Sequence[Row]], embed: Embed) -> list[Case]:
    """Features of every row; harder rows are looked for inside its set."""
    return [
        Case(name, seen(row, made, embed), made)
        for name, of_set in rows.items()
        for row, made in zip(of_set, harder(of_set, embed), strict=True)
    ]


def cross_validated(given: Sequence[Case], embed: Embed, model: str, recipe: Recipe | None = None) -> list[Scored]:
    """Every case, scored by weights that were fitted on the rows of other contexts."""
    scored: list[Scored] = []
    for fold in range(FOLDS):
        weights = fit([case.seen for case in given if _fold(case) != fold], model, ("",), recipe)
        scored += [score(case, weights, embed) for case in given if _fold(case) == fold]
    return scored


def _fold(case: Case) -> int:
    return zlib.crc32(case.seen.row.context.encode()) % FOLDS


def score(case: Case, weights: Calibration, embed: Embed) -> Scored:
    row, made, own = case.seen.row, case.made, case.seen

    def whole(answer: str | None, context: str | None) -> Relevance | None:
        if answer is None or context is None:
            return None
        given = compose(row.query, answer, (context,))
        return relevance.relevance(given, embed(given.pieces), weights)

    whole_row = whole("" if row.answer is None else row.answer, row.context)
    if whole_row is None or whole_row.context_relevance is None:
        raise ValueError("a row without query or context cannot be scored")
    lost = whole(row.answer, made.near_miss) if row.answer_faithful else None
    cut = whole(row.answer, row.context_cut) if row.answer_faithful else None
    altered = whole(made.altered, row.context)
    other = whole(made.other_answer, row.context)
    off_topic = whole(made.same_context, row.context)
    return Scored(
        set=case.set,
        row=row,
        context=whole_row.context_relevance,
        groundedness=whole_row.groundedness,
        answer=whole_row.answer_relevance,
        alone=None if own.answer is None else sigmoid(weights.alone.logit(own.answer.alone)),
        near_miss=None if own.near_miss is None else sigmoid(weights.context.logit(own.near_miss)),
        lost=None if lost is None else lost.groundedness,
        altered=None if altered is None else altered.groundedness,
        other_answer=None if other is None else other.groundedness,
        off_topic=None if off_topic is None else off_topic.answer_relevance,
        off_topic_grounded=None if off_topic is None else off_topic.groundedness,
        cut_context=None if cut is None else cut.context_relevance,
        cut_groundedness=None if cut is None else cut.groundedness,
    )


# ---------------------------------------------------------------- figures


class Figure(Struct, frozen=True):
    """`low` and `high` bound 95 % of bootstrap draws over the rows."""

    name: str
    value: float
    low: float
    high: float
    detail: str


def figures(scored: Sequence[Scored]) -> Iterator[Figure]:
    """AUROC, calibration error and the harder ones of the given rows."""
    for name, score_name, label in (
        ("context relevance", "context", "context_relevant"),
        ("groundedness", "groundedness", "answer_faithful"),
        ("answer relevance", "answer", "answer_relevant"),
        ("answer relevance, no context", "alone", "answer_relevant"),
    ):
        right, wrong = _labelled(scored, score_name, label)
        if right and wrong:
            error = calibration_error([*right, *wrong], [True] * len(right) + [False] * len(wrong))
            yield _separation(name, right, wrong, f"calibration error {error:.3f}")
    relevant, _ = _labelled(scored, "context", "context_relevant")
    grounded, _ = _labelled(scored, "groundedness", "answer_faithful")
    fitting, _ = _labelled(scored, "answer", "answer_relevant")
    for name, right, attribute in (
        ("nearest other context", relevant, "near_miss"),
        ("right answer, nearest other context", grounded, "lost"),
        ("altered number", grounded, "altered"),
        ("answer of the nearest other query", grounded, "other_answer"),
        ("grounded but off-topic (answer relevance)", fitting, "off_topic"),
        ("grounded but off-topic (groundedness)", grounded, "off_topic_grounded"),
    ):
        wrong = [value for one in scored if (value := getattr(one, attribute)) is not None]
        if right and wrong:
            yield _separation(name, right, wrong, f"median of the wrong ones {np.median(wrong):.2f}")
    cut = [one for one in scored if one.cut_context is not None]
    if cut:
        context = [one.context - _value(one.cut_context) >= FELL for one in cut]
        ground = [_value(one.groundedness) - _value(one.cut_groundedness) >= FELL for one in cut]
        either = np.array([a or b for a, b in zip(context, ground, strict=True)], dtype=float)
        low, high = _bounds(lambda pick: float(either[pick].mean()), len(either))
        detail = f"n={len(cut)}; context alone {np.mean(context):.3f}, groundedness alone {np.mean(ground):.3f}"
        yield Figure("cut context noticed", float(either.mean()), low, high, detail)


def _labelled(scored: Iterable[Scored], score_name: str, label: str) -> tuple[list[float], list[float]]:
    right: list[float] = []
    wrong: list[float] = []
    for one in scored:
        value, truth = getattr(one, score_name), getattr(one.row, label)
        if value is not None and truth is not None:
            (right if truth else wrong).append(value)
    return right, wrong


def _separation(name: str, right: Sequence[float], wrong: Sequence[float], detail: str) -> Figure:
    rights, wrongs = np.asarray(right), np.asarray(wrong)
    chance = np.random.default_rng(0)
    drawn = [auroc(chance.choice(rights, len(rights)), chance.choice(wrongs, len(wrongs))) for _ in range(DRAWS)]
    low, high = np.percentile(drawn, (2.5, 97.5))
    return Figure(name, auroc(rights, wrongs), float(low), float(high), f"n={len(right)}/{len(wrong)}; {detail}")


def _bounds(statistic: Callable[[NDArray[np.int64]], float], size: int) -> tuple[float, float]:
    chance = np.random.default_rng(0)
    low, high = np.percentile([statistic(chance.integers(size, size=size)) for _ in range(DRAWS)], (2.5, 97.5))
    return float(low), float(high)


def _value(number: float | None) -> float:
    if number is None:
        raise ValueError("expected a score")
    return number


# ---------------------------------------------------------------- hand-written rows


class Written(Struct, frozen=True):
    """A passage with questions and answers: in its own language, in English, and wrong ones."""

    passage: str
    asks: list[tuple[str, str]] = []
    english: list[tuple[str, str]] = []
    swaps: list[tuple[str, str, str]] = []  # question, right answer, one that swaps a name of the passage
    flips: list[tuple[str, str, str]] = []  # question, right answer, its opposite


class HandWritten(Struct, frozen=True):
    """Medians of one kind of hand-written rows, and how well right and wrong are told apart."""

    name: str
    rows: int
    context: float
    other_context: float
    context_auroc: float
    groundedness: float
    other_groundedness: float
    groundedness_auroc: float
    answer: float
    other_answer: float


def hand_written(weights: Calibration, embed: Embed, folder: Path = HAND_WRITTEN) -> list[HandWritten]:
    """The rows by their language, and those in English on passages in another language together."""
    written = {path.stem: read_written(path) for path in sorted(folder.glob("*.json"))}
    found = [
        _measured(
            name, [(list(one.asks), one.passage, _next(listed, at)) for at, one in enumerate(listed)], weights, embed
        )
        for name, listed in written.items()
        if any(one.asks for one in listed)
    ]
    crossed = [
        (list(one.english), one.passage, msgspec.structs.replace(_next(listed, at), asks=_next(listed, at).english))
        for listed in written.values()
        for at, one in enumerate(listed)
        if one.english
    ]
    return [*found, _measured("cross-lingual", crossed, weights, embed)]


def read_written(path: Path) -> list[Written]:
    return msgspec.json.decode(path.read_bytes(), type=list[Written])


def _next(listed: Sequence[Written], at: int) -> Written:
    return listed[(at + 1) % len(listed)]


def _measured(
    name: str, given: Sequence[tuple[list[tuple[str, str]], str, Written]], weights: Calibration, embed: Embed
) -> HandWritten:
    def scores(query: str, answer: str, passage: str) -> Relevance:
        made = compose(query, answer, (passage,))
        return relevance.relevance(made, embed(made.pieces), weights)

    right: list[Relevance] = []
    lost: list[Relevance] = []
    wrong: list[Relevance] = []
    for asks, passage, other in given:
        for at, (query, answer) in enumerate(asks):
            right.append(scores(query, answer, passage))
            lost.append(scores(query, answer, other.passage))
            wrong.append(scores(query, other.asks[at % len(other.asks)][1], passage))

    def of(scored: Sequence[Relevance], attribute: str) -> list[float]:
        return [value for one in scored if (value := getattr(one, attribute)) is not None]

    context, other_context = of(right, "context_relevance"), of(lost, "context_relevance")
    ground, other_ground = of(right, "groundedness"), of(wrong, "groundedness")
    return HandWritten(
        name, len(right),
        _median(context), _median(other_context), auroc(context, other_context),
        _median(ground), _median(other_ground), auroc(ground, other_ground),
        _median(of(right, "answer_relevance")), _median(of(wrong, "answer_relevance")),
    )  # fmt: skip


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


class Turned(Struct, frozen=True):
    """Groundedness of right answers and of those that turn them over, as medians, and their separation."""

    name: str
    rows: int
    right: float
    wrong: float
    separation: float


def turned(weights: Calibration, embed: Embed, path: Path = HAND_WRITTEN / "flips.json") -> list[Turned]:
    """What the scores hardly see: names swapped with others of the passage, and yes turned to no."""

    def ground(query: str, answer: str, passage: str) -> float:
        made = compose(query, answer, (passage,))
        return _value(relevance.relevance(made, embed(made.pieces), weights).groundedness)

    found: list[Turned] = []
    for name in ("swaps", "flips"):
        rows = [(one.passage, *three) for one in read_written(path) for three in getattr(one, name)]
        right = [ground(query, answer, passage) for passage, query, answer, _ in rows]
        wrong = [ground(query, answer, passage) for passage, query, _, answer in rows]
        found.append(Turned(name, len(rows), _median(right), _median(wrong), auroc(right, wrong)))
    return found


class Long(Struct, frozen=True):
    """AUROC of answers of three right sentences against those with one foreign or altered, by how they are joined."""

    name: str
    rows: int
    mean: float
    lowest: float
    both: float


def long_answers(given: Sequence[Case], weights: Calibration, embed: Embed) -> list[Long]:
    """Right answers about one context, joined; one of them replaced."""

    def joined(query: str, answers: Sequence[str], context: str) -> tuple[float, float]:
        made = compose(query, " ".join(answer.rstrip(" .") + "." for answer in answers), (context,))
        parts = Compared(made, embed(made.pieces)).groundedness()
        each = [(part.share, _sentence(part, weights)) for part in parts]
        return sum(share * value for share, value in each), min(value for _, value in each)

    by_context: dict[str, list[Case]] = {}
    for case in given:
        if case.seen.row.answer_faithful:
            by_context.setdefault(case.seen.row.context, []).append(case)
    right: list[tuple[float, float]] = []
    foreign: list[tuple[float, float]] = []
    altered: list[tuple[float, float]] = []
    for context, here in by_context.items():
        answers = [case.seen.row.answer or "" for case in here]
        if len(answers) < 2:
            continue
        query = here[0].seen.row.query
        right.append(joined(query, answers[:3], context))
        if here[0].made.other_answer:
            foreign.append(joined(query, [here[0].made.other_answer, *answers[1:3]], context))
        if here[0].made.altered:
            altered.append(joined(query, [here[0].made.altered, *answers[1:3]], context))
    found: list[Long] = []
    for name, wrong in (("one foreign sentence", foreign), ("one altered number", altered)):
        if right and wrong:
            tables = np.array(right), np.array(wrong)
            mean, lowest = (auroc(tables[0][:, side], tables[1][:, side]) for side in (0, 1))
            found.append(Long(name, len(wrong), mean, lowest, auroc(tables[0].mean(axis=1), tables[1].mean(axis=1))))
    return found


def _sentence(part: Weighed, weights: Calibration) -> float:
    value = sigmoid(weights.groundedness.logit(part.features))
    return min(value, relevance.UNGROUNDED_NUMBER_CAP) if part.features.unknown_number else value


# ---------------------------------------------------------------- the table


def written_table(calibrations: Sequence[Calibration]) -> str:
    """The Python text of `relevance_table`."""
    parts = [
        '"""The calibrations that are shipped, written by `python -m tools.fit_relevance`: do not edit."""\n',
        "# fmt: off\n# ruff: noqa: E501\n",
        "from __future__ import annotations\n",
        "from collector.measures.relevance_weights import Calibration, Logistic\n",
    ]
    names = [_constant(one.model) for one in calibrations]
    for name, one in zip(names, calibrations, strict=True):
        scores = "".join(
            f"    {score}=Logistic({getattr(one, score).bias}, {_listed(getattr(one, score).weights)}),\n"
            for score in ("context", "groundedness", "answer", "alone")
        )
        versions = " ".join(f"{_quoted(version)}," for version in one.versions)
        parts.append(
            f'{name} = Calibration(\n    model="{one.model}",\n    versions=({versions}),\n'
            f"{scores}    priors={_listed(one.priors)},\n)\n"
        )
    parts.append(f"CALIBRATIONS = ({', '.join(names)}{',' if len(names) == 1 else ''})\n")
    return "\n".join(parts)


def _constant(model: str) -> str:
    return {"use-multilingual-3": "USE", "all-MiniLM-L6-v2": "MINILM"}.get(
        model, "".join(letter if letter.isalnum() else "_" for letter in model).upper()
    )


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _listed(numbers: Mapping[str, float]) -> str:
    return "{" + ", ".join(f"{_quoted(name)}: {number}" for name, number in numbers.items()) + "}"


# ---------------------------------------------------------------- command


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="fit_relevance", description="Fits the relevance scores on labelled rows.")
    parser.add_argument("--rows", required=True, type=Path, metavar="DIR", help="one .jsonl of labelled rows a set")
    parser.add_argument(
        "--embedder", default="use", metavar="use|packaged|FOLDER", help="the model whose vectors are weighed"
    )
    parser.add_argument("--write", action="store_true", help="replace the model's weights in the table")
    options = parser.parse_args(arguments)
    embedder = _embedder(options.embedder)
    decoder = msgspec.json.Decoder(Row)
    rows = {path.stem: decoder.decode_lines(path.read_bytes()) for path in sorted(options.rows.glob("*.jsonl"))}
    weights = report(rows, Remembering(embedder.embed), embedder.model.name, embedder.model.version)
    if options.write:
        TABLE.write_text(written_table(_replaced(weights)))
    return 0


def report(rows: Mapping[str, Sequence[Row]], embed: Embed, model: str, version: str) -> Calibration:
    """Prints the figures and gives the calibration that all rows give."""
    recipe = RECIPES.get(model)
    given = cases(rows, embed)
    scored = cross_validated(given, embed, model, recipe)
    for name in (*rows, "all"):
        print(f"{model}, {name}")
        for figure in figures([one for one in scored if name in (one.set, "all")]):
            print(f"  {figure.name:42} {figure.value:.4f} [{figure.low:.3f}, {figure.high:.3f}]  {figure.detail}")
    weights = fit([case.seen for case in given], model, (version,), recipe)
    for told in (*hand_written(weights, embed), *turned(weights, embed), *long_answers(given, weights, embed)):
        print("  " + ", ".join(_shown(name, value) for name, value in msgspec.structs.asdict(told).items()))
    return weights


def _shown(name: str, value: object) -> str:
    return f"{name} {value:.2f}" if isinstance(value, float) else f"{value}"


def _replaced(weights: Calibration) -> list[Calibration]:
    """The shipped ones with this one in its model's place; versions that it had are kept."""
    others = [one for one in CALIBRATIONS if one.model != weights.model]
    before = next((one for one in CALIBRATIONS if one.model == weights.model), None)
    versions = dict.fromkeys((*(() if before is None else before.versions), *weights.versions))
    return sorted(
        (*others, msgspec.structs.replace(weights, versions=tuple(versions))), key=lambda one: one.model, reverse=True
    )


def _embedder(named: str) -> Embedder:
    if named == "use":
        from collector.embedding.use import UseEmbedder  # noqa: PLC0415 - loads weights

        return UseEmbedder()
    from collector.embedding.sentence_transformers import (  # noqa: PLC0415 - needs the extra
        SentenceTransformersEmbedder,
    )

    folder = None if named == "packaged" else named
    return SentenceTransformersEmbedder(TransformerSettings(folder=folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
