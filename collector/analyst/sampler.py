"""Which exchanges are scored when there is CPU for some of them only: by strata, of which the large ones are thinned.

A stratum is a route with a model. Each gets the same number of exchanges scored a second, and one that has fewer gets
all of its own; what that leaves goes to the others (max-min fairness). Within a stratum chance decides, whatever is in
the exchange, so that the scored ones are an unbiased sample of it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from random import Random

from collector.kept import Kept

MEMORY = 20.0  # seconds that rates of arrival look back
PLAN_EVERY = 0.5  # seconds between two looks at who gets how much
COST_MEMORY = 0.1  # weight of the newest exchange in what one costs
FIRST_COST = 0.05  # CPU seconds an exchange is expected to take, until some have been scored
MAX_STRATA = 500  # beyond it the one longest without an exchange is forgotten; when it comes again it counts as rare
LEAST_SUPPLY, MOST_SUPPLY = 0.1, 1.5  # of the share, with an allowance that is used up and with one that is full


class _Stratum:
    """What is known of one: exchanges that came, fading over MEMORY; CPU seconds that one costs; the share taken."""

    __slots__ = ("_at", "_born", "_came", "chance", "cost")

    def __init__(self, now: float, cost: float) -> None:
        self.cost = cost
        self.chance = 1.0
        self._came = 0.0
        self._at = self._born = now

    def arrive(self, now: float) -> None:
        self._came = self._faded(now) + 1.0
        self._at = now

    def rate(self, now: float) -> float:
        """Exchanges a second. A young stratum is known by what it has lived, of which one second at least."""
        lived = max(1.0, now - self._born)
        return self._faded(now) / (MEMORY * -math.expm1(-lived / MEMORY))

    def _faded(self, now: float) -> float:
        return self._came * math.exp(-(now - self._at) / MEMORY)


class Sampler:
    """Takes every exchange that could be scored, and says whether it is. Times are monotonic seconds."""

    def __init__(self, share: float, seed: int | None = None) -> None:
        """`share` is CPU seconds a second that scoring may take in the long run."""
        self._share = share
        self._random = Random(seed)  # noqa: S311 - a sample, not a secret
        self._strata: Kept[Hashable, _Stratum] = Kept(lambda: _Stratum(self._now, self._cost), MAX_STRATA)
        self._now = 0.0
        self._cost = FIRST_COST
        self._learned = 0
        self._planned = -math.inf

    def takes(self, stratum: Hashable, fill: float, now: float) -> bool:
        """Whether this exchange is scored. `fill` is how full the allowance is: 1 is full, 0 and less used up.

        The allowance steers: what is planned for is all of the share where it is half full, more above and less below.
        So a wrong estimate of rates and costs moves the allowance to another level, and not what is spent.
        """
        self._now = now
        known = self._strata.of(stratum)
        known.arrive(now)
        if now - self._planned >= PLAN_EVERY:
            self._plan(self._share * min(MOST_SUPPLY, max(LEAST_SUPPLY, 2.0 * fill)), now)
        return known.chance >= 1.0 or self._random.random() < known.chance

    def cost(self, stratum: Hashable) -> float:
        """CPU seconds that an exchange of the stratum is expected to take."""
        known = self._strata.known(stratum)
        return self._cost if known is None else known.cost

    def learn(self, stratum: Hashable, seconds: float) -> None:
        """An exchange of the stratum was scored, for so many CPU seconds."""
        self._learned += 1
        self._cost += max(COST_MEMORY, 1.0 / self._learned) * (seconds - self._cost)
        known = self._strata.known(stratum)
        if known is not None:
            known.cost += COST_MEMORY * (seconds - known.cost)

    def _plan(self, supply: float, now: float) -> None:
        self._planned = now
        rates = [(known, known.rate(now)) for known in self._strata.values()]
        level = _level([(rate, known.cost) for known, rate in rates], supply)
        for known, rate in rates:
            known.chance = 1.0 if rate <= level else level / rate


def _level(demands: Iterable[tuple[float, float]], supply: float) -> float:
    """The rate up to which each demand (rate, cost of one) is met, so that all together cost `supply` at most."""
    waiting = sorted(demands)
    cost = sum(each for _, each in waiting)
    for rate, each in waiting:
        if rate * cost >= supply:
            return supply / cost
        supply -= rate * each
        cost -= each
    return math.inf
