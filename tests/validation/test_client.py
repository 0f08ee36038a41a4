"""The client and the real process: order, bounds, hostile schemas, and deaths of all kinds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from collector.catalogue import VALIDITY_RESULTS
from collector.config import ValidatorSettings
from collector.model import Judgement, ValidationTask
from collector.validation import client as client_module
from collector.validation.client import AHEAD, MEMORY, REMEMBERED, STRIKES, Offenders, ValidatorClient
from collector.validation.protocol import Answer, Hello, frame

MakeRoom = Callable[..., Awaitable[tuple[Any, ValidatorClient]]]

CITY = b'{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}'
GOOD = ValidationTask(0, None, "json_schema", '{"city": "Rome"}', CITY, "city")
BAD = ValidationTask(1, None, "json_schema", '{"town": "Rome"}', CITY, "city")


def hostile(number: int = 0) -> ValidationTask:
    """A pattern that takes Python's `re` years, in a schema of its own."""
    schema = {"properties": {"p": {"type": "string", "pattern": "^(?=(a+)+$)"}}, "title": str(number)}
    return ValidationTask(0, None, "json_schema", json.dumps({"p": "a" * 32 + "!"}), json.dumps(schema).encode(), "t")


def results(judgements: Sequence[Judgement]) -> list[str]:
    return [each.result for each in judgements]


async def within(seconds: float, judging: Awaitable[tuple[Judgement, ...]]) -> tuple[Judgement, ...]:
    async with asyncio.timeout(seconds):
        return await judging


async def test_every_task_gets_its_judgement_in_order(make_room: MakeRoom) -> None:
    _, client = await make_room()
    decided = ValidationTask(2, None, "json_schema", schema_id="city", result="truncated")
    call = ValidationTask(0, 7, "tool_arguments", "no json", CITY, "find")
    assert await within(30, client.judge([GOOD, BAD, decided, call])) == (
        Judgement(0, None, "json_schema", "valid", "city", None),
        Judgement(1, None, "json_schema", "schema_violation", "city", "required"),
        Judgement(2, None, "json_schema", "truncated", "city", None),
        Judgement(0, 7, "tool_arguments", "not_json", "find", None),
    )
    assert await within(30, client.judge([])) == ()


async def test_many_exchanges_at_once_do_not_mix_up_their_answers(make_room: MakeRoom) -> None:
    room, client = await make_room()
    wanted = [BAD if number % 3 == 0 or number % 7 == 0 else GOOD for number in range(300)]
    found = await asyncio.gather(*(within(60, client.judge([task])) for task in wanted))
    assert [each[0].result for each in found] == ["valid" if task is GOOD else "schema_violation" for task in wanted]
    assert room.starts == 1


async def test_half_a_surrogate_pair_passes_through(make_room: MakeRoom) -> None:
    _, client = await make_room()
    odd = ValidationTask(0, None, "json", '{"a": "\ud800"}')
    assert results(await within(30, client.judge([odd]))) == ["valid"]


async def test_a_pattern_that_never_ends_costs_a_timeout_and_not_the_loop(make_room: MakeRoom) -> None:
    room, client = await make_room(timeout=1.0)
    first_pid = client.pid
    late = 0.0
    watching = True

    async def watch() -> None:
        nonlocal late
        while watching:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            late = max(late, time.monotonic() - before - 0.01)

    watcher = asyncio.create_task(watch())
    started = time.monotonic()
    assert results(await within(30, client.judge([hostile()]))) == ["validator_timeout"]
    took = time.monotonic() - started
    watching = False
    await watcher
    assert 0.9 < took < 2.0
    assert late < 0.5
    assert results(await within(30, client.judge([GOOD]))) == ["valid"]
    assert client.pid != first_pid
    assert room.starts == 2


async def test_those_queued_behind_a_hanging_one_are_judged_by_the_next_process(make_room: MakeRoom) -> None:
    room, client = await make_room(timeout=0.5)
    judging = [asyncio.create_task(within(60, client.judge([task]))) for task in (hostile(), *[GOOD, BAD] * 20)]
    found = [(await each)[0].result for each in judging]
    assert found == ["validator_timeout", *["valid", "schema_violation"] * 20]
    assert room.starts == 2


async def test_what_timed_out_is_not_tried_again(make_room: MakeRoom) -> None:
    room, client = await make_room(timeout=0.5)
    await within(30, client.judge([hostile()]))
    started = time.monotonic()
    again = await within(30, client.judge([hostile()] * 50))
    assert set(results(again)) == {"validator_timeout"}
    assert time.monotonic() - started < 5.0
    assert results(await within(30, client.judge([GOOD]))) == ["valid"]
    assert room.starts == 2


TREE_OF_TWO = {"$defs": {"a0": {"type": "integer"}} | {
    f"a{level}": {"oneOf": [{"$ref": f"#/$defs/a{level - 1}"}, {"not": {"$ref": f"#/$defs/a{level - 1}"}}]}
    for level in range(1, 40)
}, "$ref": "#/$defs/a39"}  # fmt: skip
BIG_ENUM = json.dumps({"enum": [f"{number:08d}" for number in range(900_000)]}).encode()


@pytest.mark.parametrize(
    ("text", "schema", "allowed"),
    [
        ('{"' + "a" * 32 + '!": 1}', b'{"patternProperties": {"^(?=(a+)+$)": {}}}', {"validator_timeout"}),
        ('{"' + "a" * 32 + '!": 1}', b'{"propertyNames": {"pattern": "^(?=(a|a)*$)"}}', {"validator_timeout"}),
        ("7", json.dumps(TREE_OF_TWO).encode(), {"validator_timeout"}),
        (json.dumps([{"a": number} for number in range(100_000)]), b'{"uniqueItems": true}',
         {"valid", "validator_timeout"}),
        ('"x"', BIG_ENUM, {"schema_violation", "validator_timeout"}),
        ("{}", b'{"not":' * 100_000 + b"{}" + b"}" * 100_000, {"schema_recursion"}),
        ("[" * 100_000 + "]" * 100_000, b"{}", {"output_over_cap"}),
        ("[" * 100_000, None, {"output_over_cap"}),
        ("{}", b'{"$ref": "http://127.0.0.1:9/"}', {"schema_unresolvable"}),
        ("{}", b'{"$ref": "#"}', {"schema_recursion"}),
        ("9" * 1_000_000, b'{"multipleOf": 3}', {"output_over_cap"}),
        ('{"a": "' + "x" * 20_000_000 + '"}', b'{"type": "object"}', {"valid", "validator_timeout"}),
        ("{}", b'{"pattern": "' + b"(" * 50_000 + b'"}', {"schema_invalid", "schema_recursion"}),
    ],
)  # fmt: skip
async def test_a_hostile_schema_or_output_ends_in_a_result(
    make_room: MakeRoom, text: str, schema: bytes | None, allowed: set[str]
) -> None:
    _, client = await make_room(timeout=1.0)
    started = time.monotonic()
    (found,) = await within(30, client.judge([ValidationTask(0, None, "json_schema", text, schema)]))
    assert found.result in allowed
    assert time.monotonic() - started < 5.0
    assert results(await within(30, client.judge([GOOD]))) == ["valid"]


async def test_a_schema_that_eats_memory_is_stopped_at_the_limit(make_room: MakeRoom) -> None:
    room, client = await make_room(timeout=60.0, memory=128 * 1024 * 1024)
    pid = client.pid
    assert pid is not None
    greedy = b'{"enum": [' + b"1.5," * 8_000_000 + b"1.5]}"
    judging = asyncio.create_task(within(90, client.judge([ValidationTask(0, None, "json_schema", "1", greedy)])))
    highest = 0
    while not judging.done():
        highest = max(highest, resident(pid))
        await asyncio.sleep(0.02)
    assert results(await judging) == ["validator_timeout"]
    assert 40 * 1024 * 1024 < highest <= 128 * 1024 * 1024
    assert room.starts == 1  # It said so itself and went on.
    assert results(await within(60, client.judge([GOOD]))) == ["valid"]


def resident(pid: int) -> int:
    """Resident bytes of a process; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


async def test_killing_the_validator_under_load_loses_no_judgement(make_room: MakeRoom) -> None:
    room, client = await make_room(timeout=5.0)
    running = True
    found: list[str] = []

    async def load(number: int) -> None:
        while running:
            judged = await client.judge([GOOD, BAD, ValidationTask(number, None, "json", "{}")])
            assert [each.choice for each in judged] == [0, 1, number]
            found.extend(results(judged))

    loads = [asyncio.create_task(load(number)) for number in range(8)]
    for _ in range(3):
        pid = client.pid
        before = len(found)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            while client.pid in (None, pid) or len(found) < before + 100:
                await asyncio.sleep(0.01)
    running = False
    async with asyncio.timeout(30):
        await asyncio.gather(*loads)
    assert room.starts == 4
    assert len(found) > 300
    assert set(found) == {"valid", "schema_violation"}
    assert found.count("valid") == 2 * found.count("schema_violation")


async def test_what_ends_the_validator_twice_is_not_tried_a_third_time(make_room: MakeRoom) -> None:
    room, client = await make_room(timeout=20.0)
    judging = asyncio.create_task(within(60, client.judge([hostile(), GOOD])))
    for _ in range(2):
        async with asyncio.timeout(30):
            while client.pid is None:
                await asyncio.sleep(0.01)
        pid = client.pid
        await asyncio.sleep(0.2)  # so that the question is under way
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            while client.pid == pid:
                await asyncio.sleep(0.01)
    assert results(await judging) == ["validator_timeout", "valid"]
    assert room.starts == 3


async def test_without_a_validator_tasks_are_skipped_and_later_ones_at_once(
    make_room: MakeRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "PATIENCE", 0.6)
    room, client = await make_room(alive=False)
    assert results(await within(10, client.judge([GOOD]))) == ["skipped"]
    started = time.monotonic()
    assert results(await within(10, client.judge([GOOD] * 100))) == ["skipped"] * 100
    assert time.monotonic() - started < 0.5
    room.keep_alive()
    async with asyncio.timeout(30):
        while client.pid is None:
            await asyncio.sleep(0.01)
    assert results(await within(10, client.judge([GOOD]))) == ["valid"]


async def test_a_task_waits_for_a_validator_that_is_only_starting(make_room: MakeRoom) -> None:
    room, client = await make_room(alive=False)
    judging = asyncio.create_task(within(30, client.judge([GOOD])))
    await asyncio.sleep(0.1)
    room.keep_alive()
    assert results(await judging) == ["valid"]


async def test_the_queue_is_bounded_and_what_is_beyond_it_skipped(make_room: MakeRoom) -> None:
    _, client = await make_room(timeout=0.5, queue=10)
    found = results(await within(30, client.judge([hostile(), *[GOOD] * 20])))
    assert found == ["validator_timeout", *["valid"] * 9, *["skipped"] * 11]


async def test_the_queue_is_bounded_in_bytes_too(make_room: MakeRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "QUEUE_BYTES", 1000)
    _, client = await make_room()
    large = ValidationTask(0, None, "json", json.dumps({"a": "x" * 580}))
    assert results(await within(30, client.judge([large, large, GOOD]))) == ["valid", "skipped", "valid"]
    assert results(await within(30, client.judge([large]))) == ["valid"]


async def test_a_judgement_nobody_waits_for_any_more_holds_up_nobody(make_room: MakeRoom) -> None:
    _, client = await make_room(timeout=1.0)
    hanging = asyncio.create_task(client.judge([hostile()]))
    given_up = [asyncio.create_task(client.judge([hostile(number)])) for number in range(1, 30)]
    await asyncio.sleep(0.1)
    for each in (hanging, *given_up):
        each.cancel()
    await asyncio.gather(hanging, *given_up, return_exceptions=True)
    assert results(await within(10, client.judge([GOOD]))) == ["valid"]


async def test_a_stopped_client_skips_what_waits_and_what_comes(directory: Any) -> None:
    client = ValidatorClient(directory / "nobody.sock", ValidatorSettings())
    running = asyncio.create_task(client.run())
    judging = asyncio.create_task(client.judge([GOOD]))
    await asyncio.sleep(0.2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert results(await within(5, judging)) == ["skipped"]
    assert results(await within(5, client.judge([BAD]))) == ["skipped"]


async def test_an_impostor_that_speaks_otherwise_is_left_and_nobody_killed(directory: Any) -> None:
    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told = len(greetings) % 3
        greetings.append(told)
        # No msgpack at all; this very process; a length that would take all memory.
        own = b"\x91\xce" + os.getpid().to_bytes(4, "big")
        writer.write((b"\0\0\0\1\xc1", len(own).to_bytes(4, "big") + own, b"\xff\xff\xff\xff")[told])
        await writer.drain()
        await reader.read()
        writer.close()

    greetings: list[int] = []
    path = directory / "validator.sock"
    server = await asyncio.start_unix_server(impostor, path)
    client = ValidatorClient(path, ValidatorSettings(timeout=0.2))
    running = asyncio.create_task(client.run())
    async with asyncio.timeout(30):
        while len(greetings) < 7:
            await asyncio.sleep(0.01)
    assert client.pid is None
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    server.close()


Say = Callable[[Callable[[], Awaitable[bytes]], Callable[[bytes], None]], Awaitable[None]]


@contextlib.asynccontextmanager
async def client_of(
    say: Say, directory: Path, timeout: float
) -> AsyncIterator[tuple[ValidatorClient, asyncio.subprocess.Process]]:
    """A client, and what it takes for the validator: a process that sleeps, for which `say` speaks.

    `say` is given a way to read a question and one to write bytes.
    """

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def question() -> bytes:
            return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))

        writer.write(frame(Hello(sleeper.pid)))
        with contextlib.suppress(asyncio.IncompleteReadError):
            await say(question, writer.write)
            await reader.read()
        writer.close()

    sleeper = await asyncio.create_subprocess_exec("sleep", "60")
    server = await asyncio.start_unix_server(speak, directory / "validator.sock")
    client = ValidatorClient(directory / "validator.sock", ValidatorSettings(timeout=timeout))
    running = asyncio.create_task(client.run())
    yield client, sleeper
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    if sleeper.returncode is None:
        sleeper.kill()
    await sleeper.wait()
    server.close()


async def test_questions_are_sent_ahead_but_not_without_bound(directory: Path) -> None:
    read: list[bytes] = []

    async def say(question: Callable[[], Awaitable[bytes]], _: Callable[[bytes], None]) -> None:
        while True:
            read.append(await question())

    async with client_of(say, directory, timeout=0.4) as (client, sleeper):
        judging = asyncio.create_task(client.judge([GOOD] * 60))
        await asyncio.sleep(0.2)
        assert len(read) == 1 + AHEAD
        # The first was under way for too long.
        assert await asyncio.wait_for(sleeper.wait(), 10) == -signal.SIGKILL
        judging.cancel()
        await asyncio.gather(judging, return_exceptions=True)


async def test_an_answer_that_comes_in_pieces_at_the_last_moment_is_read(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SECOND_LOOK", 10.0)

    async def say(question: Callable[[], Awaitable[bytes]], write: Callable[[bytes], None]) -> None:
        for result in ("valid", "not_json"):
            await question()
            told = frame(Answer(result, None))
            write(told[:5])
            await asyncio.sleep(0.4)
            write(told[5:])

    async with client_of(say, directory, timeout=0.2) as (client, sleeper):
        assert results(await within(10, client.judge([GOOD, GOOD]))) == ["valid", "not_json"]
        assert sleeper.returncode is None


async def test_a_question_sent_in_time_may_still_have_waited_too_long(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "PATIENCE", 0.75)

    async def say(question: Callable[[], Awaitable[bytes]], write: Callable[[bytes], None]) -> None:
        for _ in range(4):
            await question()
            await asyncio.sleep(0.5)
            write(frame(Answer("valid", None)))

    async with client_of(say, directory, timeout=5.0) as (client, _):
        # The second is under way after 0.5 s, the third would be after 1 s.
        assert results(await within(10, client.judge([GOOD] * 3))) == ["valid", "valid", "skipped"]
        assert results(await within(10, client.judge([GOOD]))) == ["valid"]


def test_an_output_is_remembered_at_once_and_its_schema_after_some() -> None:
    offenders = Offenders()
    for number in range(STRIKES):
        assert not offenders.has(b"new", b"schema", 0.0)
        offenders.add(str(number).encode(), b"schema", 0.0)
        assert offenders.has(str(number).encode(), b"schema", 0.0)
    assert offenders.has(b"new", b"schema", REMEMBERED - 1)
    assert not offenders.has(b"new", b"other", 0.0)
    assert not offenders.has(b"0", b"schema", REMEMBERED)
    assert not offenders.has(b"new", None, 0.0)


def test_only_so_many_offenders_are_remembered() -> None:
    offenders = Offenders()
    for number in range(2 * MEMORY):
        offenders.add(b"text", str(number).encode(), 0.0)
    remembered = [number for number in range(2 * MEMORY) if offenders.has(b"text", str(number).encode(), 1.0)]
    assert remembered == list(range(2 * MEMORY - MEMORY // 2, 2 * MEMORY))


async def test_every_result_of_a_mixed_crowd_is_of_the_closed_set(make_room: MakeRoom) -> None:
    _, client = await make_room(timeout=2.0)
    kinds = ["json_schema", "tool_arguments", "contract"]
    texts = ['{"a": 1}', "{", "[1]", '{"a": NaN}', "```json\n{}\n```", "", "x" * 1000, '{"a": 1, "a": 2}']
    schemas = [None, CITY, b"{", b'{"type": 12}', b'{"$ref": "#"}', b'{"$ref": "x"}', b"true", b"false", b"{}"]
    crowd = [ValidationTask(0, None, kind, text, schema) for kind, text, schema in product(kinds, texts, schemas)]
    found = results(await within(60, client.judge(crowd)))
    assert set(found) <= set(VALIDITY_RESULTS) - {"validator_timeout", "skipped"}
    assert len(set(found)) > 5
