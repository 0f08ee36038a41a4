"""Bodies that nobody reads."""

from __future__ import annotations

from collector.wire.opaque import OpaqueCodec


def test_nothing_is_read() -> None:
    codec = OpaqueCodec()
    assert [*codec.feed(b"data: {}\n\n"), *codec.close()] == []
    assert codec.anomalies == []
