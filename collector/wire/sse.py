"""Server-sent events, as far as LLM APIs use them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from collector.model import Frame

BOM = b"\xef\xbb\xbf"
DATA = b"data: "
MAX_NAME = 64  # characters kept of an event's name
MAX_TAKEN_BACK = 16 * 1024  # bytes of an event that are taken back: each time all of them are looked at again


class SseCodec:
    """Bytes → one frame per event and per comment line, wherever the bytes are cut.

    Lines end with CR, LF or CRLF (WHATWG HTML, 9.2.6); U+2028 and its like are data. An event that the body's end cuts
    off is told with `terminated` false. A line, or the data of an event, of more than `cap` bytes ends the reading.
    """

    def __init__(self, cap: int) -> None:
        self.anomalies: list[str] = []
        self._cap = cap
        self._line = bytearray()  # a line whose end has not come
        self._data: bytes | None = None  # the first line of data of an event, and
        self._more = bytearray()  # those after it, each with a newline before it
        self._data_size = 0
        self._event: str | None = None
        self._after_cr = False
        self._at_start = True
        self._between_events = True
        self._stopped = False

    def feed(self, data: bytes) -> Iterable[Frame]:
        if self._stopped or not data:
            return ()
        if self._between_events and data[-3:] == b"}\n\n" and len(data) <= self._cap:
            # Most reads are one whole event with one line of JSON. (Slices compare faster than methods look.)
            lines = data.splitlines()
            first = lines[0]
            if len(lines) == 2 and first[:6] == b"data: ":
                self._at_start = self._after_cr = False
                return (Frame(first[6:]),)
            if len(lines) == 3 and first[:7] == b"event: " and lines[1][:6] == b"data: " and len(first) <= MAX_NAME:
                self._at_start = self._after_cr = False
                return (Frame(lines[1][6:], _short_name(first[7:])),)
        self._between_events = False
        if self._after_cr:
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
        self._line += data
        if data.find(b"\n") < 0 and data.find(b"\r") < 0:
            if len(self._line) + self._data_size > self._cap:
                self._give_up()
            return ()
        return self._lines()

    def take_back(self) -> bytes | None:
        """What was fed of an event that has not ended, to be fed again: the same event, if not byte for byte.

        None where that is not known, or is much.
        """
        if self._between_events and not self._stopped:
            return b""
        if self._stopped or self._after_cr or self._at_start or self._more or len(self._line) > MAX_TAKEN_BACK:
            return None
        start = b"" if self._event is None else _start_of(self._event)
        if start is None or self._data_size > MAX_TAKEN_BACK:
            return None
        if self._event is not None:
            start = start[: -len(DATA)]
        data = b"" if self._data is None else DATA + self._data + b"\n"
        waits = start + data + self._line
        self._line.clear()
        self._data, self._data_size, self._event = None, 0, None
        self._between_events = True
        return waits

    def split(self, data: bytes) -> list[bytes]:
        """The whole events that `data` begins with, each with the empty line after it; none where lines end with CR."""
        if data.find(b"\r") >= 0:
            return []
        return [event + b"\n\n" for event in data.split(b"\n\n")[:-1]]

    def payloads(self, events: Sequence[bytes], name: str | None) -> list[bytes]:
        """The data of the first events, as far as each has that name and one line of JSON and nothing else.

        Feeding them would tell nothing else of them; they need not be fed any more.
        """
        found: list[bytes] = []
        start = _start_of(name)
        if self._stopped or not self._between_events or start is None:
            return found
        skip = len(start)
        for event in events:
            size = len(event)
            if event[:skip] != start or event.find(b"\n", skip) != size - 2:
                break
            # (To ask a byte string whether another is `in` it costs ten times as much as to find it there.)
            if event[-3:] != b"}\n\n" or event.find(b"\r") >= 0 or size > self._cap:
                break
            found.append(event[skip:-2])
        if found:
            self._at_start = self._after_cr = False
        return found

    def close(self) -> Iterable[Frame]:
        """What the end of the body cut off, if anything."""
        if self._stopped:
            return ()
        frames: list[Frame] = []
        if self._line:
            self._read_line(bytes(self._line), frames)
        if not self._stopped and self._data is not None:
            data = self._data + self._more
            if data.strip(b"\n"):
                self.anomalies.append("unterminated_final_event")
                frames.append(Frame(data, self._event, terminated=False))
        self._let_go()
        return frames

    def _lines(self) -> list[Frame]:
        whole = bytes(self._line)
        self._line.clear()
        lines = whole.splitlines()  # on bytes: CR, LF and CRLF only
        if whole.endswith(b"\r"):
            self._after_cr = True
        elif not whole.endswith(b"\n"):
            self._line += lines.pop()
        frames: list[Frame] = []
        for line in lines:
            self._read_line(line, frames)
            if self._stopped:
                return frames
        if len(self._line) + self._data_size > self._cap:
            self._give_up()
        self._between_events = not self._line and self._data is None and self._event is None
        return frames

    def _give_up(self) -> None:
        self.anomalies.append("event_over_cap")
        self._let_go()

    def _let_go(self) -> None:
        self._stopped = True
        self._line.clear()
        self._more.clear()
        self._data = None

    def _read_line(self, line: bytes, frames: list[Frame]) -> None:
        if len(line) + self._data_size > self._cap:
            self._give_up()
            return
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(BOM)
        if not line:
            self._dispatch(frames)
        elif line.startswith(b"data: "):
            self._add(line[6:])
        elif line.startswith(b"data:"):
            self._add(line[5:])
        elif line.startswith(b":"):
            frames.append(Frame(b"", None, "comment"))
        elif line.startswith(b"event:"):
            self._event = _name(line[6:])
        elif line == b"data":
            self._add(b"")

    def _add(self, value: bytes) -> None:
        if self._data is None:
            self._data = value
        else:
            self._more += b"\n"
            self._more += value
        self._data_size += len(value) + 1

    def _dispatch(self, frames: list[Frame]) -> None:
        if self._data is not None:
            data = self._data
            if self._more:
                data += self._more
                self._more.clear()
            frames.append(Frame(data, self._event, "empty" if not data or data.isspace() else "data"))
            self._data = None
            self._data_size = 0
        elif self._event is not None:
            frames.append(Frame(b"", self._event, "empty"))
        self._event = None


def _name(value: bytes) -> str:
    return value.strip().decode("utf-8", "replace")[:MAX_NAME]


_short_name = lru_cache(maxsize=256)(_name)  # names; a provider has few


@lru_cache(maxsize=256)
def _start_of(event: str | None) -> bytes | None:
    """How an event of this name mostly begins, up to its data; None where a name is not read as it is written so."""
    if event is None:
        return DATA
    name = event.encode()
    return b"event: %b\n%b" % (name, DATA) if len(name) < MAX_NAME and _name(name) == event else None
