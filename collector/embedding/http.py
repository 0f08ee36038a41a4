"""Vectors from a server: OpenAI-compatible `/v1/embeddings`, or `/embed` of Text Embeddings Inference.

It lives in the embedder's one thread, with an event loop of its own. Whatever the server does ends in vectors that were
checked or in an EmbeddingError, within the time-out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import aiohttp
import msgspec
import numpy as np
from msgspec import Struct

from collector.config import HttpEmbedderSettings
from collector.embedding.failures import Breaker, EmbeddingError
from collector.embedding.windows import by_characters, in_windows
from collector.model import EmbeddingModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_ANSWER = 16 * 1024 * 1024  # bytes of one answer: 32 vectors of 4096 numbers are 3 MB
MAX_DIMENSIONS = 8192
MAX_VERSION = 128  # characters of the model's name as the server tells it
FIRST_WAIT = 5.0  # seconds until a server that failed too often is asked again, doubled up to LONGEST_WAIT
LONGEST_WAIT = 60.0
UNKNOWN = "unknown"  # the version of a model whose server does not say
SHORTEST_VECTOR = 1e-6  # length, below which a direction is noise


class _Item(Struct):
    index: int
    embedding: list[float]


class _OpenAiAnswer(Struct):
    """https://platform.openai.com/docs/api-reference/embeddings"""

    data: list[_Item]
    model: str | None = None


_decode_openai = msgspec.json.Decoder(_OpenAiAnswer).decode
_decode_tei = msgspec.json.Decoder(list[list[float]]).decode  # https://huggingface.github.io/text-embeddings-inference


class HttpEmbedder:
    """Asks a server, `batch` texts at a time. Longer texts than it reads are asked for in windows.

    The server is first asked by `embed`, so that one that is down keeps nobody waiting: until then `model` has no
    dimensions.
    """

    def __init__(
        self,
        settings: HttpEmbedderSettings,
        environ: Mapping[str, str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`environ` holds the key, under the name that the settings give. Raises ValueError where it does not."""
        self._settings = settings
        self._headers = {"Accept-Encoding": "identity", **_authorization(settings, environ)}
        self._monotonic = monotonic
        self._breaker = Breaker(settings.failures, FIRST_WAIT, LONGEST_WAIT)
        self._runner = asyncio.Runner()
        self._session: aiohttp.ClientSession | None = None
        name, _, version = (settings.calibrated_as or "").partition("@")
        self._model = EmbeddingModel(
            name or settings.model or settings.api,
            version or UNKNOWN,
            settings.dimensions or 0,
            settings.max_tokens,
            settings.languages or None,
        )

    @property
    def model(self) -> EmbeddingModel:
        return self._model

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (texts, dimensions). Raises EmbeddingError."""
        wait = self._breaker.wait(self._monotonic())
        if wait > 0.0:
            raise EmbeddingError("circuit_open", "the embedding server failed too often and is left alone", wait)
        try:
            return in_windows(texts, self._windows, self._asked, self._model.dimensions or self._learned_dimensions())
        except EmbeddingError as error:
            now = self._monotonic()
            self._breaker.failed(now)
            error.wait = self._breaker.wait(now) if self._breaker.is_open else None
            raise

    def close(self) -> None:
        """Hang up."""
        if self._session is not None:
            self._runner.run(self._session.close())
        self._runner.close()

    def _learned_dimensions(self) -> int:
        self._asked(("dimensions",))
        return self._model.dimensions

    def _windows(self, text: str) -> Iterator[str]:
        # A token is hardly ever less than a character, whatever the server's tokenizer is.
        return by_characters(text, self._settings.max_tokens)

    def _asked(self, texts: Sequence[str]) -> NDArray[np.float32]:
        try:
            rows = self._runner.run(self._batches(texts))
        except TimeoutError as error:
            raise EmbeddingError("timeout", f"no vectors within {self._settings.timeout:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise EmbeddingError("unreachable", f"the embedding server: {type(error).__name__}") from error
        self._breaker.succeeded()
        return rows

    async def _batches(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
            )
        left = iter(texts)
        rows: list[NDArray[np.float32]] = []
        async with asyncio.timeout(self._settings.timeout):
            while batch := list(islice(left, self._settings.batch)):
                rows.append(self._checked(await self._answer(self._session, batch), len(batch)))
        return np.concatenate(rows)

    async def _answer(self, session: aiohttp.ClientSession, texts: list[str]) -> bytes:
        # No redirects: the key and the texts are for the configured server.
        async with session.post(
            self._settings.url or "", data=self._request(texts), headers=_JSON, allow_redirects=False
        ) as response:
            if response.status != 200:
                raise EmbeddingError("status", f"the embedding server answered with status {response.status}")
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise EmbeddingError("malformed", "the embedding server compressed an answer unasked")
            body = bytearray()
            async for part in response.content.iter_any():
                body += part
                if len(body) > MAX_ANSWER:
                    raise EmbeddingError("too_large", f"the embedding server's answer is above {MAX_ANSWER} bytes")
        return bytes(body)

    def _request(self, texts: list[str]) -> bytes:
        http = self._settings
        if http.api == "tei":
            return msgspec.json.encode({"inputs": texts, "normalize": True, "truncate": False})
        asked: dict[str, object] = {"model": http.model, "input": texts}
        if http.dimensions is not None:
            asked["dimensions"] = http.dimensions
        return msgspec.json.encode(asked)

    def _checked(self, body: bytes, texts: int) -> NDArray[np.float32]:
        """Unit vectors, one a text and all of one size, which stays the same for good."""
        version = UNKNOWN
        try:
            if self._settings.api == "tei":
                rows = _decode_tei(body)
            else:
                told = _decode_openai(body)
                version = (told.model or version)[:MAX_VERSION]
                items = sorted(told.data, key=lambda item: item.index)
                if [item.index for item in items] != list(range(texts)):
                    raise EmbeddingError("malformed", "the embedding server's answer is not one vector for each text")
                rows = [item.embedding for item in items]
            vectors = np.array(rows, dtype=np.float32)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise EmbeddingError("malformed", f"the embedding server's answer: {type(error).__name__}") from error
        if vectors.ndim != 2 or len(vectors) != texts or not 1 <= vectors.shape[1] <= MAX_DIMENSIONS:
            raise EmbeddingError("malformed", "the embedding server's answer is not one vector for each text")
        expected = self._model.dimensions
        if expected and vectors.shape[1] != expected:
            raise EmbeddingError(
                "malformed",
                f"the embedding server answered with {vectors.shape[1]} dimensions where {expected} were expected",
            )
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        if not np.isfinite(lengths).all() or (lengths < SHORTEST_VECTOR).any():
            raise EmbeddingError("malformed", "the embedding server answered with vectors of no direction")
        if self._settings.calibrated_as is not None:
            version = self._model.version
        self._model = msgspec.structs.replace(self._model, version=version, dimensions=int(vectors.shape[1]))
        unit: NDArray[np.float32] = (vectors / lengths).astype(np.float32)
        return unit


_JSON = {"Content-Type": "application/json"}


def _authorization(http: HttpEmbedderSettings, environ: Mapping[str, str]) -> dict[str, str]:
    if http.key_env is None:
        return {}
    key = environ.get(http.key_env, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ValueError(f"the variable {http.key_env}, which embedder.http.key_env names, holds no usable key")
    return {"Authorization": f"Bearer {key}"}
