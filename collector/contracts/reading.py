"""Contract files: a JSON Schema alone, or YAML or JSON with `schema` and `rules`; docs/contracts.md describes them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from collector.config import ConfigError, Problem, shown
from collector.config_tree import Tree, kind_of, one_line, read_file, suggest
from collector.contracts.rule import (
    MAX_ENTRIES,
    MAX_ENTRY,
    MAX_REGIONS,
    MAX_RULES,
    MAX_TEXT,
    Bound,
    Cel,
    Check,
    Kind,
    Personal,
    Rule,
    Values,
    rule_set,
)
from collector.model import RuleSet

MAX_FILE = 4 << 20  # bytes of a contract, its schema or a value set
KEYS = ("schema", "rules")  # of a contract; a file with neither is a JSON Schema

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
Name = Annotated[str, Meta(pattern=rf"\A{_NAME.pattern}\Z")]
Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
Region = Annotated[str, Meta(pattern=r"\A[A-Z]{2}\Z")]


class StatedValues(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Values that may stand at a path: in the contract, or in a file with one on each line or in a column of CSV."""

    at: Text
    entries: tuple[str | int | float, ...] | None = msgspec.field(name="list", default=None)
    file: str | None = None
    column: str | None = None


class StatedBound(Struct, frozen=True, forbid_unknown_fields=True):
    at: Text
    value: float


class StatedPersonal(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kinds: Annotated[tuple[Kind, ...], Meta(min_length=1)] = ("email", "phone", "card", "iban")
    regions: Annotated[tuple[Region, ...], Meta(max_length=MAX_REGIONS)] = ()


class StatedRule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rule as a file states it: a name, one check, and where it applies."""

    name: Name
    cel: Text | None = None
    values: StatedValues | None = None
    floor: StatedBound | None = None
    at_least: StatedBound | None = None
    at_most: StatedBound | None = None
    no_personal_data: StatedPersonal | None = None
    when: Text | None = None
    severity: Literal["info", "warning"] = "warning"  # `info`: counted, but the answer stays valid


CHECKS = ("cel", "values", "floor", "at_least", "at_most", "no_personal_data")


class Contract(Struct, frozen=True):
    """What a file says: a JSON Schema as JSON text, and rules. Neither has been compiled."""

    schema: bytes | None = None
    rules: tuple[Rule, ...] = ()

    def rule_set(self) -> RuleSet | None:
        """The rules as they travel; None where there are none."""
        return rule_set(self.rules) if self.rules else None


def read_contract(path: Path) -> Contract:
    """The contract of a file, with the files that it names. Raises ConfigError with everything that is wrong."""
    content = read_file(path, MAX_FILE)
    if path.suffix.lower() in (".yaml", ".yml"):
        return _Reader(path).contract(_yaml(path))
    try:
        document: object = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON: {one_line(str(error))}; a contract in YAML ends in .yaml") from error
    if isinstance(document, dict) and any(key in document for key in KEYS):
        return _Reader(path).contract(_yaml(path))  # for its lines; JSON is YAML
    if not isinstance(document, dict | bool):
        raise ConfigError(f"{path}: expected a JSON Schema, which is an object, got {kind_of(document)}")
    return Contract(content)


def _yaml(path: Path) -> Tree:
    tree = Tree()
    tree.lay_file(path)
    if tree.problems:
        raise ConfigError(tree.problems)
    return tree


class _Reader:
    """Reads one contract; what is wrong is noted, and reading goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._problems: list[Problem] = []

    def contract(self, tree: Tree) -> Contract:
        stated = tree.values
        assert isinstance(stated, dict)  # noqa: S101 - lay_file takes nothing else
        for key in stated:
            if key not in KEYS:
                self._refuse(f"unknown key {shown(key)}{suggest(key, KEYS)}", tree.where((key,)))
        if not any(stated.get(key) is not None for key in KEYS):
            self._refuse("states nothing: expected schema, rules or both", None)
        schema = self._schema(stated.get("schema"), tree)
        rules = tuple(self._rules(stated.get("rules"), tree))
        if self._problems:
            raise ConfigError(self._problems)
        return Contract(schema, rules)

    def _refuse(self, message: str, where: str | None) -> None:
        line = "" if where is None else where.replace("line ", ":")
        self._problems.append(Problem("", f"{self._path}{line}: {message}"))

    # -------- schema

    def _schema(self, stated: object, tree: Tree) -> bytes | None:
        where = tree.where(("schema",))
        match stated:
            case None:
                return None
            case dict() | bool():
                try:
                    return msgspec.json.encode(stated)
                except (TypeError, ValueError, RecursionError) as error:
                    self._refuse(f"schema: not JSON: {one_line(str(error))}", where)
            case str():
                try:
                    content = read_file(self._beside(stated), MAX_FILE)
                    document: object = msgspec.json.decode(content)
                except ConfigError as error:
                    self._refuse(f"schema: {error}", where)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    self._refuse(f"schema: {stated}: not JSON: {one_line(str(error))}", where)
                else:
                    if isinstance(document, dict | bool):
                        return content
                    self._refuse(f"schema: {stated}: expected an object, got {kind_of(document)}", where)
            case _:
                self._refuse(f"schema: expected a JSON Schema or the name of its file, got {kind_of(stated)}", where)
        return None

    def _beside(self, name: str) -> Path:
        """A file that the contract names is beside it, unless its path is absolute."""
        return self._path.parent / name

    # -------- rules

    def _rules(self, stated: object, tree: Tree) -> Iterable[Rule]:
        if stated is None:
            return
        if not isinstance(stated, list):
            self._refuse(f"rules: expected a list, got {kind_of(stated)}", tree.where(("rules",)))
            return
        if len(stated) > MAX_RULES:
            self._refuse(f"rules: at most {MAX_RULES}, got {len(stated)}", tree.where(("rules",)))
            return
        taken: set[str] = set()
        for index, each in enumerate(stated):
            where = tree.where(("rules", index))
            name = each.get("name") if isinstance(each, dict) else None
            called = f"rule {name}" if isinstance(name, str) and _NAME.fullmatch(name) else f"rules[{index}]"
            try:
                rule = self._rule(each)
            except ConfigError as error:
                self._refuse(f"{called}: {error}", where)
                continue
            if rule.name in taken:
                self._refuse(f"{called}: the name is taken; no two may be alike", where)
            taken.add(rule.name)
            yield rule

    def _rule(self, each: object) -> Rule:
        try:
            stated = msgspec.convert(each, StatedRule)
        except msgspec.ValidationError as error:
            raise ConfigError(_in_words(str(error))) from error
        given = [name for name in CHECKS if getattr(stated, name) is not None]
        if len(given) != 1:
            what = "no check" if not given else " and ".join(given)
            raise ConfigError(f"expected one of {', '.join(CHECKS)}, got {what}")
        return Rule(stated.name, self._check(stated), stated.when, stated.severity != "info")

    def _check(self, stated: StatedRule) -> Check:
        if stated.cel is not None:
            return Cel(stated.cel)
        if stated.values is not None:
            return Values(stated.values.at, self._entries(stated.values))
        if stated.no_personal_data is not None:
            return Personal(stated.no_personal_data.kinds, stated.no_personal_data.regions)
        if stated.floor is not None:
            return Bound(stated.floor.at, "floor", stated.floor.value)
        if stated.at_least is not None:
            return Bound(stated.at_least.at, "at_least", stated.at_least.value)
        assert stated.at_most is not None  # noqa: S101 - one of them is given
        return Bound(stated.at_most.at, "at_most", stated.at_most.value)

    def _entries(self, stated: StatedValues) -> tuple[str, ...]:
        if (stated.entries is None) == (stated.file is None):
            raise ConfigError("values: expected either list or file")
        if stated.entries is not None:
            if stated.column is not None:
                raise ConfigError("values: column goes with a file")
            entries = [str(entry) for entry in stated.entries]
        else:
            assert stated.file is not None  # noqa: S101 - said above
            entries = _of_file(self._beside(stated.file), stated.column)
        if not entries:
            raise ConfigError("values: there is none")
        if len(entries) > MAX_ENTRIES:
            raise ConfigError(f"values: more than {MAX_ENTRIES}")
        if any(len(entry) > MAX_ENTRY for entry in entries):
            raise ConfigError(f"values: one is longer than {MAX_ENTRY} characters")
        return tuple(dict.fromkeys(entries))


def _of_file(path: Path, column: str | None) -> list[str]:
    """The lines of a file that are not blank, or a column of CSV (separated by `,`, `;` or tabs), without blanks
    around them."""
    try:
        text = read_file(path, MAX_FILE).decode("utf-8-sig")
    except ConfigError as error:
        raise ConfigError(f"values: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"values: {path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    if column is None:
        return [line.strip() for line in text.splitlines() if line.strip()]
    head = text.partition("\n")[0]
    separator = max(",;\t", key=head.count)
    try:
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
        if column not in (rows.fieldnames or ()):
            names = ", ".join(rows.fieldnames or ())[:200]
            raise ConfigError(f"values: {path}: no column {shown(column)}; there are {names}")
        return [entry for row in rows if (entry := (row[column] or "").strip())]
    except csv.Error as error:
        raise ConfigError(f"values: {path}: not CSV: {one_line(str(error))}") from error


def _in_words(message: str) -> str:
    """msgspec's words for a value of the wrong kind, with the key first: `floor.value: expected a number`."""
    what, _, at = message.partition(" - at `")
    key = at.rstrip("`").removeprefix("$").removeprefix(".")
    what = what[:1].lower() + what[1:]
    if what.startswith("object contains unknown field"):
        what = f"unknown key {what.removeprefix('object contains unknown field ')}"
    elif what.startswith("object missing required field"):
        what = f"missing {what.removeprefix('object missing required field ')}"
    return f"{key}: {what}" if key else what
