"""Server-sent events, as far as LLM APIs use them."""

from __future__ import annotations

from collections.abc import Iterable

from collector.model import Frame

BOM = b"\xef\xbb\xbf"


class SseCodec:
    """Bytes → one frame per event and per comment line, wherever the bytes are cut.

    Lines end with CR, LF or CRLF (WHATWG HTML, 9.2.6); U+2028 and its like are data. An event that the body's end cuts
    off is told with `terminated` false. An event of more than `cap` bytes ends the reading.
    """

    def __init__(self, cap: int) -> None:
        self.anomalies: list[str] = []
        self._cap = cap
        self._line: list[bytes] = []  # parts of a line whose end has not come
        self._line_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._event: str | None = None
        self._after_cr = False
        self._at_start = True
        self._stopped = False

    def feed(self, data: bytes) -> Iterable[Frame]:
        if self._stopped or not data:
            return ()
        # Most reads hold exactly one whole event of one line.
        if (
            not self._line
            and not self._data
            and self._event is None
            and data.startswith(b"data: {")
            and data.endswith(b"}\n\n")
            and data.find(b"\n") == len(data) - 2
            and b"\r" not in data
            and len(data) <= self._cap
        ):
            self._at_start = self._after_cr = False
            return (Frame(data[6:-2]),)
        if self._after_cr:
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
        if b"\n" not in data and b"\r" not in data:
            self._keep(data)
            return ()
        return self._lines(data)

    def close(self) -> Iterable[Frame]:
        """What the end of the body cut off, if anything."""
        if self._stopped:
            return ()
        self._stopped = True
        frames: list[Frame] = []
        if self._line:
            self._read_line(b"".join(self._line), frames)
        if self._data:
            data = b"\n".join(self._data)
            if data:
                self.anomalies.append("unterminated_final_event")
                frames.append(Frame(data, self._event, terminated=False))
        return frames

    def _keep(self, part: bytes) -> None:
        if part:
            self._line.append(part)
            self._line_size += len(part)
            self._check(self._line_size + self._data_size)

    def _check(self, size: int) -> None:
        if size > self._cap:
            self.anomalies.append("event_over_cap")
            self._stopped = True
            self._line.clear()
            self._data.clear()

    def _lines(self, data: bytes) -> list[Frame]:
        self._line.append(data)
        whole = b"".join(self._line)
        self._line.clear()
        self._line_size = 0
        lines = whole.splitlines()  # on bytes: CR, LF and CRLF only
        rest = b""
        if whole.endswith(b"\r"):
            self._after_cr = True
        elif not whole.endswith(b"\n"):
            rest = lines.pop()
        frames: list[Frame] = []
        for line in lines:
            self._read_line(line, frames)
            if self._stopped:
                return frames
        self._keep(rest)
        return frames

    def _read_line(self, line: bytes, frames: list[Frame]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(BOM)
        if not line:
            self._dispatch(frames)
        elif line.startswith(b"data:"):
            self._add(line[6:] if line[5:6] == b" " else line[5:])
        elif line.startswith(b":"):
            frames.append(Frame(b"", None, "comment"))
        elif line.startswith(b"event:"):
            self._event = line[6:].strip().decode("utf-8", "replace")[:64]
        elif line == b"data":
            self._add(b"")

    def _add(self, value: bytes) -> None:
        self._data.append(value)
        self._data_size += len(value) + 1
        self._check(self._data_size)

    def _dispatch(self, frames: list[Frame]) -> None:
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            frames.append(Frame(data, self._event, "data" if data.strip() else "empty"))
            self._data.clear()
            self._data_size = 0
        elif self._event is not None:
            frames.append(Frame(b"", self._event, "empty"))
        self._event = None
