"""Recorded exchanges → records, by the very code that reads live traffic."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable
from pathlib import Path

import msgspec

from collector.analyst.fold import ExchangeFold, RouteFacts, Rules
from collector.analyst.scorer import EmbeddingScorer
from collector.app import SystemClock, policy_of, rules_of
from collector.catalogue import PROVIDER_NAMES
from collector.children import child_environment, prepare_child
from collector.config import Settings
from collector.embedding.client import EmbeddingClient
from collector.findings.judge import Findings
from collector.measures import relevance, validity
from collector.model import (
    BytesSeen,
    ChunkGaps,
    Exchange,
    ExchangeEnded,
    Record,
    RequestSeen,
    ResponseSeen,
    RuleSet,
    Timing,
)
from collector.recorded import Recording
from collector.supervisor import bind_unix, runtime_directory
from collector.validation.client import ValidatorClient

ROUTE = "recorded"
LOADING = 30.0  # seconds that the embedding model has to load


def exchange_of(recording: Recording, rules: Rules) -> Exchange:
    """One recording, folded. Its times are unknown."""
    provider = PROVIDER_NAMES.get(recording.provider or "", recording.provider)
    fold: ExchangeFold | None = None
    for event in recording.events:
        if isinstance(event, RequestSeen):
            fold = ExchangeFold(recording.id, event, RouteFacts(ROUTE, recording.host, None, provider), rules)
        elif fold is not None and isinstance(event, ResponseSeen):
            fold.response_seen(event)
        elif fold is not None and isinstance(event, BytesSeen):
            fold.bytes_seen(event)
        elif fold is not None and isinstance(event, ExchangeEnded):
            exchange = fold.ended(event)
            timeless = msgspec.structs.replace(exchange.record, timing=Timing(chunk_gaps=ChunkGaps(None)))
            return msgspec.structs.replace(exchange, record=timeless)
    raise ValueError(f"{recording.id}: the recording has no end")


class Inspector:
    """Judges and scores recorded exchanges, with a validator and an embedder of its own."""

    def __init__(self, settings: Settings, contract: bytes | None = None, rules: RuleSet | None = None) -> None:
        unhurried = msgspec.structs.replace(settings.embedder, cpu_share=1.0, timeout=60.0)
        self._settings = msgspec.structs.replace(settings, embedder=unhurried, log_level="error")
        self._rules = rules_of(settings)
        self._contract = contract
        self._contract_rules = rules
        self._findings = Findings({ROUTE: policy_of(settings.findings)})
        self._stack = contextlib.AsyncExitStack()
        self._clients: tuple[ValidatorClient, EmbeddingClient] | None = None

    async def __aenter__(self) -> Inspector:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def records(self, recordings: Iterable[Recording]) -> AsyncIterator[Record]:
        """A record for each, in order. Raises RecordingError where a file turns out to be no recording."""
        for recording in recordings:
            exchange = exchange_of(recording, self._rules)
            tasks = validity.tasks(exchange, self._contract, self._contract_rules)
            reason = relevance.reason_not_scored(exchange, None)  # the scorer knows its model's languages
            wants_score = reason is None or relevance.may_score_answer(exchange, None)
            needs_judge = any(task.result is None for task in tasks)
            if needs_judge or (wants_score and self._settings.embedder.kind != "none"):
                judge, embedder = await self._started()
                judged = await judge.judge(tasks)
                scored = (
                    await EmbeddingScorer(embedder, SystemClock()).score(exchange)
                    if wants_score
                    else relevance.unscored(exchange, reason or "model_not_ready")
                )
            else:
                judged = tuple(validity.judgement(task, task.result or "skipped") for task in tasks)
                reason = relevance.reason_not_scored(exchange)
                scored = relevance.unscored(exchange, reason or "model_not_ready")
            yield msgspec.structs.replace(
                exchange.record,
                validity=validity.validity(judged),
                relevance=scored,
                findings=self._findings.judge(exchange),
            )

    async def _started(self) -> tuple[ValidatorClient, EmbeddingClient]:
        if self._clients is not None:
            return self._clients
        runtime = runtime_directory("semhealth-inspect-")
        self._stack.callback(shutil.rmtree, runtime, ignore_errors=True)
        secret = runtime / "settings.json"
        secret.touch(mode=0o600)
        secret.write_bytes(msgspec.json.encode(self._settings))
        self._listen(runtime, "validator", "collector.validation.process")
        validator = ValidatorClient(runtime / "validator.sock", self._settings.validator)
        embedder = EmbeddingClient(runtime / "embedder.sock", self._settings.embedder, SystemClock())
        self._keep(validator.run())
        if self._settings.embedder.kind != "none":
            self._listen(runtime, "embedder", "collector.embedding.process")
            self._keep(embedder.run())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOADING):
                    while not embedder.ready:
                        await asyncio.sleep(0.01)
        self._clients = (validator, embedder)
        return self._clients

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        """Run this until the inspector is left."""
        task = asyncio.create_task(work)

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(end)

    def _listen(self, runtime: Path, name: str, module: str) -> None:
        """Keep a process on a socket of its name."""
        listening = self._stack.enter_context(bind_unix(runtime / f"{name}.sock"))
        self._keep(self._process(runtime, listening.fileno(), module))

    async def _process(self, runtime: Path, number: int, module: str) -> None:
        """A process on the listening socket `number`, started again when it was killed for hanging."""
        command = [sys.executable, "-m", module, "--runtime", str(runtime), "--fd", f"requests={number}"]
        while True:
            process = await asyncio.create_subprocess_exec(
                *command,
                pass_fds=(number,),
                stdin=asyncio.subprocess.DEVNULL,
                env=child_environment(os.environ),
                process_group=0,
                preexec_fn=prepare_child,
            )
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            await asyncio.sleep(0.05)
