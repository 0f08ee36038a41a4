"""What an expression says: the series it reads with their labels, and what is done to them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import promql_parser
from promql_parser import AggregateExpr, BinaryExpr, Call, MatchOp, MatrixSelector, SubqueryExpr, VectorSelector

RANGED = {"rate", "increase"}  # what a counter needs
APPEARED = "unless"  # of a series that was not there before, all of it is growth
VARIABLES = {"job", "instance", "route", "model"}
GRAFANA_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


@dataclass(frozen=True)
class Series:
    """One selector: the function whose range argument it is, and values by label where they are plain."""

    name: str
    values: tuple[tuple[str, tuple[str, ...]], ...]
    function: str | None


def as_prometheus(expression: str, window: str = "5m") -> str:
    """A panel's expression with Grafana's variables filled in, each with everything."""

    def fill(found: re.Match[str]) -> str:
        if found[1] in ("__rate_interval", "__range"):
            return window
        assert found[1] in VARIABLES, f"{found[0]} is no variable of the dashboard"
        return ".+"

    return GRAFANA_VARIABLE.sub(fill, expression)


def parse(expression: str) -> Any:
    return promql_parser.parse(expression)


def series_in(expression: str) -> list[Series]:
    """Every selector of an expression."""
    found: list[Series] = []
    _collect(parse(expression), None, found)
    return found


def labels_grouped(expression: str) -> list[tuple[set[str], set[str]]]:
    """For every `by`, `without`, `on`, `ignoring` and `group_left`: its labels, and the series names inside."""
    found: list[tuple[set[str], set[str]]] = []

    def visit(node: Any) -> None:
        if isinstance(node, AggregateExpr) and node.modifier is not None:
            found.append((set(node.modifier.labels), _names(node)))
        if isinstance(node, BinaryExpr) and node.modifier is not None:
            matching = node.modifier.matching
            labels = set(matching.labels) if matching is not None else set()
            found.append((labels | set(node.modifier.group_labels or ()), _names(node)))

    promql_parser.walk(parse(expression), visit)
    return found


def _names(node: Any) -> set[str]:
    inside: list[Series] = []
    _collect(node, None, inside)
    return {each.name for each in inside}


def _collect(node: Any, function: str | None, found: list[Series]) -> None:
    match node:
        case VectorSelector():
            values = tuple((each.name, _plain(each)) for each in node.matchers.matchers)
            found.append(Series(node.name or "", values, function))
        case MatrixSelector():
            _collect(node.vector_selector, function, found)
        case Call():
            for argument in node.args:
                ranged = isinstance(argument, MatrixSelector | SubqueryExpr)
                _collect(argument, node.func.name if ranged else None, found)
        case BinaryExpr() if str(node.op) == "unless" and _names(node.lhs) == _names(node.rhs):
            inside: list[Series] = []
            _collect(node.lhs, None, inside)
            _collect(node.rhs, None, inside)
            found += [each if each.function in RANGED else replace(each, function=APPEARED) for each in inside]
        case BinaryExpr():
            _collect(node.lhs, None, found)
            _collect(node.rhs, None, found)
        case _:
            inner = getattr(node, "expr", None)
            if inner is not None:
                _collect(inner, function if isinstance(node, SubqueryExpr) else None, found)


def _plain(matcher: Any) -> tuple[str, ...]:
    """The values that a matcher names, none where it is a pattern."""
    if matcher.op in (MatchOp.Equal, MatchOp.NotEqual):
        return (matcher.value,)
    return tuple(matcher.value.split("|")) if re.fullmatch(r"[\w|]+", matcher.value) else ()
