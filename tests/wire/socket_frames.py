"""WebSocket frames, made to measure."""

from __future__ import annotations

import json
import zlib
from typing import Any

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
MASK = b"\x37\xfa\x21\x3d"


def frame(opcode: int, payload: bytes = b"", *, last: bool = True, masked: bool = False, reserved: int = 0) -> bytes:
    size = len(payload)
    if size < 126:
        lengths = bytes([size])
    elif size <= 0xFFFF:
        lengths = b"\x7e" + size.to_bytes(2, "big")
    else:
        lengths = b"\x7f" + size.to_bytes(8, "big")
    if masked:
        payload = MASK + bytes(byte ^ MASK[place % 4] for place, byte in enumerate(payload))
        lengths = bytes([lengths[0] | 0x80]) + lengths[1:]
    return bytes([(0x80 if last else 0) | reserved | opcode]) + lengths + payload


def message(value: Any, *, masked: bool = False) -> bytes:
    """One text message of JSON."""
    return frame(TEXT, json.dumps(value, ensure_ascii=False).encode(), masked=masked)


def close(code: int, reason: bytes = b"", *, masked: bool = False) -> bytes:
    return frame(CLOSE, code.to_bytes(2, "big") + reason, masked=masked)


class Deflating:
    """A sender that deflates, with the context kept."""

    def __init__(self) -> None:
        self._inner = zlib.compressobj(wbits=-15)

    def deflated(self, data: bytes) -> bytes:
        out = self._inner.compress(data) + self._inner.flush(zlib.Z_SYNC_FLUSH)
        return out.removesuffix(b"\x00\x00\xff\xff")
