"""Token buckets and the reported load."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.simulator.limits import Bucket, Buckets, Limits, Load


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_empties_and_fills_within_a_minute():
    bucket = Bucket(60, 0.0)
    bucket.take(60, 0.0)
    assert bucket.wait_for(1, 0.0) == 1.0
    assert bucket.allowance(0.0).remaining == 0
    assert bucket.allowance(30.0).remaining == 30
    assert bucket.allowance(30.0).reset == 30.0
    assert bucket.allowance(500.0).remaining == 60


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=30))
def test_a_bucket_never_leaves_its_bounds(steps):
    bucket, now = Bucket(50, 0.0), 0.0
    for passed, amount in steps:
        now += passed
        bucket.take(amount, now)
        allowance = bucket.allowance(now)
        assert 0 <= allowance.remaining <= 50
        assert 0 <= allowance.reset <= 60


def test_a_refused_request_takes_nothing_and_names_what_is_short():
    clock = Clock()
    buckets = Buckets(Limits(requests=2, input_tokens=100, output_tokens=100), clock)
    assert buckets.admit(90) is None
    assert buckets.admit(20) == ("tokens", 6.0)
    assert buckets.allowances()[0].remaining == 1
    assert buckets.admit(5) is None
    short = buckets.admit(1)
    assert short is not None
    assert short[0] == "requests"
    clock.now += 60
    assert buckets.admit(90) is None


def test_a_request_larger_than_the_limit_waits_for_a_full_bucket_only():
    buckets = Buckets(Limits(requests=2, input_tokens=100, output_tokens=100), Clock())
    assert buckets.admit(5000) is None


def test_spent_output_counts_against_the_next_request():
    buckets = Buckets(Limits(requests=9, input_tokens=100, output_tokens=100), Clock())
    buckets.spend(500)
    assert buckets.admit(1) == ("tokens", 0.6)


def test_the_load_moves_within_its_bounds_and_strain_shows_at_once():
    clock = Clock()
    load = Load(clock)
    levels = []
    for _ in range(90):
        clock.now += 1
        levels.append(load.level(in_flight=3, strain=0.0))
    assert 0.2 < min(levels) < max(levels) < 0.6
    assert load.level(in_flight=3, strain=0.1) >= 0.95
    clock.now += 10
    assert load.level(in_flight=3, strain=0.0) < 0.6
    clock.now += 10
    assert 0.6 < load.level(in_flight=1000, strain=0.0) < 0.95
