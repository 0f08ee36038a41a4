"""What the relevance scores are made of: cosines and word overlaps of one exchange, each between 0 and about 1."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from collector.measures import relevance_lexicon as lexicon
from collector.measures.relevance_texts import ANSWER_TYPES

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from numpy.typing import NDArray

    from collector.measures.relevance_lexicon import Words
    from collector.measures.relevance_texts import Texts

    Vectors = NDArray[np.float32]

ATTENDED = 3  # pieces of context that an answer is taken to rest on, where it cites none
LEAST_NAMES = 0.25  # weight of names below which a query has none
_SHARPNESS = 0.05  # of the softmax over the types of answers


class ContextFeatures(Struct, frozen=True):
    """Of the query against the context."""

    closest: float  # cosine: mean of the closest sentence and the closest attended one
    in_pair: float  # share of the query's words in two neighbouring sentences
    in_whole: float  # share of the query's runs of characters in the whole context
    closest_unsaid: float  # closest, as far as the words do not match
    names_missing: float  # share of the query's names and numbers that the context does not hold


class GroundednessFeatures(Struct, frozen=True):
    """Of one sentence of the answer against the context."""

    in_pair: float  # share of its words, without the query's, in two neighbouring sentences
    drawn_closer: float  # by how much it brings the query closer to the context
    unknown_number: float  # 1 where it has a number that neither context nor query holds
    in_whole: float
    closest_unsaid: float


class AnswerFeatures(Struct, frozen=True):
    """Of the answer against the query, with the context's help."""

    to_query: float  # cosine
    type_fit: float  # whether it is of the type that the question asks for
    drawn_closer: float
    carried: float  # one sentence of context both carries the answer and matches the query
    both_unsaid: float  # one sentence is close to both, as far as the words do not match


class AloneFeatures(Struct, frozen=True):
    """Of the answer against the query, without context."""

    to_query: float
    type_fit: float


Features = ContextFeatures | GroundednessFeatures | AnswerFeatures | AloneFeatures


class AnswerParts(Struct, frozen=True):
    """What an answer's features are made of. `both` is a sentence's highest product of cosines to query and answer."""

    alone: AloneFeatures
    drawn_closer: float
    carried: float
    both: float

    def features(self) -> AnswerFeatures:
        return AnswerFeatures(
            to_query=self.alone.to_query,
            type_fit=self.alone.type_fit,
            drawn_closer=self.drawn_closer,
            carried=self.carried,
            both_unsaid=self.both * (1 - min(1.0, 1.5 * self.carried)),
        )


class Weighed(Struct, frozen=True):
    """One sentence of an answer: its share of the answer's length, the closest cosine, and its features."""

    share: float
    closest: float
    features: GroundednessFeatures


class Compared:
    """One exchange's texts with their vectors, in the order of `pieces`. Which features there are depends on it:
    those of the context need a query and a context, those of the answer an answer.
    """

    def __init__(self, given: Texts, vectors: Vectors) -> None:
        if len(vectors) != len(given.pieces):
            raise ValueError(f"expected {len(given.pieces)} vectors, got {len(vectors)}")
        unit = unit_rows(vectors)
        self._row = {text: unit[index] for index, text in enumerate(given.pieces)}
        self._given = given
        self._types = _AnswerTypes(self._row)
        self._query_words = lexicon.words(lexicon.normal(given.query))
        if given.context and given.query:
            self._compare_context()

    def _compare_context(self) -> None:
        given = self._given
        self._context = np.stack([self._row[sentence] for sentence in given.context])
        self._query_cosines: Vectors = self._cosines(self._row[given.query])
        of_sentence = {
            sentence: lexicon.words(lexicon.normal(sentence)).weights
            for sentence in dict.fromkeys(sentence for passage in given.passages for sentence in passage)
        }
        self._sentences = lexicon.Places(of_sentence[sentence] for sentence in given.context)
        self._pairs = lexicon.Places(
            {token for sentence in pair for token in of_sentence[sentence]}
            for passage in given.passages
            for pair in (pairwise(passage) if len(passage) > 1 else [passage])
        )
        # Numbers that an answer may hold: those of the context, in digits or words, and those of the query.
        self._numbers = lexicon.numbers_told(given.whole_context) | lexicon.numbers_told(lexicon.normal(given.query))
        self._numbers.update(self._pairs.numbers())
        self._whole = lexicon.Whole(given.whole_context)

    # The four kinds.

    def context(self) -> ContextFeatures:
        closest = self._closest()
        in_pair = self._in_pair(self._query_words)
        return ContextFeatures(
            closest=closest,
            in_pair=in_pair,
            in_whole=self._whole.share_of(lexicon.normal(self._given.query)),
            closest_unsaid=closest * (1 - in_pair),
            names_missing=_missing(lexicon.names(self._given.query), self._pairs),
        )

    def groundedness(self) -> tuple[Weighed, ...]:
        """Of each sentence that is judged."""
        several = len(self._given.answer_sentences) > 1
        parts = self._given.answer_sentences if several else (self._given.answer,)
        joined = self._given.joined[1:] if several else self._given.joined
        length = sum(map(len, parts))
        return tuple(self._sentence(part, both, len(part) / length) for part, both in zip(parts, joined, strict=True))

    def answer(self) -> AnswerFeatures:
        return self.answer_parts().features()

    def answer_parts(self) -> AnswerParts:
        answer = self._row[self._given.answer]
        query = np.clip(self._query_cosines, 0.0, 1.0)
        matched = zip(self._answer_shares, query.tolist(), self._sentences.shares(self._query_words), strict=True)
        carried = max(of_answer * (cosine + of_query) / 2 for of_answer, cosine, of_query in matched)
        both = _highest(query * np.clip(self._cosines(answer), 0.0, 1.0))
        return AnswerParts(self.alone(), self._drawn_closer(self._given.joined[0]), carried, both)

    def alone(self) -> AloneFeatures:
        query, answer = self._row[self._given.query], self._row[self._given.answer]
        return AloneFeatures(float(query @ answer), self._types.fit(query, answer))

    # What they are made of.

    def _sentence(self, part: str, joined: str, share: float) -> Weighed:
        new = self._new_words(part)
        in_pair = self._in_pair(new)
        closest = _highest(self._cosines(self._row[part]))
        features = GroundednessFeatures(
            in_pair=in_pair,
            drawn_closer=self._drawn_closer(joined),
            unknown_number=float(not new.numbers <= self._numbers),
            in_whole=self._whole.share_of(lexicon.normal(part)),
            closest_unsaid=closest * (1 - in_pair),
        )
        return Weighed(share, closest, features)

    def _closest(self) -> float:
        """Half from the closest sentence, half from the closest of those that the answer rests on."""
        best = _highest(self._query_cosines)
        attended = list(self._given.cited) or self._supporting()
        return best if not attended else (best + _highest(self._query_cosines[attended])) / 2

    def _supporting(self) -> list[int]:
        """The sentences that support the answer most, by meaning and by words; none where there is no answer."""
        if not self._given.answer:
            return []
        support = self._cosines(self._row[self._given.answer]) + np.array(self._answer_shares)
        ranked: list[int] = np.argsort(-support, kind="stable")[:ATTENDED].tolist()
        return ranked

    @cached_property
    def _answer_shares(self) -> list[float]:
        """Of the answer's words, without the query's, in each sentence of the context."""
        return self._sentences.shares(self._new_words(self._given.answer))

    def _cosines(self, vector: Vectors) -> Vectors:
        cosines: Vectors = self._context @ vector
        return cosines

    def _drawn_closer(self, joined: str) -> float:
        return _highest(self._cosines(self._row[joined])) - _highest(self._query_cosines)

    def _new_words(self, part: str) -> Words:
        return lexicon.without(lexicon.words(lexicon.normal(part)), self._query_words)

    def _in_pair(self, wanted: Words) -> float:
        """The highest share of the words that two neighbouring sentences hold together."""
        return max(self._pairs.shares(wanted))


class _AnswerTypes:
    """How well an answer is of the type that a question asks for: centroids of the prototypes among the texts."""

    def __init__(self, row: Mapping[str, Vectors]) -> None:
        self._questions, self._answers = (
            unit_rows(np.stack([np.mean([row[text] for text in pair[side]], axis=0) for pair in ANSWER_TYPES.values()]))
            for side in (0, 1)
        )

    def fit(self, query: Vectors, answer: Vectors) -> float:
        """0 where the types differ, 1 where both are the same single one."""
        return float(_softmax(self._questions @ query) @ _softmax(self._answers @ answer))


def _missing(names: Mapping[str, float], known: Container[str]) -> float:
    """The weighted share of the names that are not known; 0 where there are none."""
    total = sum(names.values())
    if total < LEAST_NAMES:
        return 0.0
    return sum(weight for name, weight in names.items() if name not in known) / total


def unit_rows(vectors: Vectors) -> Vectors:
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
