"""The analyst: events in, records and readings out, and an exact count of what became neither."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from collector.analyst.finding_log import FindingLog
from collector.analyst.fold import ExchangeFold, RouteFacts, Rules
from collector.analyst.ledger import Ledger
from collector.analyst.summary import Summary, Totals, summarise
from collector.findings.judge import Findings
from collector.findings.policy import Policy
from collector.labels import place_of
from collector.measures import (
    continuity,
    cost,
    coverage,
    drift,
    objectives,
    outcome,
    relevance,
    retries,
    signals,
    usage,
    validity,
)
from collector.measures.objectives import LONG_CONTEXT
from collector.model import (
    BytesSeen,
    ClientBlocked,
    Clock,
    Event,
    Exchange,
    ExchangeDropped,
    ExchangeEnded,
    Exporter,
    Judgement,
    Objective,
    ProxyVitals,
    Reading,
    Record,
    Relevance,
    RequestSeen,
    ResponseSeen,
    RuleSet,
    SpanFacts,
    TraceParent,
    ValidationTask,
    Validity,
)
from collector.signals.upstream import trace_parent

log = logging.getLogger("semhealth.analyst")

MOST_LIVES = 1000  # lives of workers whose totals are told apart
MOST_LOST_LATELY = 1000
MAX_PENDING = 2000  # exchanges that wait for the validator or the embedder; beyond it they go unjudged


class Judge(Protocol):
    """Judges outputs somewhere that may be killed; never raises."""

    async def judge(self, tasks: Sequence[ValidationTask]) -> Sequence[Judgement]: ...


class Scorer(Protocol):
    """Scores the texts of an exchange, or says why not; never raises. `languages` are ISO 639-1, None for all."""

    @property
    def ready(self) -> bool: ...
    @property
    def languages(self) -> Sequence[str] | None: ...
    def admit(self, exchange: Exchange) -> str | None: ...
    async def score(self, exchange: Exchange) -> Relevance: ...


class AnalysedRoute(Struct, frozen=True):
    """A route as the analyst needs it. `extra` are the values of its configured labels, in the exporter's order;
    `header_labels` (position, request header) are filled per exchange."""

    facts: RouteFacts
    contract: bytes | None = None
    extra: tuple[str, ...] = ()
    header_labels: tuple[tuple[int, str], ...] = ()
    objectives: tuple[Objective, ...] = ()
    findings: Policy = Policy()
    rules: RuleSet | None = None  # of the contract
    contract_loaded: bool | None = None  # None where the route states none
    long_context: int = LONG_CONTEXT  # input tokens, above which a prompt is a long context
    cost_per_hour: float | None = None  # US dollars that the route may cost


class Worker:
    """One connected proxy worker. `acknowledge` takes how many batches were read and which exchanges are recorded.

    `greet` is called once, when the worker has said who it is.
    """

    def __init__(self, acknowledge: Callable[[int, list[int]], None], greet: Callable[[], None] = lambda: None) -> None:
        self.acknowledge = acknowledge
        self.greet = greet
        self.open: dict[int, ExchangeFold] = {}
        self.failed: set[int] = set()  # exchanges that go on and cannot be analysed
        self.boot = "unknown"
        self.number = 0
        self.vitals: ProxyVitals | None = None
        self.routes: Mapping[str, AnalysedRoute] = {}  # those of the settings by which it runs, from `connected` on

    def forget(self) -> int:
        """Drop what it has not finished telling; how many exchanges that were."""
        running = len(self.open) + len(self.failed)
        self.open.clear()
        self.failed.clear()
        return running


class Account(Struct, frozen=True):
    """The totals of every life of a worker, and what an analyst itself lost by reason: for the one that follows it.

    `lost_lately` are the last exchanges among these, by boot and number: their worker may not know yet.
    """

    vitals: tuple[ProxyVitals, ...] = ()
    lost: dict[str, int] = {}
    lost_lately: tuple[tuple[str, int], ...] = ()


def sum_of(vitals: Sequence[ProxyVitals]) -> ProxyVitals:
    """The totals of several lives that have ended, under the name of the first."""
    unobserved: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for each in vitals:
        unobserved.update(each.unobserved)
        refused.update(each.refused)
    return msgspec.structs.replace(
        vitals[0],
        forwarded=sum(each.forwarded for each in vitals),
        unobserved=dict(unobserved),
        refused=dict(refused),
        starved=sum(each.starved for each in vitals),
        in_flight=0,
        queue_bytes=0,
    )


class Analyst:
    """Owns what is known: open exchanges, the ledger, and the way of each record to the exporters."""

    def __init__(
        self,
        rules: Rules,
        routes: Mapping[str, AnalysedRoute],
        exporter: Exporter,
        ledger: Ledger,
        write: Callable[[Record], None],
        judge: Judge,
        scorer: Scorer,
        clock: Clock,
        trace: Callable[[SpanFacts], None] | None = None,
        keep_account: Callable[[], None] = lambda: None,
    ) -> None:
        """`keep_account` is called when an exchange was lost here, before its worker is told: who comes after a killed
        analyst has to know of it.
        """
        self._rules = msgspec.structs.replace(rules, reads_ids=trace is not None)
        self._routes = routes
        self._exporter = exporter
        self.ledger = ledger
        self._write = write
        self._judge = judge
        self._scorer = scorer
        self._clock = clock
        self._trace = trace
        self._keep_account = keep_account
        self._recorded_last = ""  # the id of the exchange
        self._workers: set[Worker] = set()
        self._pending: set[asyncio.Task[None]] = set()
        self._outcomes: Counter[str] = Counter()
        self._proxy: dict[str, ProxyVitals] = {}  # last vitals by boot, one per life of a worker
        self._lost: Counter[str] = Counter()
        self._lost_lately: deque[tuple[str, int]] = deque(maxlen=MOST_LOST_LATELY)
        self._waits = retries.Waits()
        self._drift = drift.Levels()
        self._findings = Findings({name: route.findings for name, route in routes.items()})
        self._finding_log = FindingLog()

    def change(self, rules: Rules, routes: Mapping[str, AnalysedRoute], *, workers_stay: bool) -> None:
        """Go by these from now on. Where the workers do not stay, those connected go on by the routes they know."""
        self._rules = msgspec.structs.replace(rules, reads_ids=self._trace is not None)
        self._routes = routes
        if workers_stay:
            for worker in self._workers:
                worker.routes = {**worker.routes, **routes}
        self._findings.change({name: route.findings for name, route in routes.items()})
        self.state_objectives()

    def state_objectives(self) -> None:
        """Say what the routes promise, and whether their contracts are in force; before their first exchange."""
        for name, route in self._routes.items():
            for reading in objectives.stated(name, route.objectives, route.cost_per_hour):
                self._exporter.record(msgspec.structs.replace(reading, extra=route.extra))
            if route.contract_loaded is not None:
                loaded = float(route.contract_loaded)
                self._exporter.record(Reading("semantic_health_contract_loaded", loaded, (name,), route.extra))

    # ------------------------------------------------------------ workers

    def connected(self, worker: Worker) -> None:
        worker.routes = self._routes
        self._workers.add(worker)

    def disconnected(self, worker: Worker) -> None:
        """The worker died or lost its connection: what it had not finished telling is lost."""
        self._workers.discard(worker)
        running = worker.forget()
        if running:
            self._count_lost("proxy_lost", running)

    @property
    def workers(self) -> int:
        return len(self._workers)

    def take(self, worker: Worker, events: Iterable[Event]) -> None:
        """One batch of events, in order; acknowledged at the end."""
        recorded: list[int] = []
        opened = worker.open
        for event in events:
            try:
                if type(event) is BytesSeen:  # most are
                    fold = opened.get(event.id)
                    if fold is not None and event.from_upstream:
                        fold.answered(event)
                    elif fold is not None:
                        fold.bytes_seen(event)
                elif type(event) is RequestSeen:
                    self._begin(worker, event)
                elif type(event) is ResponseSeen:
                    fold = opened.get(event.id)
                    if fold is not None:
                        fold.response_seen(event)
                elif type(event) is ExchangeEnded:
                    fold = opened.pop(event.id, None)
                    if self._ended(worker, fold, event) if fold is not None else self._ended_before(worker, event):
                        recorded.append(event.id)
                else:
                    self._take_other(worker, event)
            except Exception as fault:  # noqa: BLE001 - the boundary of one event
                # One exchange that cannot be read must not take the others along.
                self._failed(worker, event, fault)
                if isinstance(event, ExchangeEnded):
                    recorded.append(event.id)
        worker.acknowledge(1, recorded)

    def _begin(self, worker: Worker, event: RequestSeen) -> None:
        route, number = self._route_of(worker, event.route), event.id
        worker.open[number] = ExchangeFold(f"{worker.boot}-{number}", event, route.facts, self._rules)

    def _ended_before(self, worker: Worker, event: ExchangeEnded) -> bool:
        """An exchange that ends and is not open: it failed, or its beginning was never told."""
        if event.id in worker.failed:
            worker.failed.remove(event.id)
            self._lose(worker, event.id)
        return True

    def _take_other(self, worker: Worker, event: Event) -> None:
        match event:
            case ClientBlocked():
                fold = worker.open.get(event.id)
                if fold is not None:
                    fold.client_blocked(event)
            case ExchangeDropped():
                worker.open.pop(event.id, None)
                worker.failed.discard(event.id)
            case ProxyVitals():
                self._take_vitals(worker, event)

    def _route_of(self, worker: Worker, name: str) -> AnalysedRoute:
        return worker.routes[name] if name in worker.routes else self._routes[name]

    def _failed(self, worker: Worker, event: Event, fault: Exception) -> None:
        log.error("an exchange could not be analysed: %s (it was forwarded untouched)", type(fault).__name__)
        log.debug("analysis fault", exc_info=fault)
        if isinstance(event, ProxyVitals):
            return
        was_open = worker.open.pop(event.id, None) is not None
        if isinstance(event, ExchangeEnded):
            self._lose(worker, event.id)
        elif was_open or isinstance(event, RequestSeen):
            # Counted when it ends: until then its worker may die, or drop it, and count it.
            worker.failed.add(event.id)

    def _lose(self, worker: Worker, number: int) -> None:
        """Count an exchange as lost here, unless it was recorded before what failed."""
        if f"{worker.boot}-{number}" != self._recorded_last:
            self._count_lost("analysis_failed", 1)
            self._lost_lately.append((worker.boot, number))
            self._keep_account()

    # ------------------------------------------------------------ one exchange

    def _ended(self, worker: Worker, fold: ExchangeFold, event: ExchangeEnded) -> bool:
        """True when the exchange is recorded at once, False when its record waits for a judge."""
        exchange = fold.ended(event, may_repeat=self._waits.is_known)
        route = self._route_of(worker, fold.route.name)
        tasks = validity.tasks(exchange, route.contract, route.rules)
        languages = self._scorer.languages
        reason = relevance.reason_not_scored(exchange, languages)
        waits_judge = bool(tasks) and any(task.result is None for task in tasks)
        waits_score = reason is None or (
            reason == "no_context" and self._scorer.ready and relevance.may_score_answer(exchange, languages)
        )
        if (waits_judge or waits_score) and len(self._pending) >= MAX_PENDING:
            waits_judge = waits_score = False
            reason = reason or "budget"
        refused = self._scorer.admit(exchange) if waits_score else None
        if refused is not None:
            waits_score, reason = False, reason or refused
        if not (waits_judge or waits_score):
            scored = relevance.unscored(exchange, reason or "budget")
            judged = [validity.judgement(task, task.result or "skipped") for task in tasks] if tasks else None
            self._record(fold, route, exchange, validity.validity(judged) if judged else None, scored)
            return True
        pending = asyncio.get_running_loop().create_task(
            self._complete(worker, fold, event.id, exchange, tasks, None if waits_score else (reason or "budget"))
        )
        self._pending.add(pending)
        pending.add_done_callback(self._pending.discard)
        return False

    async def _complete(
        self,
        worker: Worker,
        fold: ExchangeFold,
        number: int,
        exchange: Exchange,
        tasks: Sequence[ValidationTask],
        reason: str | None,
    ) -> None:
        try:
            judging = self._judge.judge(tasks) if tasks else _nothing()
            scoring = self._scorer.score(exchange) if reason is None else _given(relevance.unscored(exchange, reason))
            judged, scored = await asyncio.gather(judging, scoring)
            self._record(fold, self._route_of(worker, fold.route.name), exchange, validity.validity(judged), scored)
        except Exception as fault:
            log.error("an exchange could not be judged: %s (it was forwarded untouched)", type(fault).__name__)
            log.debug("judging fault", exc_info=fault)
            self._lose(worker, number)
        worker.acknowledge(0, [number])

    def _record(
        self,
        fold: ExchangeFold,
        route: AnalysedRoute,
        exchange: Exchange,
        judged: Validity | None,
        scored: Relevance,
    ) -> None:
        self._waits, came_early = retries.readings(self._waits, exchange)
        found = self._findings.judge(exchange, bool(came_early))
        record = msgspec.structs.replace(exchange.record, validity=judged, relevance=scored, findings=found)
        if found:
            self._finding_log.tell(record, found, exchange.monotonic)
        parent = trace_parent(exchange.request_headers) if record.trace_id is not None else None
        exemplar = parent.trace_id if parent is not None and parent.is_sampled else None
        self._tell(fold, route, exchange, record, came_early, exemplar)
        self._outcomes[record.outcome] += 1
        self.ledger.add(record)
        if self._trace is not None:
            self._trace(_span_facts(exchange, record, parent))
        self._write(record)
        self._recorded_last = fold.id

    def _tell(
        self,
        fold: ExchangeFold,
        route: AnalysedRoute,
        exchange: Exchange,
        record: Record,
        came_early: tuple[Reading, ...],
        exemplar: str | None,
    ) -> None:
        """Give the exporter what the measures read, and how long the sidecar itself took."""
        now, place, scored = exchange.monotonic, place_of(record), record.relevance
        extra = route.extra if not route.header_labels else _extra(route, fold)
        meters = self._exporter.meters(place, extra, exemplar)
        outcome.measure(record, meters)
        usage.measure(record, meters)
        if record.stream:
            continuity.measure(record, *fold.deadlines, meters)
        signals.measure(record, fold.arrived_wall, meters)
        if record.validity is not None:
            validity.measure(record.validity, meters)
        relevance.measure(scored, meters)
        coverage.measure(scored, meters)
        if exchange.cost:
            cost.measure(exchange.cost, meters)
        if exchange.unknown_headers or exchange.is_deprecated:
            signals.warn(exchange, meters)
        objectives.measure(record, route.objectives, meters, route.long_context)
        told = [*came_early, *self._findings.readings(record, now)]
        if scored.scored:
            told += self._drift.readings(scored, (record.route, place[2]), now)
        if told:
            self._exporter.record_all(told, extra, exemplar)
        meters["semantic_health_analysis_seconds"](self._clock.monotonic() - now)
        if record.timing.added is not None:
            meters["semantic_health_proxy_added_seconds"](record.timing.added)

    # ------------------------------------------------------------ counts

    def _count_lost(self, reason: str, number: int) -> None:
        self._lost[reason] += number
        self._exporter.record(Reading("semantic_health_unobserved_total", float(number), (reason,)))

    def _take_vitals(self, worker: Worker, now: ProxyVitals) -> None:
        before = self._proxy.get(now.boot)
        is_first = worker.vitals is None
        worker.boot, worker.number, worker.vitals = now.boot, now.worker, now
        if is_first:
            worker.greet()
        record = self._exporter.record
        for metric, now_told, known_total in (
            ("semantic_health_forwarded_total", now.forwarded, before.forwarded if before else 0),
            ("semantic_health_accept_failures_total", now.starved, before.starved if before else 0),
        ):
            record(Reading(metric, float(now_told - known_total)))
        for metric, told, known in (
            ("semantic_health_unobserved_total", now.unobserved, before.unobserved if before else {}),
            ("semantic_health_refused_total", now.refused, before.refused if before else {}),
        ):
            for reason, total in told.items():
                record(Reading(metric, float(total - known.get(reason, 0)), (reason,)))
        # One that gives way and the one that follows it have the same number.
        alike = [each.vitals for each in {*self._workers, worker} if each.number == now.worker and each.vitals]
        number = str(now.worker)
        record(Reading("semantic_health_in_flight", float(sum(each.in_flight for each in alike)), (number,)))
        record(Reading("semantic_health_queue_bytes", float(sum(each.queue_bytes for each in alike)), (number,)))
        record(Reading("semantic_health_event_loop_lag_seconds", now.loop_lag))
        self._proxy[now.boot] = now
        if len(self._proxy) > MOST_LIVES:
            self._merge_oldest()

    def _merge_oldest(self) -> None:
        """Keep the totals of the two lives that were heard of first as one."""
        live = {each.boot for each in self._workers}
        oldest = [vitals for boot, vitals in self._proxy.items() if boot not in live][:2]
        for vitals in oldest:
            del self._proxy[vitals.boot]
        if oldest:
            self._proxy = {oldest[0].boot: sum_of(oldest), **self._proxy}

    def account(self) -> Account:
        """What is known of all workers, and what was lost here."""
        return Account(tuple(self._proxy.values()), dict(self._lost), tuple(self._lost_lately))

    def go_on_from(self, account: Account) -> None:
        """Take over what an analyst before this one knew, before the first worker connects."""
        for vitals in account.vitals:
            self._proxy[vitals.boot] = vitals
            self._exporter.record(Reading("semantic_health_forwarded_total", float(vitals.forwarded)))
            self._exporter.record(Reading("semantic_health_accept_failures_total", float(vitals.starved)))
            for reason, total in vitals.unobserved.items():
                self._exporter.record(Reading("semantic_health_unobserved_total", float(total), (reason,)))
            for reason, total in vitals.refused.items():
                self._exporter.record(Reading("semantic_health_refused_total", float(total), (reason,)))
        for reason, total in account.lost.items():
            self._count_lost(reason, total)
        self._lost_lately.extend(account.lost_lately)

    def summary(self) -> Summary:
        """Totals since the start beside what the ledger shows."""
        told = tuple(self._proxy.values())
        unobserved = Counter(self._lost)
        refused: Counter[str] = Counter()
        for vitals in told:
            unobserved.update(vitals.unobserved)
            refused.update(vitals.refused)
        live = [worker.vitals for worker in self._workers if worker.vitals is not None]
        totals = Totals(
            recorded=self._outcomes.total(),
            outcomes=dict(self._outcomes),
            forwarded=sum(vitals.forwarded for vitals in told),
            in_flight=sum(vitals.in_flight for vitals in live),
            queue_bytes=sum(vitals.queue_bytes for vitals in live),
            unobserved={reason: count for reason, count in unobserved.items() if count},
            refused={reason: count for reason, count in refused.items() if count},
            relevance_ready=self._scorer.ready,
        )
        return summarise(totals, self.ledger.newest_first())

    async def settle(self, patience: float) -> None:
        """Wait for the records that are still being judged, for at most `patience` seconds."""
        if self._pending:
            await asyncio.wait(set(self._pending), timeout=patience)


def _span_facts(exchange: Exchange, record: Record, parent: TraceParent | None) -> SpanFacts:
    expectation = exchange.request.expectation
    return SpanFacts(
        record,
        exchange.ended_at - (exchange.monotonic - exchange.started),
        exchange.ended_at,
        parent,
        exchange.span_id,
        exchange.response_id,
        exchange.request.max_output_tokens,
        None if expectation is None or expectation.is_text else "json",
    )


def _extra(route: AnalysedRoute, fold: ExchangeFold) -> tuple[str, ...]:
    """The values of the configured labels, some of them from the request's headers."""
    values = list(route.extra)
    for position, header in route.header_labels:
        values[position] = fold.request.headers.first(header) or values[position]
    return tuple(values)


async def _nothing() -> Sequence[Judgement]:
    return ()


async def _given(scored: Relevance) -> Relevance:
    return scored
