"""How well the CPU budget of relevance holds, under once, three and ten times the load that it can score.

    python -m bench.relevance_budget [--seconds N] [--share S] [--repeat SHARE]

A scorer with sampler and client, as the analyst has them, and a real embedder process. Four routes of unlike traffic
offer exchanges (a query, 5 passages of 120 words, an answer of 80 words), of which `--repeat` is the share of passages
that come again. Told per load: the share of a core that both processes took by the kernel's count, what became of the
exchanges, and the share that was scored by route.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec

from collector.analyst.sampler import Sampler
from collector.analyst.scorer import EmbeddingScorer
from collector.app import SystemClock, rules_of
from collector.config import EmbedderSettings, Settings
from collector.embedding.client import EmbeddingClient
from collector.inspection import exchange_of
from collector.model import Exchange
from collector.recorded import read_file

LOADS = (1.0, 3.0, 10.0)
ROUTES = {"search": 0.70, "support": 0.25, "legal": 0.045, "board": 0.005}  # shares of the exchanges
MADE = 400  # exchanges made beforehand; a passage of one is a passage of others too where it repeats
PASSAGES, WORDS, ANSWER_WORDS = 5, 120, 80
FIRST = 30  # exchanges whose cost says how many can be scored
SYLLABLES = ("ba", "ko", "ri", "ten", "sul", "mar", "ve", "lo", "dan", "phi", "gre", "tu", "now", "es", "qui")


class Bench:
    """An embedder process, and exchanges to be scored with it."""

    def __init__(self, runtime: Path, share: float, repeat: float) -> None:
        self._runtime = runtime
        self.share = share
        self._rng = Random(7)  # noqa: S311 - seeded draws are the point
        self._words = ["".join(self._rng.choices(SYLLABLES, k=self._rng.randint(1, 3))) for _ in range(2000)]
        self._often = [self._text(WORDS) for _ in range(40)]
        self.exchanges = list(self._exchanges(repeat))
        settings = EmbedderSettings(cpu_share=share)
        (runtime / "settings.json").write_bytes(msgspec.json.encode(Settings(embedder=settings)))
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(runtime / "embedder.sock"))
        self._listening.listen(16)
        number = self._listening.fileno()
        command = [
            sys.executable, "-m", "collector.embedding.process", "--runtime", str(runtime),
            "--fd", f"requests={number}",
        ]  # fmt: skip
        self.process = subprocess.Popen(command, pass_fds=[number])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._listening.close()

    def client(self, share: float) -> EmbeddingClient:
        return EmbeddingClient(self._runtime / "embedder.sock", EmbedderSettings(cpu_share=share), SystemClock())

    def embedder_cpu(self) -> float:
        """CPU seconds of the embedder so far, as the kernel counts them."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _text(self, words: int) -> str:
        said = [self._rng.choice(self._words) for _ in range(words)]
        return ". ".join(" ".join(said[at : at + 15]).capitalize() for at in range(0, words, 15)) + "."

    def _exchanges(self, repeat: float) -> Iterator[Exchange]:
        rules = rules_of(Settings(upstream="http://127.0.0.1:1"))
        path = self._runtime / "exchange.json"
        for number in range(MADE):
            passages = [
                self._rng.choice(self._often) if self._rng.random() < repeat else self._text(WORDS)
                for _ in range(PASSAGES)
            ]
            numbered = "\n\n".join(f"[{place}] {text}" for place, text in enumerate(passages, 1))
            prompt = f"Context:\n{numbered}\n\nQuestion: {self._text(12).rstrip('.')}?"
            path.write_text(json.dumps(_recorded(number, prompt, self._text(ANSWER_WORDS))), encoding="utf-8")
            yield exchange_of(next(iter(read_file(path))), rules)


def _recorded(number: int, prompt: str, answer: str) -> dict[str, object]:
    message = {"index": 0, "message": {"content": answer}, "finish_reason": "stop"}
    return {
        "id": str(number),
        "host": "api.openai.com",
        "url_path": "/v1/chat/completions",
        "request_body": {"model": "m", "messages": [{"role": "user", "content": prompt}]},
        "status": 200,
        "response_headers": [["content-type", "application/json"]],
        "response_body_b64": base64.b64encode(json.dumps({"model": "m", "choices": [message]}).encode()).decode(),
    }


class Run:
    """What became of the exchanges of one load."""

    def __init__(self) -> None:
        self.came: Counter[str] = Counter()
        self.scored: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.cost = 0.0  # CPU seconds of both processes
        self.embedder = 0.0
        self.seconds = 0.0
        self.most_waiting = 0


async def offer(bench: Bench, rate: float, seconds: float, share: float, sampler: Sampler | None) -> Run:
    """So many exchanges a second, none of which waits for another."""
    client, clock, run = bench.client(share), SystemClock(), Run()
    connection = asyncio.create_task(client.run())
    while not client.ready:
        await asyncio.sleep(0.02)
    scorer = EmbeddingScorer(client, clock, sampler)
    rng, waiting = Random(11), set[asyncio.Task[None]]()  # noqa: S311 - seeded draws are the point
    began, used, embedder = time.monotonic(), _own_cpu(), bench.embedder_cpu()

    async def score(exchange: Exchange, route: str) -> None:
        relevance = await scorer.score(exchange)
        if relevance.scored:
            run.scored[route] += 1
        else:
            run.reasons[relevance.reason or "unknown"] += 1

    due, number = began, 0
    while due < began + seconds:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        due += rng.expovariate(rate)
        number += 1
        [route] = rng.choices(list(ROUTES), list(ROUTES.values()))
        drawn = bench.exchanges[rng.randrange(MADE)]
        exchange = msgspec.structs.replace(
            drawn, record=msgspec.structs.replace(drawn.record, id=f"{number}", route=route)
        )
        run.came[route] += 1
        refused = scorer.admit(exchange)
        if refused is not None:
            run.reasons[refused] += 1
            continue
        task = asyncio.create_task(score(exchange, route))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
        run.most_waiting = max(run.most_waiting, len(waiting))
    run.seconds = time.monotonic() - began
    run.embedder = bench.embedder_cpu() - embedder
    run.cost = run.embedder + _own_cpu() - used
    await asyncio.gather(*waiting)
    connection.cancel()
    await asyncio.gather(connection, return_exceptions=True)
    return run


def _own_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def measure(bench: Bench, seconds: float) -> None:
    warm = await offer(bench, 4.0, FIRST / 4.0, 1.0, None)
    one = warm.cost / max(1, warm.scored.total())
    capacity = bench.share / one
    print(f"an exchange costs {1000 * one:.1f} ms of CPU; {bench.share:g} of a core scores {capacity:.1f} a second\n")
    print(
        "| load | a second | core used | embedder | by budget | scored | sampled out | budget | most waiting |", end=""
    )
    print("".join(f" {route} |" for route in ROUTES))
    print("| --- |" + " ---: |" * (8 + len(ROUTES)))
    for times in LOADS:
        run = await offer(bench, capacity * times, seconds, bench.share, Sampler(bench.share))
        came, cores = run.came.total(), run.cost / run.seconds
        cells = [
            f"{times:g}x", f"{came / run.seconds:.1f}", f"{cores:.3f}", f"{run.embedder / run.seconds:.3f}",
            f"{cores / bench.share:.2f}", f"{run.scored.total() / came:.1%}",
            f"{run.reasons['sampled_out'] / came:.1%}", f"{run.reasons['budget'] / came:.1%}", f"{run.most_waiting}",
            *(f"{run.scored[route]} of {run.came[route]}" for route in ROUTES),
        ]  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Is the CPU budget of relevance held?")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load")
    parser.add_argument("--share", type=float, default=0.25, help="of one core")
    parser.add_argument("--repeat", type=float, default=0.0, help="share of the passages that come again")
    options = parser.parse_args()
    runtime = Path(tempfile.mkdtemp(prefix="semhealth-"))
    bench = Bench(runtime, options.share, options.repeat)
    try:
        asyncio.run(measure(bench, options.seconds))
    finally:
        bench.close()
        shutil.rmtree(runtime)
    return 0


if __name__ == "__main__":
    sys.exit(main())
