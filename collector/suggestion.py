"""Objectives proposed from the records of a running sidecar, each with the budget that it would have burnt."""

from __future__ import annotations

import http.client
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from collector.admin_token import bearer, connection_to
from collector.measures.objectives import judged, prompt_of
from collector.model import Objective, Record

MOST_RECORDS = 1000  # as many as the admin port gives at once
LEAST_JUDGED = 20  # exchanges, below which nothing is proposed
TIMEOUT = 10.0  # seconds
LARGEST_ANSWER = 64 << 20  # bytes
SHARES = (0.999, 0.995, 0.99, 0.98, 0.97, 0.95, 0.9, 0.8, 0.5)  # of objectives without a bound
SPARE = 0.5  # of the budget, that a proposed share leaves
ROOM = 1.25  # times the 95th percentile, which a proposed time leaves
COST_ROOM = 1.5
LEAST_SPAN = 60.0  # seconds of records, from which a cost an hour can be told


class SuggestionError(Exception):
    """No records could be had; the message says why."""


class Proposal(Struct, frozen=True):
    """An objective, how many exchanges it can be judged for, and how many of them miss it."""

    objective: Objective
    judged: int
    bad: int

    @property
    def burnt(self) -> float:
        """Share of the budget, of these exchanges, that is spent; above 1 the objective is missed."""
        return self.bad / (self.judged * (1.0 - self.objective.share))


class _Page(Struct):
    records: tuple[Record, ...]


def fetch(url: str, token: str | None = None, ca_file: str | None = None) -> tuple[Record, ...]:
    """The latest records of the sidecar whose admin port is at `url`, newest first; or SuggestionError.

    `token` is shown to it; `ca_file` has the certificates that it is verified by, in place of the system's.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.hostname is None:
        raise SuggestionError(f"--url: expected http(s)://host:port of the admin port, got {url[:100]!r}")
    try:
        connection = connection_to(parts.scheme, parts.hostname, parts.port, TIMEOUT, ca_file)
        connection.request("GET", f"{parts.path.rstrip('/')}/records?limit={MOST_RECORDS}", headers=bearer(token))
        answer = connection.getresponse()
        body = answer.read(LARGEST_ANSWER)
        connection.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise SuggestionError(f"no answer from {url[:100]}: {error}") from error
    if answer.status == 401:
        raise SuggestionError(f"{url[:100]} asks for its token; name the file that holds it with --token-file")
    if answer.status != 200:
        raise SuggestionError(f"{url[:100]} answered {answer.status}; is it the admin port?")
    try:
        return msgspec.json.decode(body, type=_Page).records
    except msgspec.DecodeError as error:
        raise SuggestionError(f"{url[:100]} gave no records: {error}") from error


def proposals(records: Sequence[Record], long_context: int) -> list[Proposal]:
    """What can be proposed for the exchanges of one route; nothing that fewer than 20 of them can be judged for."""
    made = (
        _by_share("errors", records),
        _by_share("validity", records),
        *(
            _by_time(name, "duration", of_class, lambda record: record.timing.duration, name)
            for name, of_class in _by_prompt(records, long_context)
        ),
        _by_time("first_token", "first_token", records, lambda record: record.timing.first_token),
        _by_time("jitter", "jitter", records, lambda record: record.timing.chunk_gaps.stddev),
        _by_score("relevance", "context_relevance", records, lambda record: record.relevance.context_relevance),
        _by_score("groundedness", "groundedness", records, lambda record: record.relevance.groundedness),
        _by_score("kv_cache", "kv_cache_hit", records, lambda record: record.upstream.kv_cache_hit_ratio),
    )
    return [each for each in made if each is not None]


def cost_per_hour(records: Sequence[Record]) -> float | None:
    """US dollars an hour with some room; None where no model has a price, or the records span less than a minute."""
    costs = [record.cost_usd for record in records if record.cost_usd is not None]
    times = [datetime.fromisoformat(each.started_at).timestamp() for each in records if each.started_at is not None]
    span = max(times) - min(times) if times else 0.0
    if not costs or span < LEAST_SPAN:
        return None
    return _up(sum(costs) / span * 3600.0 * COST_ROOM)


def described(records: Sequence[Record], long_context: int) -> str:
    """YAML for a configuration file, with what each objective rests on as comments."""
    lines = [
        f"# From {len(records)} records. They are what was, not what is good: read each value before you state it."
    ]
    lines.append("routes:")
    for route in sorted({record.route for record in records}):
        own = [record for record in records if record.route == route]
        made = proposals(own, long_context)
        lines.append(f"  - name: {route}  # {len(own)} records")
        cost = cost_per_hour(own)
        if cost is not None:
            lines.append(f"    cost_per_hour: {cost:g}")
        lines.append("    objectives:" if made else f"    objectives: []  # fewer than {LEAST_JUDGED} can be judged")
        lines += [f"      - {_flow(each)}" for each in made]
    return "\n".join(lines) + "\n"


def _flow(proposal: Proposal) -> str:
    stated = proposal.objective
    parts = [f"name: {stated.name}", f"measure: {stated.measure}"]
    if stated.prompts is not None:
        parts.append(f"prompts: {stated.prompts}")
    if stated.at_most is not None:
        parts.append(f"at_most: {stated.at_most:g}")
    if stated.at_least is not None:
        parts.append(f"at_least: {stated.at_least:g}")
    parts.append(f"share: {stated.share:g}")
    what = f"{proposal.bad} of {proposal.judged} miss it: {proposal.burnt * 100:.0f} % of the budget burnt"
    return f"{{{', '.join(parts)}}}  # {what}"


def _by_prompt(records: Sequence[Record], long_context: int) -> Iterator[tuple[str, list[Record]]]:
    for name in ("short_prompt", "long_context"):
        of_class = ((record, prompt_of(record, long_context)) for record in records)
        yield name, [record for record, prompt in of_class if prompt is not None and prompt.name == name]


def _by_share(measure: str, records: Sequence[Record]) -> Proposal | None:
    """The strictest share that would have left half of its budget, else the weakest."""
    tried = [_tried(Objective(measure, measure, share), records) for share in SHARES]
    if tried[0].judged < LEAST_JUDGED:
        return None
    return next((each for each in tried if each.burnt <= SPARE), tried[-1])


def _by_time(
    name: str,
    measure: str,
    records: Sequence[Record],
    value: Callable[[Record], float | None],
    prompts: str | None = None,
) -> Proposal | None:
    values = sorted(each for each in map(value, records) if each is not None)
    if len(values) < LEAST_JUDGED or values[-1] <= 0.0:
        return None
    bound = _up(max(_quantile(values, 0.95) * ROOM, 0.001))
    return _enough(_tried(Objective(name, measure, 0.95, at_most=bound, prompts=prompts), records))


def _by_score(
    name: str, measure: str, records: Sequence[Record], value: Callable[[Record], float | None]
) -> Proposal | None:
    values = sorted(each for each in map(value, records) if each is not None)
    if len(values) < LEAST_JUDGED:
        return None
    bound = math.floor(_quantile(values, 0.05) * 100) / 100
    return _enough(_tried(Objective(name, measure, 0.9, at_least=bound), records)) if bound > 0.0 else None


def _tried(objective: Objective, records: Sequence[Record]) -> Proposal:
    verdicts = [judged(record, objective) for record in records]
    bad = verdicts.count("bad")
    return Proposal(objective, bad + verdicts.count("good"), bad)


def _enough(proposal: Proposal) -> Proposal | None:
    return proposal if proposal.judged >= LEAST_JUDGED else None


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def _up(value: float) -> float:
    """The next number of two digits."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 1) if value > 0.0 else 1.0
    return float(f"{math.ceil(value / scale - 1e-9) * scale:.12g}")
