"""Bodies of 200 MB pass in both directions, with a length and in chunks, without the sidecar holding them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Sidecar

from .stage import Stage
from .test_messages import OK
from .wires import Body, Wire

PIECE = bytes(range(256)) * 1024  # 256 KiB
PIECES = 800  # 200 MiB
MOST_HELD = 100 << 20  # bytes that the largest of the sidecar's processes may have grown to

FRAMINGS = ("length", "chunks")


def _line(framing: str) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % (len(PIECE) * PIECES) if framing == "length" else (
        b"Transfer-Encoding: chunked\r\n\r\n"
    )  # fmt: skip


def _body(framing: str) -> Iterator[bytes]:
    if framing == "length":
        for _ in range(PIECES):
            yield PIECE
    else:
        chunk = b"%x\r\n%b\r\n" % (len(PIECE), PIECE)
        for _ in range(PIECES):
            yield chunk
        yield b"0\r\nX-Sum: 1\r\n\r\n"


@pytest.mark.parametrize("framing", FRAMINGS)
def test_an_upload_of_200_mb(stage: Stage, framing: str) -> None:
    def client(wire: Wire) -> None:
        wire.send(b"POST /v1/files HTTP/1.1\r\nHost: <host>\r\n" + _line(framing))
        wire.send_all(_body(framing))
        wire.response()

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(OK)

    heard = stage.same(client, upstream)
    assert isinstance(heard.upstream[1], Body)
    assert heard.upstream[1].size >= len(PIECE) * PIECES


@pytest.mark.parametrize("framing", [*FRAMINGS, "close"])
def test_an_answer_of_200_mb(stage: Stage, framing: str) -> None:
    def client(wire: Wire) -> None:
        wire.send(b"GET /v1/files/1/content HTTP/1.1\r\nHost: <host>\r\n\r\n")
        wire.response()

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(b"HTTP/1.1 200 OK\r\n" + (b"\r\n" if framing == "close" else _line(framing)))
        wire.send_all(_body("length" if framing == "close" else framing))
        if framing == "close":
            wire.leave("fin")

    heard = stage.same(client, upstream)
    assert isinstance(heard.client[1], Body)
    assert heard.client[1].size >= len(PIECE) * PIECES


def test_the_proxy_has_held_little_of_it(sidecar: Sidecar) -> None:
    status = Path(f"/proc/{sidecar.pid('collector.proxy.worker')}/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak is not None
    assert int(peak[1]) << 10 < MOST_HELD
