"""Texts that match a regular expression of the simple kind that JSON Schemas carry."""

from __future__ import annotations

import math
import re
import string
from random import Random

from msgspec import Struct

DIGITS = string.digits
LETTERS = string.ascii_letters
WORD = LETTERS + DIGITS + "_"
PRINTABLE = LETTERS + DIGITS + "-_.,:;!?/ "
_ESCAPED_CLASSES = {"d": DIGITS, "w": WORD, "s": " ", "D": LETTERS, "W": "-", "S": LETTERS + DIGITS}
_ESCAPED_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
# How many repetitions beyond the least are tried, until the lengths fit.
_EXTRA = (3, 0, 12, 60)
_MOST_REPETITIONS = 2000


class UnsupportedPatternError(ValueError):
    """The pattern uses look-around, back references or another construct that is not written here."""


class _Atom(Struct, frozen=True):
    """A character out of `characters`, or, where `branches` is given, one of these sequences; repeated."""

    characters: str
    branches: tuple[tuple[_Atom, ...], ...] | None
    least: int = 1
    most: float = 1


def text_for_pattern(pattern: str, rng: Random, least: float = 0, most: float = math.inf) -> str:
    """A text that the pattern matches, of `least` to `most` characters.

    Raises UnsupportedPatternError where the pattern is not understood or no text of such length was found.
    """
    reader = _Reader(pattern)
    branches = reader.branches()
    if not reader.is_at_end:
        raise UnsupportedPatternError(f"pattern {pattern!r}: unexpected ) at {reader.at}")
    try:
        matcher = re.compile(pattern)
    except re.error as error:
        raise UnsupportedPatternError(f"pattern {pattern!r}: {error}") from error
    # A few at random; then ever more repetitions, which meets exact lengths too.
    tries = [(extra, False) for extra in _EXTRA for _ in range(20)]
    tries += [(extra, True) for extra in range(min(int(least), _MOST_REPETITIONS) + 1)]
    for extra, is_full in tries:
        text = _write(branches, rng, extra, is_full)
        if least <= len(text) <= most and matcher.search(text):
            return text
    raise UnsupportedPatternError(f"pattern {pattern!r}: no text of {least} to {most} characters found")


def _write(branches: tuple[tuple[_Atom, ...], ...], rng: Random, extra: int, is_full: bool) -> str:
    written: list[str] = []
    for atom in rng.choice(branches):
        times = int(min(atom.most, atom.least + extra))
        if times > _MOST_REPETITIONS:
            raise UnsupportedPatternError(f"more than {_MOST_REPETITIONS} repetitions")
        if not is_full:
            times = rng.randint(atom.least, times)
        for _ in range(times):
            if atom.branches is None:
                written.append(rng.choice(atom.characters))
            else:
                written.append(_write(atom.branches, rng, extra, is_full))
    return "".join(written)


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.at = 0

    @property
    def is_at_end(self) -> bool:
        return self.at >= len(self._pattern)

    def branches(self) -> tuple[tuple[_Atom, ...], ...]:
        found = [self._sequence()]
        while self._take("|"):
            found.append(self._sequence())
        return tuple(found)

    def _sequence(self) -> tuple[_Atom, ...]:
        atoms: list[_Atom] = []
        while not self.is_at_end and self._peek() not in "|)":
            if self._peek() in "^$":
                self.at += 1
                continue
            atom = self._atom()
            if atom is not None:
                atoms.append(self._repeated(atom))
        return tuple(atoms)

    def _atom(self) -> _Atom | None:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return _Atom(self._class(), None)
        if character == ".":
            return _Atom(LETTERS + DIGITS, None)
        if character == "\\":
            characters = self._escaped()
            return None if characters is None else _Atom(characters, None)
        if character in "*+?":
            raise UnsupportedPatternError(f"pattern {self._pattern!r}: nothing to repeat at {self.at - 1}")
        return _Atom(character, None)

    def _group(self) -> _Atom:
        if self._take("?"):
            named = re.compile(r"P?<[A-Za-z_]\w*>").match(self._pattern, self.at)
            if named is not None:
                self.at = named.end()
            elif not self._take(":"):
                raise UnsupportedPatternError(f"pattern {self._pattern!r}: unsupported group at {self.at}")
        branches = self.branches()
        if not self._take(")"):
            raise UnsupportedPatternError(f"pattern {self._pattern!r}: group is not closed")
        return _Atom("", branches)

    def _class(self) -> str:
        is_negated = self._take("^")
        characters: list[str] = []
        while True:
            character = self._next()
            if character == "]" and characters:
                break
            if character == "\\":
                escaped = self._escaped()
                characters.extend(escaped if escaped is not None else "")
                continue
            following = self._pattern[self.at : self.at + 2]
            if following.startswith("-") and following not in ("-", "-]"):
                self.at += 1
                last = self._next()
                if last == "\\":
                    escaped = self._escaped()
                    last = escaped if escaped is not None and len(escaped) == 1 else character
                end = min(ord(last), ord(character) + 255)
                characters.extend(chr(code) for code in range(ord(character), end + 1))
                continue
            characters.append(character)
        if not is_negated:
            return "".join(characters)
        allowed = [character for character in PRINTABLE if character not in characters]
        if not allowed:
            raise UnsupportedPatternError(f"pattern {self._pattern!r}: no simple character is left by a class")
        return "".join(allowed)

    def _escaped(self) -> str | None:
        character = self._next()
        if character in _ESCAPED_CLASSES:
            return _ESCAPED_CLASSES[character]
        if character in _ESCAPED_CHARACTERS:
            return _ESCAPED_CHARACTERS[character]
        if character in "bBAZz":
            return None
        if character in "xu":
            width = 2 if character == "x" else 4
            digits = self._pattern[self.at : self.at + width]
            if not re.fullmatch(f"[0-9A-Fa-f]{{{width}}}", digits):
                raise UnsupportedPatternError(f"pattern {self._pattern!r}: broken escape at {self.at}")
            self.at += width
            return chr(int(digits, 16))
        if character.isalnum():
            raise UnsupportedPatternError(f"pattern {self._pattern!r}: unsupported escape \\{character}")
        return character

    def _repeated(self, atom: _Atom) -> _Atom:
        counted = re.compile(r"\{(\d*)(,?)(\d*)\}").match(self._pattern, self.at)
        if self._take("*"):
            least, most = 0, math.inf
        elif self._take("+"):
            least, most = 1, math.inf
        elif self._take("?"):
            least, most = 0, 1.0
        elif counted is not None and counted.group(0) not in ("{}", "{,}"):
            self.at = counted.end()
            low, comma, high = counted.groups()
            least = int(low) if low else 0
            most = float(high) if high else (math.inf if comma else float(least))
        else:
            return atom
        if not self._take("?"):  # lazy or possessive makes no difference to what is written
            self._take("+")
        return _Atom(atom.characters, atom.branches, least, most)

    def _peek(self) -> str:
        return self._pattern[self.at]

    def _next(self) -> str:
        if self.is_at_end:
            raise UnsupportedPatternError(f"pattern {self._pattern!r}: ends too early")
        self.at += 1
        return self._pattern[self.at - 1]

    def _take(self, character: str) -> bool:
        if self._pattern[self.at : self.at + 1] != character:
            return False
        self.at += 1
        return True
