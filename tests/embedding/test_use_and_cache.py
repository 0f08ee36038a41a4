"""The encoder with its real weights, and the cache in front of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.embedding.cache import ENTRY_OVERHEAD, CachedEmbedder
from collector.embedding.use import DIMENSIONS, UseEmbedder

if TYPE_CHECKING:
    from numpy.typing import NDArray


@pytest.fixture(scope="module")
def use() -> UseEmbedder:
    return UseEmbedder()


def test_vectors_are_of_length_one_and_meaning_is_near(use: UseEmbedder) -> None:
    vectors = use.embed(["How old are you?", "What is your age?", "你多大了？", "The bridge is made of stone."])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-4)
    cosines = vectors @ vectors[0]
    assert min(cosines[1], cosines[2]) > cosines[3] + 0.3


def test_a_blank_text_has_a_vector_of_zeros(use: UseEmbedder) -> None:
    vectors = use.embed(["", " \n\t", "text"])
    assert vectors.shape == (3, DIMENSIONS)
    assert not vectors[:2].any()
    assert vectors[2].any()
    assert use.embed([]).shape == (0, DIMENSIONS)


def test_a_long_text_is_read_to_its_end(use: UseEmbedder) -> None:
    body = "The boats leave at nine. " * 400
    one, other = use.embed([f"{body}The lighthouse is red.", f"{body}The lighthouse is tall."])
    assert not np.array_equal(one, other)


class Counting:
    """Vectors made of hashes, and a list of what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked += texts
        return np.array([[len(text), hash(text) % 1000] for text in texts], dtype=np.float32).reshape(len(texts), 2)


def test_a_text_is_encoded_once() -> None:
    inner = Counting()
    cached = CachedEmbedder(inner, 10_000)
    cached.embed(["a", "b", "a"])
    cached.embed(["b", "c"])
    assert inner.asked == ["a", "b", "c"]


def test_the_least_recently_used_text_goes_first() -> None:
    inner = Counting()
    cached = CachedEmbedder(inner, 2 * (8 + ENTRY_OVERHEAD))
    for texts in (["a"], ["b"], ["a"], ["c"], ["a"], ["b"]):
        cached.embed(texts)
    assert inner.asked == ["a", "b", "c", "b"]


@given(st.lists(st.lists(st.text(max_size=3), max_size=8), max_size=20), st.integers(0, 2000))
def test_a_cache_of_any_size_changes_no_vector_and_keeps_its_bound(batches: list[list[str]], limit: int) -> None:
    cached = CachedEmbedder(Counting(), limit)
    for texts in batches:
        np.testing.assert_array_equal(cached.embed(texts), Counting().embed(texts))
        assert cached.size <= limit
