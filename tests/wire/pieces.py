"""Bodies cut at any places, and what a codec makes of them."""

from __future__ import annotations

from collector.model import Codec, Frame, FrameSource


def cut(body: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(body) + 1) for place in places} | {len(body)})
    return [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def single(body: bytes) -> list[bytes]:
    return [body[place : place + 1] for place in range(len(body))]


def read(codec: Codec, pieces: list[bytes]) -> tuple[list[Frame], list[str]]:
    frames = [frame for piece in pieces for frame in codec.feed(piece)]
    frames += codec.close()
    return frames, codec.anomalies


def read_by_events(codec: FrameSource, pieces: list[bytes]) -> tuple[list[Frame], list[str]]:
    """What it makes of them if what waits is taken back before each, and whole events are fed by themselves."""
    frames: list[Frame] = []
    for piece in pieces:
        waits = codec.take_back()
        data = piece if waits is None else waits + piece
        for event in codec.split(data) if waits is not None else ():
            assert data.startswith(event)
            data = data[len(event) :]
            frames += codec.feed(event)
        frames += codec.feed(data)
    frames += codec.close()
    return frames, codec.anomalies
