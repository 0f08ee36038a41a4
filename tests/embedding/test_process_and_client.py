"""The real process with the real weights, and the client that lives through its deaths."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collector.config import EmbedderSettings
from collector.embedding.client import Embedded, EmbeddingClient
from collector.embedding.messages import (
    MAX_FRAME,
    MAX_TEXTS,
    Embed,
    Refused,
    Status,
    Vectors,
    decode_answer,
    framed,
    read_frame,
)
from collector.embedding.process import Service
from collector.embedding.use import DIMENSIONS, MODEL, UseEmbedder
from collector.model import EmbeddingModel


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


class SetClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def connected(path: Path, settings: EmbedderSettings, clock: object = None) -> AsyncIterator[EmbeddingClient]:
    client = EmbeddingClient(path, settings, clock or SystemClock())  # type: ignore[arg-type]
    running = asyncio.create_task(client.run())
    yield client
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def until(claim: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)


async def embed_within_budget(client: EmbeddingClient, texts: Sequence[str]) -> Embedded:
    answer = await client.embed(texts)
    assert answer.reason is None
    return answer


async def test_texts_come_back_as_the_vectors_of_the_model(supervised: Callable[..., Any]) -> None:
    one = supervised(cpu_share=1.0)
    one.start()
    async with connected(one.path, one.settings) as client:
        assert await client.embed(["early"]) == Embedded(reason="model_not_ready")
        await until(lambda: client.ready)
        texts = ["Who built the lighthouse?", "", "青石桥建于1871年。", "Who built the lighthouse?"]
        answer = await embed_within_budget(client, texts)
        assert answer.vectors is not None
        assert answer.vectors.shape == (4, DIMENSIONS)
        np.testing.assert_allclose(answer.vectors, UseEmbedder().embed(texts), atol=1e-5)
        assert (await embed_within_budget(client, [])).vectors is not None


async def test_a_killed_process_costs_a_reason_and_its_successor_serves_the_same_client(
    supervised: Callable[..., Any],
) -> None:
    one = supervised(cpu_share=1.0)
    one.start()
    async with connected(one.path, one.settings) as client:
        await until(lambda: client.ready)
        under_way = asyncio.create_task(client.embed([f"{number}: a long text " * 60 for number in range(1000)]))
        await asyncio.sleep(0.05)
        one.kill()
        assert await asyncio.wait_for(under_way, 20) == Embedded(reason="model_not_ready")
        await until(lambda: not client.ready)
        assert await client.embed(["meanwhile"]) == Embedded(reason="model_not_ready")
        one.start()
        await until(lambda: client.ready)
        assert (await embed_within_budget(client, ["back"])).vectors is not None


async def test_a_hanging_process_costs_time_outs_and_a_bounded_number_of_requests(
    supervised: Callable[..., Any],
) -> None:
    one = supervised(cpu_share=1.0, timeout=0.3, queue=3)
    process = one.start()
    async with connected(one.path, one.settings) as client:
        await until(lambda: client.ready)
        process.send_signal(signal.SIGSTOP)
        answers = await asyncio.gather(*(client.embed([f"text {number}"]) for number in range(8)))
        assert answers == [Embedded(reason="budget")] * 8
        began = time.monotonic()
        assert await client.embed(["one more"]) == Embedded(reason="budget")
        assert time.monotonic() - began < 0.25  # refused at once, not after the time-out
        process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + 30
        while (await client.embed(["again"])).vectors is None:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def test_work_beyond_the_share_of_cpu_is_refused_until_time_has_passed(supervised: Callable[..., Any]) -> None:
    one = supervised(cpu_share=0.01)
    one.start()
    clock = SetClock()
    async with connected(one.path, one.settings, clock) as client:
        await until(lambda: client.ready)
        texts = [f"sentence number {number} of a rather long text about boats" for number in range(600)]
        assert (await client.embed(texts)).vectors is not None
        assert await client.embed(["one more"]) == Embedded(reason="budget")
        clock.now += 3600.0
        assert (await client.embed(["one more"])).vectors is not None


async def test_without_an_embedder_nothing_is_ready_and_nothing_raises(tmp_path: Path) -> None:
    async with connected(tmp_path / "none.sock", EmbedderSettings()) as client:
        await asyncio.sleep(0.3)
        assert not client.ready
        assert await client.embed(["text"]) == Embedded(reason="model_not_ready")


async def test_an_embedder_that_is_switched_off_is_never_asked(tmp_path: Path) -> None:
    client = EmbeddingClient(tmp_path / "none.sock", EmbedderSettings(kind="none"), SystemClock())
    await asyncio.wait_for(client.run(), 5)
    assert await client.embed(["text"]) == Embedded(reason="model_not_ready")


async def test_too_many_texts_are_a_mistake_of_the_caller(tmp_path: Path) -> None:
    client = EmbeddingClient(tmp_path / "none.sock", EmbedderSettings(), SystemClock())
    with pytest.raises(ValueError, match="at most 1024 texts"):
        await client.embed(["text"] * (MAX_TEXTS + 1))


@pytest.mark.parametrize("junk", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x03abc", b"\x00\x00\x00\x01\xc1"])
async def test_an_answer_that_cannot_be_read_ends_the_connection_and_not_the_client(
    tmp_path: Path, junk: bytes
) -> None:
    greeted = 0

    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal greeted
        greeted += 1
        writer.write(framed(Status(ready=True)) + (junk if greeted == 1 else b""))

    server = await asyncio.start_unix_server(speak, tmp_path / "e.sock")
    async with server, connected(tmp_path / "e.sock", EmbedderSettings()) as client:
        await until(lambda: greeted == 2 and client.ready)


# ---------------------------------------------------------------- the service, with an embedder that does as it is told


class Slow:
    """Vectors of the texts' lengths, after a while."""

    model = EmbeddingModel("slow", "1", 2)

    def embed(self, texts: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        time.sleep(0.3)
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


@contextlib.asynccontextmanager
async def serving(path: Path, load: Callable[[EmbedderSettings], object], **settings: object) -> AsyncIterator[None]:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen(4)
    task = asyncio.create_task(Service(EmbedderSettings(**settings), load).serve(listening))  # type: ignore[arg-type]
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_the_socket_is_served_while_the_model_loads(tmp_path: Path) -> None:
    def load(_: EmbedderSettings) -> Slow:
        time.sleep(0.5)
        return Slow()

    async with serving(tmp_path / "e.sock", load):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "e.sock")
        assert decode_answer(await read_frame(reader)) == Status(ready=False)
        writer.write(framed(Embed(1, ["text"])))
        assert decode_answer(await read_frame(reader)) == Refused(1, "model_not_ready")
        assert decode_answer(await read_frame(reader)) == Status(ready=True, model=Slow.model)
        writer.write(framed(Embed(2, ["text"])))
        answer = decode_answer(await read_frame(reader))
        assert isinstance(answer, Vectors)
        assert (answer.id, answer.dimensions) == (2, 2)
        assert np.frombuffer(answer.rows, dtype=np.float32).tolist() == [4.0, 1.0]
        writer.close()


async def test_requests_beyond_the_queue_are_refused_and_the_others_answered_in_order(tmp_path: Path) -> None:
    async with serving(tmp_path / "e.sock", lambda _: Slow(), queue=2):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "e.sock")
        while decode_answer(await read_frame(reader)) != Status(ready=True, model=Slow.model):
            pass
        writer.write(framed(Embed(1, ["a"])))
        await asyncio.sleep(0.1)  # under way
        writer.write(b"".join(framed(Embed(number, ["a"])) for number in (2, 3, 4, 5)))
        answers = [decode_answer(await read_frame(reader)) for _ in range(5)]
        assert [answer.id for answer in answers if isinstance(answer, Vectors)] == [1, 2, 3]
        assert [answer for answer in answers if isinstance(answer, Refused)] == [
            Refused(4, "budget"),
            Refused(5, "budget"),
        ]
        writer.close()


@pytest.mark.parametrize(
    "junk", [(MAX_FRAME + 1).to_bytes(4, "big"), b"\x00\x00\x00\x01\xc1", b"\x00\x00\x00\x04\x93\xa1e\x01"]
)
async def test_a_request_that_cannot_be_read_ends_only_its_own_connection(tmp_path: Path, junk: bytes) -> None:
    async with serving(tmp_path / "e.sock", lambda _: Slow()):
        other, other_writer = await asyncio.open_unix_connection(tmp_path / "e.sock")
        while decode_answer(await read_frame(other)) != Status(ready=True, model=Slow.model):
            pass
        reader, writer = await asyncio.open_unix_connection(tmp_path / "e.sock")
        writer.write(junk)
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 20)  # until the end of the stream
        other_writer.write(framed(Embed(7, ["still here"])))
        assert isinstance(decode_answer(await read_frame(other)), Vectors)
        writer.close()
        other_writer.close()


async def test_a_model_that_cannot_be_loaded_ends_the_service(tmp_path: Path) -> None:
    def load(_: EmbedderSettings) -> Slow:
        raise OSError("weights.npz is missing")

    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(tmp_path / "e.sock"))
    listening.listen(1)
    with pytest.raises(OSError, match=r"weights\.npz is missing"):
        await asyncio.wait_for(Service(EmbedderSettings(), load).serve(listening), 20)
    assert (tmp_path / "e.sock").exists()  # the path is the supervisor's


def test_the_process_runs_with_one_thread_and_ends_on_sigterm(supervised: Callable[..., Any]) -> None:
    one = supervised()
    process = one.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(60)
        client.connect(str(one.path))
        received = b""
        while framed(Status(ready=True, pid=process.pid, model=MODEL)) not in received:
            part = client.recv(100)
            assert part
            received += part
    stat = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    assert int(stat[17]) <= 4  # threads: the loop's, the model's, none of a BLAS pool
    process.terminate()
    assert process.wait(20) == 0


def test_a_missing_socket_is_an_error_of_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "collector.embedding.process", "--runtime", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "--fd requests=N is missing" in ended.stderr
