"""Bodies that are read once they are whole: JSON answers and requests."""

from __future__ import annotations

from collections.abc import Iterable

from collector.model import Frame


class WholeCodec:
    """Collects up to `cap` bytes and yields them as one frame at the end; beyond it they are let go."""

    def __init__(self, cap: int) -> None:
        self.anomalies: list[str] = []
        self._cap = cap
        self._body: bytes | bytearray = b""  # as it came, while it came in one piece

    def feed(self, data: bytes) -> Iterable[Frame]:
        body = self._body
        if self.anomalies:
            return ()
        if len(body) + len(data) > self._cap:
            self._body = b""
            self.anomalies.append("frame_over_cap")
        elif not body:
            self._body = data
        elif isinstance(body, bytearray):
            body += data
        else:
            self._body = bytearray(body)
            self._body += data
        return ()

    def close(self) -> Iterable[Frame]:
        body = self.take()
        return () if body is None else (Frame(body),)

    def take(self) -> bytes | None:
        """What came, once; None where that is nothing but white space."""
        body, self._body = bytes(self._body), b""
        return body if body and not body.isspace() else None
