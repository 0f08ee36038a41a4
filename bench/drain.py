"""A reader at the other end of the tap that reads all and does nothing with it: what is left is the tap's own cost."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from collector.model import Acknowledged, ExchangeEnded, ProxyVitals, decode_events, encode_acknowledged


class Drain(asyncio.Protocol):
    """Acknowledges every batch, and every exchange that ended in it."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._is_greeted = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= 4:
            end = at + 4 + int.from_bytes(self._buffer[at : at + 4], "big")
            if len(self._buffer) < end:
                break
            self._take(bytes(self._buffer[at + 4 : end]))
            at = end
        del self._buffer[:at]

    def _take(self, batch: bytes) -> None:
        events = decode_events(batch)
        if not self._is_greeted and any(isinstance(event, ProxyVitals) for event in events):
            self._is_greeted = True
            self._put(Acknowledged(0, [], is_greeting=True))
        self._put(Acknowledged(1, [event.id for event in events if isinstance(event, ExchangeEnded)]))

    def _put(self, answer: Acknowledged) -> None:
        assert self._transport is not None
        body = encode_acknowledged(answer)
        self._transport.write(len(body).to_bytes(4, "big") + body)


async def serve(path: Path) -> None:
    """Until the process is ended."""
    server = await asyncio.get_running_loop().create_unix_server(Drain, path)
    await server.serve_forever()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="drain", description=__doc__)
    parser.add_argument("path", type=Path, help="of the Unix socket")
    asyncio.run(serve(parser.parse_args(arguments).path))


if __name__ == "__main__":
    main()
