"""Content codings, taken off a copy of the bytes and bounded: gzip, deflate, br and zstd."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable
from typing import Protocol

import brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STEP = 64 * 1024  # decoded bytes taken at a time
FREE = 1024 * 1024  # up to here no ratio is asked
MAX_RATIO = 100  # decoded by coded bytes; JSON and event streams stay far below
MAX_CODINGS = 3


class Decoder(Protocol):
    def feed(self, data: bytes) -> Iterable[bytes]: ...


class BrokenCodingError(Exception):
    """The bytes do not follow their coding."""


class OverCapError(Exception):
    """More came out than may."""


class _Zlib:
    """gzip (of several members too) and deflate (with the zlib wrapper or raw, as senders differ)."""

    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._inner = zlib.decompressobj(wbits)
        self._fresh = True

    def feed(self, data: bytes) -> Iterable[bytes]:
        while data:
            try:
                out = self._inner.decompress(data, STEP)
            except zlib.error as error:
                if not (self._fresh and self._wbits == zlib.MAX_WBITS):
                    raise BrokenCodingError from error
                self._wbits = -zlib.MAX_WBITS
                self._inner = zlib.decompressobj(self._wbits)
                continue
            self._fresh = False
            yield out
            if self._inner.eof:
                data = self._inner.unused_data
                if not data.strip(b"\0"):  # padding after the last member
                    return
                self._inner = zlib.decompressobj(self._wbits)
            else:
                data = self._inner.unconsumed_tail
                while not data and len(out) == STEP:  # the window may hold more than was asked for
                    out = self._inner.decompress(b"", STEP)
                    yield out


class _Brotli:
    def __init__(self) -> None:
        self._inner = brotli.Decompressor()

    def feed(self, data: bytes) -> Iterable[bytes]:
        try:
            yield self._inner.process(data, output_buffer_limit=STEP)
            while not self._inner.can_accept_more_data():
                yield self._inner.process(b"", output_buffer_limit=STEP)
        except brotli.error as error:
            raise BrokenCodingError from error


class _Zstd:
    """Zstandard frames one after another."""

    def __init__(self) -> None:
        self._inner = zstd.ZstdDecompressor()

    def feed(self, data: bytes) -> Iterable[bytes]:
        try:
            while True:
                if self._inner.eof:
                    if not data:
                        return
                    self._inner = zstd.ZstdDecompressor()
                out = self._inner.decompress(data, STEP)
                yield out
                if self._inner.eof:
                    data = self._inner.unused_data
                elif self._inner.needs_input:
                    return
                else:
                    data = b""
        except zstd.ZstdError as error:
            raise BrokenCodingError from error


def _decoder(name: str) -> Decoder | None:
    match name:
        case "gzip" | "x-gzip":
            return _Zlib(zlib.MAX_WBITS | 16)
        case "deflate":
            return _Zlib(zlib.MAX_WBITS)
        case "br":
            return _Brotli()
        case "zstd":
            return _Zstd()
    return None


class ContentDecoder:
    """Takes off the codings named by `Content-Encoding` headers, last applied first.

    `anomalies` gets `encoding_unsupported`, `encoding_broken` or `decompress_over_cap`; after any of them nothing more
    comes out. At most `cap` bytes are decoded, and at most MAX_RATIO times what came in once that is over 1 MiB.
    """

    def __init__(self, encodings: Iterable[str], cap: int) -> None:
        names = [part.strip().lower() for value in encodings for part in value.split(",")]
        wanted = [name for name in names if name not in ("", "identity")]
        found = [_decoder(name) for name in reversed(wanted[:MAX_CODINGS])]
        self.anomalies: list[str] = []
        self.plain = not wanted
        self._steps = [step for step in found if step is not None]
        self._cap = cap
        self._taken = self._given = 0
        self._stopped = len(self._steps) < len(wanted)
        if self._stopped:
            self.anomalies.append("encoding_unsupported")

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Decoded pieces of at most STEP bytes each."""
        if self.plain:
            yield data
            return
        if self._stopped:
            return
        self._taken += len(data)
        try:
            yield from self._through(0, data)
        except BrokenCodingError:
            self._stop("encoding_broken")
        except OverCapError:
            self._stop("decompress_over_cap")

    def _through(self, step: int, data: bytes) -> Iterable[bytes]:
        if step == len(self._steps):
            self._given += len(data)
            if self._given > self._cap or self._given > max(FREE, MAX_RATIO * self._taken):
                raise OverCapError
            if data:
                yield data
            return
        for piece in self._steps[step].feed(data):
            yield from self._through(step + 1, piece)

    def _stop(self, word: str) -> None:
        self._stopped = True
        self.anomalies.append(word)
