"""Recorded exchanges are read by the code that reads live traffic, judged and scored, and shown to people."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collector.app import rules_of
from collector.config import EmbedderSettings, Settings
from collector.inspection import Inspector, exchange_of
from collector.inspection_view import described
from collector.model import (
    ErrorFact,
    Judgement,
    RateLimit,
    Record,
    Relevance,
    ToolCallFact,
    Usage,
    Validity,
)
from collector.recorded import Recording, read_file
from collector.supervisor import StartError

SETTINGS = Settings(upstream="http://127.0.0.1:1", embedder=EmbedderSettings(kind="none"))
SCHEMA = {"type": "object", "properties": {"berths": {"type": "integer"}}, "required": ["berths"]}


def recorded(number: int, text: str = "Twelve.", schema: object = None, **more: object) -> dict[str, object]:
    asked: dict[str, Any] = {"model": "gpt", "messages": [{"role": "user", "content": "How many berths?"}]}
    if schema is not None:
        asked["response_format"] = {"type": "json_schema", "json_schema": {"name": "harbour", "schema": schema}}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = {"model": "gpt-1", "choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    return {
        "id": f"exchange-{number}",
        "host": "api.openai.com",
        "url_path": "/v1/chat/completions",
        "request_body": asked,
        "status": 200,
        "response_headers": [["content-type", "application/json"]],
        "response_body_b64": base64.b64encode(json.dumps(body).encode()).decode(),
        **more,
    }


def recordings(tmp_path: Path, *exchanges: dict[str, object]) -> list[Recording]:
    file = tmp_path / "recorded.json"
    file.write_text(json.dumps(exchanges))
    return list(read_file(file))


async def records(settings: Settings, found: list[Recording], contract: bytes | None = None) -> list[Record]:
    async with Inspector(settings, contract) as inspector:
        return [record async for record in inspector.records(found)]


def a_record(tmp_path: Path, **changes: object) -> Record:
    [recording] = recordings(tmp_path, recorded(1))
    return msgspec.structs.replace(exchange_of(recording, rules_of(SETTINGS)).record, **changes)


# ---------------------------------------------------------------- records


async def test_outputs_are_judged_by_the_schema_of_their_request(tmp_path: Path) -> None:
    found = recordings(
        tmp_path,
        recorded(1, '{"berths": 12}', SCHEMA),
        recorded(2, "Twelve.", SCHEMA),
        recorded(3, '{"berths": "12"}', SCHEMA),
        recorded(4),
    )
    results = await records(SETTINGS, found)
    assert [record.id for record in results] == [f"exchange-{number}" for number in (1, 2, 3, 4)]
    assert [record.validity and record.validity.result for record in results] == [
        "valid",
        "not_json",
        "schema_violation",
        None,
    ]


async def test_a_contract_judges_what_asked_for_no_schema(tmp_path: Path) -> None:
    found = recordings(tmp_path, recorded(1, '{"berths": 12}'), recorded(2, '{"berths": []}'))
    first, second = await records(SETTINGS, found, json.dumps(SCHEMA).encode())
    assert first.validity is not None
    assert second.validity is not None
    assert (first.validity.kind, first.validity.result) == ("contract", "valid")
    assert second.validity.result == "contract_violation"


async def test_a_schema_that_hangs_takes_no_other_exchange_along(tmp_path: Path) -> None:
    hanging = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?=(a+)+$)"}}}
    found = recordings(
        tmp_path,
        recorded(1, json.dumps({"a": "a" * 40 + "!"}), hanging),
        recorded(2, '{"berths": 12}', SCHEMA),
    )
    first, second = await records(SETTINGS, found)
    assert first.validity is not None
    assert second.validity is not None
    assert first.validity.result == "validator_timeout"
    assert second.validity.result == "valid"


async def test_times_are_unknown_for_a_recording(tmp_path: Path) -> None:
    [record] = await records(SETTINGS, recordings(tmp_path, recorded(1)))
    assert record.timing.duration is None
    assert record.timing.chunk_gaps.count is None
    assert record.started_at is None


async def test_a_date_of_the_response_is_when_it_started(tmp_path: Path) -> None:
    headers = [["content-type", "application/json"], ["date", "Wed, 04 Mar 2026 05:06:07 GMT"]]
    [record] = await records(SETTINGS, recordings(tmp_path, recorded(1, response_headers=headers)))
    assert record.started_at == "2026-03-04T05:06:07.000Z"


async def test_a_hint_names_the_provider_in_the_words_of_the_convention(tmp_path: Path) -> None:
    found = recordings(tmp_path, recorded(1), recorded(2, provider="azure_openai"), recorded(3, provider="homegrown"))
    assert [record.provider for record in await records(SETTINGS, found)] == ["openai", "azure.ai.openai", "homegrown"]


async def test_without_an_embedder_relevance_says_why(tmp_path: Path) -> None:
    [record] = await records(SETTINGS, recordings(tmp_path, recorded(1)))
    assert record.relevance.scored is False
    assert record.relevance.reason is not None


async def test_nothing_is_started_for_what_needs_no_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("asyncio.create_subprocess_exec", refuse)
    [record] = await records(SETTINGS, recordings(tmp_path, recorded(1)))
    assert record.outcome == "completed"


async def test_an_inspector_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as short:  # a socket's path has few bytes
        monkeypatch.setattr("tempfile.tempdir", short)
        [record] = await records(SETTINGS, recordings(tmp_path, recorded(1, '{"berths": 12}', SCHEMA)))
        assert record.validity is not None
        assert record.validity.result == "valid"
        assert list(Path(short).iterdir()) == []


async def test_a_runtime_directory_that_is_too_deep_is_an_error_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(StartError, match="set TMPDIR to a short path"):
        await records(SETTINGS, recordings(tmp_path, recorded(1, '{"berths": 12}', SCHEMA)))
    assert list(deep.iterdir()) == []


# ---------------------------------------------------------------- for people


def test_a_record_for_people_says_every_known_fact_on_a_line(tmp_path: Path) -> None:
    record = a_record(
        tmp_path,
        usage=Usage(120, 40, 100, None, 8),
        tool_calls=(ToolCallFact(0, 0, "book_berth", "0" * 64, 33),),
        validity=Validity(
            True, False, "schema_violation", "json_schema", "harbour",
            (Judgement(0, None, "json_schema", "schema_violation", "harbour", "required"),),
        ),
        relevance=Relevance(True, None, "latin", 0.814, 0.5, None),
        rate_limits=(RateLimit("requests", "minute", 100.0, 99.0), RateLimit("tokens")),
        anomalies=("usage_missing", "content_type_mismatch"),
    )  # fmt: skip
    assert described(record).splitlines() == [
        "exchange-1  completed  200  openai.chat over json  gpt → gpt-1",
        "    finish      stop",
        "    tokens      120 input, 100 cached, 40 output, 8 reasoning",
        "    text        7 characters in 1 choice(s)",
        "    tool call   book_berth with 33 characters of arguments",
        "    validity    schema_violation at required (json_schema)",
        "    relevance   context 0.81, answer 0.50, groundedness –",
        "    rate limit  requests a minute: 99 of 100 left",
        "    rate limit  tokens: ? of ? left",
        "    odd         usage_missing, content_type_mismatch",
    ]


def test_an_error_is_said_with_its_kind_and_its_maker(tmp_path: Path) -> None:
    error = ErrorFact("overloaded_error", None, "overloaded", "upstream", None, False)
    shown = described(a_record(tmp_path, outcome="upstream_error", status=529, error=error))
    assert "    error       overloaded_error (overloaded, by the upstream)\n" in shown
    mid_stream = described(a_record(tmp_path, error=msgspec.structs.replace(error, mid_stream=True)))
    assert "    error       overloaded_error (overloaded, in the stream)\n" in mid_stream
    nameless = ErrorFact(None, None, "timeout", "sidecar", None, False)
    assert "    error       unnamed (timeout, by the sidecar)\n" in described(a_record(tmp_path, error=nameless))


def test_what_is_unknown_takes_no_line(tmp_path: Path) -> None:
    shown = described(a_record(tmp_path, usage=None, finish_reasons=(), relevance=Relevance(False)))
    assert shown.splitlines() == [
        "exchange-1  completed  200  openai.chat over json  gpt → gpt-1",
        "    text        7 characters in 1 choice(s)",
    ]
