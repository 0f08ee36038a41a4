"""Messages that tell their length first, as in `application/x-claude-token-stream`; the payload is JSON or text.

The length is four bytes, big-endian, or a `Content-Length` line among header lines that an empty line ends, as the
Language Server Protocol frames its parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from collector.model import Frame

PREFIX = 4
MAX_HEAD = 4096  # bytes of the header lines of one part
_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*(\d{1,15})[ \t]*", re.IGNORECASE)
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_CLOSING = re.compile(rb"\s*--[\x21-\x7e ]*--\s*")  # what ends multipart bodies


class LengthPrefixedCodec:
    """Bytes → one frame per message, wherever the bytes are cut. The first byte tells which way lengths are told.

    The bound (`cap`) is checked before the message is waited for. A head without a length ends the reading. The first
    payload decides for all whether they are JSON or, with the kind `text`, what was generated itself.
    """

    def __init__(self, cap: int) -> None:
        self.anomalies: list[str] = []
        self._cap = cap
        self._buffer = bytearray()
        self._wanted: int | None = None  # length of the message that is waited for
        self._headed: bool | None = None
        self._is_text: bool | None = None
        self._stopped = False

    def feed(self, data: bytes) -> Iterable[Frame]:
        if self._stopped or not data:
            return ()
        self._buffer += data
        if self._headed is None:
            # A length whose first byte is that of a line would be over 160 MiB.
            self._headed = 0x20 <= self._buffer[0] < 0x7F or self._buffer[0] in b"\r\n"
        frames: list[Frame] = []
        at = 0
        while True:
            if self._wanted is None:
                at = self._head_from(at) if self._headed else self._prefix_from(at)
            if self._stopped or self._wanted is None or len(self._buffer) - at < self._wanted:
                break
            frames.append(self._frame(bytes(self._buffer[at : at + self._wanted])))
            at += self._wanted
            self._wanted = None
        del self._buffer[:at]
        return frames

    def close(self) -> Iterable[Frame]:
        rest = bytes(self._buffer)
        self._buffer.clear()
        if not self._stopped and (self._wanted is not None or (rest.strip(b"\r\n") and not _CLOSING.fullmatch(rest))):
            self.anomalies.append("unterminated_final_event")
        self._stopped = True
        return ()

    def _prefix_from(self, at: int) -> int:
        """Reads a length at `at`, once all of it has come; where its message starts."""
        if len(self._buffer) - at < PREFIX:
            return at
        self._want(int.from_bytes(self._buffer[at : at + PREFIX], "big"))
        return at + PREFIX

    def _head_from(self, at: int) -> int:
        """Reads header lines at `at`, once all of them have come; where their message starts."""
        while at < len(self._buffer) and self._buffer[at] in b"\r\n":
            at += 1
        end = _HEAD_END.search(self._buffer, at, at + MAX_HEAD)
        if end is None:
            if len(self._buffer) - at >= MAX_HEAD:
                self._stop("frame_over_cap")
            return at
        for line in self._buffer[at : end.start()].split(b"\n"):
            told = _LENGTH.fullmatch(line.rstrip(b"\r"))
            if told is not None:
                self._want(int(told[1]))
                return end.end()
        if _CLOSING.fullmatch(self._buffer, at, end.start()) is None:
            self._stop("framing_broken")
        else:
            self._stopped = True
        return at

    def _want(self, size: int) -> None:
        if size > self._cap:
            self._stop("frame_over_cap")
        else:
            self._wanted = size

    def _frame(self, payload: bytes) -> Frame:
        if not payload:
            return Frame(b"", None, "empty")
        if self._is_text is None:
            trimmed = payload.strip()
            self._is_text = not (trimmed.startswith(b"{") and trimmed.endswith(b"}"))
        if self._is_text:
            return Frame(payload, None, "text")
        return Frame(payload, None, "data" if payload.strip() else "empty")

    def _stop(self, word: str) -> None:
        self.anomalies.append(word)
        self._stopped = True
        self._buffer.clear()
