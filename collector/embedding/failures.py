"""How an embedder says that it has no vectors, and when it is worth asking it again."""

from __future__ import annotations

from collector.embedding.messages import Failure


class EmbeddingError(Exception):
    """No vectors for these texts. The message holds nothing of the texts, and no key."""

    def __init__(self, failure: Failure, message: str, wait: float | None = None) -> None:
        """`wait`: seconds for which it is of no use to ask again; None where the next texts may have better luck."""
        self.failure = failure
        self.wait = wait
        super().__init__(message)


class Breaker:
    """Opens after some failures in a row; then one attempt is let through at a time, after waits that double.

    Times are monotonic seconds.
    """

    def __init__(self, failures: int, shortest: float, longest: float) -> None:
        self._limit = failures
        self._shortest = shortest
        self._longest = longest
        self._failures = 0
        self._wait = shortest
        self._until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether only attempts after a wait are let through."""
        return self._failures >= self._limit

    def wait(self, now: float) -> float:
        """Seconds until an attempt is let through; 0 where it is now."""
        return max(self._until - now, 0.0) if self.is_open else 0.0

    def succeeded(self) -> None:
        self._failures = 0
        self._wait = self._shortest

    def failed(self, now: float) -> None:
        self._failures += 1
        if self.is_open:
            self._until = now + self._wait
            self._wait = min(self._wait * 2, self._longest)
