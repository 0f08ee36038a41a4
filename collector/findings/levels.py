"""Recent levels of a number: a fast and a slow moving average with their spread."""

from __future__ import annotations

FAST = 0.3  # weight of the newest value: about the last 3
SLOW = 0.02  # about the last 50
SETTLED = round(1 / SLOW)  # values after which the slow average is no plain mean any more
ENOUGH = 20  # values before a level is one


class Level:
    """Moving averages of one number. `spread` is the moving mean of the distance to the slow average."""

    __slots__ = ("count", "fast", "slow", "spread")

    def __init__(self) -> None:
        self.count = 0
        self.fast = self.slow = self.spread = 0.0

    def observe(self, value: float) -> None:
        """Take one value in; until there are enough, the averages are plain means."""
        count = self.count = self.count + 1
        slow, fast, spread = self.slow, self.fast, self.spread
        away = value - slow
        if count >= SETTLED:
            share, weight = SLOW, FAST
        elif count > 1:
            share = 1.0 / count
            weight = max(share, FAST)
        else:
            self.slow = self.fast = value
            return
        self.spread = spread + (abs(away) - spread) * share
        self.slow = slow + away * share
        self.fast = fast + (value - fast) * weight

    @property
    def is_known(self) -> bool:
        return self.count >= ENOUGH

    @property
    def high(self) -> float:
        """What few values pass: the slow average and twice the spread."""
        return self.slow + 2.0 * self.spread
