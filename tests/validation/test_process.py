"""The validator process by itself, over its socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from collector.validation import process
from collector.validation.process import SchemaCache
from collector.validation.protocol import FRAME_CAP, Answer, Hello, Question, decode_answer, decode_hello, frame
from collector.validation.schema import UnusableSchemaError

HANGS = Question("json_schema", json.dumps("a" * 40 + "!").encode(), b'{"pattern": "^(?=(a+)+$)"}')


class Peer:
    """A client by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, path: Path) -> Peer:
        return cls(*await asyncio.open_unix_connection(path))

    async def hello(self) -> Hello:
        return decode_hello(await self._frame())

    async def answer(self) -> Answer:
        return decode_answer(await self._frame())

    async def _frame(self) -> bytes:
        async with asyncio.timeout(30):
            return await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4), "big"))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def is_left(self) -> bool:
        async with asyncio.timeout(30):
            try:
                return await self._reader.read() == b""
            except ConnectionResetError:
                return True

    def leave(self) -> None:
        self._writer.close()


async def test_it_says_who_it_is_and_answers_in_order(room: Any) -> None:
    process = await room.start()
    peer = await Peer.connect(room.path)
    assert (await peer.hello()).pid == process.pid
    peer.send(b"".join(frame(Question("json", text, None)) for text in (b"{}", b"{", b"[]")))
    assert [await peer.answer() for _ in range(3)] == [
        Answer("valid", None), Answer("not_json", None), Answer("schema_violation", "type"),
    ]  # fmt: skip
    peer.leave()


async def test_a_question_may_come_byte_by_byte(room: Any) -> None:
    await room.start()
    peer = await Peer.connect(room.path)
    await peer.hello()
    for byte in frame(Question("json", b"{}", None)):
        peer.send(bytes([byte]))
        await asyncio.sleep(0.001)
    assert await peer.answer() == Answer("valid", None)
    peer.leave()


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x00\x00\x00",
        (FRAME_CAP + 1).to_bytes(4, "big"),
        b"\x00\x00\x00\x0d\x93\xa4json\xc4\x04\xff\xfe\xfd\xfc\xc0",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_a_client_that_speaks_otherwise_is_left_and_the_next_one_served(room: Any, rubbish: bytes) -> None:
    process = await room.start()
    peer = await Peer.connect(room.path)
    await peer.hello()
    peer.send(rubbish)
    assert await peer.is_left()
    following = await Peer.connect(room.path)
    assert (await following.hello()).pid == process.pid
    following.leave()


async def test_clients_that_left_before_they_were_served_do_no_harm(room: Any) -> None:
    for _ in range(5):
        (await Peer.connect(room.path)).leave()
    process = await room.start()
    peer = await Peer.connect(room.path)
    assert (await peer.hello()).pid == process.pid
    peer.leave()


async def test_a_judgement_whose_client_died_ends_the_process_by_itself(room: Any) -> None:
    process = await room.start()
    peer = await Peer.connect(room.path)
    await peer.hello()
    peer.send(frame(HANGS))
    await asyncio.sleep(0.2)
    peer.leave()
    async with asyncio.timeout(20):
        assert await process.wait() == -signal.SIGALRM


async def test_it_says_nothing_of_what_it_judges(room: Any) -> None:
    process = await room.start()
    peer = await Peer.connect(room.path)
    await peer.hello()
    for schema in (b'{"pattern": "[[CANARY]"}', b'{"type": "CANARY"}', b"CANARY", b'{"$ref": "http://CANARY/"}'):
        peer.send(frame(Question("json_schema", b'"CANARY"', schema)))
        assert "CANARY" not in str(await peer.answer())
    peer.leave()
    process.terminate()
    _, told = await process.communicate()
    assert told == b""


async def test_it_is_confined(room: Any) -> None:
    process = await room.start()
    peer = await Peer.connect(room.path)
    await peer.hello()
    limits = Path(f"/proc/{process.pid}/limits").read_text()
    bounds = {line[:26].strip(): line[26:].split()[0] for line in limits.splitlines()}
    assert bounds["Max address space"] == str(room.settings.memory)
    assert bounds["Max core file size"] == "0"
    peer.leave()


async def test_it_ends_at_sigterm_and_leaves_ctrl_c_to_the_supervisor(room: Any) -> None:
    process = await room.start()
    peer = await Peer.connect(room.path)
    await peer.hello()
    process.send_signal(signal.SIGINT)
    peer.send(frame(Question("json", b"{}", None)))
    assert await peer.answer() == Answer("valid", None)
    process.terminate()
    async with asyncio.timeout(20):
        assert await process.wait() == -signal.SIGTERM
    peer.leave()


async def test_it_ends_when_the_supervisor_is_gone(directory: Path) -> None:
    (directory / "settings.json").write_bytes(b"{}")
    supervisor = textwrap.dedent("""
        import socket, subprocess, sys, time
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(sys.argv[1] + "/validator.sock")
        listener.listen()
        number = listener.fileno()
        command = [sys.executable, "-m", "collector.validation.process", "--runtime", sys.argv[1]]
        child = subprocess.Popen([*command, "--fd", f"requests={number}"], pass_fds=[number])
        time.sleep(600)
    """)
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", supervisor, str(directory))
    path = directory / "validator.sock"
    async with asyncio.timeout(30):
        while not path.exists():
            await asyncio.sleep(0.01)
        peer = None
        while peer is None:
            with contextlib.suppress(ConnectionRefusedError):
                peer = await Peer.connect(path)
    pid = (await peer.hello()).pid
    peer.leave()
    parent.kill()
    await parent.wait()
    async with asyncio.timeout(20):
        while Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("fds", [[], ["--fd", "other=3"], ["--fd", "requests=x"], ["--fd", "requests"]])
def test_a_wrong_command_line_is_refused_with_a_reason(directory: Path, fds: list[str]) -> None:
    command = [sys.executable, "-m", "collector.validation.process", "--runtime", str(directory), *fds]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "--fd" in ended.stderr


@pytest.mark.parametrize("content", [None, "{", '{"validator": {"timeout": "soon"}}'])
def test_settings_that_cannot_be_read_are_one_clear_sentence(directory: Path, content: str | None) -> None:
    if content is not None:
        (directory / "settings.json").write_text(content)
    with socket.socket(socket.AF_UNIX) as listener:
        number = listener.fileno()
        ended = subprocess.run(
            [sys.executable, "-m", "collector.validation.process", "--runtime", str(directory),
             "--fd", f"requests={number}"],
            pass_fds=[number], capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr.startswith("semhealth validator: cannot start: ")
    assert ended.stderr.count("\n") == 1


def test_the_cache_gives_the_same_schema_back_and_forgets_the_least_used() -> None:
    cache = SchemaCache()
    first = cache(b'{"title": "0"}')
    for number in range(1, SchemaCache.SCHEMAS):
        cache(json.dumps({"title": str(number)}).encode())
    assert cache(b'{"title": "0"}') is first
    second = cache(b'{"title": "1"}')
    cache(b'{"title": "one too many"}')
    assert cache(b'{"title": "0"}') is first
    assert cache(b'{"title": "1"}') is second
    cache.clear()
    assert cache(b'{"title": "0"}') is not first


def test_the_cache_is_bounded_in_bytes_too() -> None:
    cache = SchemaCache()
    small = cache(b"{}")
    count = SchemaCache.BYTES // SchemaCache.LARGEST
    for number in range(count):
        assert cache(sized(SchemaCache.LARGEST, number)).failing_keyword(1) is None
    assert cache(b"{}") is not small


def test_a_schema_larger_than_all_is_compiled_and_not_kept() -> None:
    cache = SchemaCache()
    small = cache(b"{}")
    huge = sized(SchemaCache.BYTES + 1)
    assert cache(huge).failing_keyword(1) is None
    assert cache(huge) is not cache(huge)
    assert cache(b"{}") is small


def sized(size: int, number: int = 0) -> bytes:
    """A schema of so many bytes."""
    start = json.dumps({"$comment": str(number), "title": ""}).encode()
    return start[:-2] + b"x" * (size - len(start)) + b'"}'


def test_a_schema_that_cannot_be_used_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = SchemaCache()
    for _ in range(2):
        with pytest.raises(UnusableSchemaError) as caught:
            cache(b"no schema")
        assert caught.value.fault == "schema_invalid"
        monkeypatch.setattr(process, "compile_schema", None)


def test_the_setting_for_formats_reaches_the_schemas() -> None:
    schema = b'{"format": "date"}'
    assert SchemaCache()(schema).failing_keyword("yesterday") is None
    assert SchemaCache(formats=True)(schema).failing_keyword("yesterday") == "format"
