"""The embedder: a process of its own that turns texts into vectors for the analyst.

It answers from the first moment, with `model_not_ready` until the model has loaded, and again while an embedding server
is out of order. Texts live in memory only, as long as their request does. It runs at low priority and ends on SIGTERM
or SIGINT.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from collector.config import EmbedderSettings, Settings
from collector.embedding.failures import EmbeddingError
from collector.embedding.messages import (
    MAX_FRAME,
    MAX_TEXTS,
    Answer,
    Embed,
    Failure,
    FrameOverCapError,
    Refused,
    Status,
    Vectors,
    decode_request,
    framed,
    read_frame,
)
from collector.model import Embedder, EmbeddingModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Numpy and the model are imported by `load` alone: after the variables below are set, and with the socket served.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
BATCH_TEXTS = 256  # of requests that wait together; they are embedded at once
_MODEL_ERRORS = (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
MAX_ERRORS = 5  # that a model of our own raises in a row; then the process ends, and a new one loads it afresh
SHORTEST_WAIT = 1.0  # seconds between two questions whether there are vectors again
ROOM = 64  # bytes of a message beside the vectors
MAX_UNSENT = 2 * MAX_FRAME  # bytes of answers that a client may leave unread before it is hung up on

log = logging.getLogger("semhealth.embedder")


def load(settings: EmbedderSettings) -> Embedder:
    """The embedder of the settings, with its cache. Takes a second with `use`, some with sentence-transformers."""
    from collector.embedding.cache import CachedEmbedder  # noqa: PLC0415 - see _THREAD_VARIABLES

    return CachedEmbedder(uncached(settings), settings.cache)


def uncached(settings: EmbedderSettings) -> Embedder:
    """The embedder of the settings. Raises ImportError where its extra is missing, ValueError where its model is."""
    if settings.kind == "sentence-transformers":
        given = settings.sentence_transformers
        if given.backend == "onnx":
            from collector.embedding.onnx import OnnxEmbedder  # noqa: PLC0415 - an extra, see also _THREAD_VARIABLES

            return OnnxEmbedder(given, settings.threads)
        from collector.embedding.sentence_transformers import SentenceTransformersEmbedder  # noqa: PLC0415

        return SentenceTransformersEmbedder(given, settings.threads)
    if settings.kind == "http":
        from collector.embedding.http import HttpEmbedder  # noqa: PLC0415

        return HttpEmbedder(settings.http, os.environ)
    from collector.embedding.use import UseEmbedder  # noqa: PLC0415

    return UseEmbedder(settings.threads)


@runtime_checkable
class Remembering(Protocol):
    """An embedder that keeps vectors, and counts the texts that it did not have to encode again."""

    @property
    def hits(self) -> int: ...


class _Job(msgspec.Struct, frozen=True):
    """One request and the connection that its answer goes to."""

    request: Embed
    writer: asyncio.StreamWriter


class Service:
    """Serves requests, batch by batch; at most `settings.queue` wait, those beyond are refused with `budget`."""

    def __init__(
        self,
        settings: EmbedderSettings,
        load: Callable[[EmbedderSettings], Embedder] = load,
        pid: int | None = None,
    ) -> None:
        """`pid` is told to clients, so that they can end a process that hangs."""
        self._settings = settings
        self._load = load
        self._pid = pid
        self._told = 0.0  # CPU seconds of the process that answers have named
        self._embedder: Embedder | None = None
        self._ready = False
        self._errors = 0  # in a row, that were none of the embedder's own kind
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue(settings.queue)
        self._clients: set[asyncio.StreamWriter] = set()

    @property
    def loaded(self) -> bool:
        """The model has been loaded; it may be out of order all the same."""
        return self._embedder is not None

    async def serve(self, listening: socket.socket) -> None:
        """Until cancelled. Raises what the model raised when it could not be loaded."""
        # Not start_unix_server: since Python 3.13 that one removes the socket's path when it closes, and the path is
        # the supervisor's.
        server = await asyncio.start_server(self._talk, sock=listening)
        # One thread: the model is not for several at once, and its CPU time is told apart by request.
        with ThreadPoolExecutor(1, "embed") as pool:
            async with server:
                loop = asyncio.get_running_loop()
                try:
                    embedder = self._embedder = await loop.run_in_executor(pool, self._load, self._settings)
                    self._told = time.process_time()
                    await self._until_ready(pool, embedder)
                    _warn_of_no_calibration(embedder.model)
                    while True:
                        batch = await self._batch()
                        answers, wait = await loop.run_in_executor(pool, self._answers, embedder, batch)
                        for job, answer in zip(batch, answers, strict=True):
                            _send(job.writer, answer)
                        if wait is not None:
                            self._tell(ready=False)
                            self._refuse_waiting("circuit_open")
                            await asyncio.sleep(max(wait, SHORTEST_WAIT))
                            await self._until_ready(pool, embedder)
                finally:
                    for writer in self._clients:
                        writer.transport.abort()  # closing the server waits for them since Python 3.12

    async def _until_ready(self, pool: ThreadPoolExecutor, embedder: Embedder) -> None:
        """Asks for the vector of a text of its own until there is one; tells the clients then."""
        loop = asyncio.get_running_loop()
        while (wait := await loop.run_in_executor(pool, _why_wait, embedder)) is not None:
            await asyncio.sleep(max(wait, SHORTEST_WAIT))
        self._tell(ready=True)

    def _tell(self, *, ready: bool) -> None:
        self._ready = ready
        for writer in self._clients:
            _send(writer, self._status())

    def _refuse_waiting(self, failure: Failure) -> None:
        while not self._jobs.empty():
            job = self._jobs.get_nowait()
            _send(job.writer, Refused(job.request.id, "model_not_ready", failure))

    def _status(self) -> Status:
        return Status(self._ready, self._pid, None if self._embedder is None else self._embedder.model)

    async def _batch(self) -> list[_Job]:
        """The next request, and those that wait behind it as far as BATCH_TEXTS goes."""
        batch = [await self._jobs.get()]
        texts = len(batch[0].request.texts)
        while not self._jobs.empty() and texts < BATCH_TEXTS:
            batch.append(self._jobs.get_nowait())
            texts += len(batch[-1].request.texts)
        return [job for job in batch if not job.writer.is_closing()]

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        _send(writer, self._status())
        try:
            while True:
                self._take(decode_request(await read_frame(reader)), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except (FrameOverCapError, msgspec.MsgspecError, UnicodeError) as error:
            log.warning("hung up on a client whose request could not be read: %s", type(error).__name__)
        finally:
            self._clients.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _take(self, request: Embed, writer: asyncio.StreamWriter) -> None:
        if not self._ready:
            _send(writer, Refused(request.id, "model_not_ready"))
        elif self._jobs.full() or len(request.texts) > MAX_TEXTS:
            _send(writer, Refused(request.id, "budget"))
        else:
            self._jobs.put_nowait(_Job(request, writer))

    def _answers(self, embedder: Embedder, batch: Sequence[_Job]) -> tuple[list[Answer], float | None]:
        """One answer for each request; and where it is of no use to ask again for some seconds, how many."""
        known = embedder.hits if isinstance(embedder, Remembering) else None
        try:
            vectors = embedder.embed([text for job in batch for text in job.request.texts])
            self._errors = 0
        except EmbeddingError as error:
            log.warning("no vectors for %d requests: %s", len(batch), error)
            return [Refused(job.request.id, "model_not_ready", error.failure) for job in batch], error.wait
        except _MODEL_ERRORS as error:
            # Whatever a model raises at odd texts costs these requests only. The message may hold the texts.
            self._errors += 1
            if self._errors >= MAX_ERRORS:
                raise
            log.warning("no vectors for %d requests: the model raised %s", len(batch), type(error).__name__)
            return [Refused(job.request.id, "model_not_ready", "model_error") for job in batch], None
        hits = embedder.hits - known if isinstance(embedder, Remembering) and known is not None else None
        before, self._told = self._told, time.process_time()
        return list(_shared_out(batch, vectors, self._told - before, hits)), None


def _warn_of_no_calibration(model: EmbeddingModel) -> None:
    from collector.measures.relevance import calibration_of  # noqa: PLC0415 - it brings numpy

    if calibration_of(model) is None:
        log.warning(
            "the embedding model %s, version %s, has no calibration: nothing is scored; see docs/embedders.md",
            model.name,
            model.version,
        )


def _why_wait(embedder: Embedder) -> float | None:
    """None where there are vectors, else seconds until it is worth asking again."""
    try:
        embedder.embed((f"ready? {time.monotonic_ns()}",))  # one that the cache does not hold
    except EmbeddingError as error:
        log.warning("no vectors yet: %s", error)
        return 0.0 if error.wait is None else error.wait
    return None


def _shared_out(batch: Sequence[_Job], vectors: NDArray[np.float32], cpu: float, hits: int | None) -> Iterator[Answer]:
    """The rows of each request, its share of the CPU seconds by texts, and of the hits what it can have at most."""
    dimensions = int(vectors.shape[1]) if vectors.ndim == 2 else 0
    total = sum(len(job.request.texts) for job in batch)
    first = 0
    for job in batch:
        texts = len(job.request.texts)
        own = None if hits is None else min(hits, texts)
        hits = None if hits is None or own is None else hits - own
        share = cpu * texts / total if total else cpu / len(batch)
        if 4 * dimensions * texts > MAX_FRAME - ROOM:
            yield Refused(job.request.id, "model_not_ready", "too_large")
        else:
            rows = vectors[first : first + texts].tobytes()
            yield Vectors(job.request.id, dimensions, rows, share, own)
        first += texts


def _send(writer: asyncio.StreamWriter, answer: Answer) -> None:
    if writer.is_closing():
        return
    writer.write(framed(answer))
    if writer.transport.get_write_buffer_size() > MAX_UNSENT:
        log.warning("hung up on a client that does not read its answers")
        writer.transport.abort()


def main(arguments: Sequence[str]) -> int:
    """`--runtime DIR --fd requests=N`: settings from DIR/settings.json, clients from the listening socket N."""
    parser = argparse.ArgumentParser(prog="python -m collector.embedding.process")
    parser.add_argument("--runtime", type=Path, required=True)
    parser.add_argument("--fd", action="append", default=[], metavar="NAME=N")
    options = parser.parse_args(arguments)
    descriptors = dict(pair.split("=", 1) for pair in options.fd)
    if "requests" not in descriptors:
        parser.error("--fd requests=N is missing: the listening socket")
    settings = msgspec.json.decode((options.runtime / "settings.json").read_bytes(), type=Settings)
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(name)s %(levelname)s %(message)s")
    for name in _THREAD_VARIABLES:
        os.environ[name] = str(settings.embedder.threads)
    if settings.embedder.sentence_transformers.hub is None:
        os.environ.update(_OFFLINE)
    listening = socket.socket(fileno=int(descriptors["requests"]))
    return asyncio.run(_until_told(Service(settings.embedder, pid=os.getpid()), listening))


async def _until_told(service: Service, listening: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # At once: there is nothing to save, and a text that is being encoded is not worth waiting for.
        loop.add_signal_handler(number, os._exit, 0)
    try:
        await service.serve(listening)
    except (ImportError, OSError, *_MODEL_ERRORS) as error:
        if service.loaded:
            log.critical("the embedding model failed %d times in a row: %s", MAX_ERRORS, type(error).__name__)
        else:
            log.critical("the embedding model could not be loaded: %s: %s", type(error).__name__, error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
