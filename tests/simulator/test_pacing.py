"""Delays of tokens."""

from __future__ import annotations

import asyncio
import statistics
from random import Random

import pytest

from collector.simulator.pacing import FAST, Metronome, Pacing, first_delay, gaps


def test_the_usual_gaps_have_the_stated_mean_and_deviation():
    drawn = gaps(Pacing(), 4000, Random(1))
    assert statistics.mean(drawn) == pytest.approx(0.02, abs=0.001)
    assert statistics.stdev(drawn) == pytest.approx(0.003, abs=0.0003)


def test_stuttering_gaps_have_the_deviation_asked_for():
    drawn = gaps(Pacing(), 8000, Random(1), sigma=0.06)
    assert min(drawn) >= 0
    assert statistics.stdev(drawn) == pytest.approx(0.06, rel=0.1)


def test_the_first_token_comes_around_the_stated_time():
    drawn = [first_delay(Pacing(), Random(seed)) for seed in range(1000)]
    assert statistics.median(drawn) == pytest.approx(0.12, rel=0.1)
    assert max(drawn) < 0.4


def test_delays_depend_on_the_seed_only():
    assert gaps(Pacing(), 9, Random(5)) == gaps(Pacing(), 9, Random(5)) != gaps(Pacing(), 9, Random(6))


def test_fast_pacing_has_no_gaps():
    assert gaps(FAST, 5, Random(1)) == [0.0] * 5
    assert gaps(FAST, 2, Random(1), sigma=0.0) == [0.0, 0.0]


async def test_a_late_step_is_not_made_up_for_by_a_burst():
    loop = asyncio.get_running_loop()
    metronome = Metronome()
    await asyncio.sleep(0.1)
    await metronome.wait(0.01)
    before = loop.time()
    await metronome.wait(0.05)
    assert loop.time() - before >= 0.045
