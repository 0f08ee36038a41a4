"""Texts for regular expressions."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.simulator.patterns import UnsupportedPatternError, text_for_pattern


@pytest.mark.parametrize(
    "pattern",
    [
        "^[A-Z]{3}-\\d{4}$",
        "^(red|green|blue)(er)?$",
        "^\\+?[0-9 ()-]{7,20}$",
        "^[a-z][a-z0-9_]*$",
        "^(?:[01]\\d|2[0-3]):[0-5]\\d$",
        "^[^@\\s]+@[^@\\s]+\\.[a-z]{2,}$",
        "^(?P<year>\\d{4})\\.(?P<month>0[1-9]|1[0-2])$",
        "\\u4e2d\\x41",
        "^\\/a\\/b\\.json$",
        "a|b|",
        "^[\\w.-]+$",
        "^[]a]+$",
        "x{2,}?y+?",
    ],
)
@settings(deadline=None)
@given(seed=st.integers(0, 50))
def test_a_text_matches_its_pattern(pattern, seed):
    assert re.search(pattern, text_for_pattern(pattern, Random(seed)))


@settings(deadline=None)
@given(seed=st.integers(0, 50), least=st.integers(0, 30), more=st.integers(0, 30))
def test_the_lengths_asked_for_are_kept(seed, least, more):
    text = text_for_pattern("^[a-z]+$", Random(seed), max(1, least), max(1, least) + more)
    assert max(1, least) <= len(text) <= max(1, least) + more


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?=a)b", "unsupported group"),
        ("(a)\\1", "unsupported escape"),
        ("\\p{L}", "unsupported escape"),
        ("(a", "not closed"),
        ("a)", r"unexpected \)"),
        ("[a", "ends too early"),
        ("*a", "nothing to repeat"),
        ("\\xZZ", "broken escape"),
        ("a{3,1}", "min repeat greater than max"),
        ("a{2}{3}", "multiple repeat"),
        ("a{100000}", "more than 2000 repetitions"),
    ],
)
def test_what_is_not_understood_is_named(pattern, why):
    with pytest.raises(UnsupportedPatternError, match=why):
        text_for_pattern(pattern, Random(1))


def test_an_impossible_length_is_an_error():
    with pytest.raises(UnsupportedPatternError, match="no text of 5 to 9 characters"):
        text_for_pattern("^abc$", Random(1), 5, 9)
