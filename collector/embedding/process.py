"""The embedder: a process of its own that turns texts into vectors for the analyst.

It answers from the first moment, with `model_not_ready` until the model has loaded. Texts live in memory only, as long
as their request does. It runs at low priority and ends on SIGTERM or SIGINT.
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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from collector.config import EmbedderSettings, Settings
from collector.embedding.messages import (
    MAX_FRAME,
    MAX_TEXTS,
    Answer,
    Embed,
    FrameOverCapError,
    Refused,
    Status,
    Vectors,
    decode_request,
    framed,
    read_frame,
)
from collector.model import Embedder

# Numpy and the model are imported by `load` alone: after the variables below are set, and with the socket served.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
MAX_UNSENT = 2 * MAX_FRAME  # bytes of answers that a client may leave unread before it is hung up on

log = logging.getLogger("semhealth.embedder")


def load(settings: EmbedderSettings) -> Embedder:
    """The embedder of the settings, with its cache. Takes a second or so."""
    from collector.embedding.cache import CachedEmbedder  # noqa: PLC0415 - see _THREAD_VARIABLES
    from collector.embedding.use import UseEmbedder  # noqa: PLC0415

    return CachedEmbedder(UseEmbedder(settings.threads), settings.cache)


class _Job(msgspec.Struct, frozen=True):
    """One request and the connection that its answer goes to."""

    request: Embed
    writer: asyncio.StreamWriter


class Service:
    """Serves requests one after another; at most `settings.queue` wait, those beyond are refused with `budget`."""

    def __init__(self, settings: EmbedderSettings, load: Callable[[EmbedderSettings], Embedder] = load) -> None:
        self._settings = settings
        self._load = load
        self._embedder: Embedder | None = None
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue(settings.queue)
        self._clients: set[asyncio.StreamWriter] = set()

    async def serve(self, listening: socket.socket) -> None:
        """Until cancelled. Raises what the model raised when it could not be loaded."""
        # Not start_unix_server: since Python 3.13 that one removes the socket's path when it closes, and the path is
        # the supervisor's.
        server = await asyncio.start_server(self._talk, sock=listening)
        # One thread: the model is not for several at once, and its CPU time is told apart by request.
        with ThreadPoolExecutor(1, "embed") as pool:
            async with server:
                loop = asyncio.get_running_loop()
                self._embedder = await loop.run_in_executor(pool, self._load, self._settings)
                for writer in self._clients:
                    _send(writer, Status(ready=True))
                while True:
                    job = await self._jobs.get()
                    if not job.writer.is_closing():
                        _send(job.writer, await loop.run_in_executor(pool, _vectors, self._embedder, job.request))

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        _send(writer, Status(ready=self._embedder is not None))
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
        if self._embedder is None:
            _send(writer, Refused(request.id, "model_not_ready"))
        elif self._jobs.full() or len(request.texts) > MAX_TEXTS:
            _send(writer, Refused(request.id, "budget"))
        else:
            self._jobs.put_nowait(_Job(request, writer))


def _vectors(embedder: Embedder, request: Embed) -> Answer:
    began = time.process_time()
    vectors = embedder.embed(request.texts)
    dimensions = int(vectors.shape[1]) if vectors.ndim == 2 else 0
    return Vectors(request.id, dimensions, vectors.tobytes(), time.process_time() - began)


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
    listening = socket.socket(fileno=int(descriptors["requests"]))
    return asyncio.run(_until_told(Service(settings.embedder), listening))


async def _until_told(service: Service, listening: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # At once: there is nothing to save, and a text that is being encoded is not worth waiting for.
        loop.add_signal_handler(number, os._exit, 0)
    try:
        await service.serve(listening)
    except (ImportError, OSError, ValueError, MemoryError) as error:
        log.critical("the embedding model could not be loaded: %s: %s", type(error).__name__, error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
