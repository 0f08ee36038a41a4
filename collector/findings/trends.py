"""Rules that need a recent level: state per route and model, and per allowance, all of it bounded."""

from __future__ import annotations

from collections import deque

from collector.findings.levels import Level
from collector.findings.policy import Policy
from collector.findings.timeouts import Pace, prefill_of
from collector.kept import Kept
from collector.labels import model_label
from collector.model import Exchange

Facts = dict[str, float | str | bool]
Found = list[tuple[str, Facts]]  # rule id, facts

MAX_PAIRS = 500  # routes with a model
MAX_ALLOWANCES = 500
MAX_ROUTES = 500

LOAD_TIME = 1.0  # seconds of loading a model that make a start cold, however long the prompt took
COLD_FACTOR, COLD_SPREADS, COLD_LEAST = 4.0, 6.0, 0.5  # times the level, spreads above it, seconds above it
MUCH_MORE = 2.0  # times the usual input, which explains a long prefill

LEAST_CACHE_LEVEL, COLLAPSE = 0.3, 0.5  # a cache that was of use; the share of its level it fell below
LEAST_CACHEABLE = 1024  # input tokens from which providers cache a prompt

SUSTAINED, SUSTAINED_ANSWERS = 3.0, 5  # seconds, and answers, of high load in a row (R6: about 3 s ahead)
LOAD_GAP = 30.0  # seconds without an answer, after which nothing is sustained

PACE_SECONDS, PACE_ANSWERS, PACE_WINDOW = 10.0, 5, 60.0  # least span and answers of a pace, and how far it looks back
SCARCE = 0.5  # share of an allowance, above which its pace is no finding
SOONER = 0.9  # of the time to its reset

TELL_EVERY = 5.0  # seconds between two readings of a recommended time-out
STORM_SECONDS = 60.0


class _Pair:
    """What is known of one model on one route."""

    __slots__ = ("cache", "high_answers", "high_last", "high_since", "kv_cache", "pace", "prefill", "told")

    def __init__(self) -> None:
        self.pace = Pace()
        self.prefill = Level()
        self.cache = Level()
        self.kv_cache = Level()
        self.high_since = self.high_last = 0.0
        self.high_answers = 0
        self.told = -TELL_EVERY


class _Allowance:
    """Two earlier sightings of one allowance, (seconds, remaining); the pace is measured from the first."""

    __slots__ = ("answers", "first", "middle")

    def __init__(self) -> None:
        self.first = self.middle = (0.0, -1.0)
        self.answers = 0


class Trends:
    """Takes exchanges in their order; not safe to be shared."""

    def __init__(self) -> None:
        self._pairs: Kept[tuple[str, str], _Pair] = Kept(_Pair, MAX_PAIRS)
        self._allowances: Kept[tuple[str, str, str, str], _Allowance] = Kept(_Allowance, MAX_ALLOWANCES)
        self._retries: Kept[str, deque[float]] = Kept(deque, MAX_ROUTES)

    def judge(self, exchange: Exchange, policy: Policy, came_early: bool) -> Found:
        """What holds of this exchange against the levels before it; then the levels have taken it in."""
        record, found = exchange.record, Found()
        if came_early:
            self._early(exchange, policy, found)
        status = record.status
        if status is None or not 200 <= status < 300 or record.dialect == "unknown":
            if record.upstream.model_load is not None:
                self._load(self._pairs.of((record.route, model_label(record))), exchange, policy, found)
            return found
        pair = self._pairs.of((record.route, model_label(record)))
        if exchange.client_timeout is not None:
            _timeout(pair, exchange, found)
        if not _cold_start(pair, exchange, policy, found):
            _cache(pair, exchange, found)
            if record.outcome in ("completed", "incomplete"):
                pair.pace.observe(record)
        if record.upstream.model_load is not None:
            self._load(pair, exchange, policy, found)
        if record.rate_limits:
            self._quotas(exchange, found)
        return found

    def recommended_timeout(self, route: str, model: str, now: float) -> float | None:
        """Seconds; None while too little is known, and where it has been told a moment ago."""
        pair = self._pairs.known((route, model))
        if pair is None or now - pair.told < TELL_EVERY:
            return None
        pair.told = now
        return pair.pace.recommended()

    # ------------------------------------------------------------ rules

    def _early(self, exchange: Exchange, policy: Policy, found: Found) -> None:
        found.append(("early_retry", {}))
        times = self._retries.of(exchange.record.route)
        times.append(exchange.started)
        while len(times) > policy.retry_storm:
            times.popleft()
        span = times[-1] - times[0]
        if len(times) >= policy.retry_storm and span <= STORM_SECONDS:
            found.append(("retry_storm", {"early_retries": len(times), "seconds": round(span, 1)}))

    def _load(self, pair: _Pair, exchange: Exchange, policy: Policy, found: Found) -> None:
        load = exchange.record.upstream.model_load
        at = exchange.answered if exchange.answered is not None else exchange.monotonic
        if load is None or load <= policy.overload_load:
            pair.high_answers = 0
            return
        if pair.high_answers == 0 or at - pair.high_last > LOAD_GAP:
            pair.high_since, pair.high_answers = at, 0
        pair.high_last = at
        pair.high_answers += 1
        lasted = at - pair.high_since
        if pair.high_answers >= SUSTAINED_ANSWERS and lasted >= SUSTAINED:
            found.append(("overload_coming", {"load": load, "seconds": round(lasted, 1)}))

    def _quotas(self, exchange: Exchange, found: Found) -> None:
        record, at = exchange.record, exchange.answered
        if at is None:
            return
        route, provider = record.route, record.provider or "unknown"
        for limit in record.rate_limits:
            remaining, whole, reset = limit.remaining, limit.limit, limit.reset_after
            if not whole or remaining is None or reset is None:
                continue
            window = limit.window if limit.window is not None else "unknown"
            known = self._allowances.of((route, provider, limit.scope, window))
            answers, (began, before), since = known.answers, known.first, at - known.middle[0]
            if answers == 0 or remaining > before or since > PACE_WINDOW:
                known.first = known.middle = (at, remaining)
                known.answers = 1
                continue
            known.answers = answers + 1
            span = at - began
            if span >= PACE_SECONDS and answers + 1 >= PACE_ANSWERS and remaining <= SCARCE * whole:
                pace = (before - remaining) / span
                left = remaining / pace if pace > 0.0 else None
                if left is not None and left < SOONER * reset:
                    facts: Facts = {"scope": limit.scope, "window": window, "remaining": remaining, "limit": whole}
                    found.append(("quota_running_out", {**facts, "seconds_left": round(left, 1), "reset_after": reset}))
            if span > PACE_WINDOW:
                known.first, known.middle = known.middle, (at, remaining)
            elif since > PACE_WINDOW / 2:
                known.middle = (at, remaining)


def _timeout(pair: _Pair, exchange: Exchange, found: Found) -> None:
    needed, given = pair.pace.needed(exchange), exchange.client_timeout
    if needed is not None and given is not None and given < needed:
        found.append(("client_timeout_short", {"timeout": given, "recommended": round(needed, 3)}))


def _cold_start(pair: _Pair, exchange: Exchange, policy: Policy, found: Found) -> bool:
    """Whether the start was cold; then the answer tells nothing of caches and of what is usual."""
    record = exchange.record
    upstream, usage = record.upstream, record.usage
    told = upstream.phases.get("prefill")
    taken = told if told is not None else prefill_of(record)
    loaded = upstream.phases.get("load")
    inputs = usage.input_tokens if usage is not None else None
    level, usual = pair.prefill if told is not None else pair.pace.prefill, pair.pace.input_tokens
    is_cold = loaded is not None and loaded >= LOAD_TIME
    if taken is not None and not is_cold and level.is_known:
        is_calm = upstream.model_load is None or upstream.model_load <= policy.overload_load
        is_longer = inputs is not None and usual.is_known and inputs > MUCH_MORE * usual.slow
        bound = max(COLD_FACTOR * level.slow, level.slow + COLD_SPREADS * level.spread, level.slow + COLD_LEAST)
        is_cold = taken > bound and is_calm and not is_longer
    if is_cold:
        facts: Facts = {}
        if taken is not None:
            facts["prefill"] = round(taken, 3)
        if level.is_known:
            facts["usual"] = round(level.slow, 3)
        if loaded is not None:
            facts["load_time"] = round(loaded, 3)
        found.append(("cold_start", facts))
    if told is not None and (loaded is None or loaded < LOAD_TIME):
        level.observe(told)  # a rise that lasts becomes the level, slowly
    return is_cold


def _cache(pair: _Pair, exchange: Exchange, found: Found) -> None:
    record = exchange.record
    usage, told = record.usage, record.upstream.kv_cache_hit_ratio
    if told is not None:
        _hits(pair.kv_cache, told, found)
        return
    read = usage.cache_read_input_tokens if usage is not None else None
    inputs = usage.input_tokens if usage is not None else None
    if read is not None and inputs is not None and inputs >= LEAST_CACHEABLE:
        _hits(pair.cache, min(1.0, read / inputs), found)


def _hits(level: Level, ratio: float, found: Found) -> None:
    level.observe(ratio)
    if level.is_known and level.slow >= LEAST_CACHE_LEVEL and level.fast < COLLAPSE * level.slow and ratio < level.slow:
        found.append(("cache_hit_collapse", {"hit_ratio": round(level.fast, 3), "usual": round(level.slow, 3)}))
