"""How long does an answer of this model take, by what was measured of late (R20)?"""

from __future__ import annotations

from collector.findings.levels import Level
from collector.model import Exchange, Record

FACTOR = 1.8  # of the source documents
ENOUGH = 10  # answers before anything is recommended


class Pace:
    """What answers of one model on one route took. Seconds and tokens; whole answers only."""

    __slots__ = ("duration", "input_tokens", "output_tokens", "per_token", "prefill")

    def __init__(self) -> None:
        self.prefill = Level()
        self.input_tokens = Level()
        self.per_token = Level()
        self.output_tokens = Level()
        self.duration = Level()

    def observe(self, record: Record) -> None:
        """Take in one answer that is whole. Its whole duration counts only where no first token is known."""
        timing, usage = record.timing, record.usage
        taken = prefill_of(record)
        if taken is not None:
            self.prefill.observe(taken)
        elif timing.duration is not None:
            self.duration.observe(timing.duration)
        if usage is None:
            return
        if usage.input_tokens is not None:
            self.input_tokens.observe(usage.input_tokens)
        if usage.output_tokens is not None:
            self.output_tokens.observe(usage.output_tokens)
            per_token = timing.time_per_output_token
            decode = record.upstream.phases.get("decode")
            if per_token is None and decode is not None and usage.output_tokens > 1:
                per_token = decode / (usage.output_tokens - 1)
            if per_token is not None:
                self.per_token.observe(per_token)

    def recommended(self) -> float | None:
        """The time-out for whole answers as they came of late, in seconds; None while too few are known."""
        return self._padded(self.input_tokens.high, self.output_tokens.high)

    def needed(self, exchange: Exchange) -> float | None:
        """The time-out that this request needs: for a stream until its first token, else for the whole answer.

        The limit of output tokens counts only where it is below what answers usually come to, since most requests set
        it far above.
        """
        usage, limit = exchange.record.usage, exchange.request.max_output_tokens
        asked = usage.input_tokens if usage is not None else None
        inputs = self.input_tokens.slow if asked is None else float(asked)
        if exchange.record.stream or exchange.request.stream:
            return FACTOR * self._reading(inputs) if self.prefill.count >= ENOUGH else None
        outputs = self.output_tokens.high
        return self._padded(inputs, outputs if limit is None else min(outputs, float(limit)))

    def _padded(self, inputs: float, outputs: float) -> float | None:
        if self.prefill.count >= ENOUGH and self.per_token.count >= ENOUGH:
            return FACTOR * (self._reading(inputs) + outputs * self.per_token.high)
        return FACTOR * self.duration.high if self.duration.count >= ENOUGH else None

    def _reading(self, inputs: float) -> float:
        """Time to read so many tokens: what it usually takes, and in proportion for prompts longer than usual."""
        usual = self.input_tokens.slow
        return self.prefill.high * (max(1.0, inputs / usual) if usual > 0 else 1.0)


def prefill_of(record: Record) -> float | None:
    """Seconds until the first token as the client saw it, else the upstream's own word for reading the prompt."""
    first = record.timing.first_token
    return first if first is not None else record.upstream.phases.get("prefill")
