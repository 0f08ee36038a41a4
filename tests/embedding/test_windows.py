"""Texts of any length, cut and put together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collector.embedding.windows import by_characters, in_windows

if TYPE_CHECKING:
    from numpy.typing import NDArray


def axes(texts: Sequence[str]) -> NDArray[np.float32]:
    """A vector of two numbers: x for texts that begin with x, y for others."""
    return np.array([[1, 0] if text.startswith("x") else [0, 1] for text in texts], dtype=np.float32)


@given(st.text(alphabet="ab 桥", max_size=60), st.integers(1, 20))
def test_nothing_is_lost_and_no_part_is_too_long(text: str, most: int) -> None:
    parts = list(by_characters(text, most))
    assert "".join(parts) == text
    assert all(len(part) <= most for part in parts)


def test_cuts_are_at_spaces_where_there_are_some() -> None:
    assert list(by_characters("one two three", 8)) == ["one two", " three"]


def test_a_text_has_the_mean_of_its_windows_and_a_blank_one_zeros() -> None:
    rows = in_windows(["x", "xx y", " ", "y"], lambda text: text.split(" "), axes, 2)
    half = 0.5**0.5
    np.testing.assert_allclose(rows, [[1, 0], [half, half], [0, 0], [0, 1]], atol=1e-6)


def test_without_texts_nothing_is_encoded() -> None:
    assert in_windows([], lambda text: [text], axes, 2).shape == (0, 2)
