"""One answer as rules look at it: its text, its JSON, and the words of both."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal

Why = Literal[
    "missing",  # what the rule speaks of is not there
    "type",  # it is there, and of another type
    "not_json",  # the answer is no JSON
    "over_bounds",  # more steps, or more numbers to look at, than a rule may take
    "unusable",  # the rule itself cannot be compiled
    "timeout",  # the validator was ended
    "failed",  # anything else
]


class NotEvaluatedError(Exception):
    """A rule cannot be evaluated on this answer; `why` says why."""

    def __init__(self, why: Why) -> None:
        super().__init__(why)
        self.why = why


class Answer:
    """An answer. `value` is its JSON as the standard library gives it, and means nothing unless `is_json`."""

    def __init__(self, text: str, value: object = None, is_json: bool = False) -> None:
        self.text = _encodable(text)
        self.value = value
        self.is_json = is_json

    @cached_property
    def output(self) -> object:
        """The JSON as CEL takes it: every number a double, as in google.protobuf.Value, so that a rule does not depend
        on whether the model wrote 3 or 3.0; half a surrogate pair is U+FFFD."""
        return _as_cel(self.value)

    @cached_property
    def words(self) -> str:
        """All that may hold personal data: a line `name: value` for every text and whole number of the JSON, with
        escapes resolved; else the text itself."""
        return "\n".join(_lines(self.value)) if self.is_json else self.text


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _as_cel(value: object) -> object:
    match value:
        case bool() | None | float():
            return value
        case int():
            return _double(value)
        case str():
            return _encodable(value)
        case list():
            return [_as_cel(item) for item in value]
        case dict():
            return {_encodable(key): _as_cel(member) for key, member in value.items()}
        case _:
            raise TypeError(f"not a JSON value: {type(value).__name__}")


def _double(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _lines(value: object) -> Iterator[str]:
    """In the order of the document; without recursion, so that depth costs nothing."""
    todo: list[tuple[str, object]] = [("", value)]
    while todo:
        name, inner = todo.pop()
        match inner:
            case dict():
                todo += ((_encodable(key), member) for key, member in reversed(inner.items()))
            case list():
                todo += ((name, item) for item in reversed(inner))
            case str():
                yield f"{name}: {_encodable(inner)}"
            case bool() | None | float():
                yield name
            case int():
                yield f"{name}: {inner}"
