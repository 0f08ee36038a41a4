"""The price table: the one that is shipped, and a file of the user's in front of it."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
import yaml

from collector.config import ConfigError
from collector.measures.cost import price_of
from collector.model import Price, Rates
from collector.prices import SHIPPED, price_tables, read_table


def test_the_shipped_table_has_a_date_and_its_sources() -> None:
    told = yaml.safe_load(SHIPPED.read_text())
    assert isinstance(told["date"], date)
    for name, table in told["tables"].items():
        assert table["sources"], name
        assert all(source.startswith("https://") for source in table["sources"])


def test_shipped_prices_hold_together() -> None:
    for models in read_table(SHIPPED).values():
        for name, price in models.items():
            rates = price.rates
            assert rates.input is not None
            assert rates.input > 0, name
            assert rates.output is None or rates.output >= rates.input, name
            assert rates.cached_input is None or rates.cached_input < rates.input, name
            assert rates.cache_write is None or rates.cache_write > rates.input, name
            assert price.long is None or price.long.input is None or price.long.input > rates.input, name


OWN = """
tables:
  contract:
    providers: [openai]
    models:
      gpt-5: {input: 1, output: 8}
  house:
    models:
      our-model: {input: 0.01, output: 0.02, long: {above: 1000, input: 0.03, output: 0.04}}
"""


def test_a_file_of_the_user_is_looked_at_first(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(OWN)
    tables = price_tables(own)
    assert price_of("openai", "gpt-5-2025-08-07", tables) == Price(Rates(1.0, output=8.0))
    assert price_of("vllm", "our-model", tables) == Price(Rates(0.01, output=0.02), 1000, Rates(0.03, output=0.04))
    shipped = price_of("openai", "gpt-5-mini", tables)
    assert shipped is not None
    assert shipped == price_of("openai", "gpt-5-mini", price_tables(None))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a table of prices"), ("tables: 3", "not a table of prices"), ("{", "not valid YAML"),
        ("tables: {a: {models: {m: {output: 1}}}}", "missing required field `input`"),
        ("tables: {a: {models: {m: {input: -1}}}}", ">= 0"), ("tables: {a: {models: {m: {input: .nan}}}}", "prices"),
        ("tables: {a: {models: {m: {input: 1, cashed_input: 1}}}}", "unknown field `cashed_input`"),
        ("tables: {a: {models: {m: {input: 1, batch: 2}}}}", "<= 1"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_table_is_refused_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_table(own)
    assert str(own) in str(refused.value)
    assert message in str(refused.value)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_table(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not valid YAML"):
        read_table(tmp_path / "bytes.yaml")
