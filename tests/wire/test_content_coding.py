"""Content codings come off as the reference libraries take them off, and bombs stay small."""

from __future__ import annotations

import functools
import gzip
import hashlib
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.wire.content_coding import FREE, MAX_CODINGS, MAX_RATIO, STEP, ContentDecoder

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CAP = 64 * 1024 * 1024


def noise(size: int) -> bytes:
    """Bytes that no coding makes smaller."""
    return hashlib.shake_256(b"noise").digest(size)


def raw_deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflater.compress(data) + deflater.flush()


CODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "br": ("br", functools.partial(brotli.compress, quality=4)),
    "zstd": ("zstd", zstd.compress),
}


def decode(encoding: str, pieces: list[bytes], cap: int = CAP) -> tuple[bytes, list[str]]:
    decoder = ContentDecoder([encoding], cap)
    out = b"".join(part for piece in pieces for part in decoder.feed(piece))
    return out, decoder.anomalies


def cut(body: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(body) + 1) for place in places} | {len(body)})
    return [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def singles(body: bytes) -> list[bytes]:
    return [body[i : i + 1] for i in range(len(body))]


@pytest.mark.parametrize("coder", CODERS)
@given(data=st.binary(max_size=600), places=st.lists(st.integers(0, 1000), max_size=6))
def test_what_was_coded_comes_out_wherever_it_is_cut(coder: str, data: bytes, places: list[int]) -> None:
    name, code = CODERS[coder]
    coded = code(data)
    assert decode(name, [coded]) == (data, [])
    assert decode(name, cut(coded, places)) == (data, [])
    assert decode(name, singles(coded)) == (data, [])


@pytest.mark.parametrize("coder", CODERS)
def test_large_bodies_come_out_in_small_parts(coder: str) -> None:
    name, code = CODERS[coder]
    data = noise(40_000) * 20
    decoder = ContentDecoder([name], CAP)
    parts = list(decoder.feed(code(data)))
    assert b"".join(parts) == data
    assert max(map(len, parts)) <= max(STEP, 256 * 1024)  # brotli takes its limit as a hint
    assert decoder.anomalies == []


@pytest.mark.parametrize("level", [zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH])
def test_what_was_flushed_comes_out_at_once(level: int) -> None:
    deflater = zlib.compressobj(wbits=31)
    decoder = ContentDecoder(["gzip"], CAP)
    for event in (b"data: 1\n\n", b"data: 2\n\n"):
        assert b"".join(decoder.feed(deflater.compress(event) + deflater.flush(level))) == event


@pytest.mark.parametrize("padding", [b"", b"\0" * 7])
def test_a_gzip_body_may_have_several_members(padding: bytes) -> None:
    body = padding.join([gzip.compress(b"one "), gzip.compress(b""), gzip.compress(b"two")]) + padding
    for pieces in ([body], singles(body)):
        assert decode("gzip", pieces) == (b"one two", [])


def test_a_zstd_body_may_have_several_frames() -> None:
    body = zstd.compress(b"one ") + zstd.compress(b"two")
    for pieces in ([body], singles(body)):
        assert decode("zstd", pieces) == (b"one two", [])


def test_codings_come_off_in_the_reverse_order_of_their_names() -> None:
    body = brotli.compress(gzip.compress(b"twice"))
    assert decode("gzip, br", [body]) == (b"twice", [])
    decoder = ContentDecoder(["gzip", "br"], CAP)
    assert b"".join(decoder.feed(body)) == b"twice"


def test_identity_is_no_coding() -> None:
    for names in ([], ["identity"], ["", " Identity , "]):
        decoder = ContentDecoder(names, 3)
        assert decoder.plain
        assert list(decoder.feed(b"as it is")) == [b"as it is"]


@pytest.mark.parametrize("encoding", ["aws-chunked", "compress", "gzip, exi", ", ".join(["gzip"] * (MAX_CODINGS + 1))])
def test_an_unknown_coding_is_said_and_not_read(encoding: str) -> None:
    assert decode(encoding, [gzip.compress(b"x")]) == (b"", ["encoding_unsupported"])


@pytest.mark.parametrize("coder", CODERS)
def test_what_does_not_decode_is_said_once_and_ends_the_reading(coder: str) -> None:
    name, code = CODERS[coder]
    junk = bytes(range(250, 150, -1)) * 3
    out, anomalies = decode(name, [junk, code(b"good"), junk])
    assert (out, anomalies) == (b"", ["encoding_broken"])


@pytest.mark.parametrize("coder", CODERS)
def test_what_came_before_a_fault_stays(coder: str) -> None:
    name, code = CODERS[coder]
    coded = code(noise(3000))
    broken = coded[:2000] + bytes(byte ^ 0xFF for byte in coded[2000:])
    for pieces in ([broken], singles(broken)):
        out, anomalies = decode(name, pieces)
        assert noise(3000).startswith(out[:1000])
        assert len(anomalies) <= 1


@pytest.mark.parametrize("coder", CODERS)
def test_a_bomb_is_let_go_in_bounded_memory(coder: str) -> None:
    name, code = CODERS[coder]
    bomb = code(bytes(96 * 1024 * 1024))
    decoder = ContentDecoder([name], 1024 * 1024 * 1024)
    tracemalloc.start()
    try:
        given_out = sum(len(part) for part in decoder.feed(bomb))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoder.anomalies == ["decompress_over_cap"]
    assert given_out <= max(FREE, MAX_RATIO * len(bomb))
    assert peak < 24 * 1024 * 1024
    assert list(decoder.feed(bomb)) == []


def test_a_bomb_of_many_members_and_one_inside_another_are_bombs_too() -> None:
    member = gzip.compress(bytes(512 * 1024))
    assert decode("gzip", [member * 200])[1] == ["decompress_over_cap"]
    assert decode("gzip, gzip", [gzip.compress(gzip.compress(bytes(64 * 1024 * 1024)))])[1] == ["decompress_over_cap"]


def test_the_cap_holds_where_no_ratio_does() -> None:
    data = noise(200_000)
    out, anomalies = decode("gzip", [gzip.compress(data)], cap=100_000)
    assert len(out) <= 100_000
    assert anomalies == ["decompress_over_cap"]


def test_a_zstd_frame_that_wants_a_huge_window_is_refused() -> None:
    options = {zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.content_size_flag: 0}
    compressor = zstd.ZstdCompressor(options=options)
    coded = compressor.compress(b"x" * 100) + compressor.flush()
    assert decode("zstd", [coded])[1] == ["encoding_broken"]


@given(
    st.sampled_from(["gzip", "deflate", "br", "zstd", "gzip, br", "deflate, gzip"]), st.lists(st.binary(max_size=80))
)
def test_any_bytes_are_survived(encoding: str, pieces: list[bytes]) -> None:
    _, anomalies = decode(encoding, pieces, cap=10_000)
    assert set(anomalies) <= {"encoding_broken", "decompress_over_cap"}
