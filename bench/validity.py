"""What judging costs: validations a second, in the judge and through the validator process, and hostile input in time.

The schema has 30 properties; the answers of 1 KB and 20 KB satisfy it, but for one row of each that does not. Times of
the judge are CPU time on one core; through the process they are elapsed time, with the CPU time of both sides.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import platform
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from collector.config import Settings, ValidatorSettings
from collector.model import ValidationTask
from collector.validation import fast
from collector.validation.client import ValidatorClient
from collector.validation.judge import judge
from collector.validation.process import SchemaCache

ROOT = Path(__file__).parent.parent
HOSTILE = ROOT / "tests" / "validation" / "hostile.py"
PROPERTIES = 30
GOAL = 5_000  # validations a second of 1 KB, cached
ROUNDS = 7
SECONDS = 0.3  # of one round
IN_FLIGHT = 64  # exchanges that wait for their judgement at once
SLACK = 1.5  # seconds beyond its limit in which a hostile kind must be done: the way, and a restart

# ---------------------------------------------------------------- what is judged


def schema(title: str = "Order") -> bytes:
    """30 required properties of the kinds that answers have."""
    kinds: list[dict[str, Any]] = [
        {"type": "string", "minLength": 1, "maxLength": 10_000},
        {"type": "integer", "minimum": 0, "maximum": 1_000_000},
        {"type": "number"},
        {"enum": ["low", "medium", "high"]},
        {"type": "array", "items": {"type": "string"}, "maxItems": 5_000},
        {"type": ["boolean", "null"]},
        {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
        {
            "type": "object",
            "properties": {"amount": {"type": "number"}, "currency": {"type": "string"}},
            "required": ["amount"],
            "additionalProperties": False,
        },
    ]
    properties = {f"field_{number}": kinds[number % len(kinds)] for number in range(PROPERTIES)}
    whole = {
        "title": title,
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return json.dumps(whole).encode()


def answer(size: int, broken: bool = False) -> str:
    """An answer of about so many bytes; a broken one has one number as text, near its end."""

    def fields(length: int) -> dict[str, Any]:
        values = ("x" * length, 12, 0.5, "medium", ["word"] * max(1, length // 12), True, "AB-0123",
                  {"amount": 1.5, "currency": "EUR"})  # fmt: skip
        return {f"field_{number}": values[number % len(values)] for number in range(PROPERTIES)}

    length = 1
    while len(json.dumps(fields(length + 1))) <= size:
        length += 1
    whole = fields(length)
    if broken:
        whole["field_25"] = "12"
    return json.dumps(whole)


# ---------------------------------------------------------------- in the judge


def per_second(once: Callable[[], object]) -> tuple[float, float]:
    """Calls a second of CPU time: median and best of some rounds."""
    once()
    rates = []
    for _ in range(ROUNDS):
        count, began = 0, time.process_time()
        while time.process_time() - began < SECONDS:
            once()
            count += 1
        rates.append(count / (time.process_time() - began))
    return median(rates), max(rates)


def judged(text: str, expected: str, cached: bool) -> Callable[[], None]:
    compiled, wanted = SchemaCache(), schema()

    def once() -> None:
        if not cached:
            compiled.clear()
        result, _ = judge(text, wanted, "json_schema", compiled)
        assert result == expected, result

    return once


def print_rows() -> bool:
    """Prints rows of the table; tells whether the goal is reached."""
    name = "jsonschema alone" if fast.ENGINE is None else "with jsonschema-rs"
    reached = False
    for cached, broken in ((True, False), (True, True), (False, False)):
        row: list[float] = []
        for size in (1_000, 20_000):
            row += per_second(judged(answer(size, broken), "schema_violation" if broken else "valid", cached))
        how = f"{'cached' if cached else 'compiled each time'}{', invalid' if broken else ''}"
        print(f"| {name}, {how} |" + "".join(f" {rate:,.0f} |" for rate in row), flush=True)
        reached = reached or (cached and not broken and row[0] >= GOAL)
    return reached


def bench_judge() -> bool:
    print("\n| judge, one core | 1 KB | best | 20 KB | best |\n| --- | ---: | ---: | ---: | ---: |", flush=True)
    reached = print_rows()
    if fast.ENGINE is not None:
        # As where it is not installed, which is decided when the modules are loaded.
        code = "import sys; sys.modules['jsonschema_rs'] = None; from bench.validity import print_rows; print_rows()"
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    return reached


# ---------------------------------------------------------------- through the process


class Room:
    """The validator process on its socket, brought back when it dies, as the supervisor does."""

    def __init__(self, directory: Path, settings: ValidatorSettings) -> None:
        self.path = directory / "validator.sock"
        self._directory = directory
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(16)
        (directory / "settings.json").write_bytes(msgspec.json.encode(Settings(validator=settings)))

    async def keep(self) -> None:
        number = self._listener.fileno()
        while True:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "collector.validation.process",
                "--runtime", str(self._directory), "--fd", f"requests={number}", pass_fds=[number], cwd=ROOT,
            )  # fmt: skip
            try:
                await process.wait()
            except asyncio.CancelledError:
                process.kill()
                await process.wait()
                raise


@contextlib.asynccontextmanager
async def validator(settings: ValidatorSettings) -> AsyncIterator[ValidatorClient]:
    with tempfile.TemporaryDirectory(prefix="validity-") as directory:
        room = Room(Path(directory), settings)
        client = ValidatorClient(room.path, settings)
        tasks = [asyncio.create_task(room.keep()), asyncio.create_task(client.run())]
        while client.pid is None:
            await asyncio.sleep(0.01)
        try:
            yield client
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def cpu_of(pid: int) -> float:
    """Seconds of CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def through_the_process(client: ValidatorClient, text: str, seconds: float) -> tuple[float, float, float]:
    """Judgements a second with IN_FLIGHT exchanges at once, and µs of CPU time of each, here and in the process."""
    task = ValidationTask(0, None, "json_schema", text, schema())
    count, stop = 0, False

    async def exchange() -> None:
        nonlocal count
        while not stop:
            (judgement,) = await client.judge([task])
            assert judgement.result == "valid", judgement.result
            count += 1

    await client.judge([task])
    assert client.pid is not None
    here, there, began = time.process_time(), cpu_of(client.pid), time.monotonic()
    exchanges = [asyncio.create_task(exchange()) for _ in range(IN_FLIGHT)]
    await asyncio.sleep(seconds)
    stop = True
    await asyncio.gather(*exchanges)
    elapsed = time.monotonic() - began
    return (
        count / elapsed,
        (time.process_time() - here) / count * 1e6,
        (cpu_of(client.pid) - there) / count * 1e6,
    )


async def bench_process(seconds: float) -> None:
    print(
        "\n| through the process | judgements/s | µs of the analyst | µs of the validator |"
        "\n| --- | ---: | ---: | ---: |"
    )
    async with validator(ValidatorSettings()) as client:
        for size in (1_000, 20_000):
            runs = [await through_the_process(client, answer(size), seconds) for _ in range(3)]
            rate, here, there = sorted(runs)[1]
            print(f"| {size // 1000} KB, {IN_FLIGHT} at once | {rate:,.0f} | {here:.0f} | {there:.0f} |")


# ---------------------------------------------------------------- hostile input


def hostile_kinds() -> dict[str, Callable[[], Any]]:
    specification = importlib.util.spec_from_file_location("hostile", HOSTILE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    kinds: dict[str, Callable[[], Any]] = module.KINDS
    return kinds


async def bench_hostile() -> bool:
    """Prints the slowest; tells whether each ended in time, in a result of its own, with its neighbours unharmed."""
    settings = ValidatorSettings()
    good = ValidationTask(0, None, "json_schema", answer(1_000), schema())
    times: list[tuple[float, str, str]] = []
    wrong: list[str] = []
    async with validator(settings) as client:
        for name, make in hostile_kinds().items():
            hostile = make()
            task = ValidationTask(0, None, "json_schema", hostile.text, hostile.schema)
            began = time.monotonic()
            (found,), neighbours = await asyncio.gather(client.judge([task]), client.judge([good] * 10))
            took = time.monotonic() - began
            times.append((took, name, found.result))
            if found.result not in hostile.results or {each.result for each in neighbours} != {"valid"}:
                wrong.append(f"{name}: {found.result}, neighbours {sorted({each.result for each in neighbours})}")
            if took > settings.timeout + SLACK:
                wrong.append(f"{name}: {took:.2f} s")
    ended = sum(1 for _, _, result in times if result == "validator_timeout")
    print(f"\n{len(times)} hostile kinds, {ended} of them ended by the limit of {settings.timeout:g} s, "
          f"{len(times) - ended} with a result; {len(wrong)} wrong, late or with a neighbour lost.")  # fmt: skip
    print("\n| slowest kinds | seconds | result |\n| --- | ---: | --- |")
    for took, name, result in sorted(times, reverse=True)[:8]:
        print(f"| {name} | {took:.2f} | {result} |")
    for each in wrong:
        print(f"WRONG {each}")
    return not wrong


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.validity", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run through the process")
    parser.add_argument("--only", choices=("judge", "process", "hostile"), help="one of the three parts")
    given = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    passed = True
    if given.only in (None, "judge"):
        passed = bench_judge()
        print(f"\nGoal of {GOAL:,} cached validations of 1 KB a second: {'reached' if passed else 'NOT reached'}.")
    if given.only in (None, "process"):
        asyncio.run(bench_process(given.seconds))
    if given.only in (None, "hostile"):
        passed = asyncio.run(bench_hostile()) and passed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
