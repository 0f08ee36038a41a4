"""What the simulated model answers: the same for the same seed and request, whatever dialect carries it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from random import Random
from typing import Any, Literal

from msgspec import Struct

from collector.simulator import corpus, tokens
from collector.simulator.documents import Schema, document
from collector.simulator.faults import FaultName, Strike, broken_json, drifted

Ending = Literal["stop", "length", "tool_use", "stop_sequence"]
ToolChoice = Literal["auto", "any", "none", "named"]

# Without passages every sentence of the corpus is looked for; in longer prompts only so far.
MOST_SEARCHED_CHARACTERS = 200_000
QUOTED_TOOL_RESULT = 200
LOOPS = 20  # times that a sentence is repeated by the fault of that name


class Tool(Struct, frozen=True):
    name: str
    schema: dict[str, Any]


class Document(Struct, frozen=True):
    """A document block of the request; `index` counts the request's documents."""

    index: int
    title: str | None
    text: str


class Ask(Struct, frozen=True):
    """A request, whatever its dialect.

    `prompt` is every text of it, `question` what the user said last. `tool_result` is the text of the tool results in
    the last turn, None where there are none. `schema` is what structured output asked for, None for plain JSON.
    """

    model: str
    is_stream: bool
    prompt: str
    question: str
    digest: bytes
    input_tokens: int
    cached_tokens: int = 0
    cache_written_tokens: int = 0
    tool_result: str | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    tool_named: str | None = None
    is_parallel: bool = True
    speaks_before_tools: bool = False
    wants_json: bool = False
    schema: Schema | None = None
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    choices: int = 1
    thinks: bool = False
    wants_usage: bool = True
    arguments_must_parse: bool = False
    cited: tuple[Document, ...] = ()


class Call(Struct, frozen=True):
    id: str
    name: str
    pieces: tuple[str, ...]

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


class Citation(Struct, frozen=True):
    document: Document
    start: int
    end: int


class Reply(Struct, frozen=True):
    """One choice, in pieces."""

    thinking: tuple[str, ...]
    text: tuple[str, ...]
    calls: tuple[Call, ...]
    ending: Ending
    stopped_by: str | None = None
    citation: Citation | None = None
    corrected: str | None = None  # the whole text as it is repeated at the end, where it differs

    @property
    def token_count(self) -> int:
        return len(self.thinking) + len(self.text) + sum(len(call.pieces) for call in self.calls)


class _Statement(Struct, frozen=True):
    """An answer in words, and the sentence of the context on which it rests, if any."""

    text: str
    question: str
    resting_on: str | None = None


def identity(digest: bytes, label: str) -> str:
    """24 hexadecimal digits that belong to this request and label."""
    return hashlib.blake2b(digest + label.encode(), digest_size=12).hexdigest()


def compose(ask: Ask, seed: int, strikes: Mapping[FaultName, Strike]) -> list[Reply]:
    """The choices of an answer. Faults of content are already in them."""
    if "empty" in strikes:
        return [Reply((), (), (), "stop") for _ in range(ask.choices)]
    replies = []
    for choice in range(ask.choices):
        # Faults draw from a generator of their own: what they do not touch stays as it would be.
        rng = Random(f"{seed}:{ask.digest.hex()}:{choice}")
        spoil = Random(f"{seed}:{ask.digest.hex()}:{choice}:spoil")
        replies.append(_reply(ask, choice, rng, spoil, strikes))
    return replies


def _reply(ask: Ask, choice: int, rng: Random, spoil: Random, strikes: Mapping[FaultName, Strike]) -> Reply:
    statement = _statement(ask, rng)
    thinking = _thinking(ask, rng) if ask.thinks else ""
    calls: list[tuple[str, str]] = []
    text = ""
    stopped_by: str | None = None
    if tools := _called_tools(ask):
        text = "Let me look that up." if ask.speaks_before_tools and ask.tool_choice == "auto" else ""
        for tool in tools:
            arguments = document(tool.schema, rng, _hints(statement))
            calls.append((tool.name, _written(arguments, tool.schema, spoil, strikes, ask.arguments_must_parse)))
    elif ask.wants_json:
        schema: Schema = _PLAIN_JSON if ask.schema is None else ask.schema
        written = document(schema, rng, _hints(statement))
        text = _written(written, ask.schema, spoil, strikes, must_parse=False)
    else:
        text = statement.text
        for stop in ask.stops:
            if stop and (at := text.find(stop)) >= 0:
                text, stopped_by = text[:at], stop
        if "loop" in strikes:
            text = f"{text}{_LOOP * LOOPS}"
    reply = Reply(
        thinking=tuple(tokens.pieces(thinking)),
        text=tuple(tokens.pieces(text)),
        calls=tuple(
            Call(identity(ask.digest, f"call {choice} {index}"), name, tuple(tokens.pieces(arguments)))
            for index, (name, arguments) in enumerate(calls)
        ),
        ending="tool_use" if calls else "stop" if stopped_by is None else "stop_sequence",
        stopped_by=stopped_by,
        citation=_citation(ask, statement) if not calls and not ask.wants_json else None,
        corrected=f"Corrected: {text.upper()}" if "correction" in strikes and not calls and text else None,
    )
    limit = ask.max_tokens
    cut = strikes.get("truncation")
    if cut is not None and cut.mode == "length":
        half = max(1, reply.token_count // 2)
        limit = half if limit is None else min(half, limit)
    return reply if limit is None or reply.token_count <= limit else _shortened(reply, limit)


_LOOP = " As I said before, it is as I said."


def _shortened(reply: Reply, limit: int) -> Reply:
    """The first `limit` pieces of a reply."""
    left = max(0, limit)
    thinking = reply.thinking[:left]
    left -= len(thinking)
    text = reply.text[:left]
    left -= len(text)
    calls = []
    for call in reply.calls:
        if left <= 0:
            break
        calls.append(Call(call.id, call.name, call.pieces[:left]))
        left -= len(calls[-1].pieces)
    return Reply(thinking, text, tuple(calls), "length", None, reply.citation)


def _written(
    value: Any, schema: Schema | None, spoil: Random, strikes: Mapping[FaultName, Strike], must_parse: bool
) -> str:
    """A document as the model writes it, with the faults that struck it."""
    is_broken = "invalid_json" in strikes
    if schema is not None and ("schema_drift" in strikes or (is_broken and must_parse)):
        value = drifted(value, schema, spoil)
        if must_parse and not isinstance(value, dict):
            value = {"value": value}
    text = json.dumps(value, ensure_ascii=False)
    return broken_json(text, spoil) if is_broken and not must_parse else text


def _called_tools(ask: Ask) -> list[Tool]:
    if not ask.tools or ask.tool_choice == "none":
        return []
    if ask.tool_choice == "named":
        return [tool for tool in ask.tools if tool.name == ask.tool_named][:1]
    if ask.tool_choice == "auto" and (ask.tool_result is not None or _has_context(ask)):
        return []
    wants_two = re.search(r"\b(both|and)\b|和|以及", ask.question) is not None
    if not (ask.is_parallel and wants_two):
        return [ask.tools[ask.digest[0] % len(ask.tools)]]
    return list(ask.tools[:2]) if len(ask.tools) > 1 else [ask.tools[0], ask.tools[0]]


# ---------------------------------------------------------------- words


def _statement(ask: Ask, rng: Random) -> _Statement:
    searched = ask.prompt[-MOST_SEARCHED_CHARACTERS:]
    item = corpus.asked_in(ask.question)
    if item is None:
        item = corpus.asked_in(searched)
    if item is None:
        return _Statement(_small_talk(ask, rng), ask.question[-200:])
    if item.answer_sentence in searched:
        return _Statement(_grounded(item, searched, rng), item.question, item.answer_sentence)
    if _has_context(ask):
        return _Statement(_ungrounded(item, rng), item.question)
    return _Statement(item.answer, item.question)


def _has_context(ask: Ask) -> bool:
    return corpus.holds_a_passage(ask.prompt[-MOST_SEARCHED_CHARACTERS:])


def _grounded(item: corpus.Item, prompt: str, rng: Random) -> str:
    lead = rng.choice((item.answer, item.answer, item.answer_sentence))
    others = [sentence for sentence in item.sentences if sentence != item.answer_sentence and sentence in prompt]
    if others and rng.random() < 0.75:
        return corpus.join([lead, rng.choice(others)], item.language)
    return lead


def _ungrounded(item: corpus.Item, rng: Random) -> str:
    """What a model says when its passages do not hold the answer: a guess, or something about another matter."""
    if rng.random() < 0.65:
        return corpus.join([item.mistaken, rng.choice(_GUESSES[item.language])], item.language)
    strangers = [other for other in corpus.CORPUS if other.domain != item.domain and other.language == item.language]
    stranger = rng.choice(strangers)
    return corpus.join([stranger.answer, rng.choice(_GUESSES[item.language])], item.language)


def _small_talk(ask: Ask, rng: Random) -> str:
    if ask.tool_result is not None:
        return f"The tool answered: {ask.tool_result[:QUOTED_TOOL_RESULT].strip()}"
    language: corpus.Language = "zh" if re.search(r"[一-鿿]", ask.question) else "en"
    return corpus.join(rng.sample(_SMALL_TALK[language], rng.randint(2, 4)), language)


def _thinking(ask: Ask, rng: Random) -> str:
    about = " ".join(ask.question.split())[-120:]
    steps = rng.sample(_THOUGHTS, 2)
    return f"The user asks: {about} {steps[0]} {steps[1]}"


def _hints(statement: _Statement) -> dict[str, str]:
    answer = dict.fromkeys(
        ("answer", "response", "summary", "text", "content", "result", "explanation", "message"), statement.text
    )
    question = dict.fromkeys(("question", "query", "q", "topic", "search"), statement.question)
    evidence = {} if statement.resting_on is None else dict.fromkeys(("evidence", "quote"), statement.resting_on)
    return answer | question | evidence


def _citation(ask: Ask, statement: _Statement) -> Citation | None:
    if statement.resting_on is None:
        return None
    for cited in ask.cited:
        at = cited.text.find(statement.resting_on)
        if at >= 0:
            return Citation(cited, at, at + len(statement.resting_on))
    return None


_PLAIN_JSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {"type": "string"},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "sources": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["answer", "confidence", "sources"],
}

_GUESSES: dict[corpus.Language, tuple[str, ...]] = {
    "en": (
        "This has been the custom there for several generations.",
        "The exact figure may differ from one season to another.",
        "Most travellers hear of it only by chance.",
        "It is generally regarded as the safer choice.",
    ),
    "zh": (
        "这在当地已经是很多年的习惯了。",
        "具体情况可能因季节而有所不同。",
        "大多数人都是偶然听说的。",
        "一般认为这样更稳妥。",
    ),
}

_SMALL_TALK: dict[corpus.Language, tuple[str, ...]] = {
    "en": (
        "Here is what I would suggest as a first step.",
        "Start with the smallest part that can be tested, and write down what you expect to see.",
        "It often helps to change one thing at a time and to compare the results.",
        "If two people read the same text and disagree, the text needs another sentence.",
        "A short list of open questions keeps everyone on the same page.",
        "When the numbers look too good, check how they were collected.",
        "I can go into more detail on any of these points.",
        "Keep the older version at hand until the new one has run for a week.",
    ),
    "zh": (
        "可以先从最小的一步开始。",
        "每次只改变一处，再比较前后的结果。",
        "把还没有弄清楚的问题列成一张表，会很有帮助。",
        "如果数字好得出奇，先看看它是怎么得来的。",
        "旧的版本最好保留一个星期再删除。",
        "如果需要，我可以继续说明其中任何一点。",
    ),
}

_THOUGHTS = (
    "I should look for the sentence that states it.",
    "The passages may disagree, so I compare them.",
    "A short and direct answer is best here.",
    "I must not add what the text does not say.",
    "The unit matters, so I keep it.",
)
