"""What a provider takes back of a text when it repeats it."""

from __future__ import annotations

import time
from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.analyst.correction import MAX_COMPARED, correction_ratio


@pytest.mark.parametrize(
    ("streamed", "repeated", "ratio"),
    [
        ("abc", "abc", 0.0),
        ("abcd", "abXd", 0.25),
        ("abcd", "abc", 0.25),
        ("abc", "abcd", 0.25),
        ("", "abc", 1.0),
        ("abc", "", 1.0),
        ("aaaa", "bbbb", 1.0),
        ("the cat sat", "the dog sat", 3 / 11),
        ("aXbYc", "abc", 0.4),
        ("渐é🙂x", "渐é🙂y", 0.25),
    ],
)
def test_the_share_of_characters_that_differ(streamed: str, repeated: str, ratio: float) -> None:
    assert correction_ratio([(streamed, repeated)]) == pytest.approx(ratio)


def test_choices_are_weighed_by_their_length_and_no_text_has_no_share() -> None:
    assert correction_ratio([("aaaaaaaa", "aaaaaaaa"), ("ab", "xy")]) == pytest.approx(0.2)
    assert correction_ratio([("", "")]) is None
    assert correction_ratio([]) is None


def test_a_far_stretched_difference_counts_whole_and_takes_no_time() -> None:
    one, other = "a" + "xy" * 200_000 + "a", "b" + "xz" * 200_000 + "b"
    started = time.process_time()
    assert correction_ratio([(one, other)]) == 1.0
    long = ("ab" * MAX_COMPARED)[:MAX_COMPARED]
    assert correction_ratio([(long, long[::-1])]) == pytest.approx(1 / MAX_COMPARED)
    assert time.process_time() - started < 1.0


@given(st.text(alphabet="abc", max_size=30), st.text(alphabet="abc", max_size=30))
def test_it_is_symmetric_within_bounds_and_never_above_what_a_plain_diff_says(one: str, other: str) -> None:
    ratio = correction_ratio([(one, other)])
    assert ratio == correction_ratio([(other, one)])
    if ratio is None:
        assert one == other == ""
        return
    longer = max(len(one), len(other))
    matched = sum(block.size for block in SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks())
    assert 0.0 <= ratio <= (longer - matched) / longer + 1e-9
    assert (ratio == 0.0) == (one == other)
