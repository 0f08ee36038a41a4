"""Texts that come in pieces, and the rhythm of a stream."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.analyst.accumulate import BATCH, GAPS_LISTED, Rhythm, Room, TextSum, digest_of, well_formed
from collector.model import ChunkGaps, TextFact

SHA256 = digest_of("sha256", b"")

# ---------------------------------------------------------------- texts


def sum_of(pieces: list[str], cap: int = 1000) -> TextSum:
    text = TextSum(Room(cap), SHA256)
    for piece in pieces:
        text.add(piece)
    return text


def fact_of(text: str) -> TextFact:
    return TextFact(hashlib.sha256(text.encode()).hexdigest() if text else None, len(text))


ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=12)


@given(st.lists(ANY_TEXT, max_size=200), st.integers(0, 60))
def test_a_text_is_the_sum_of_its_pieces(pieces: list[str], cap: int) -> None:
    whole = well_formed("".join(pieces))
    text = sum_of(pieces, cap)
    assert text.fact() == fact_of(whole)
    assert text.text() == whole[:cap]
    assert text.complete == (len(whole) <= cap)


@given(st.lists(st.lists(ANY_TEXT | st.just("long " * 20), min_size=1, max_size=80), max_size=6), st.integers(0, 60))
def test_pieces_taken_together_are_the_same_as_one_by_one(runs: list[list[str]], cap: int) -> None:
    room, other = Room(cap), Room(cap)
    together, alone = TextSum(room, SHA256), TextSum(other, SHA256)
    for run in runs:
        together.add_all(run)
        for piece in run:
            alone.add(piece)
        assert room.left == other.left  # which a text beside it would have
    assert (together.fact(), together.text(), together.complete) == (alone.fact(), alone.text(), alone.complete)


def test_a_surrogate_pair_split_over_pieces_is_one_character() -> None:
    assert sum_of(["a\ud83d", "\ude42b"]).fact() == fact_of("a🙂b")
    assert sum_of(["\ud83d", "", "\ude42"]).text() == "🙂"
    assert sum_of(["x" * 5000 + "\ud83d", "\ude42"]).fact() == fact_of("x" * 5000 + "🙂")


def test_a_lone_surrogate_counts_and_hashes_as_the_replacement_character() -> None:
    assert sum_of(["a\ud83d"]).fact() == fact_of("a\ufffd")
    assert sum_of(["\ude42a", "\ud83d", "b"]).fact() == fact_of("\ufffda\ufffdb")


def test_a_long_text_is_counted_whole_and_kept_in_part() -> None:
    text = sum_of(["word "] * 100_000, cap=1000)
    assert text.fact() == fact_of("word " * 100_000)
    assert text.text() == ("word " * 200)
    assert not text.complete


def test_asking_in_between_changes_nothing() -> None:
    text = sum_of(["a", "\ud83d"])
    assert text.complete
    text.add("\ude42")
    assert text.fact() == fact_of("a🙂")
    assert text.fact() == text.fact()


def test_texts_are_told_apart_as_privacy_says() -> None:
    keyed, none = TextSum(Room(9), digest_of("hmac", b"key")), TextSum(Room(9), digest_of("none", b""))
    for text in (keyed, none):
        text.add("hi")
    assert keyed.fact().sha256 == hmac.new(b"key", b"hi", hashlib.sha256).hexdigest()
    assert none.fact() == TextFact(None, 2)


# ---------------------------------------------------------------- rhythm


def rhythm_of(
    times: list[float], blocked: dict[int, float] | None = None, stall: float = 1.0, deadline: float = 0.1
) -> Rhythm:
    """Beats at these times; `blocked` says how long the client did not read before the beat of that number."""
    rhythm, waited = Rhythm(stall, deadline), 0.0
    for number, at in enumerate(times):
        waited += (blocked or {}).get(number, 0.0)
        rhythm.beat(at, waited)
    return rhythm


@given(st.lists(st.floats(0, 100), min_size=1, max_size=120))
def test_the_statistics_are_those_of_the_standard_library(gaps: list[float]) -> None:
    times = [0.0]
    for gap in gaps:
        times.append(times[-1] + gap)
    seen = [after - before for before, after in itertools.pairwise(times)]
    found = rhythm_of(times).gaps()
    assert found.count == len(seen)
    assert found.mean == pytest.approx(statistics.fmean(seen), abs=1e-9)
    assert found.max == max(seen)
    assert found.gaps == tuple(seen[:GAPS_LISTED])
    if len(seen) == 1:
        assert found.stddev is None
    else:
        assert found.stddev == pytest.approx(statistics.pstdev(seen), rel=1e-6, abs=1e-6)


def test_no_gap_has_no_statistics_and_one_has_no_deviation() -> None:
    assert Rhythm().gaps() == rhythm_of([5.0]).gaps() == ChunkGaps(0)
    assert rhythm_of([5.0, 5.5]).gaps() == ChunkGaps(1, 0.5, None, 0.5, (0.5,))


def test_even_frames_deviate_by_nothing() -> None:
    assert rhythm_of([0.25 * beat for beat in range(50)]).gaps().stddev == 0.0


def test_the_time_a_client_blocks_is_in_no_gap() -> None:
    rhythm = rhythm_of([0.0, 1.0, 6.0, 7.0], {2: 4.0})
    assert rhythm.gaps() == ChunkGaps(3, 1.0, 0.0, 1.0, (1.0, 1.0, 1.0))
    assert rhythm.span == 3.0
    assert rhythm.stalls == 0


def test_time_blocked_before_the_first_frame_is_in_no_gap() -> None:
    assert rhythm_of([10.0, 11.0], {0: 9.0}).gaps().gaps == (1.0,)


@given(
    st.lists(st.lists(st.sampled_from([0.0, 0.01, 0.1, 0.3, 2.0, -0.5]), min_size=1, max_size=3 * BATCH), max_size=6),
    st.sets(st.integers(0, 5)),
    st.sampled_from([0.0, 0.25]),
)
def test_beats_together_are_the_same_as_one_by_one(runs: list[list[float]], rests: set[int], blocked: float) -> None:
    together, alone, at = rhythm_of([1.0, 1.25]), rhythm_of([1.0, 1.25]), 2.0
    for number, run in enumerate(runs):
        if number in rests:
            together.rest()
            alone.rest()
        times = list(itertools.accumulate(run, initial=at))[1:]
        flowed = [time - blocked for time in times]
        together.beats(flowed)
        for time in times:
            alone.beat(time, blocked)
        at = times[-1]
    assert (together.gaps(), together.span, together.stalls) == (alone.gaps(), alone.span, alone.stalls)
    assert (together.deadlines, together.first) == (alone.deadlines, alone.first)


def test_the_time_after_a_rest_is_no_gap_and_meets_no_deadline() -> None:
    rhythm = rhythm_of([0.0, 1.0])
    rhythm.rest()
    before = rhythm.deadlines
    rhythm.beat(90.0, 5.0)
    assert rhythm.deadlines == before
    rhythm.beat(92.0, 5.0)
    assert (rhythm.gaps().gaps, rhythm.stalls) == ((1.0, 2.0), 1)


def test_a_gap_is_never_negative() -> None:
    assert rhythm_of([5.0, 4.0]).gaps().gaps == (0.0,)
    assert rhythm_of([0.0, 1.0], {1: 30.0}).gaps().gaps == (0.0,)


def test_stalls_are_gaps_over_the_threshold() -> None:
    assert rhythm_of([0.0, 1.0, 2.5, 2.6, 9.0], stall=1.0).stalls == 2


def test_only_the_first_gaps_are_listed_and_all_are_counted() -> None:
    found = rhythm_of([float(beat) for beat in range(1000)]).gaps()
    assert (found.count, len(found.gaps)) == (999, GAPS_LISTED)


# The rule of Etalon (metric_utils.py): a frame within deadline + slack is met and banks what was left; else
# 1 + floor((wait - slack - deadline) / interval) deadlines are missed and the slack is gone.
@pytest.mark.parametrize(
    ("wait", "gaps", "met", "missed"),
    [
        (0.5, [], 1, 0),
        (1.0, [], 1, 0),
        (1.05, [], 0, 1),
        (1.25, [], 0, 3),
        (0.5, [0.1, 0.1], 3, 0),
        (0.5, [0.59], 2, 0),  # 0.5 banked, and 0.1
        (0.5, [0.65], 1, 1),  # late by 0.05
        (0.5, [0.85], 1, 3),  # late by 0.25: the missed one and two more intervals
        (0.5, [0.85, 0.15], 1, 4),  # the slack is gone
        (0.5, [0.55, 0.12], 3, 0),  # 0.05 of slack are left for the second
        (1.0, [0.05, 0.14, 0.12], 3, 1),
        (1.0, [0.02] * 5 + [0.49], 7, 0),
        (1.0, [0.02] * 5 + [0.51], 6, 1),
    ],
)
def test_deadlines_are_met_and_missed_as_in_etalon(wait: float, gaps: list[float], met: int, missed: int) -> None:
    rhythm = Rhythm(9.0, 0.1)
    rhythm.wait(wait, 1.0)
    at = wait
    rhythm.beat(at, 0.0)
    for gap in gaps:
        at += gap
        rhythm.beat(at, 0.0)
    assert rhythm.deadlines == (met, missed)


@given(st.lists(st.floats(0, 50), max_size=60), st.floats(0, 50))
def test_every_frame_is_a_deadline_met_or_at_least_one_missed(gaps: list[float], wait: float) -> None:
    rhythm = Rhythm()
    rhythm.wait(wait, 1.0)
    at = 0.0
    rhythm.beat(at, 0.0)
    for gap in gaps:
        at += gap
        rhythm.beat(at, 0.0)
    assert sum(rhythm.deadlines) >= 1 + len(gaps)
    assert all(value is None or math.isfinite(value) for value in (rhythm.gaps().mean, rhythm.gaps().stddev))


def one_by_one(gaps: list[float], deadline: float) -> tuple[int, int]:
    """Etalon's rule, a gap at a time."""
    slack, met, missed = 0.0, 0, 0
    for gap in gaps:
        late = gap - slack - deadline
        if gap <= deadline + slack:
            slack, met = slack + deadline - gap, met + 1
        else:
            slack, missed = 0.0, missed + 1 + int(late / deadline)
    return met, missed


@given(st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 3.0]), max_size=300), st.integers(0, 300))
def test_gaps_worked_off_in_batches_count_as_those_worked_off_one_by_one(gaps: list[float], looked: int) -> None:
    rhythm = Rhythm(0.4, 0.25)
    rhythm.beat(0.0, 0.0)
    at = 0.0
    for number, gap in enumerate(gaps):
        at += gap
        rhythm.beat(at, 0.0)
        if number == looked:
            assert rhythm.stalls == sum(each > 0.4 for each in gaps[: number + 1])
    assert rhythm.deadlines == one_by_one(gaps, 0.25)
    assert rhythm.stalls == sum(gap > 0.4 for gap in gaps)
    assert rhythm.span == pytest.approx(sum(gaps))
