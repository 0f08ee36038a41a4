"""Bodies that are passed by unread: audio, images, transports that no codec reads."""

from __future__ import annotations

from collections.abc import Iterable

from collector.model import Frame


class OpaqueCodec:
    """Reads nothing."""

    def __init__(self) -> None:
        self.anomalies: list[str] = []

    def feed(self, data: bytes) -> Iterable[Frame]:
        return ()

    def close(self) -> Iterable[Frame]:
        return ()
