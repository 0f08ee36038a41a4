"""What the analyst and the embedder say to each other: length-prefixed msgpack on a Unix socket."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec
from msgspec import Struct

from collector.model import EmbeddingModel

MAX_TEXTS = 1024  # in one request
MAX_FRAME = 8 * 1024 * 1024  # bytes of one message; the vectors of MAX_TEXTS texts are 2 MiB
_LENGTH = 4  # bytes, big-endian, in front of every message

Unavailable = Literal["budget", "model_not_ready"]

# Why an embedder had no vectors: EMBEDDER_FAILURES of the catalogue.
Failure = Literal["unreachable", "timeout", "status", "too_large", "malformed", "circuit_open", "model_error"]


class Embed(Struct, frozen=True, array_like=True, tag="e"):
    """Asks for the vectors of texts. `id` comes back with the answer."""

    id: int
    texts: list[str]


class Status(Struct, frozen=True, array_like=True, tag="s"):
    """Told when a client connects, when the model has loaded, and when vectors cease or are to be had again.

    `pid` is the process, where it is one of its own; `model` is known from the first time that it is ready.
    """

    ready: bool
    pid: int | None = None
    model: EmbeddingModel | None = None


class Vectors(Struct, frozen=True, array_like=True, tag="v"):
    """Rows of `dimensions` float32 in the machine's own order, one for each text.

    `cpu` is the seconds that the process has spent since its last answer; `hits` are the texts that it remembered, None
    where it remembers none.
    """

    id: int
    dimensions: int
    rows: bytes
    cpu: float
    hits: int | None = None


class Refused(Struct, frozen=True, array_like=True, tag="r"):
    """No vectors for this request. `failure` where the embedder tried, or would have, and failed."""

    id: int
    reason: Unavailable
    failure: Failure | None = None


Answer = Status | Vectors | Refused

_encoder = msgspec.msgpack.Encoder()
decode_request = msgspec.msgpack.Decoder(Embed).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode


class FrameOverCapError(ValueError):
    """The other side announced a message larger than MAX_FRAME."""


def framed(message: Embed | Answer) -> bytes:
    """One message as it goes on the socket."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME:
        raise FrameOverCapError(f"a message of {len(body)} bytes is larger than {MAX_FRAME}")
    return len(body).to_bytes(_LENGTH, "big") + body


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """The next message. Raises asyncio.IncompleteReadError at the end, FrameOverCapError past the bound."""
    length = int.from_bytes(await reader.readexactly(_LENGTH), "big")
    if length > MAX_FRAME:
        raise FrameOverCapError(f"a message of {length} bytes was announced; at most {MAX_FRAME} are read")
    return await reader.readexactly(length)
