"""ORCA load reports: three formats, with and without the word for them."""

from __future__ import annotations

import base64
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Headers
from collector.signals.load_report import MAX_REPORT, read_report
from collector.signals.upstream import load_is_unreadable, orca, upstream_facts

# The example of Envoy's documentation (load_reporting), in its three formats.
TEXT = "TEXT cpu_utilization=0.3, mem_utilization=0.8, rps_fractional=10.0, eps=1, named_metrics.foo=0.4"
JSON = (
    'JSON {"cpu_utilization": 0.3, "mem_utilization": 0.8, "rps_fractional": 10.0, "eps": 1, '
    '"named_metrics": {"foo": 0.4}}'
)
BIN = "BIN CZqZmZmZmbk/MQAAAAAAAABAQg4KA2ZvbxGamZmZmZm5P0IOCgNiYXIRmpmZmZmZyT8="


def double(field: int, value: float) -> bytes:
    return bytes([field << 3 | 1]) + struct.pack("<d", value)


def text(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2, len(value)]) + value


def binary(message: bytes) -> str:
    return base64.b64encode(message).decode()


def test_text_and_json_say_the_same() -> None:
    expected = {"cpu_utilization": 0.3, "mem_utilization": 0.8, "rps_fractional": 10.0, "eps": 1.0, "foo": 0.4}
    assert dict(read_report(TEXT) or ()) == dict(read_report(JSON) or ()) == expected
    assert dict(read_report(TEXT.removeprefix("TEXT ")) or ()) == expected


def test_the_binary_example_of_the_documentation() -> None:
    expected = [("cpu_utilization", 0.1), ("rps_fractional", 2.0), ("foo", 0.1), ("bar", 0.2)]
    assert read_report(BIN) == expected
    assert read_report(BIN.removeprefix("BIN ")) == read_report(BIN.rstrip("=")) == expected
    assert orca(BIN) == {"cpu_utilization": 0.1, "rps_fractional": 2.0}


def test_every_field_of_the_binary_form() -> None:
    entry = text(1, b"kv_cache_usage_perc") + double(2, 0.5)
    message = (
        double(1, 0.25) + double(2, 0.5) + b"\x18\x96\x01" + text(4, entry) + text(5, text(1, b"gpu_utilization"))
        + double(6, 3.0) + double(7, 0.125) + text(8, entry) + double(9, 0.75) + b"\x55\x00\x00\x00\x00"
    )  # fmt: skip
    assert orca(f"BIN {binary(message)}") == {
        "cpu_utilization": 0.25, "mem_utilization": 0.5, "gpu_utilization": 0.0, "rps_fractional": 3.0, "eps": 0.125,
        "kv_cache_usage_perc": 0.5, "application_utilization": 0.75,
    }  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [b"\x09\x00", b"\x0a\xff\x01a", b"\x00\x00\x00", b"\x0b", b"\x80", b"\x80" * 11, text(8, b"\x09"), b"\x18",
     text(8, text(1, b"\xff") + double(2, 1.0)), b"\x0d\x00"],
)  # fmt: skip
def test_a_binary_report_that_is_cut_or_broken_says_nothing(message: bytes) -> None:
    assert read_report(f"BIN {binary(message)}") is None
    assert load_is_unreadable(Headers((("endpoint-load-metrics-bin", binary(message)),)))


def test_numbers_that_are_none_are_left_out() -> None:
    message = double(1, math.nan) + double(2, math.inf) + double(6, -1.0) + double(7, 2.0)
    assert orca(f"BIN {binary(message)}") == {"eps": 2.0}


def test_a_report_may_come_under_its_second_name() -> None:
    lines = (("endpoint-load-metrics-bin", BIN.removeprefix("BIN ")),)
    assert upstream_facts(Headers(), Headers(lines)).load == {"cpu_utilization": 0.1, "rps_fractional": 2.0}
    assert not load_is_unreadable(Headers(lines))


@given(
    st.binary(max_size=200) | st.lists(st.sampled_from([double(1, 0.5), text(8, b"\x0a\x01a"), b"\x18"])).map(b"".join)
)
def test_any_message_gives_pairs_or_nothing(message: bytes) -> None:
    for name, value in read_report(f"BIN {binary(message)}") or ():
        assert (type(name), type(value)) == (str, float)
    assert all(math.isfinite(value) and value >= 0 for value in orca(binary(message)).values())


@given(st.text(max_size=60) | st.just("x" * (MAX_REPORT + 1)))
def test_any_text_gives_finite_numbers_or_nothing(report: str) -> None:
    assert all(math.isfinite(value) and value >= 0 for value in orca(report).values())
