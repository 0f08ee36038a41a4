"""Newline-delimited JSON: one value per line, the last line with or without its end."""

from __future__ import annotations

from collections.abc import Iterable

from collector.model import Frame

BOM = b"\xef\xbb\xbf"


class NdjsonCodec:
    """Bytes → one frame per line that is not blank, wherever the bytes are cut.

    A last line without its end is a frame too, told with `terminated` false. A line of more than `cap` bytes ends the
    reading.
    """

    def __init__(self, cap: int) -> None:
        self.anomalies: list[str] = []
        self._cap = cap
        self._line = bytearray()  # a line whose end has not come
        self._at_start = True
        self._stopped = False

    def feed(self, data: bytes) -> Iterable[Frame]:
        if self._stopped or not data:
            return ()
        first, newline, rest = data.partition(b"\n")
        self._line += first
        if not newline:
            self._over(len(self._line))
            return ()
        frames: list[Frame] = []
        self._take(bytes(self._line), frames)
        self._line.clear()
        *lines, last = rest.split(b"\n")
        for line in lines:
            self._take(line, frames)
        if not self._stopped and not self._over(len(last)):
            self._line += last
        return frames

    def close(self) -> Iterable[Frame]:
        if self._stopped:
            return ()
        self._stopped = True
        line = self._told(bytes(self._line))
        self._line.clear()
        return (Frame(line, terminated=False),) if line else ()

    def _take(self, line: bytes, frames: list[Frame]) -> None:
        if self._stopped or self._over(len(line)):
            return
        told = self._told(line)
        if told:
            frames.append(Frame(told))

    def _told(self, line: bytes) -> bytes:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(BOM)
        return line.strip()

    def _over(self, size: int) -> bool:
        if size > self._cap:
            self.anomalies.append("frame_over_cap")
            self._stopped = True
            self._line.clear()
        return self._stopped
