"""Texts are cut into pieces without losing anything."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.simulator import tokens


@settings(deadline=None)
@given(st.text())
def test_the_pieces_of_any_text_add_up_to_it(text):
    assert "".join(tokens.pieces(text)) == text
    assert tokens.count(text) == len(tokens.pieces(text))


def test_words_and_characters_are_pieces():
    assert tokens.pieces("The lock is 214 metres") == ["The", " lock", " is", " 214", " metres"]
    assert tokens.pieces("采茶只在清明前") == ["采茶", "只在", "清明", "前"]


def test_very_long_texts_are_estimated():
    text = "word " * 50_000
    assert tokens.count(text) == len(text) // tokens.CHARACTERS_A_TOKEN
