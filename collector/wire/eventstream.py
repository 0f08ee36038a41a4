"""AWS event streams: binary frames with a prelude, typed headers and two checksums."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat

from collector.model import Frame

PRELUDE = 12
LEAST = 16  # prelude and message CRC
MAX_WORD = 64  # characters kept of an event's type
MAX_HEADERS = 128 * 1024  # bytes of a message's headers; the SDKs of AWS take no more (aws-c-event-stream)
MAX_TAKEN_BACK = 16 * 1024  # bytes of a message that are taken back: each time all of them are looked at again
MAX_HELD = 1024  # bytes of headers that are held to be compared with the next
_HEADS = struct.Struct(">III")
_CRC = struct.Struct(">I")
# Sizes of header values by type; 6 and 7 carry a two-byte length of their own (byte array, string).
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}


class EventStreamCodec:
    """Bytes → one frame per message, wherever the bytes are cut.

    Its `event` is the event type; an exception's is `exception:NAME`, an error's `error:CODE`. The prelude's CRC and
    the size bounds (`cap`, MAX_HEADERS) are checked before the rest is waited for. A wrong checksum or a length that
    cannot be ends the reading, since nothing after it can be trusted.
    """

    def __init__(self, cap: int) -> None:
        self.anomalies: list[str] = []
        self._cap = cap
        self._buffer = bytearray()
        self._stopped = False
        self._head = b""  # the headers of the last message: those of the next are mostly the same
        self._event: str | None = None
        self._is_fault = False

    def feed(self, data: bytes) -> Iterable[Frame]:
        if self._stopped:
            return ()
        # Most reads are one whole message, and need no buffer.
        if not self._buffer and len(data) >= LEAST:
            total, headers, crc = _HEADS.unpack_from(data)
            if (
                total == len(data) <= self._cap
                and total >= LEAST + headers
                and crc == zlib.crc32(data[:8])
                and _CRC.unpack_from(data, total - 4)[0] == zlib.crc32(data[:-4])
            ):
                return (self._frame(data, PRELUDE + headers),)
        source: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            source = self._buffer
        size = len(source)
        frames: list[Frame] = []
        at = 0
        while size - at >= PRELUDE:
            total, headers, crc = _HEADS.unpack_from(source, at)
            if total > self._cap or headers > MAX_HEADERS:
                self._stop("frame_over_cap")
                return frames
            if total < LEAST + headers or crc != zlib.crc32(source[at : at + 8]):
                self._stop("crc_mismatch")
                return frames
            if size - at < total:
                break
            message = bytes(source[at : at + total])
            if _CRC.unpack_from(message, total - 4)[0] != zlib.crc32(message[:-4]):
                self._stop("crc_mismatch")
                return frames
            frames.append(self._frame(message, PRELUDE + headers))
            at += total
        if source is not data:
            del self._buffer[:at]
        elif at < size:
            self._buffer += data[at:]
        return frames

    def take_back(self) -> bytes | None:
        """What was fed of a message that has not ended, to be fed again; None where it is much."""
        if self._stopped or len(self._buffer) > MAX_TAKEN_BACK:
            return None
        waits = bytes(self._buffer)
        self._buffer.clear()
        return waits

    def split(self, data: bytes) -> list[bytes]:
        """The messages that `data` begins with, by the lengths that they state."""
        messages: list[bytes] = []
        at, size = 0, len(data)
        while size - at >= LEAST:
            end = at + int.from_bytes(data[at : at + 4], "big")
            if not at + LEAST <= end <= size:
                break
            messages.append(data[at:end])
            at = end
        return messages

    def payloads(self, events: Sequence[bytes], name: str | None) -> list[bytes]:
        """The data of the first messages, as far as each is whole and has the headers of the one before it.

        Feeding them would tell nothing else of them; they need not be fed any more. Empty where the last message is not
        of this name.
        """
        found: list[bytes] = []
        head = self._head
        if self._stopped or self._buffer or self._is_fault or not head or name != self._event:
            return found
        if not events or max(map(len, events)) > self._cap:
            return found
        start = PRELUDE + len(head)
        for message, begin in zip(events, map(_begin, map(len, events), repeat(head)), strict=True):
            if not message.startswith(begin) or int.from_bytes(message[-4:], "big") != zlib.crc32(message[:-4]):
                break
            found.append(message[start:-4])
        return found

    def close(self) -> Iterable[Frame]:
        if self._buffer and not self._stopped:
            self.anomalies.append("unterminated_final_event")
        self._buffer.clear()
        self._stopped = True
        return ()

    def _stop(self, word: str) -> None:
        self.anomalies.append(word)
        self._stopped = True
        self._buffer.clear()

    def _frame(self, message: bytes, start: int) -> Frame:
        head = message[PRELUDE:start]
        if not head or head != self._head:
            self._event = event = _event_of(_headers(head))
            self._is_fault = event is not None and event.startswith(("exception:", "error:"))
            self._head = head if len(head) <= MAX_HELD else b""
        payload = message[start:-4]
        if self._is_fault:
            return Frame(payload or b"{}", self._event)
        return Frame(payload, self._event, "data" if payload else "empty")


@lru_cache(maxsize=1024)  # the messages of a stream are of much the same lengths
def _begin(total: int, head: bytes) -> bytes:
    """The prelude and the headers of a message of this length; more than is in one that has no payload."""
    prelude = struct.pack(">II", total, len(head))
    begin = prelude + _CRC.pack(zlib.crc32(prelude)) + head
    return begin if total > len(begin) + 4 else begin + bytes(5)


def _event_of(named: dict[str, str]) -> str | None:
    match named.get(":message-type"):
        case "exception":
            return f"exception:{named.get(':exception-type', '')[:MAX_WORD]}"
        case "error":
            return f"error:{named.get(':error-code', '')[:MAX_WORD]}"
    return named.get(":event-type", "")[:MAX_WORD] or None


def _headers(block: bytes) -> dict[str, str]:
    """Header values that are strings, by name; the others are stepped over. Stops where the block makes no sense."""
    found: dict[str, str] = {}
    at = 0
    while at + 2 <= len(block):
        name_end = at + 1 + block[at]
        if name_end >= len(block):
            break
        name, kind = block[at + 1 : name_end].decode("utf-8", "replace"), block[name_end]
        at = name_end + 1
        if kind in _FIXED:
            at += _FIXED[kind]
        elif kind in (6, 7):
            size = int.from_bytes(block[at : at + 2], "big")
            if kind == 7:
                found[name] = block[at + 2 : at + 2 + size].decode("utf-8", "replace")
            at += 2 + size
        else:
            break
    return found
