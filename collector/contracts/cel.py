"""CEL expressions over an answer, by the CEL project's own library; see docs/decisions/0005-cel.md."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import Any

from collector.contracts.answer import Answer, NotEvaluatedError, Why

EXTRA = "install the extra: pip install 'semhealth[contracts]'"

_ERROR = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): ([^\n]*)")
_DEEP = re.compile(r"recursion", re.IGNORECASE)
# How the library words what went wrong; it has no codes for it.
_WHY: tuple[tuple[re.Pattern[str], Why], ...] = (
    (re.compile(r"budget exceeded", re.IGNORECASE), "over_bounds"),
    (re.compile(r"NOT_FOUND|index error: index=", re.IGNORECASE), "missing"),
    (re.compile(r"overload|\btype\b|cannot convert|conversion failed", re.IGNORECASE), "type"),
)


class CelError(ValueError):
    """The expression is not one that can be used; the message says where and what."""


class Expression:
    """A compiled expression. `reads_output` tells whether it speaks of the answer's JSON."""

    def __init__(self, program: Any, reads_output: bool) -> None:
        self._program = program
        self.reads_output = reads_output

    def holds(self, answer: Answer, activations: dict[str, Any]) -> bool:
        """Whether it is true of an answer. Raises NotEvaluatedError.

        `activations` is kept by the caller for as long as the answer is the same: to lay the JSON before CEL takes
        longer than an expression does.
        """
        if self.reads_output and not answer.is_json:
            raise NotEvaluatedError("not_json")
        key = "output" if self.reads_output else "text"
        if key not in activations:
            output = answer.output if self.reads_output else None
            activations[key] = _environment().Activation({"output": output, "text": answer.text})
        try:
            result = self._program.eval(activations[key])
            value = result.value()
        except RuntimeError as error:  # The library raises what ends an evaluation, and returns other errors.
            raise NotEvaluatedError(_why(str(error))) from error
        if isinstance(value, bool):
            return value
        raise NotEvaluatedError(_why(str(value)) if result.type() == _library().Type.ERROR else "type")


def compile_expression(text: str) -> Expression:
    """An expression from its text. Raises CelError; without the library it says what to install."""
    try:
        environment = _environment()
    except ImportError as error:
        raise CelError(f"CEL needs a library that is not installed; {EXTRA}") from error
    try:
        program = environment.compile(text)
    except RuntimeError as error:
        raise CelError(_said(str(error), text)) from error
    kind = program.return_type().name()
    if kind not in ("BOOL", "DYN"):
        raise CelError(f"gives {kind.lower()}, where true or false is wanted")
    return Expression(program, not _compiles(text))


def _compiles(text: str) -> bool:
    """Whether an expression can do without the JSON."""
    try:
        _text_environment().compile(text)
    except RuntimeError:
        return False
    return True


@cache
def _library() -> Any:
    return import_module("cel_expr_python.cel")  # an extra; loaded where a contract has expressions


@cache
def _environment() -> Any:
    types = _library().Type
    return _library().NewEnv(variables={"output": types.DYN, "text": types.STRING})


@cache
def _text_environment() -> Any:
    return _library().NewEnv(variables={"text": _library().Type.STRING})


def _said(message: str, text: str) -> str:
    """The library's first complaint, in one line: `position 12: undeclared reference to 'x'`."""
    found = _ERROR.search(message)
    what = message if found is None else found[3]
    if _DEEP.search(message):
        return "nested too deeply; split it into several rules"
    what = " ".join(what.split())[:200].removesuffix(" (in container '')")
    if found is None or int(found[2]) < 1:
        return what
    line, column = int(found[1]), int(found[2])
    return f"line {line}, position {column}: {what}" if "\n" in text.strip() else f"position {column}: {what}"


def _why(message: str) -> Why:
    return next((why for pattern, why in _WHY if pattern.search(message)), "failed")
