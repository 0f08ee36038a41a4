"""Loops at the end of a text, and regions that are elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.findings.regions import is_elsewhere
from collector.findings.repetition import LEAST_COVERED, LONGEST_PERIOD, MOST_REPEATS, Loop, loop_at_end

PROSE = (
    "Paris became the capital under Hugh Capet, and the court moved away from it and came back more than once. "
    "Its bridges were of wood until the sixteenth century; the oldest that stands was opened in 1607, has twelve "
    "arches, and is called new to this day. Markets, schools and workshops grew on both banks, each with its own law. "
    "Fires and floods took the houses on the bridges, which were not built again after the eighteenth century."
)


@pytest.mark.parametrize(
    ("text", "loop"),
    [
        (PROSE + " I do not know." * 30, Loop(15, 30)),
        (PROSE + "\n我不知道。" * 100, Loop(6, MOST_REPEATS)),
        ("ab" * 5000, Loop(2, LEAST_COVERED // 2)),
        (PROSE + " and then" * 40 + "\n\n", Loop(9, 40)),
        (PROSE, None),
        (PROSE * 3, None),  # three times the same is no loop
        (PROSE + " no" * 3, None),
        ("-" * 4000, None),
        ("0.0, " * 1000, None),
        ("| a | 1 |\n" + "|  |  |\n" * 200, None),
        ("ha" * 150, None),  # too short an answer
        ("", None),
    ],
)
def test_a_loop_is_found_at_the_end(text, loop):
    assert loop_at_end(text) == loop


@given(st.text(min_size=1, max_size=60), st.integers(4, 40))
def test_what_repeats_with_letters_is_a_loop(passage, times):
    text = PROSE + passage * times
    found = loop_at_end(text)
    if found is not None:
        assert found.period <= LONGEST_PERIOD
        assert text.rstrip().endswith(text.rstrip()[-found.period :] * found.repeats)


@pytest.mark.parametrize(
    ("asked", "served", "elsewhere"),
    [
        ("eu", "westeurope", False), ("EU", "West Europe", False), ("eu", "eu-west-1", False),
        ("europe", "swedencentral", False),
        ("eu-west-1", "eu-west-1", False), ("us-east", "us-east-1", False), ("eu-central-1", "eu-central-1a", False),
        ("usa", "East US 2", False), ("eu", "me-central-1", False), ("somewhere", "us-east-1", False),
        ("eu", "us-east-1", True), ("eu", "uksouth", True), ("eu", "eu-west-2", True),
        ("eu-west-1", "eu-central-1", True),
        ("eu", "Switzerland North", True), ("us", "canadacentral", True), ("jp", "ap-southeast-2", True),
        ("us-east-1", "us", False), ("cn", "us-west-2", True), ("in", "centralindia", False),
    ],
)  # fmt: skip
def test_a_region_is_elsewhere_only_where_both_are_known(asked, served, elsewhere):
    assert is_elsewhere(asked, served) is elsewhere
