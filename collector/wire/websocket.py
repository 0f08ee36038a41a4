"""WebSocket messages (RFC 6455), with permessage-deflate (RFC 7692) where it was agreed on."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Literal

from collector.model import Frame
from collector.wire.content_coding import FREE, MAX_RATIO

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
MAX_CONTROL = 125  # bytes of a control frame (RFC 6455, 5.5)
TAIL = b"\x00\x00\xff\xff"  # what a sender takes off the end of a deflated message (RFC 7692, 7.2.1)


def deflate_context(extensions: Iterable[str], sender: Literal["client", "server"]) -> bool | None:
    """Whether the deflated messages of a side lean on those before them; None where deflating was not agreed on.

    `extensions` are the values of the answer's `Sec-WebSocket-Extensions`.
    """
    for value in extensions:
        for extension in value.split(","):
            name, *parameters = (part.strip().lower() for part in extension.split(";"))
            if name == "permessage-deflate":
                return f"{sender}_no_context_takeover" not in parameters
    return None


class _OverCapError(Exception):
    """More came out of a message than may."""


class _Deflated:
    """Deflated messages of one side."""

    def __init__(self, keeps_context: bool) -> None:
        self._keeps_context = keeps_context
        self._inner = zlib.decompressobj(-zlib.MAX_WBITS)

    def message(self, data: bytes, cap: int) -> bytes:
        """Raises zlib.error or _OverCapError."""
        limit = min(cap, max(FREE, MAX_RATIO * len(data)))
        out = self._inner.decompress(data + TAIL, limit + 1)
        if len(out) > limit:
            raise _OverCapError
        if self._inner.eof or not self._keeps_context:
            self._inner = zlib.decompressobj(-zlib.MAX_WBITS)
        return out


class WebSocketCodec:
    """Bytes of one direction, masked or not → one frame per message, ping, pong and close, wherever they are cut.

    A text message is `data`, and so is a binary one, whose `event` is `binary`. Pings and pongs are of kind `ping`. A
    close is of kind `close`: its event is the code, if it gave one, and its data the reason; nothing after it is read.
    `deflated` says how messages are deflated (see `deflate_context`). A message of more than `cap` bytes, checked
    before it is waited for, ends the reading, and so does what is no WebSocket.
    """

    def __init__(self, cap: int, deflated: bool | None = None) -> None:
        self.anomalies: list[str] = []
        self._cap = cap
        self._deflated = _Deflated(deflated) if deflated is not None else None
        self._buffer = bytearray()
        self._message = bytearray()  # fragments so far
        self._kind: int | None = None  # TEXT or BINARY while a message is open
        self._is_deflated = False
        self._stopped = False

    def feed(self, data: bytes) -> Iterable[Frame]:
        if self._stopped:
            return ()
        return self._frames(data)

    def _frames(self, data: bytes) -> Iterable[Frame]:
        """One by one: a read of little messages may be many large ones once they are inflated."""
        self._buffer += data
        at = 0
        while not self._stopped:
            frames: list[Frame] = []
            size = self._next(at, frames)
            yield from frames
            if not size:
                break
            at += size
        if at and not self._stopped:
            del self._buffer[:at]

    def close(self) -> Iterable[Frame]:
        """The connection is over; a message that it cut off is told as an anomaly only."""
        if not self._stopped and (self._buffer or self._kind is not None):
            self.anomalies.append("unterminated_final_event")
        self._end()
        return ()

    def _next(self, at: int, frames: list[Frame]) -> int:
        """Read the frame that begins at `at`; its size, 0 where it has not come in full or there will be none."""
        buffer = self._buffer
        have = len(buffer) - at
        if have < 2:
            return 0
        first, second = buffer[at], buffer[at + 1]
        opcode, is_last, length, start = first & 0x0F, bool(first & 0x80), second & 0x7F, 2
        if not self._makes_sense(first, length):
            self._stop("framing_broken")
            return 0
        if length >= 126:
            start = 4 if length == 126 else 10
            if have < start:
                return 0
            length = int.from_bytes(buffer[at + 2 : at + start], "big")
        if length + len(self._message) > self._cap and opcode < CLOSE:
            self._stop("frame_over_cap")
            return 0
        mask = b""
        if second & 0x80:
            mask = bytes(buffer[at + start : at + start + 4])
            start += 4
        if have < start + length:
            return 0
        payload = bytes(buffer[at + start : at + start + length])
        if mask:
            payload = _unmasked(payload, mask)
        if opcode >= CLOSE:
            self._control(opcode, payload, frames)
        else:
            if opcode != CONTINUATION:
                self._kind = opcode
                self._is_deflated = bool(first & 0x40)
            self._message += payload
            if is_last:
                self._whole(frames)
        return start + length

    def _makes_sense(self, first: int, length: int) -> bool:
        """Whether a frame may begin so, here."""
        opcode, is_last, reserved = first & 0x0F, first & 0x80, first & 0x70
        if opcode in (CLOSE, PING, PONG):
            return bool(is_last) and not reserved and length <= MAX_CONTROL
        if opcode == CONTINUATION:
            return self._kind is not None and not reserved
        if opcode not in (TEXT, BINARY) or self._kind is not None:
            return False
        return not reserved or (reserved == 0x40 and self._deflated is not None)

    def _control(self, opcode: int, payload: bytes, frames: list[Frame]) -> None:
        if opcode != CLOSE:
            frames.append(Frame(b"", None, "ping"))
            return
        code = str(int.from_bytes(payload[:2], "big")) if len(payload) >= 2 else None
        frames.append(Frame(payload[2:], code, "close"))
        self._end()

    def _whole(self, frames: list[Frame]) -> None:
        """The message's last frame has come."""
        data, name = bytes(self._message), "binary" if self._kind == BINARY else None
        self._message.clear()
        self._kind = None
        if self._is_deflated and self._deflated is not None:
            try:
                data = self._deflated.message(data, self._cap)
            except zlib.error:
                self._stop("encoding_broken")
                return
            except _OverCapError:
                self._stop("decompress_over_cap")
                return
        frames.append(Frame(data, name, "data" if data and not data.isspace() else "empty"))

    def _stop(self, word: str) -> None:
        self.anomalies.append(word)
        self._end()

    def _end(self) -> None:
        self._stopped = True
        self._kind = None
        self._deflated = None  # with what it has not inflated
        self._buffer.clear()
        self._message.clear()


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
