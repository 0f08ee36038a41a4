"""A failing embedder is a reason and a count, never an outage: the service, its client and a scripted server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from collector.config import EmbedderSettings
from collector.embedding import process
from collector.embedding.client import Embedded, EmbeddingClient
from collector.embedding.process import MAX_ERRORS, Service
from collector.model import EmbeddingModel
from tests.embedding import scripted
from tests.embedding.scripted import answered, server

if TYPE_CHECKING:
    from numpy.typing import NDArray

DOWN = answered(b"", "503 Service Unavailable")
FAILURES = "semantic_health_embedder_failures_total"


class Clock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


async def until(claim: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def client_of(path: Path, settings: EmbedderSettings) -> AsyncIterator[EmbeddingClient]:
    client = EmbeddingClient(path, settings, Clock())
    running = asyncio.create_task(client.run())
    yield client
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def failures(client: EmbeddingClient) -> dict[str, float]:
    """Since this was last asked."""
    return {reading.labels[0]: reading.value for reading in client.readings() if reading.metric == FAILURES}


def http(url: str, **settings: Any) -> dict[str, Any]:
    return {"kind": "http", "http": {"url": f"{url}/v1/embeddings", "model": "m", "failures": 2, **settings}}


async def test_a_server_that_fails_is_a_reason_and_a_count_and_it_is_ready_again_when_the_server_is(
    supervised: Callable[..., Any],
) -> None:
    with server(scripted.saying(DOWN)) as one:
        settings = http(one.url, timeout=2.0)
        embedder = supervised(cpu_share=1.0, **settings)
        embedder.start()
        async with client_of(embedder.path, EmbedderSettings(cpu_share=1.0)) as client:
            await until(lambda: len(one.asked) >= 2)
            assert not client.ready  # down from the start: that keeps nobody, and is asked again
            one.play = scripted.openai
            await until(lambda: client.ready)
            assert client.model is not None
            assert (client.model.name, client.model.version, client.model.dimensions) == ("m", "served-1", 4)
            assert (await client.embed(["abc"])).vectors is not None

            one.play = scripted.saying(DOWN)
            for number in range(2):
                assert await client.embed([f"text {number}"]) == Embedded(reason="model_not_ready")
            assert failures(client) == {"status": 2.0}
            await until(lambda: not client.ready)
            asked = len(one.asked)
            assert await client.embed(["not asked for"]) == Embedded(reason="model_not_ready")
            assert len(one.asked) == asked
            assert embedder.process.poll() is None  # no restart: the process is well

            one.play = scripted.openai
            await until(lambda: client.ready)
            assert (await client.embed(["text 0"])).vectors is not None
            assert failures(client) == {}


async def test_no_log_of_a_failing_server_holds_a_text_or_the_key(
    supervised: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_KEY", "sk-not-a-real-key")

    def echoing(asked: scripted.Asked, connection: socket.socket) -> None:
        body = f"{asked.texts} {asked.headers['authorization']}".encode()
        connection.sendall(answered(body, "200 OK" if len(one.asked) % 2 else "400 Bad Request"))

    with server(scripted.openai) as one:
        embedder = supervised(cpu_share=1.0, **http(one.url, key_env="OUR_KEY", failures=50))
        embedder.start()
        async with client_of(embedder.path, EmbedderSettings(cpu_share=1.0)) as client:
            await until(lambda: client.ready)
            one.play = echoing
            for number in range(4):
                assert (await client.embed([f"the secret of a person {number}"])).vectors is None
        embedder.process.terminate()
        log = embedder.process.communicate(timeout=20)[1].decode()
    assert "no vectors for 1 requests" in log
    assert "secret" not in log
    assert "sk-not" not in log


def test_without_its_key_the_process_ends_and_names_the_variable(supervised: Callable[..., Any]) -> None:
    embedder = supervised(**http("http://127.0.0.1:1", key_env="NO_SUCH_KEY"))
    process = embedder.start()
    log = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 1
    assert "the variable NO_SUCH_KEY" in log


def test_without_its_extra_the_process_ends_and_says_so(
    supervised: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sentence_transformers.py").write_text("raise ImportError('no module named sentence_transformers')")
    (tmp_path / "torch.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    embedder = supervised(kind="sentence-transformers")
    process = embedder.start()
    log = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 1
    assert "the embedding model could not be loaded: ImportError: no module named sentence_transformers" in log


# ---------------------------------------------------------------- the service, with models that do as they are told


class Told:
    """Counts, and raises where a text says so."""

    model = EmbeddingModel("told", "1", 2)

    def __init__(self, pause: float = 0.0) -> None:
        self.batches: list[list[str]] = []
        self.pause = pause

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.batches.append(list(texts))
        time.sleep(self.pause)
        if any("raise" in text for text in texts):
            raise RuntimeError(f"cannot embed {texts[0]}")
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32).reshape(len(texts), 2)


@contextlib.asynccontextmanager
async def serving(path: Path, model: object, **settings: Any) -> AsyncIterator[asyncio.Task[None]]:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen(4)
    service = Service(EmbedderSettings(**settings), lambda _: model)  # type: ignore[arg-type,return-value]
    task = asyncio.create_task(service.serve(listening))
    yield task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, RuntimeError):
        await task


async def test_what_a_model_raises_costs_its_request_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = EmbedderSettings(cpu_share=1.0)
    async with serving(tmp_path / "e.sock", Told()), client_of(tmp_path / "e.sock", settings) as client:
        await until(lambda: client.ready)
        for _ in range(MAX_ERRORS - 1):
            assert await client.embed(["raise it"]) == Embedded(reason="model_not_ready")
        assert failures(client) == {"model_error": MAX_ERRORS - 1}
        assert (await client.embed(["fine"])).vectors is not None
        assert "told, version 1, has no calibration" in caplog.text
        assert client.ready
        assert "raise it" not in caplog.text


async def test_a_model_that_only_raises_ends_the_process_so_that_it_is_loaded_afresh(tmp_path: Path) -> None:
    settings = EmbedderSettings(cpu_share=1.0)
    async with serving(tmp_path / "e.sock", Told()) as task, client_of(tmp_path / "e.sock", settings) as client:
        await until(lambda: client.ready)
        for _ in range(MAX_ERRORS):
            assert (await client.embed(["raise it"])).reason == "model_not_ready"
        await until(task.done)
        await until(lambda: not client.ready)
        assert isinstance(task.exception(), RuntimeError)


async def test_requests_that_wait_are_embedded_at_once_and_each_gets_its_own(tmp_path: Path) -> None:
    model = Told(pause=0.2)
    settings = EmbedderSettings(cpu_share=1.0)
    async with serving(tmp_path / "e.sock", model), client_of(tmp_path / "e.sock", settings) as client:
        await until(lambda: client.ready)
        model.batches.clear()
        given = [["a" * length] * (length % 3) for length in range(1, 9)]
        answers = await asyncio.gather(*(client.embed(texts) for texts in given))
        for texts, answer in zip(given, answers, strict=True):
            assert answer.vectors is not None
            assert answer.vectors[:, 0].tolist() == [float(len(text)) for text in texts] if texts else True
        assert len(model.batches) <= 3
        assert sorted(text for batch in model.batches for text in batch) == sorted(
            text for one in given for text in one
        )


async def test_a_batch_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "BATCH_TEXTS", 10)
    model = Told(pause=0.1)
    settings = EmbedderSettings(cpu_share=1.0)
    async with serving(tmp_path / "e.sock", model), client_of(tmp_path / "e.sock", settings) as client:
        await until(lambda: client.ready)
        await asyncio.gather(*(client.embed(["a"] * 4) for _ in range(12)))
        assert max(map(len, model.batches)) == 12  # the one that passes 10 is the last


async def test_vectors_that_do_not_fit_in_a_message_are_refused(tmp_path: Path) -> None:
    class Wide(Told):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return np.ones((len(texts), 8192), dtype=np.float32)

    settings = EmbedderSettings(cpu_share=1.0)
    async with serving(tmp_path / "e.sock", Wide()), client_of(tmp_path / "e.sock", settings) as client:
        await until(lambda: client.ready)
        assert (await client.embed(["a"] * 200)).vectors is not None
        assert await client.embed(["a"] * 300) == Embedded(reason="model_not_ready")
        assert failures(client) == {"too_large": 1.0}
