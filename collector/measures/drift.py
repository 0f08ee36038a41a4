"""Has relevance moved away from its recent level, on one route and model (R2, R18)?

Each score is followed as its raw logit, since near 1 a probability hides a fall. A fast and a slow moving average are
compared: their distance in logits, as a ratio of the scores at both levels, and in standard errors of what chance alone
would make of it. Both averages forget by time, and by number where traffic is thin, so that each stands on enough
exchanges. A level that lasts becomes the usual one within a few hours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct

from collector.catalogue import RELEVANCE_SCORES
from collector.kept import Kept
from collector.model import Reading, Relevance

FAST_SECONDS, FAST_SAMPLES = 300.0, 50  # what the fast average remembers: whichever of the two is longer
SLOW_SECONDS, SLOW_SAMPLES = 7200.0, 1000
FASTER = 12.0  # times by which the fast average forgets sooner, also while the slow one is still young
ENOUGH = 150  # exchanges before a level is told: three times what the fast average remembers at least
FARTHEST = 5.0  # standard deviations from the slow average, beyond which one exchange counts as so far away
LEAST_DEVIATION = 0.2  # logits: of exchanges that were all alike so far, the next may be another
LEAST_ERROR = 0.01  # logits: no level is known better, however alike the exchanges are
MAX_PAIRS = 500  # routes with a model


class Drift(Struct, frozen=True, gc=False):
    """A fast average seen from a slow one. `ratio` is -0.05 where the score at the fast level is 5 % below."""

    ratio: float
    logits: float
    errors: float  # `logits` in standard errors


class Level:
    """Two exponentially weighted means of one logit, the variance around the slow one, and how sure both are.

    For values that are independent with variance v, `_fast_square` and `_slow_square` times v are the variances of the
    means, and `_product` times v is their covariance: sums of the squares and products of the weights.
    """

    __slots__ = ("_at", "_fast_square", "_product", "_slow_square", "_variance", "count", "fast", "slow")

    def __init__(self) -> None:
        self.count = 0
        self.fast = self.slow = 0.0
        self._variance = 0.0
        self._fast_square = self._slow_square = self._product = 0.0
        self._at = 0.0

    def observe(self, logit: float, now: float) -> None:
        """Take one logit in, at monotonic `now`."""
        passed = max(0.0, now - self._at) if self.count else 0.0
        self._at = max(now, self._at)
        self.count += 1
        if self.count > ENOUGH:
            reach = FARTHEST * max(LEAST_DEVIATION, math.sqrt(self._variance))
            logit = min(max(logit, self.slow - reach), self.slow + reach)
        slow = max(1.0 / self.count, min(_by_time(passed, SLOW_SECONDS), 1.0 / SLOW_SAMPLES))
        fast = max(_by_time(passed, FAST_SECONDS), FASTER * slow)
        fast = max(1.0 / self.count, min(fast, 1.0 / FAST_SAMPLES))
        away = logit - self.slow
        self.slow += slow * away
        self.fast += fast * (logit - self.fast)
        self._variance = (1.0 - slow) * (self._variance + slow * away * away)
        self._fast_square = (1.0 - fast) ** 2 * self._fast_square + fast * fast
        self._slow_square = (1.0 - slow) ** 2 * self._slow_square + slow * slow
        self._product = (1.0 - fast) * (1.0 - slow) * self._product + fast * slow

    def drift(self) -> Drift | None:
        """Where the fast average is, seen from the slow one; None while too little is known."""
        if self.count < ENOUGH:
            return None
        variance = self._variance * (self._fast_square + self._slow_square - 2.0 * self._product)
        error = max(LEAST_ERROR, math.sqrt(max(0.0, variance)))
        shift = self.fast - self.slow
        return Drift(_score(self.fast) / _score(self.slow) - 1.0, shift, shift / error)


def _by_time(passed: float, seconds: float) -> float:
    """The weight of the newest value where a mean forgets over `seconds` and the last one came so long before."""
    return -math.expm1(-passed / seconds)


def _score(logit: float) -> float:
    """The calibrated score of a logit, never 0."""
    return 1.0 / (1.0 + math.exp(min(-logit, 500.0)))


class Levels:
    """The levels of every route and model, at most MAX_PAIRS; the one longest without a score is forgotten first."""

    def __init__(self) -> None:
        self._pairs: Kept[tuple[str, str], tuple[Level, ...]] = Kept(_levels, MAX_PAIRS)

    def readings(self, scores: Relevance, labels: tuple[str, str], now: float) -> Iterator[Reading]:
        """What has drifted, once the exchange is taken in. `labels` are route and model, `now` is monotonic.

        Nothing for a score that has no level yet: after a start it is not known whether anything has moved.
        """
        raw = scores.raw
        if not scores.scored or raw is None:
            return
        levels = self._pairs.of(labels)
        logits = (raw.context_relevance, raw.answer_relevance, raw.groundedness)
        for name, level, logit in zip(RELEVANCE_SCORES, levels, logits, strict=True):
            if logit is None or not math.isfinite(logit):
                continue
            level.observe(logit, now)
            drift = level.drift()
            if drift is not None:
                where = (*labels, name)
                yield Reading("semantic_health_relevance_drift_ratio", drift.ratio, where)
                yield Reading("semantic_health_relevance_drift_logits", drift.logits, where)
                yield Reading("semantic_health_relevance_drift_errors", drift.errors, where)

    def __len__(self) -> int:
        return len(self._pairs)


def _levels() -> tuple[Level, ...]:
    return tuple(Level() for _ in RELEVANCE_SCORES)
