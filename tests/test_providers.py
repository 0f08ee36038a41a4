"""docs/providers.md is what the code says, and leaves no dialect, transport or provider out."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.app import DIALECTS
from collector.catalogue import FINISH_WORDS, PROVIDER_HOSTS, TRANSPORTS, provider_of
from tools import build_providers
from tools.build_providers import PAGE, ROWS, Row, built, dialects_of, limits_of, main, spoken, transports_of


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == built(), "run python -m tools.build_providers"


def test_every_dialect_that_reads_answers_is_in_some_row() -> None:
    shown = {name for row in ROWS for name in dialects_of(row)}
    assert shown | {"bedrock.embeddings"} == {dialect.name for dialect in DIALECTS}


def test_every_provider_is_in_some_row() -> None:
    assert {provider for _, provider in PROVIDER_HOSTS} <= {provider_of(row.host) for row in ROWS}


def test_every_transport_that_a_media_type_shows_is_in_some_row() -> None:
    shown = {transport for row in ROWS for transport in transports_of(row)}
    assert shown == set(TRANSPORTS) - {"opaque", "length_prefixed"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_that_shows_limits_names_headers_that_are_read(row: Row) -> None:
    stated = [name for name, _ in row.headers if "limit" in name]
    assert bool(stated) == bool(limits_of(row))


def test_what_a_dialect_looks_for_is_asked_of_its_code() -> None:
    by_name = {dialect.name: dialect for dialect in DIALECTS}
    says, asks = spoken(by_name["openai.realtime"])
    assert says >= {"text", "tools", "usage", "limits", "full_text"}
    assert "reasoning" not in says
    assert asks >= {"query", "tool_schemas"}
    assert "tools" in spoken(by_name["watsonx.chat"])[0]  # through the dialect that it hands bodies to
    assert "text" not in spoken(by_name["openai.embeddings"])[0]


def test_every_finish_word_is_shown() -> None:
    page = built()
    assert all(f"`{word}`" in page for word in FINISH_WORDS)


def test_check_compares_and_write_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_providers, "PAGE", tmp_path / "providers.md")
    assert main(["--check"]) == 1
    assert main([]) == 0
    assert main(["--check"]) == 0
    assert main(["--wrong"]) == 2
