"""What was said, and where: the settings as plain values by key, before they are held against their types."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import yaml
from msgspec import inspect

from collector.config import ConfigError, Problem, Settings, format_size, shown

Keys = tuple[str | int, ...]  # ("routes", 0, "upstream")

MAX_FILE = 1 << 20  # bytes of a configuration file
MAX_VALUES = 50_000  # in a file, aliases counted each time


# ---------------------------------------------------------------- the keys, from the types

SETTINGS = inspect.type_info(Settings)


def bare_type(type_: inspect.Type) -> tuple[inspect.Type, str | None, bool]:
    """The type without its wrappers, its unit (`seconds`, `bytes`) and whether it may be null."""
    if isinstance(type_, inspect.Metadata):
        inner, _, optional = bare_type(type_.type)
        unit = type_.extra["unit"] if type_.extra is not None and "unit" in type_.extra else None
        return inner, unit, optional
    if isinstance(type_, inspect.UnionType):
        others = [member for member in type_.types if not isinstance(member, inspect.NoneType)]
        if len(others) != 1:
            raise TypeError(f"settings have one type, or that and None; got {type_}")
        inner, unit, _ = bare_type(others[0])
        return inner, unit, len(others) != len(type_.types)
    return type_, None, False


def is_section(type_: inspect.Type) -> bool:
    return isinstance(bare_type(type_)[0], inspect.StructType | inspect.VarTupleType | inspect.DictType)


def keys_below(type_: inspect.Type, keys: Keys) -> Iterator[tuple[Keys, inspect.Type]]:
    """Every key below a type; `0` stands for any index, `<name>` for any name."""
    match bare_type(type_)[0]:
        case inspect.StructType(fields=fields):
            for field in fields:
                yield (*keys, field.encode_name), field.type
                yield from keys_below(field.type, (*keys, field.encode_name))
        case inspect.VarTupleType(item_type=item):
            yield from keys_below(item, (*keys, 0))
        case inspect.DictType(value_type=value):
            yield (*keys, "<name>"), value
        case _:
            return


def type_at(keys: Keys) -> inspect.Type | None:
    """The type at a path, or None where no key is."""
    type_: inspect.Type = SETTINGS
    for key in keys:
        match bare_type(type_)[0]:
            case inspect.StructType(fields=fields) if isinstance(key, str):
                found = [field.type for field in fields if field.encode_name == key]
                if not found:
                    return None
                type_ = found[0]
            case inspect.VarTupleType(item_type=item) if isinstance(key, int):
                type_ = item
            case inspect.DictType(value_type=value) if isinstance(key, str):
                type_ = value
            case _:
                return None
    return type_


def written(keys: Iterable[str | int]) -> str:
    """`routes[0].upstream`, as messages write it."""
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            name = key if re.fullmatch(r"[\w<>-]{1,64}", key) else repr(key[:64])
            text += f".{name}" if text else name
    return text


def pattern_of(keys: Keys) -> str:
    """`routes[].upstream`, as documentation writes it: the key of every route."""
    return re.sub(r"\[\d+\]", "[]", written(keys))


def suggest(word: str, words: Sequence[str]) -> str:
    """`; did you mean …?`, or nothing where no word is like it."""
    close = difflib.get_close_matches(word[:100], words, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


# ---------------------------------------------------------------- the tree of what was said


class Tree:
    """Plain values by key, each with where it was said: a line of the file, or the name of a variable or flag."""

    def __init__(self) -> None:
        self.values: object = {}
        self.origins: dict[Keys, int | str] = {}
        self.problems: list[Problem] = []

    def origin(self, keys: Keys) -> int | str | None:
        """Where the nearest enclosing value was said; None for a default."""
        for length in range(len(keys), -1, -1):
            if keys[:length] in self.origins:
                return self.origins[keys[:length]]
        return None

    def where(self, keys: Keys) -> str | None:
        """The same, as a message writes it."""
        origin = self.origin(keys)
        return f"line {origin}" if isinstance(origin, int) else origin

    # -------- the file

    def lay_file(self, path: Path) -> bool:
        """Lay the values of a YAML file. False where there are none to go on with; the problem is noted."""
        try:
            text = read_file(path, MAX_FILE).decode("utf-8-sig")
        except ConfigError as refused:
            return self._unreadable(str(refused))
        except UnicodeDecodeError as error:
            return self._unreadable(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8")
        try:
            values = self._values(text)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            where = None if mark is None else f"line {mark.line + 1}"
            return self._unreadable(f"{path}: not valid YAML: {one_line(error.problem)}", where)
        except yaml.YAMLError as error:
            return self._unreadable(f"{path}: not valid YAML: {one_line(str(error))}")
        except RecursionError:
            return self._unreadable(f"{path}: nested too deeply")
        except ConfigError as refused:
            return self._unreadable(f"{path}: {refused}")
        if values is None:
            return True
        if not isinstance(values, dict):
            return self._unreadable(f"{path}: expected keys and values, got {kind_of(values)}")
        self.values = values
        return True

    def _values(self, text: str) -> object:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        return None if node is None else _YamlValues(loader, self).read(node, ())

    def _unreadable(self, message: str, where: str | None = None) -> bool:
        self.problems.append(Problem("", message, where))
        return False

    # -------- the environment, --set and flags

    def lay_override(self, override: str) -> None:
        """Lay one `KEY=VALUE` of --set."""
        key, separator, text = override.partition("=")
        if not separator or not key.strip():
            self.problems.append(Problem("", f"expected KEY=VALUE, got {shown(override)}", "--set"))
            return
        try:
            keys = _resolve(key.strip())
        except ConfigError as refused:
            self.problems.append(Problem(key.strip()[:100], str(refused), "--set"))
            return
        self.lay_text(keys, text, "--set")

    def lay_text(self, keys: Keys, text: str, origin: str) -> None:
        """Lay a value that was given as text. It is YAML, but the text itself where text is wanted."""
        type_ = type_at(keys)
        assert type_ is not None  # noqa: S101 - keys come from VARIABLES, FLAGS or _resolve
        bare, _, optional = bare_type(type_)
        try:
            value = _yaml_value(text)
            if isinstance(bare, inspect.StrType) and not text.lstrip().startswith(("'", '"')):
                value = None if value is None and optional else text.strip()
        except ConfigError as refused:
            if not isinstance(bare, inspect.StrType):
                self.problems.append(Problem(written(keys), str(refused), origin))
                return
            value = text.strip()
        try:
            self._put(keys, value)
        except ConfigError as refused:
            self.problems.append(Problem(written(keys), str(refused), origin))
            return
        for stale in [known for known in self.origins if known[: len(keys)] == keys]:
            del self.origins[stale]
        self.origins[keys] = origin

    def _put(self, keys: Keys, value: object) -> None:
        inside = self.values
        for at, (key, following) in enumerate(zip(keys, (*keys[1:], None), strict=True)):
            if isinstance(inside, dict):
                if following is None:
                    inside[key] = value
                elif inside.get(key) is None:
                    inside[key] = [] if isinstance(following, int) else {}
                inside = inside[key]
            elif isinstance(inside, list) and isinstance(key, int):
                if key > len(inside):
                    raise ConfigError(
                        f"{written(keys[:at])} has {len(inside)} entries, so the next index is {len(inside)}"
                    )
                if key == len(inside):
                    inside.append({})
                if following is None:
                    inside[key] = value
                elif inside[key] is None:
                    inside[key] = {}
                inside = inside[key]
            else:
                return  # the file has something else here, which will be refused


class _YamlValues:
    """Nodes of YAML → plain values, with duplicate keys refused and the line of each kept."""

    def __init__(self, loader: yaml.SafeLoader, tree: Tree) -> None:
        self.loader = loader
        self.tree = tree
        self.count = 0

    def read(self, node: yaml.Node, keys: Keys) -> object:
        self.count += 1
        if self.count > MAX_VALUES:
            raise ConfigError(f"more than {MAX_VALUES} values")
        line = node.start_mark.line + 1
        self.tree.origins.setdefault(keys, line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, keys)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*keys, index)) for index, item in enumerate(node.value)]
        try:
            value: object = self.loader.construct_object(node)
        except yaml.YAMLError:
            raise
        except (ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError):
            # Such as the date 2024-99-99 and `!!int x`: the constructors of PyYAML do not guard themselves.
            self.tree.problems.append(
                Problem(
                    written(keys), f"put {shown(node.value)} in quotes: it cannot be read otherwise", f"line {line}"
                )
            )
            return None
        return value

    def _mapping(self, node: yaml.MappingNode, keys: Keys) -> dict[str, object]:
        values: dict[str, object] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.tree.problems.append(Problem(written(keys), "expected a plain key", f"line {line}"))
                continue
            key = str(key_node.value)
            if key_node.tag == "tag:yaml.org,2002:merge":
                message = "merge keys are not supported; write the keys out"
                self.tree.problems.append(Problem(written((*keys, key)), message, f"line {line}"))
                continue
            if key in lines:
                message = f"given twice, first on line {lines[key]}; keep one"
                self.tree.problems.append(Problem(written((*keys, key)), message, f"line {line}"))
                continue
            lines[key] = line
            self.tree.origins[(*keys, key)] = line
            values[key] = self.read(value_node, (*keys, key))
        return values


def _yaml_value(text: str) -> object:
    tree = Tree()
    try:
        value = tree._values(text)
    except yaml.YAMLError as error:
        raise ConfigError("not a YAML value; put it in quotes") from error
    except RecursionError as error:
        raise ConfigError("nested too deeply") from error
    if tree.problems:
        raise ConfigError(tree.problems[0].message)
    return value


def _resolve(key: str) -> Keys:
    """A key of --set → its path. Last names stand for the whole where only one key ends so."""
    keys = _parse_key(key)
    if type_at(keys) is not None:
        return keys
    sections = [path for path, _ in keys_below(SETTINGS, ()) if 0 not in path and "<name>" not in path]
    found = [
        candidate for path in sections if path[-1] == keys[0] and type_at(candidate := (*path, *keys[1:])) is not None
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"ambiguous: write one of {', '.join(written(candidate) for candidate in found)}")
    known = [written(path) for path, _ in keys_below(SETTINGS, ())]
    same_end = [path for path in known if path.rsplit(".", 1)[-1] == keys[-1]]
    if same_end:
        raise ConfigError(f"no such key; did you mean {' or '.join(same_end)}?")
    raise ConfigError(f"no such key{suggest(written(keys), [*known, *(path.rsplit('.', 1)[-1] for path in known)])}")


def _parse_key(key: str) -> Keys:
    keys: list[str | int] = []
    for part in key.split("."):
        matched = re.fullmatch(r"([^\[\]]+)((?:\[\d{1,6}\])*)", part)
        if matched is None:
            raise ConfigError("expected a dotted key such as proxy.workers or routes[0].name")
        name = matched[1]
        keys.append(int(name) if re.fullmatch(r"\d{1,6}", name) and keys else name)
        keys.extend(int(index) for index in re.findall(r"\d+", matched[2]))
    return tuple(keys)


# ---------------------------------------------------------------- files, and words for messages


def read_file(path: Path, limit: int) -> bytes:
    """The content of a file of at most `limit` bytes, or ConfigError."""
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a usable file name"
        raise ConfigError(f"{path}: cannot be read: {reason}") from error
    if len(content) > limit:
        raise ConfigError(f"{path}: larger than {format_size(limit)}")
    return content


def one_line(text: str | None) -> str:
    """Another library's message, on one line."""
    return "unreadable" if text is None else " ".join(text.split())[:200]


def kind_of(value: object) -> str:
    """What a value is, where a section was expected."""
    match value:
        case dict():
            return "keys and values"
        case list():
            return "a list"
        case None:
            return "nothing"
        case _:
            return said(value)


def said(value: object) -> str:
    """A value as a message may quote it."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return shown(value)
        case int() if abs(value) < 10**18:
            return str(value)
        case int():
            return "a very large number"
        case float():
            return repr(value)
        case None | dict() | list():
            return kind_of(value)
        case _:
            return f"a {type(value).__name__}"
