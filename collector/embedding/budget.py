"""A share of one core, as an allowance that fills with time and is drawn on by what work cost."""

from __future__ import annotations

BURST = 4.0  # seconds of allowance that can be saved up
FIRST = 0.5  # of that, what there is at the start


class CpuBudget:
    """At most `share` CPU seconds per second in the long run, and BURST times that at once.

    Work is taken at its expected cost and settled at its real one, so that what is under way counts too. Times are
    monotonic seconds.
    """

    def __init__(self, share: float, now: float) -> None:
        self._share = share
        self._allowance = share * BURST * FIRST
        self._at = now

    def take(self, expected: float, now: float) -> bool:
        """True, and the expected cost is drawn, where any allowance is left."""
        self._fill(now)
        if self._allowance <= 0.0:
            return False
        self._allowance -= expected
        return True

    def has_room(self, now: float) -> bool:
        """Whether `take` would say True."""
        self._fill(now)
        return self._allowance > 0.0

    def fill(self, now: float) -> float:
        """How much allowance is left, of what can be saved up: at most 1, and below 0 where more was spent."""
        self._fill(now)
        return self._allowance / (self._share * BURST)

    def settle(self, expected: float, spent: float, now: float) -> None:
        """Work that was taken for `expected` has cost `spent` CPU seconds."""
        self._fill(now)
        self._allowance = min(self._allowance + expected - spent, self._share * BURST)

    def _fill(self, now: float) -> None:
        self._allowance = min(self._allowance + (now - self._at) * self._share, self._share * BURST)
        self._at = now
