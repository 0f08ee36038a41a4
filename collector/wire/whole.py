"""Bodies that are read once they are whole: JSON answers and requests."""

from __future__ import annotations

from collections.abc import Iterable

from collector.model import Frame


class WholeCodec:
    """Collects up to `cap` bytes and yields them as one frame at the end; beyond it they are let go."""

    def __init__(self, cap: int) -> None:
        self.anomalies: list[str] = []
        self._cap = cap
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterable[Frame]:
        self._size += len(data)
        if self._size <= self._cap:
            self._parts.append(data)
        elif self._parts:
            self._parts.clear()
            self.anomalies.append("frame_over_cap")
        return ()

    def close(self) -> Iterable[Frame]:
        body = b"".join(self._parts)
        self._parts.clear()
        return (Frame(body),) if body.strip() else ()
