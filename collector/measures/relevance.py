"""Does the context answer the query, does the answer, and does the answer rest on the context?

Three scores from 0 to 1, each a monotone logistic of a few cosines and word overlaps. Their formulas and weights come
from a study on rows of Natural Questions, HotpotQA and Wizard of Wikipedia. "Rests on" means that the answer's words
occur in a matching place of the context; it is not entailment. The weights hold for one encoder (USE multilingual v3)
and for the words and sentences of `relevance_lexicon`: whoever changes one of them has to fit again and to measure
with `bench/relevance_scores.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from collector.measures import relevance_lexicon as lexicon
from collector.model import RawRelevance, Reading, Relevance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from collector.measures.relevance_lexicon import Words
    from collector.model import Choice, Exchange

    Vectors = NDArray[np.float32]

MAX_CONTEXT_CHARS = 32_768  # of all passages together; what lies beyond is not looked at
MAX_CONTEXT_PIECES = 96  # sentences of context that are embedded: those with most words of query and answer
MAX_ANSWER_CHARS = 8_192
MAX_ANSWER_PIECES = 12  # sentences of the answer that are judged one by one; the rest goes unjudged
MAX_QUERY_CHARS = 2_000
MIN_ANSWER_SIGNS = 2  # letters and digits an answer needs; one of one digit matches by chance
UNSUPPORTED_SHARE = 0.5  # of the letters of query or answer, from which the encoder does not know the script

# Outcomes whose answer broke off. An `incomplete` one (a limit on its length) was delivered as the model ended it.
_BROKEN_OFF = ("truncated", "client_disconnect", "error_event", "upstream_error")

# What an answer to each kind of question looks like. Language neutral, since the encoder is.
ANSWER_TYPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "time": (
        ("When did it happen?", "In which year?", "On what date?", "What year was it?"),
        ("1987", "In March 1990", "On 5 June 2004", "the 19th century", "1920s"),
    ),
    "number": (
        ("How many are there?", "How much does it cost?", "What percentage?", "What is the number of?"),
        ("4", "3,500", "twelve", "25%", "$1.9 million"),
    ),
    "person": (
        ("Who did it?", "Who is the person?", "What is the name of the actor?"),
        ("John Smith", "Maria Lopez", "King Henry", "Dr. Anna Weber", "the actor"),
    ),
    "place": (
        ("Where is it?", "In which city or country?", "What is the location?"),
        ("Paris, France", "New York City", "in the north of Germany", "California", "China"),
    ),
    "reason": (
        ("Why did it happen?", "What is the reason?", "What is the purpose?"),
        (
            "Because it was too expensive.", "To protect people from harm.", "It was caused by a lack of water.",
            "in order to improve.",
        ),
    ),
    "kind": (
        ("What kind of thing is it?", "What type of?", "What is it called?"),
        ("a type of music", "wood", "a car", "saxophone", "a disease", "The Lost World"),
    ),
}  # fmt: skip
_PROTOTYPES = tuple(dict.fromkeys(text for pair in ANSWER_TYPES.values() for texts in pair for text in texts))
_SHARPNESS = 0.05  # of the softmax over the types

_SURROGATE = re.compile("[\ud800-\udfff]")

UNGROUNDED_NUMBER_CAP = 0.30  # of groundedness, for a sentence with a number that the context does not hold


class Texts(Struct, frozen=True):
    """What is embedded for one exchange. `pieces` are without repeats; the other fields are what they are for.

    `joined` are query and answer as one text: for the whole answer, then for each of its sentences if they are several.
    """

    pieces: tuple[str, ...]
    query: str
    answer: str
    answer_sentences: tuple[str, ...]
    joined: tuple[str, ...]
    context: tuple[str, ...]  # sentences that are embedded
    passages: tuple[tuple[str, ...], ...]  # all sentences, by passage; compared by their words only
    whole_context: str
    language: str
    truncated: bool


# ---------------------------------------------------------------- what can be scored


def reason_not_scored(exchange: Exchange) -> str | None:
    """Why there is no context relevance, as far as the exchange itself tells; None where it can be scored.

    Writing is supported in Latin, CJK, Cyrillic, Arabic and Thai script, which the encoder was trained on.
    """
    answer = _first(exchange.choices)
    text = "" if answer is None else answer.text
    if not text.strip():
        return "tool_only" if exchange.tool_calls else "empty_output"
    if exchange.record.outcome == "blocked" or (answer is not None and answer.ending in ("blocked", "refusal")):
        return "blocked"
    if exchange.record.outcome in _BROKEN_OFF:
        return "truncated"
    query = exchange.request.query
    if query is None or not query.strip():
        return "no_query"
    if not any(passage.strip() for passage in exchange.request.context):
        return "no_context"
    if _is_unsupported(query) or _is_unsupported(text):
        return "language_unsupported"
    return None


def may_score_answer(exchange: Exchange) -> bool:
    """True where `answer_relevance` can be given although there is no context."""
    query = exchange.request.query
    return reason_not_scored(exchange) == "no_context" and not (
        query is None or _is_unsupported(query) or _is_unsupported(exchange.choices[0].text)
    )


def unscored(exchange: Exchange, reason: str) -> Relevance:
    """The relevance of an exchange without scores."""
    answer = _first(exchange.choices)
    text = " ".join(part for part in (exchange.request.query, None if answer is None else answer.text) if part)
    return Relevance(scored=False, reason=reason, language=language(text) if text.strip() else None)


def language(text: str) -> str:
    """`latin`, `cjk` or `other` where at least 80 % of the letters are of that script, else `mixed`."""
    counts = lexicon.scripts(text)
    if counts.total == 0:
        return "other"
    for name, count in (("latin", counts.latin), ("cjk", counts.cjk), ("other", counts.other)):
        if count >= lexicon.DOMINANT * counts.total:
            return name
    return "mixed"


def _is_unsupported(text: str) -> bool:
    counts = lexicon.scripts(text)
    return counts.total > 0 and counts.unsupported > UNSUPPORTED_SHARE * counts.total


def _first(choices: Sequence[Choice]) -> Choice | None:
    return choices[0] if choices else None


# ---------------------------------------------------------------- texts


def texts(exchange: Exchange) -> Texts:
    """The texts to embed. The exchange has a query and an answer (see `reason_not_scored`); context may be missing.

    With several choices the first one is scored. No piece is blank.
    """
    query = exchange.request.query
    choice = _first(exchange.choices)
    if query is None or choice is None:
        raise ValueError("an exchange without query or answer has no texts to embed")
    made = compose(query, choice.text, exchange.request.context)
    return made if choice.text_complete or made.truncated else _marked_truncated(made)


def _marked_truncated(made: Texts) -> Texts:
    return Texts(
        made.pieces, made.query, made.answer, made.answer_sentences, made.joined, made.context, made.passages,
        made.whole_context, made.language, truncated=True,
    )  # fmt: skip


def compose(query: str, answer: str, passages: Sequence[str]) -> Texts:
    """The texts to embed for a query, an answer and passages of context."""
    query, answer, passages = _encodable(query), _encodable(answer), [_encodable(passage) for passage in passages]
    script = language(f"{query[:MAX_QUERY_CHARS]} {answer[:MAX_ANSWER_CHARS]}")
    truncated = len(query) > MAX_QUERY_CHARS or len(answer) > MAX_ANSWER_CHARS
    query = " ".join(query[:MAX_QUERY_CHARS].split())
    answer = lexicon.answer_text(answer[:MAX_ANSWER_CHARS])
    told = lexicon.sentences(answer)
    answer = " ".join(told)
    truncated = truncated or len(told) > MAX_ANSWER_PIECES

    room = MAX_CONTEXT_CHARS
    held: list[tuple[str, ...]] = []
    for passage in passages:
        truncated = truncated or len(passage) > room
        held.append(lexicon.sentences(passage[:room]))
        room -= min(len(passage), room)
    sentences = tuple(dict.fromkeys(sentence for passage in held for sentence in passage))
    if len(sentences) > MAX_CONTEXT_PIECES:
        truncated = True
        wanted = lexicon.words(lexicon.normal(f"{query} {answer}"))
        sentences = tuple(sentences[index] for index in lexicon.strongest(sentences, wanted, MAX_CONTEXT_PIECES))

    told = told[:MAX_ANSWER_PIECES]
    joined = tuple(f"{query} {part}" for part in ((answer, *told) if len(told) > 1 else (answer,))) if answer else ()
    needed = (query, answer, *told, *joined, *sentences, *_PROTOTYPES)
    return Texts(
        pieces=tuple(dict.fromkeys(text for text in needed if text)),
        query=query,
        answer=answer,
        answer_sentences=told,
        joined=joined,
        context=sentences,
        passages=tuple(passage for passage in held if passage),
        whole_context=lexicon.normal(" ".join(passages)[:MAX_CONTEXT_CHARS]),
        language=script,
        truncated=truncated,
    )


def _encodable(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced, which JSON may hold and UTF-8 may not."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# ---------------------------------------------------------------- scores


def relevance(given: Texts, vectors: Vectors) -> Relevance:
    """The scores of one exchange from the vectors of its `pieces`, in their order.

    Without context only `answer_relevance` is given, with `scored` false. An answer of a single letter or digit gets
    no score of its own, since it matches by chance.
    """
    if len(vectors) != len(given.pieces):
        raise ValueError(f"expected {len(given.pieces)} vectors, got {len(vectors)}")
    unit = _unit(vectors)
    row = {text: unit[index] for index, text in enumerate(given.pieces)}
    types = _AnswerTypes.of(row)
    has_answer = sum(character.isalnum() for character in given.answer) >= MIN_ANSWER_SIGNS
    if not given.context or not given.query:
        raw = _answer_alone(row[given.query], row[given.answer], types) if has_answer and given.query else None
        return Relevance(
            scored=False,
            reason="no_context",
            language=given.language,
            answer_relevance=None if raw is None else _sigmoid(raw),
            raw=None if raw is None else RawRelevance(answer_relevance=raw),
            windows=0,
            truncated=given.truncated,
        )
    ground = _Ground(given, row)
    context_raw = ground.context_logit()
    answer_raw = ground.answer_logit(types) if has_answer else None
    grounded = ground.groundedness() if has_answer else None
    return Relevance(
        scored=True,
        language=given.language,
        context_relevance=_sigmoid(context_raw),
        answer_relevance=None if answer_raw is None else _sigmoid(answer_raw),
        groundedness=None if grounded is None else grounded[0],
        raw=RawRelevance(context_raw, answer_raw, None if grounded is None else grounded[1]),
        windows=len(given.context),
        truncated=given.truncated,
    )


class _AnswerTypes:
    """How well an answer is of the type that a question asks for."""

    def __init__(self, questions: Vectors, answers: Vectors) -> None:
        self._questions = questions
        self._answers = answers

    @classmethod
    def of(cls, row: dict[str, Vectors]) -> _AnswerTypes:
        """Centroids of the prototypes, whose vectors are among the given ones."""
        return cls(
            _unit(np.stack([np.mean([row[text] for text in pair[0]], axis=0) for pair in ANSWER_TYPES.values()])),
            _unit(np.stack([np.mean([row[text] for text in pair[1]], axis=0) for pair in ANSWER_TYPES.values()])),
        )

    def fit(self, query: Vectors, answer: Vectors) -> float:
        """0 where the types differ, 1 where both are the same single one."""
        return float(_softmax(self._questions @ query) @ _softmax(self._answers @ answer))


class _Ground:
    """What one exchange's scores are made of. Names of features as in the study, told beside each."""

    def __init__(self, given: Texts, row: dict[str, Vectors]) -> None:
        self._given = given
        self._row = row
        self._query = row[given.query]
        self._context = np.stack([row[sentence] for sentence in given.context])
        self._query_words = lexicon.words(lexicon.normal(given.query))
        of_sentence = {
            sentence: lexicon.words(lexicon.normal(sentence)).weights
            for sentence in dict.fromkeys(sentence for passage in given.passages for sentence in passage)
        }
        self._sentences = [of_sentence[sentence] for sentence in given.context]
        self._pairs = [
            [of_sentence[sentence] for sentence in pair]
            for passage in given.passages
            for pair in (pairwise(passage) if len(passage) > 1 else [passage])
        ]
        # Numbers that an answer may hold: those of the context, in digits or words, and those of the query.
        self._numbers = self._query_words.numbers.union(
            token for weights in of_sentence.values() for token in weights if token[0].isdigit()
        )
        self._whole = lexicon.Whole(given.whole_context)
        self._query_cosines = self._cosines(self._query)  # q_s is the highest of them

    def context_logit(self) -> float:
        closest = _highest(self._query_cosines)  # q_s
        in_pair = self._in_pair(self._query_words)  # ql_p
        in_whole = self._whole.share_of(lexicon.normal(self._given.query))  # ql_g
        return (
            CONTEXT.bias
            + CONTEXT.closest * closest
            + CONTEXT.in_pair * in_pair
            + CONTEXT.in_whole * in_whole
            + CONTEXT.closest_unsaid * closest * (1 - in_pair)  # qx
        )

    def answer_logit(self, types: _AnswerTypes) -> float:
        """Of the whole answer."""
        answer = self._row[self._given.answer]
        new = self._new_words(self._given.answer)
        query = np.clip(self._query_cosines, 0.0, 1.0)
        carried = max(  # bq_s: one sentence both carries the answer and matches the query
            new.share_in(sentence) * (float(cosine) + self._query_words.share_in(sentence)) / 2
            for cosine, sentence in zip(query, self._sentences, strict=True)
        )
        both = _highest(query * np.clip(self._cosines(answer), 0.0, 1.0))
        return (
            ANSWER.bias
            + ANSWER.to_query * float(self._query @ answer)  # qa
            + ANSWER.type_fit * types.fit(self._query, answer)  # tp
            + ANSWER.drawn_closer * self._drawn_closer(self._given.joined[0])  # dj_s
            + ANSWER.carried * carried
            + ANSWER.both_unsaid * both * (1 - min(1.0, 1.5 * carried))  # jx
        )

    def groundedness(self) -> tuple[float, float]:
        """Score and logit: means over the answer's sentences, weighted by their length."""
        several = len(self._given.answer_sentences) > 1
        parts = self._given.answer_sentences if several else (self._given.answer,)
        joined = self._given.joined[1:] if several else self._given.joined
        logits = [self._sentence_logit(part, both) for part, both in zip(parts, joined, strict=True)]
        length = sum(map(len, parts))
        shares = [len(part) / length for part in parts]
        return (
            sum(share * _sigmoid(logit) for share, logit in zip(shares, logits, strict=True)),
            sum(share * logit for share, logit in zip(shares, logits, strict=True)),
        )

    def _sentence_logit(self, part: str, joined: str) -> float:
        new = self._new_words(part)
        closest = _highest(self._cosines(self._row[part]))  # a_s
        in_pair = self._in_pair(new)  # an_p
        unknown_number = not new.numbers <= self._numbers  # num_bad
        logit = (
            GROUNDED.bias
            + GROUNDED.in_pair * in_pair
            + GROUNDED.drawn_closer * self._drawn_closer(joined)  # dj_s
            + GROUNDED.unknown_number * unknown_number
            + GROUNDED.in_whole * self._whole.share_of(lexicon.normal(part))  # al_g
            + GROUNDED.closest_unsaid * closest * (1 - in_pair)  # ax
        )
        return min(logit, _NUMBER_CAP_LOGIT) if unknown_number else logit

    def _cosines(self, vector: Vectors) -> Vectors:
        cosines: Vectors = self._context @ vector
        return cosines

    def _drawn_closer(self, joined: str) -> float:
        """By how much adding the answer brings the question closer to the context."""
        return _highest(self._cosines(self._row[joined])) - _highest(self._query_cosines)

    def _new_words(self, part: str) -> Words:
        return lexicon.without(lexicon.words(lexicon.normal(part)), self._query_words)

    def _in_pair(self, wanted: Words) -> float:
        """The highest share of the words that two neighbouring sentences hold together."""
        return max(wanted.share_in(*pair) for pair in self._pairs)


# ---------------------------------------------------------------- weights

# Logistic fits on the study's rows with hard negatives and lexical dropout ("robust", for USE), sign-bounded and
# Platt-scaled. The intercepts assume that 67 % of contexts are relevant and 48 % of answers right: other traffic
# shifts them.


class _ContextWeights(Struct, frozen=True):
    bias: float
    closest: float
    in_pair: float
    in_whole: float
    closest_unsaid: float


class _GroundednessWeights(Struct, frozen=True):
    bias: float
    in_pair: float
    drawn_closer: float
    unknown_number: float
    in_whole: float
    closest_unsaid: float


class _AnswerWeights(Struct, frozen=True):
    bias: float
    to_query: float
    type_fit: float
    drawn_closer: float
    carried: float
    both_unsaid: float


CONTEXT = _ContextWeights(-6.146, 9.861, 3.625, 5.542, 8.051)
GROUNDED = _GroundednessWeights(-3.622, 3.727, 9.296, -3.046, 3.746, 4.886)
ANSWER = _AnswerWeights(-5.423, 6.291, 4.255, 12.982, 13.744, 17.393)


class _AloneWeights(Struct, frozen=True):
    bias: float
    to_query: float
    type_fit: float


# Fitted on the 1,199 labelled rows that have an answer (logistic, L2 1e-3); fitted on two of the three sets, the third
# gives AUROC .90 (nq), .85 (hotpotqa), .93 (wow) and a calibration error of .05 to .08.
ALONE = _AloneWeights(-2.400, 11.826, 3.918)

_NUMBER_CAP_LOGIT = math.log(UNGROUNDED_NUMBER_CAP / (1 - UNGROUNDED_NUMBER_CAP))


def _answer_alone(query: Vectors, answer: Vectors, types: _AnswerTypes) -> float:
    """The logit of answer relevance from query and answer alone, for exchanges without context."""
    return ALONE.bias + ALONE.to_query * float(query @ answer) + ALONE.type_fit * types.fit(query, answer)


# ---------------------------------------------------------------- arithmetic


def _unit(vectors: Vectors) -> Vectors:
    """Rows of length 1; a row of zeros (or of anything not finite) becomes zeros, whose cosines are 0."""
    finite = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0)
    lengths = np.linalg.norm(finite, axis=1, keepdims=True)
    unit: Vectors = np.divide(finite, lengths, out=np.zeros_like(finite), where=lengths > 1e-6).astype(np.float32)
    return unit


def _highest(values: Vectors) -> float:
    return float(np.max(values))


def _softmax(cosines: Vectors) -> Vectors:
    shifted = (cosines - cosines.mean()) / _SHARPNESS
    powers = np.exp(shifted - shifted.max())
    shares: Vectors = powers / powers.sum()
    return shares


def _sigmoid(logit: float) -> float:
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    power = math.exp(logit)
    return power / (1 + power)


# ---------------------------------------------------------------- readings


def readings(scores: Relevance, labels: tuple[str, str], extra: tuple[str, ...] = ()) -> Iterable[Reading]:
    """Readings of one relevance. `labels` are the values of `route` and `model`, `extra` those of configured labels."""
    route, _ = labels
    if scores.reason is not None:
        yield Reading("semantic_health_relevance_unscored_total", 1.0, (route, scores.reason), extra)
    by_language = (*labels, "other" if scores.language is None else scores.language)
    for metric, value in (
        ("semantic_health_context_relevance", scores.context_relevance),
        ("semantic_health_answer_relevance", scores.answer_relevance),
        ("semantic_health_groundedness", scores.groundedness),
    ):
        if value is not None:
            yield Reading(metric, value, by_language, extra)
    if scores.context_relevance is not None:
        yield Reading("semantic_health_context_relevance_score", scores.context_relevance, labels, extra)
