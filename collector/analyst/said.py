"""What one answer has said, choice by choice: its texts, finishes, tool calls, and the sources that it names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collector import catalogue
from collector.analyst.accumulate import NewDigest, Room, TextSum, fact_of, well_formed
from collector.analyst.correction import correction_ratio
from collector.model import (
    MAX_CALLS,
    MAX_CHOICES,
    Choice,
    Delta,
    Sources,
    TextFact,
    TextFacts,
    ToolCall,
    ToolCallFact,
    ToolPiece,
)

MAX_NAME = 128  # characters of a tool's name
MAX_WORD = 64  # and of the word for a finish
MAX_SOURCES = 64  # texts that an answer cites, and as many that the provider retrieved
MAX_SOURCE_CHARS = 65_536  # of all of them together, of either kind

_ONE = frozenset({0})  # the only choice of most answers
_NO_SOURCES = Sources()


class _Others:
    """What few answers have beside text and a finish."""

    __slots__ = ("called", "calls", "quoted", "reasoning", "refusals", "repeated", "repeats", "retrieved")

    def __init__(self, room: int) -> None:
        self.refusals: dict[int, int] = {}
        self.reasoning: dict[int, int] = {}
        self.calls: dict[tuple[int, int], tuple[str | None, TextSum]] = {}
        self.called = Room(room)  # for all calls' arguments
        self.repeats: dict[int, str | None] = {}  # None: more than is kept
        self.repeated = 0  # characters of them
        self.quoted: dict[str, None] = {}
        self.retrieved: dict[str, None] = {}


class Said:
    """Takes what deltas say, in their order. `room` bounds the code points kept of all texts, as of all arguments."""

    def __init__(self, room: int, new_digest: NewDigest) -> None:
        self._room = room
        self._new_digest = new_digest
        self.texts: dict[int, TextSum] = {}  # of choices that are followed piece by piece
        self.shown = 0  # choices that the body shows, at most MAX_CHOICES
        self.is_over = False  # whether there were more choices or calls than are followed
        self._finish: dict[int, str] = {}
        self._alone: str | None = None  # the first text of the first choice, until another piece follows
        self._others: _Others | None = None

    # ------------------------------------------------------------ taking

    def text(self, choice: int, piece: str) -> None:
        """A piece of text of one choice."""
        if choice == 0 and self._alone is None and not self.texts and len(piece) <= self._room:
            self._alone = piece
            return
        self._follow()
        kept = self.texts.get(choice)
        if kept is None:
            if not self._is_followed(choice):
                return
            kept = self.texts[choice] = TextSum(self._spoken, self._new_digest)
        kept.add(piece)

    def _follow(self) -> None:
        """From now on texts are followed piece by piece."""
        alone, self._alone = self._alone, None
        if not self.texts:
            self._spoken = Room(self._room)  # for all choices
        if alone is not None:
            first = self.texts[0] = TextSum(self._spoken, self._new_digest)
            first.add(alone)

    def ends(self, delta: Delta) -> None:
        """How choices finished, and how many the body shows."""
        for end in delta.finish:
            choice = end.choice
            if choice == 0 or self._is_followed(choice):
                self._finish[choice] = end.reason[:MAX_WORD]
        shown = delta.choices
        if shown > self.shown:
            self.shown = min(shown, MAX_CHOICES)

    def others(self, delta: Delta) -> None:
        """What was generated besides text."""
        found = self._all_others()
        for piece in delta.reasoning:
            if self._is_followed(piece.choice):
                found.reasoning[piece.choice] = found.reasoning.get(piece.choice, 0) + len(piece.text)
        for piece in delta.refusal:
            if self._is_followed(piece.choice):
                found.refusals[piece.choice] = found.refusals.get(piece.choice, 0) + len(piece.text)
        for call in delta.tools:
            self._call(found, call)

    def repeats(self, delta: Delta) -> None:
        """What the provider repeats of all that a choice has said."""
        found = self._all_others()
        for piece in delta.full_text:
            if self._is_followed(piece.choice):
                found.repeated += len(piece.text) - len(found.repeats.get(piece.choice) or "")
                fits = found.repeated <= self._room
                found.repeats[piece.choice] = piece.text if fits else None
                found.repeated -= 0 if fits else len(piece.text)

    def sources(self, told: Sources) -> None:
        """What the first choice rests on."""
        found = self._all_others()
        _keep_texts(found.quoted, told.quoted)
        _keep_texts(found.retrieved, told.retrieved)

    def _all_others(self) -> _Others:
        if self._others is None:
            self._others = _Others(self._room)
        return self._others

    def _is_followed(self, choice: int) -> bool:
        if 0 <= choice < MAX_CHOICES:
            return True
        self.is_over = True
        return False

    def _call(self, found: _Others, call: ToolPiece) -> None:
        key = (call.choice, call.index)
        known = found.calls.get(key)
        if known is None:
            if not self._is_followed(call.choice):
                return
            if len(found.calls) >= MAX_CALLS or call.index >= MAX_CALLS:
                self.is_over = True
                return
            known = found.calls[key] = (_name(call.name), TextSum(found.called, self._new_digest))
        elif call.name is not None and known[0] is None:
            known = found.calls[key] = (_name(call.name), known[1])
        if call.arguments:
            known[1].add(call.arguments)

    # ------------------------------------------------------------ facts, once the answer is over

    @property
    def shows_choices(self) -> bool:
        """Whether the body is made of choices that could say how they finished; bare pieces of text are not."""
        return self.shown > 0 or bool(self._finish)

    @property
    def has_others(self) -> bool:
        """Whether there was anything beside text and finishes."""
        return self._others is not None

    @property
    def is_cut(self) -> bool:
        """Whether more was said than is kept."""
        return bool(self.texts) and not all(text.complete for text in self.texts.values())

    def choices(self) -> tuple[Choice, ...]:
        others, ends, alone = self._others, self._finish, self._alone
        if alone is not None and others is None and self.shown <= 1 and ends.keys() <= _ONE:  # as many
            finish = ends.get(0)
            return (Choice(0, well_formed(alone), True, finish, catalogue.ending_of(finish)),)
        self._follow()
        texts = self.texts
        named = {*range(self.shown), *texts, *ends}
        if others is not None:
            named.update(others.refusals, others.reasoning, (choice for choice, _ in others.calls))
        return tuple(self._choice(index, texts.get(index), others) for index in sorted(named)[:MAX_CHOICES])

    def _choice(self, index: int, text: TextSum | None, others: _Others | None) -> Choice:
        finish = self._finish.get(index)
        sources = _NO_SOURCES
        if others is not None and index == 0:
            sources = Sources(tuple(others.quoted), tuple(others.retrieved))
        return Choice(
            index,
            text.text() if text is not None else "",
            text.complete if text is not None else True,
            finish,
            catalogue.ending_of(finish),
            others.refusals.get(index, 0) if others is not None else 0,
            others.reasoning.get(index, 0) if others is not None else 0,
            sources,
        )

    def calls(self) -> tuple[ToolCall, ...]:
        return (
            ()
            if self._others is None
            else tuple(
                ToolCall(choice, index, name, arguments.text(), arguments.complete)
                for (choice, index), (name, arguments) in self._sorted_calls(self._others)
            )
        )

    def call_facts(self) -> tuple[ToolCallFact, ...]:
        if self._others is None:
            return ()
        facts = []
        for (choice, index), (name, arguments) in self._sorted_calls(self._others):
            fact = arguments.fact()
            named = well_formed(name) if name else name
            facts.append(ToolCallFact(choice, index, named, fact.sha256, fact.chars))
        return tuple(facts)

    @staticmethod
    def _sorted_calls(others: _Others) -> Sequence[tuple[tuple[int, int], tuple[str | None, TextSum]]]:
        return sorted(others.calls.items(), key=lambda item: item[0])

    def text_facts(self, choices: Sequence[Choice]) -> TextFacts:
        """Per choice and joined in index order; the joined hash of several is unknown where one was not kept whole."""
        if self._alone is not None:
            fact = fact_of(choices[0].text, self._new_digest)
            return TextFacts(fact.sha256, fact.chars, (fact,))
        facts = {index: text.fact() for index, text in sorted(self.texts.items())}
        each = tuple(facts.get(choice.index, TextFact(None, 0)) for choice in choices)
        chars = sum(fact.chars for fact in facts.values())
        spoken = [fact for fact in facts.values() if fact.chars]
        if len(spoken) <= 1:
            return TextFacts(spoken[0].sha256 if spoken else None, chars, each)
        joined = None
        if self._new_digest is not None and not self.is_cut:
            digest = self._new_digest()
            for _, text in sorted(self.texts.items()):
                digest.update(text.text().encode())
            joined = digest.hexdigest()
        return TextFacts(joined, chars, each)

    def correction(self) -> float | None:
        """Share of characters that differ between what was streamed and what was repeated; None where unknown."""
        if self._others is None or not self._others.repeats:
            return None
        self._follow()
        pairs = []
        for choice, repeated in self._others.repeats.items():
            streamed = self.texts.get(choice)
            if repeated is None or (streamed is not None and not streamed.complete):
                return None
            pairs.append((streamed.text() if streamed is not None else "", well_formed(repeated)))
        return correction_ratio(pairs)


def _name(told: str | None) -> str | None:
    return told[:MAX_NAME] if told is not None else None


def _keep_texts(kept: dict[str, None], more: Iterable[str]) -> None:
    """Adds texts in their order and once each, as far as there is room."""
    room = MAX_SOURCE_CHARS - sum(map(len, kept))
    for text in more:
        if text in kept or len(kept) >= MAX_SOURCES or len(text) > room:
            continue
        kept[text] = None
        room -= len(text)
