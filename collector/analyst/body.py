"""One direction's bytes: transfer coding and content coding off, counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from collector.model import Headers
from collector.wire.content_coding import ContentDecoder
from collector.wire.transfer import Dechunker


class Body:
    """Where no content coding is on (`is_plain`), `dechunk` is all there is to do; None where bytes are the body."""

    _dechunker: Dechunker | None = None
    _decoder: ContentDecoder | None = None

    def __init__(self, headers: Headers, cap: int) -> None:
        self.dechunk: Callable[[bytes], bytes] | None = None
        self.is_plain = True
        self.is_coded = False  # whether it comes in chunks or compressed
        self.size = 0  # bytes of the body so far, its content coding still on
        said = headers.shared.places
        if "transfer-encoding" in said and headers.values[said["transfer-encoding"]].lower().rstrip().endswith(
            "chunked"
        ):
            self._dechunker, self.is_coded = Dechunker(), True
            self.dechunk = self._dechunker.feed
        if "content-encoding" in said:
            self._decoder, self.is_coded = ContentDecoder(headers.all("content-encoding"), cap), True
            self.is_plain = self._decoder.plain

    def feed(self, data: bytes) -> Iterable[bytes]:
        if self.dechunk is not None:
            data = self.dechunk(data)
        self.size += len(data)
        if not data:
            return ()
        return (data,) if self._decoder is None else self._decoder.feed(data)

    @property
    def is_between_chunks(self) -> bool:
        """Whether a chunk may begin with the next byte."""
        return self._dechunker is not None and self._dechunker.is_between

    def feed_all(self, reads: list[bytes], times: list[float]) -> tuple[list[bytes], list[float]]:
        """The bytes that the reads bring, where no content coding is on, and when each part of them came."""
        parts, came = reads, times
        if self._dechunker is not None:
            parts = self._dechunker.whole_chunks(reads)
            came = times[: len(parts)]
            for read, at in zip(reads[len(parts) :], times[len(parts) :], strict=True):
                more = self._dechunker.feed_parts(read)
                parts += more
                came += [at] * len(more)
        self.size += sum(map(len, parts))
        return parts, came

    @property
    def stopped(self) -> bool:
        """Whether the rest is passed by, since its content coding cannot be taken off."""
        return self._decoder is not None and self._decoder.stopped

    @property
    def bursts(self) -> bool:
        """Whether more came out of its coding than may; what came before is part of a bomb."""
        return self._decoder is not None and "decompress_over_cap" in self._decoder.anomalies

    @property
    def broken(self) -> bool:
        return self._dechunker is not None and self._dechunker.broken

    @property
    def anomalies(self) -> list[str]:
        words = [] if self._decoder is None else list(self._decoder.anomalies)
        if self.broken:
            words.append("framing_broken")
        return words
