"""Hand-written exchanges of what is rarely recorded give the records that the vendors' pages lead one to expect."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collector.analyst.accumulate import digest_of
from collector.analyst.fold import ExchangeFold, RouteFacts, Rules
from collector.app import DIALECTS
from collector.catalogue import PROVIDER_NAMES
from collector.findings.judge import Findings
from collector.model import BytesSeen, ExchangeEnded, RequestSeen, ResponseSeen
from collector.recorded import Recording, read_file

from .wire.event_messages import event, exception

FILES = sorted((Path(__file__).parent / "fixtures_synthetic").glob("*.json"))
NEEDED = {
    "anthropic_429", "anthropic_529", "anthropic_stream_error", "openai_429_rate_limit",
    "openai_429_insufficient_quota", "bedrock_stream_model_error", "bedrock_stream_throttled",
    "bedrock_429_throttling", "azure_429_retry_after_ms",
    "fireworks_stream_perf_metrics", "tgi_generate_stream", "tgi_stream_error", "orca_text", "orca_json",
}  # fmt: skip
RULES = Rules(DIALECTS, new_digest=digest_of("sha256", b""))


def body_of(fixture: dict[str, Any]) -> bytes:
    if "response_lines" in fixture:
        return "\n".join(fixture["response_lines"]).encode()
    if "response_json" in fixture:
        return json.dumps(fixture["response_json"]).encode()
    messages = b""
    for told in fixture["response_events"]:
        payload = json.dumps(told["payload"]).encode()
        messages += event(told["event"], payload) if "event" in told else exception(told["exception"], payload)
    return messages


def recording_of(fixture: dict[str, Any], folder: Path) -> Recording:
    file = folder / "exchange.json"
    file.write_text(json.dumps({**fixture, "response_body_b64": base64.b64encode(body_of(fixture)).decode()}))
    (recording,) = read_file(file)
    return recording


def record_of(recording: Recording, cut: int) -> Any:
    """The record as JSON; the response comes in pieces of `cut` bytes."""
    provider = PROVIDER_NAMES.get(recording.provider or "", recording.provider)
    fold = None
    for happened in recording.events:
        match happened:
            case RequestSeen():
                fold = ExchangeFold("x", happened, RouteFacts("r", recording.host, None, provider), RULES)
            case ResponseSeen() if fold is not None:
                fold.response_seen(happened)
            case BytesSeen() if fold is not None:
                for start in range(0, len(happened.data), cut):
                    piece = happened.data[start : start + cut]
                    fold.bytes_seen(msgspec.structs.replace(happened, data=piece))
            case ExchangeEnded() if fold is not None:
                ended = fold.ended(happened)
                record = msgspec.structs.replace(ended.record, findings=Findings().judge(ended))
                return msgspec.json.decode(msgspec.json.encode(record))
    raise AssertionError


def differences(expected: Any, got: Any, where: str = "") -> list[str]:
    """Where the record is not what was expected; of objects only the named fields are compared."""
    if isinstance(expected, dict) and isinstance(got, dict) and where != ".upstream.phases":
        return [
            each for name, value in expected.items() for each in differences(value, got.get(name), f"{where}.{name}")
        ]
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        pairs = enumerate(zip(expected, got, strict=True))
        return [each for at, (one, other) in pairs for each in differences(one, other, f"{where}[{at}]")]
    return [] if expected == got else [f"{where}: expected {expected!r}, got {got!r}"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("cut", [1, 7, 1_000_000])
def test_the_record_is_the_expected_one(file: Path, cut: int, tmp_path: Path) -> None:
    fixture = json.loads(file.read_text(encoding="utf-8"))
    record = record_of(recording_of(fixture, tmp_path), cut)
    assert differences(fixture["expected"], record) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_errors_and_ordinary_answers_make_no_finding(file: Path, tmp_path: Path) -> None:
    fixture = json.loads(file.read_text(encoding="utf-8"))
    found = record_of(recording_of(fixture, tmp_path), 1_000_000)["findings"]
    assert [each["rule"] for each in found] == (["cut_by_length"] if file.stem == "tgi_generate_stream" else [])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_is_marked_and_names_the_page_it_follows(file: Path) -> None:
    fixture = json.loads(file.read_text(encoding="utf-8"))
    assert fixture["synthetic"] is True
    assert fixture["source"]
    assert fixture["expected"]


def test_nothing_that_is_rarely_recorded_is_left_out() -> None:
    assert {file.stem for file in FILES} >= NEEDED
