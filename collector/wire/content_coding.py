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
MAX_RATIO = 50  # decoded by coded bytes; JSON and event streams stay far below
MAX_CODINGS = 3


class Decoder(Protocol):
    def feed(self, data: bytes) -> Iterable[bytes]: ...


class BrokenCodingError(Exception):
    """The bytes do not follow their coding."""


class OverCapError(Exception):
    """More came out than may."""


class _Inflater(Protocol):
    """What zlib's decompression objects are, here."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _inflate(inner: _Inflater, data: bytes) -> Iterable[bytes]:
    """Everything that comes out of `data`, STEP bytes at a time, up to the end of the stream."""
    while True:
        try:
            out = inner.decompress(data, STEP)
        except zlib.error as error:
            raise BrokenCodingError from error
        yield out
        data = inner.unconsumed_tail
        if inner.eof or (not data and len(out) < STEP):
            return


class _Gzip:
    """Members one after another, with or without zeros between them."""

    def __init__(self) -> None:
        self._inner: _Inflater | None = None

    def feed(self, data: bytes) -> Iterable[bytes]:
        while data:
            if self._inner is None:
                self._inner = zlib.decompressobj(zlib.MAX_WBITS | 16)
            elif self._inner.eof:
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._inner = zlib.decompressobj(zlib.MAX_WBITS | 16)
            yield from _inflate(self._inner, data)
            data = self._inner.unused_data if self._inner.eof else b""


class _Deflate:
    """With the zlib wrapper as RFC 9110 says, or without it as some send it; told apart by the wrapper's header."""

    def __init__(self) -> None:
        self._head = b""
        self._inner: _Inflater | None = None

    def feed(self, data: bytes) -> Iterable[bytes]:
        if self._inner is None:
            data = self._head = self._head + data
            if len(data) < 2:
                return
            # RFC 1950, 2.2: method 8, a window of at most 32 KiB, and a check of the two bytes.
            wrapped = data[0] & 15 == 8 and data[0] >> 4 <= 7 and (data[0] << 8 | data[1]) % 31 == 0
            self._inner = zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
        if data and not self._inner.eof:
            yield from _inflate(self._inner, data)


class _Brotli:
    def __init__(self) -> None:
        self._inner = brotli.Decompressor()

    def feed(self, data: bytes) -> Iterable[bytes]:
        try:
            while not self._inner.is_finished():
                out = self._inner.process(data, output_buffer_limit=STEP)
                yield out
                # It says that it can take more input while a full buffer of output still waits.
                if len(out) < STEP and self._inner.can_accept_more_data():
                    return
                data = b""
        except brotli.error as error:
            raise BrokenCodingError from error


class _Zstd:
    """Zstandard frames one after another."""

    def __init__(self) -> None:
        self._inner = self._frame()

    @staticmethod
    def _frame() -> zstd.ZstdDecompressor:
        # RFC 9659: a window of at most 8 MiB where zstd is a content coding.
        return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 23})

    def feed(self, data: bytes) -> Iterable[bytes]:
        try:
            while True:
                if self._inner.eof:
                    if not data:
                        return
                    self._inner = self._frame()
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
            return _Gzip()
        case "deflate":
            return _Deflate()
        case "br":
            return _Brotli()
        case "zstd":
            return _Zstd()
    return None


class ContentDecoder:
    """Takes off the codings named by `Content-Encoding` headers, last applied first.

    `anomalies` gets `encoding_unsupported`, `encoding_broken` or `decompress_over_cap`; after any of them nothing more
    comes out. Of each coding at most `cap` bytes are taken off, and at most MAX_RATIO times what came in once that is
    over 1 MiB: a coding inside another may decode to nothing, and cost as much as one that does not.
    """

    def __init__(self, encodings: Iterable[str], cap: int) -> None:
        names = (part.strip().lower() for value in encodings for part in value.split(","))
        wanted = [name for name in names if name not in ("", "identity")]
        found = [_decoder(name) for name in reversed(wanted[:MAX_CODINGS])]
        self.anomalies: list[str] = []
        self.plain = not wanted
        self._steps = [step for step in found if step is not None]
        self._cap = cap
        self._taken = 0
        self._given = [0] * len(self._steps)
        self.stopped = len(self._steps) < len(wanted)
        if self.stopped:
            self.anomalies.append("encoding_unsupported")

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Decoded pieces of at most STEP bytes each."""
        if self.plain:
            yield data
            return
        if self.stopped:
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
            yield data
            return
        for piece in self._steps[step].feed(data):
            self._given[step] += len(piece)
            if self._given[step] > min(self._cap, max(FREE, MAX_RATIO * self._taken)):
                raise OverCapError
            if piece:
                yield from self._through(step + 1, piece)

    def _stop(self, word: str) -> None:
        self.stopped = True
        self._steps = []  # with their windows
        self.anomalies.append(word)
