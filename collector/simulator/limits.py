"""Token buckets behind the rate-limit headers, and the load that the model reports."""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec import Struct


class Limits(Struct, frozen=True):
    """Allowances a minute."""

    requests: int = 6_000
    input_tokens: int = 3_000_000
    output_tokens: int = 600_000


class Allowance(Struct, frozen=True):
    """What a rate-limit header says: the limit, what is left, and the seconds until it is full again."""

    limit: int
    remaining: int
    reset: float


class Bucket:
    """A token bucket that fills evenly to `limit` within a minute."""

    def __init__(self, limit: int, now: float) -> None:
        self.limit = limit
        self._level = float(limit)
        self._at = now

    def _fill(self, now: float) -> None:
        self._level = min(float(self.limit), self._level + (now - self._at) * self.limit / 60)
        self._at = now

    def wait_for(self, amount: float, now: float) -> float:
        """Seconds until so much could be taken; 0 where it can be now. More than the limit waits for a full bucket."""
        self._fill(now)
        missing = min(amount, self.limit) - self._level
        return max(0.0, missing * 60 / self.limit)

    def take(self, amount: float, now: float) -> None:
        """Take so much, at most down to empty."""
        self._fill(now)
        self._level = max(0.0, self._level - amount)

    def refill(self) -> None:
        """Make it full at once."""
        self._level = float(self.limit)

    def allowance(self, now: float) -> Allowance:
        self._fill(now)
        return Allowance(self.limit, int(self._level), (self.limit - self._level) * 60 / self.limit)


class Buckets:
    """The three allowances of one API key."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._clock = clock
        now = clock()
        self.requests = Bucket(limits.requests, now)
        self.input_tokens = Bucket(limits.input_tokens, now)
        self.output_tokens = Bucket(limits.output_tokens, now)

    def admit(self, input_tokens: int) -> tuple[str, float] | None:
        """Take a request and its input; or name the exhausted allowance and the seconds to wait, and take nothing."""
        now = self._clock()
        for name, bucket, amount in (
            ("requests", self.requests, 1),
            ("tokens", self.input_tokens, input_tokens),
            ("tokens", self.output_tokens, 1),
        ):
            wait = bucket.wait_for(amount, now)
            if wait > 0:
                return name, wait
        self.requests.take(1, now)
        self.input_tokens.take(input_tokens, now)
        return None

    def spend(self, output_tokens: int) -> None:
        """Take what an answer came to."""
        self.output_tokens.take(output_tokens, self._clock())

    def drain(self, share: float) -> None:
        """Take this share of the allowance of requests."""
        self.requests.take(share * self.requests.limit, self._clock())

    def refill(self) -> None:
        """Give back what was drained."""
        self.requests.refill()

    def allowances(self) -> tuple[Allowance, Allowance, Allowance]:
        """Of requests, input tokens and output tokens."""
        now = self._clock()
        return self.requests.allowance(now), self.input_tokens.allowance(now), self.output_tokens.allowance(now)


class Load:
    """The model's load, 0-1: a slow wave, what is in flight, and the strain of overload, smoothed over seconds."""

    WAVE_PERIOD = 90.0
    SMOOTHING = 1.0
    FULL_AT_IN_FLIGHT = 128
    STRAINED = 0.1  # share of refusals from which the model is overloaded; fewer are bad luck

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._at = self._started
        self._level = 0.35

    def level(self, in_flight: int, strain: float) -> float:
        """The load now. `strain` is the share of requests refused as overload; many drive the load up at once."""
        now = self._clock()
        wave = 0.35 + 0.12 * math.sin((now - self._started) / self.WAVE_PERIOD * 2 * math.pi)
        busy = min(1.0, in_flight / self.FULL_AT_IN_FLIGHT)
        is_strained = strain >= self.STRAINED
        target = min(1.0, 0.95 + 0.05 * strain) if is_strained else min(0.88, wave + 0.5 * busy)
        weight = 1.0 if is_strained else 1 - math.exp(-(now - self._at) / self.SMOOTHING)
        self._level += (target - self._level) * weight
        self._at = now
        return min(1.0, max(0.0, self._level))
