"""Traffic: its mix, its two faults, and that nothing makes it fail."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from random import Random

import aiohttp
import pytest
from jsonschema import Draft202012Validator

from collector.simulator import corpus
from collector.simulator.answers import compose as answer
from collector.simulator.anthropic_messages import parse as parse_anthropic
from collector.simulator.api import SIMULATION, Settings, create_app
from collector.simulator.faults import FAULT_NAMES, FaultSetting
from collector.simulator.openai_chat import parse as parse_openai
from collector.simulator.pacing import FAST
from collector.simulator.traffic import (
    Message,
    Shares,
    TrafficSettings,
    arguments,
    compose,
    drive,
    query,
)

NONE = Shares()


def _messages(count: int, shares: Shares = NONE, stream_share: float = 0.7) -> list[Message]:
    rng = Random(3)
    return [compose(rng, shares, stream_share) for _ in range(count)]


def _parsed(message: Message):
    body = json.dumps(message.body).encode()
    return parse_openai(body) if message.dialect == "openai" else parse_anthropic(body)


def test_the_mix_holds_every_format_of_both_dialects():
    kinds = Counter(message.kind for message in _messages(600))
    assert set(kinds) == {
        "openai_tagged", "openai_numbered", "openai_json", "openai_tool_result", "openai_structured", "openai_tools",
        "openai_chat", "anthropic_tagged", "anthropic_numbered", "anthropic_documents", "anthropic_tool_result",
        "anthropic_structured", "anthropic_tools", "anthropic_chat",
    }  # fmt: skip
    assert min(kinds.values()) > 5


def test_about_as_many_are_streamed_as_was_asked_for():
    streamed = sum(message.body.get("stream", False) for message in _messages(600, stream_share=0.7))
    assert 360 < streamed < 480
    assert not any(message.body.get("stream") for message in _messages(50, stream_share=0.0))


def test_the_same_seed_asks_the_same():
    assert _messages(40) == _messages(40)


def test_every_schema_in_the_mix_is_a_schema():
    for message in _messages(300):
        ask = _parsed(message)
        for schema in (*(tool.schema for tool in ask.tools), *([ask.schema] if ask.schema else [])):
            Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_healthy_questions_are_answered_from_their_passages_and_cut_ones_are_not(share):
    known = {item.question: item for item in corpus.CORPUS}
    grounded = 0
    asked = [
        message
        for message in _messages(400, Shares(context_cut=share))
        if message.kind.split("_")[1] in ("tagged", "numbered", "json", "documents", "tool")
        and message.kind not in ("openai_tools", "anthropic_tools")
    ]
    for message in asked:
        ask = _parsed(message)
        item = next(item for question, item in known.items() if question in ask.question)
        (reply,) = answer(ask, 7, {})
        grounded += item.key in "".join(reply.text)
    assert len(asked) > 100
    assert grounded == (0 if share else len(asked))


def test_a_lost_context_is_that_of_other_questions_of_the_same_domain():
    for seed in range(60):
        lost = query(Random(seed), Shares(context_lost=1.0))
        titles = {title for title, _ in lost.passages}
        assert lost.fault == "context_lost"
        assert lost.item.title not in titles
        assert titles <= {item.title for item in corpus.of_domain(lost.item.domain)}


def test_a_cut_context_keeps_the_passage_without_its_answer():
    for seed in range(60):
        cut = query(Random(seed), Shares(context_cut=1.0))
        text = dict(cut.passages)[cut.item.title]
        assert cut.fault == "context_cut"
        assert text == cut.item.passage_cut
        assert cut.item.key not in text


async def test_traffic_survives_every_fault_at_once(serve):
    faults = [FaultSetting(name, 0.15) for name in FAULT_NAMES]
    async with serve(*faults) as base:
        counts = await drive(TrafficSettings(base=base, rate=40, duration=5, seed=5, faults_from=base))
        async with aiohttp.ClientSession() as session, session.get(f"{base}/-/counts") as response:
            seen = await response.json()
    assert counts.sent > 80
    assert counts.sent == counts.answered + counts.throttled + counts.refused + counts.failed + counts.abandoned
    assert counts.answered > 20
    assert counts.throttled > 0
    assert counts.failed > 0
    assert counts.refused == counts.abandoned == 0
    assert counts.context_lost > 0
    assert counts.context_cut > 0
    # The traffic names no region, so that none can be another.
    assert set(seen["faults"]) == set(FAULT_NAMES) - {"context_lost", "context_cut", "wrong_region"}
    assert seen["in_flight"] == 0


async def test_healthy_traffic_is_answered_in_full(serve):
    async with serve() as base:
        counts = await drive(TrafficSettings(base=base, rate=60, duration=2))
    assert counts.sent == counts.answered > 30


async def test_traffic_without_a_server_fails_quietly():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    counts = await drive(TrafficSettings(base=base, rate=50, duration=1, faults_from=base))
    assert counts.sent == counts.failed > 5


async def test_no_more_are_in_flight_than_allowed(serve):
    async with serve(FaultSetting("cold_start", seconds=600)) as base:
        stop = asyncio.Event()
        settings = TrafficSettings(base=base, rate=100, most_in_flight=3)
        driving = asyncio.create_task(drive(settings, stop))
        await asyncio.sleep(1)
        stop.set()
        counts = await driving
    assert counts.sent == counts.abandoned == 3
    assert counts.skipped > 10


async def test_the_shares_of_its_faults_are_followed_while_it_runs():
    app = create_app(Settings(pacing=FAST))
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    stop = asyncio.Event()
    driving = asyncio.create_task(drive(TrafficSettings(base=base, rate=50, faults_from=f"{base}/-/faults"), stop))
    await asyncio.sleep(0.5)
    app[SIMULATION].board.switch([FaultSetting("context_lost", 1.0)])
    await asyncio.sleep(2.5)
    stop.set()
    counts = await driving
    await runner.cleanup()
    assert 0 < counts.context_lost < counts.sent
    assert counts.context_cut == 0


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--rate", "0"], "expected a number above 0"),
        (["--base", "localhost:80"], "expected http"),
        (["--stream-share", "2"], "expected a share"),
    ],
)
def test_a_wrong_command_line_is_refused_with_its_reason(argv, why, capsys):
    with pytest.raises(SystemExit):
        arguments(argv)
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_process_ends_cleanly_by_a_signal(base, number):
    process = subprocess.Popen(
        [sys.executable, "-m", "collector.simulator.traffic", "--base", base, "--rate", "20"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(30):
            while True:
                async with session.get(f"{base}/-/counts") as response:
                    if (await response.json())["requests"] > 3:
                        break
                await asyncio.sleep(0.05)
        process.send_signal(number)
        out, error = await asyncio.to_thread(process.communicate, None, 20)
        assert (process.returncode, out, error) == (0, "", "")
    finally:
        process.kill()
        process.communicate()


async def test_the_process_ends_by_itself_after_its_duration_and_prints_nothing(base):
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "collector.simulator.traffic", "--base", base, "--rate", "20", "--duration", "1",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, error = await process.communicate()
    assert (process.returncode, out, error) == (0, b"", b"")
    assert 1 <= time.monotonic() - began < 20
