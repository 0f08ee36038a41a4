"""Bodies that are read once they are whole: JSON answers and requests."""

from __future__ import annotations

from collections.abc import Iterable

from collector.model import Frame


class WholeCodec:
    """Collects up to `cap` bytes and yields them as one frame at the end; beyond it they are let go."""

    def __init__(self, cap: int) -> None:
        self.anomalies: list[str] = []
        self._cap = cap
        self._body = bytearray()

    def feed(self, data: bytes) -> Iterable[Frame]:
        if self.anomalies:
            return ()
        if len(self._body) + len(data) > self._cap:
            self._body.clear()
            self.anomalies.append("frame_over_cap")
        else:
            self._body += data
        return ()

    def close(self) -> Iterable[Frame]:
        body = bytes(self._body)
        self._body.clear()
        return (Frame(body),) if body.strip() else ()
