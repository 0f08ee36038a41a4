"""Rules compiled, and what they say of an answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import isnan
from typing import Any

from msgspec import MsgspecError, Struct

from collector.contracts.answer import Answer, NotEvaluatedError
from collector.contracts.cel import CelError, Expression, compile_expression
from collector.contracts.path import PathError, found_at, parse_path
from collector.contracts.personal import PersonalDataError, finder
from collector.contracts.rule import Bound, Cel, Personal, Rule, Values, rules_of
from collector.model import RuleResult

Found = str | None  # why a rule is broken, of a closed set; "" without a reason, None where it is kept
Activations = dict[str, Any]
Check = Callable[[Answer, Activations], Found]


class UnusableRuleError(ValueError):
    """A rule that cannot be tried on anything; the message says what is wrong with it."""


class CompiledRule(Struct, frozen=True):
    """A rule, ready; `check` and `when` are None where it is unusable."""

    name: str
    counts: bool
    reads_output: bool
    check: Check | None = None
    when: Expression | None = None


class Rules:
    """The rules of one contract."""

    def __init__(self, rules: tuple[CompiledRule, ...]) -> None:
        self._rules = rules
        self.reads_output = any(rule.reads_output for rule in rules)
        self.counting = frozenset(rule.name for rule in rules if rule.counts)

    def results(self, answer: Answer) -> tuple[RuleResult, ...]:
        """What each rule says, in order. Never raises on any answer but MemoryError."""
        activations: Activations = {}
        return tuple(_result(rule, answer, activations) for rule in self._rules)


def _result(rule: CompiledRule, answer: Answer, activations: Activations) -> RuleResult:
    if rule.check is None:
        return RuleResult(rule.name, "not_evaluated", "unusable")
    try:
        if rule.when is not None and not rule.when.holds(answer, activations):
            return RuleResult(rule.name, "skipped")
        found = rule.check(answer, activations)
    except NotEvaluatedError as error:
        return RuleResult(rule.name, "not_evaluated", error.why)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - a library that fails on some text must not take the other rules along
        return RuleResult(rule.name, "not_evaluated", "failed")
    return RuleResult(rule.name, "kept") if found is None else RuleResult(rule.name, "broken", found or None)


# ---------------------------------------------------------------- compiling


def compile_rules(text: bytes) -> Rules:
    """The rules of a set; one that cannot be compiled is there and says so of every answer.

    Raises msgspec.MsgspecError where `text` is no rule set.
    """
    made = []
    for rule in rules_of(text):
        try:
            made.append(compile_rule(rule))
        except UnusableRuleError:
            made.append(CompiledRule(rule.name, rule.counts, reads_output=False))
    return Rules(tuple(made))


def compile_rule(rule: Rule) -> CompiledRule:
    """One rule, ready. Raises UnusableRuleError."""
    when = None if rule.when is None else _expression(rule.when, "when")
    reads, check = _check(rule)
    return CompiledRule(rule.name, rule.counts, reads or (when is not None and when.reads_output), check, when)


def _expression(text: str, key: str) -> Expression:
    try:
        return compile_expression(text)
    except CelError as error:
        raise UnusableRuleError(f"{key}: {error}") from error


def _check(rule: Rule) -> tuple[bool, Check]:
    """Whether the check reads the JSON, and the check."""
    match rule.check:
        case Cel(expression=text):
            expression = _expression(text, "cel")
            return expression.reads_output, lambda answer, kept: None if expression.holds(answer, kept) else ""
        case Values(at=at, entries=entries):
            known = frozenset(entries)
            return True, _of_each(at, lambda value: _text_of(value) in known)
        case Bound(at=at, kind=kind, value=bound):
            return True, _of_each(at, lambda value: _keeps(_number_of(value), kind, bound))
        case Personal() as personal:
            try:
                find = finder(personal)
            except PersonalDataError as error:
                raise UnusableRuleError(f"no_personal_data: {error}") from error
            return False, lambda answer, _: find(answer.words)


def _of_each(at: str, holds: Callable[[object], bool]) -> Check:
    try:
        steps = parse_path(at)
    except PathError as error:
        raise UnusableRuleError(f"at: {error}") from error

    def check(answer: Answer, _: Activations) -> Found:
        if not answer.is_json:
            raise NotEvaluatedError("not_json")
        unknown: NotEvaluatedError | None = None
        for value in found_at(answer.value, steps):
            try:
                if not holds(value):
                    return ""
            except NotEvaluatedError as error:
                unknown = error
        if unknown is not None:
            raise unknown
        return None

    return check


def _text_of(value: object) -> str:
    """A value as a file of values writes it."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            raise NotEvaluatedError("type")


def _number_of(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or isnan(value):
        raise NotEvaluatedError("type")
    return value


def _keeps(number: float, kind: str, bound: float) -> bool:
    match kind:
        case "floor":
            return number > bound
        case "at_least":
            return number >= bound
        case _:
            return number <= bound


# ---------------------------------------------------------------- kept


class RulesCache:
    """Compiled rules, the least used given up first. Bounded in bytes of rule text and in number."""

    CONTRACTS = 256
    BYTES = 16 * 1024 * 1024

    def __init__(self) -> None:
        self._compiled: OrderedDict[bytes, Rules] = OrderedDict()
        self._bytes = 0

    def __call__(self, text: bytes) -> Rules:
        """The rules compiled; none where the text is no rule set."""
        known = self._compiled.get(text)
        if known is not None:
            self._compiled.move_to_end(text)
            return known
        try:
            made = compile_rules(text)
        except MsgspecError:
            made = Rules(())
        self._compiled[text] = made
        self._bytes += len(text)
        while len(self._compiled) > self.CONTRACTS or self._bytes > self.BYTES:
            oldest, _ = self._compiled.popitem(last=False)
            self._bytes -= len(oldest)
        return made

    def clear(self) -> None:
        self._compiled.clear()
        self._bytes = 0
