"""The client against a real embedder process that stands still, and what it counts meanwhile."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collector.config import EmbedderSettings
from collector.embedding.client import Embedded, EmbeddingClient
from collector.model import Reading
from tests.embedding.test_process_and_client import SystemClock, connected, until


def totals(readings: list[Reading]) -> Counter[tuple[str, ...]]:
    told: Counter[tuple[str, ...]] = Counter()
    for reading in readings:
        told[(reading.metric, *reading.labels)] += reading.value  # type: ignore[assignment] # counts may be seconds
    return told


async def test_a_process_that_stands_still_is_ended_and_its_successor_serves(supervised: Callable[..., Any]) -> None:
    one = supervised(cpu_share=1.0, timeout=0.3, queue=4)
    process = one.start()
    async with connected(one.path, one.settings) as client:
        await until(lambda: client.ready)
        process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        while process.poll() is None:
            assert await client.embed(["text"]) in (Embedded(reason="budget"), Embedded(reason="model_not_ready"))
            assert time.monotonic() - began < 30.0
            await asyncio.sleep(0.05)
        assert process.returncode == -signal.SIGKILL
        assert time.monotonic() - began > 0.8, "not before three time-outs"
        await until(lambda: not client.ready)
        one.kill()
        one.start()
        await until(lambda: client.ready)
        deadline = time.monotonic() + 30.0
        while (await client.embed(["back"])).vectors is None:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def test_a_process_that_answers_is_never_ended(supervised: Callable[..., Any]) -> None:
    one = supervised(cpu_share=1.0, timeout=0.3, queue=4)
    process = one.start()
    async with connected(one.path, one.settings) as client:
        await until(lambda: client.ready)
        began = time.monotonic()
        while time.monotonic() - began < 2.0:
            await client.embed([f"text {time.monotonic()}"])
            await asyncio.sleep(0.3)
        assert process.poll() is None


async def test_texts_that_come_again_and_the_cpu_are_counted_once(supervised: Callable[..., Any]) -> None:
    one = supervised(cpu_share=1.0)
    one.start()
    async with connected(one.path, one.settings) as client:
        await until(lambda: client.ready)
        list(client.readings())
        first = await client.embed(["a boat", "a bridge"])
        await client.embed(["a boat", "a bridge", "a tower"])
        client.spend(0.5)
        told = totals(list(client.readings()))
        assert told["semantic_health_embedder_texts_total", "hit"] == 2
        assert told["semantic_health_embedder_texts_total", "miss"] == 3
        assert 0.5 < told[("semantic_health_relevance_cpu_seconds_total",)] < 5.0
        assert 0.0 < first.cpu < 5.0
        assert not any(totals(list(client.readings())).values())


async def test_a_request_that_waits_leaves_less_room_for_others(supervised: Callable[..., Any]) -> None:
    one = supervised(cpu_share=1.0, timeout=2.0, queue=4)
    process = one.start()
    async with connected(one.path, one.settings) as client:
        await until(lambda: client.ready)
        await asyncio.sleep(1.0)
        before = client.fill()
        process.send_signal(signal.SIGSTOP)
        waiting = asyncio.create_task(client.embed(["text"]))
        await asyncio.sleep(1.0)
        assert client.fill() < 0.1 < before
        process.send_signal(signal.SIGCONT)
        await waiting
        assert client.fill() > 0.1


async def test_what_is_set_aside_makes_the_allowance_emptier_until_it_is_spent(tmp_path: Path) -> None:
    client = EmbeddingClient(tmp_path / "none.sock", EmbedderSettings(cpu_share=0.001), SystemClock())
    full = client.fill()
    client.reserve(0.001)
    assert client.fill() < full - 0.2
    client.spend(0.0, 0.001)
    assert abs(client.fill() - full) < 0.1
