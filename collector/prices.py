"""The price table: what is shipped, under what a file of the user's says."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

import msgspec
import yaml
from msgspec import Meta, Struct

from collector.config import ConfigError
from collector.config_tree import one_line, read_file
from collector.model import ANY_PROVIDER, Price, Rates

SHIPPED = Path(__file__).with_name("prices.yaml")
MAX_FILE = 1 << 20  # bytes

PriceTable = dict[str, dict[str, Price]]  # provider → model → price

Dollars = Annotated[float, Meta(ge=0.0, le=1_000_000.0)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]


class _Long(Struct, frozen=True, forbid_unknown_fields=True):
    above: Annotated[int, Meta(gt=0)]
    input: Dollars | None = None
    cached_input: Dollars | None = None
    cache_write: Dollars | None = None
    output: Dollars | None = None
    reasoning: Dollars | None = None


class _Model(Struct, frozen=True, forbid_unknown_fields=True):
    input: Dollars
    cached_input: Dollars | None = None
    cache_write: Dollars | None = None
    output: Dollars | None = None
    reasoning: Dollars | None = None
    long: _Long | None = None
    batch: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    models: dict[Name, _Model]
    providers: tuple[Name, ...] | None = None
    sources: tuple[str, ...] = ()


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    tables: dict[Name, _Table]
    date: date | None = None


def price_tables(path: Path | None) -> tuple[PriceTable, ...]:
    """The tables in the order they are looked at: the user's file, then what is shipped. Raises ConfigError."""
    shipped = read_table(SHIPPED)
    return (shipped,) if path is None else (read_table(path), shipped)


def read_table(path: Path) -> PriceTable:
    """One file of prices, of the shape that the shipped one explains. Raises ConfigError, which names the file."""
    try:
        told = yaml.safe_load(read_file(path, MAX_FILE).decode("utf-8-sig"))
        file = msgspec.convert(told, _File)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid YAML: {one_line(str(error))}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: not a table of prices: {one_line(str(error))}") from error
    found: PriceTable = {}
    for table in file.tables.values():
        prices = {name: _price(model) for name, model in table.models.items()}
        for provider in (ANY_PROVIDER,) if table.providers is None else table.providers:
            found.setdefault(provider, {}).update(prices)
    return found


def _price(model: _Model) -> Price:
    return Price(
        _rates(model),
        None if model.long is None else model.long.above,
        None if model.long is None else _rates(model.long),
        model.batch,
    )


def _rates(told: _Model | _Long) -> Rates:
    return Rates(told.input, told.cached_input, told.cache_write, told.output, told.reasoning)
