"""Bodies cut at any places, and what a codec makes of them."""

from __future__ import annotations

from collector.model import Codec, Frame


def cut(body: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(body) + 1) for place in places} | {len(body)})
    return [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def single(body: bytes) -> list[bytes]:
    return [body[place : place + 1] for place in range(len(body))]


def read(codec: Codec, pieces: list[bytes]) -> tuple[list[Frame], list[str]]:
    frames = [frame for piece in pieces for frame in codec.feed(piece)]
    frames += codec.close()
    return frames, codec.anomalies
