"""When the tokens of an answer come: seeded delays, and the waiting for them."""

from __future__ import annotations

import asyncio
import math
from random import Random

from msgspec import Struct


class Pacing(Struct, frozen=True):
    """Delays in seconds. The first token's is log-normal around `first`, the gaps are normal around `gap`.

    `fault_scale` shortens what the faults make one wait, for tests.
    """

    first: float = 0.12
    first_spread: float = 0.18  # standard deviation of the logarithm
    gap: float = 0.02
    gap_sigma: float = 0.003
    fault_scale: float = 1.0


FAST = Pacing(first=0.002, gap=0.0, gap_sigma=0.0, fault_scale=0.05)


def first_delay(pacing: Pacing, rng: Random) -> float:
    """Seconds until the first token."""
    return pacing.first * math.exp(rng.gauss(0.0, pacing.first_spread))


def gaps(pacing: Pacing, count: int, rng: Random, sigma: float | None = None) -> list[float]:
    """Seconds before each further token. With a `sigma` of its own the gaps stutter.

    A wide normal would be cut at 0 and lose half its spread, so stuttering draws from a skewed distribution with the
    standard deviation asked for: most tokens come in bursts, some late.
    """
    if sigma is None:
        return [max(0.0, rng.gauss(pacing.gap, pacing.gap_sigma)) for _ in range(count)]
    # A gamma distribution has the mean shape*scale and the variance shape*scale^2.
    mean = max(pacing.gap, sigma / 2)
    shape = (mean / sigma) ** 2 if sigma > 0 else math.inf
    if math.isinf(shape):
        return [mean] * count
    return [rng.gammavariate(shape, sigma**2 / mean) for _ in range(count)]


class Metronome:
    """Waits for deadlines that add up, so that a late wake-up is not added to every later token."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time()

    async def wait(self, seconds: float) -> None:
        """Wait until `seconds` after the last deadline, or not at all where that has passed."""
        self._due += seconds
        left = self._due - self._loop.time()
        if left > 0:
            await asyncio.sleep(left)
        else:
            # A late token starts a new count: no burst makes up for it. Others get their turn all the same.
            self._due = self._loop.time()
            await asyncio.sleep(0)
