"""Does the context answer the query, does the answer, and does the answer rest on the context?

Three scores from 0 to 1, each a monotone logistic of a few cosines and word overlaps, which `relevance_features` tells.
"Rests on" means that the answer's words occur in a matching place of the context; it is not entailment. The weights
hold for one embedding model and for the words and sentences of `relevance_lexicon`: whoever changes one of them fits
again, with `python -m tools.fit_relevance`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from collector.measures import relevance_lexicon as lexicon
from collector.measures.relevance_features import Compared
from collector.measures.relevance_table import CALIBRATIONS, USE
from collector.measures.relevance_texts import Texts, compose, language
from collector.measures.relevance_weights import Calibration, sigmoid
from collector.model import RawRelevance, Relevance

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from collector.model import Choice, EmbeddingModel, Exchange, Meters

    Vectors = NDArray[np.float32]

MIN_ANSWER_SIGNS = 2  # letters and digits an answer needs; one of one digit matches by chance
UNSUPPORTED_SHARE = 0.5  # of the letters of a text, from which the encoder does not know how it is written
SAMPLED_PASSAGES = 8  # whose beginnings tell the language of the context
UNGROUNDED_NUMBER_CAP = 0.30  # of groundedness, for a sentence with a number that the context does not hold
_NUMBER_CAP_LOGIT = math.log(UNGROUNDED_NUMBER_CAP / (1 - UNGROUNDED_NUMBER_CAP))

# What the default model was trained on (model card of universal-sentence-encoder-multilingual, version 3).
DEFAULT_LANGUAGES = ("ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh")

# Outcomes whose answer broke off. An `incomplete` one (a limit on its length) was delivered as the model ended it.
_BROKEN_OFF = ("truncated", "client_disconnect", "error_event", "upstream_error")


def calibration_of(model: EmbeddingModel) -> Calibration | None:
    """The calibration that was fitted for a model; None where there is none, and its scores would mean nothing."""
    return next((one for one in CALIBRATIONS if one.model == model.name and model.version in one.versions), None)


# ---------------------------------------------------------------- what can be scored


def reason_not_scored(exchange: Exchange, languages: Sequence[str] | None = DEFAULT_LANGUAGES) -> str | None:
    """Why there is no context relevance, as far as the exchange itself tells; None where it can be scored.

    `languages` are those that the embedding model knows (ISO 639-1), None where that is not known.
    """
    answer = exchange.choices[0] if exchange.choices else None
    if answer is None or not answer.text or answer.text.isspace():
        return "tool_only" if exchange.tool_calls else "empty_output"
    outcome, query = exchange.record.outcome, exchange.request.query
    if outcome == "blocked" or answer.ending in ("blocked", "refusal"):
        return "blocked"
    if outcome in _BROKEN_OFF:
        return "truncated"
    if not query or query.isspace():
        return "no_query"
    passages = exchange.request.context + answer.sources.retrieved
    if not passages or all(not passage or passage.isspace() for passage in passages):
        return "no_context"
    if not is_known(languages, query, answer.text, *_sample(passages)):
        return "language_unsupported"
    return None


def may_score_answer(exchange: Exchange, languages: Sequence[str] | None = DEFAULT_LANGUAGES) -> bool:
    """True where `answer_relevance` can be given although there is no context."""
    query = exchange.request.query
    return reason_not_scored(exchange, languages) == "no_context" and not (
        query is None or not is_known(languages, query, exchange.choices[0].text)
    )


def is_known(languages: Sequence[str] | None, *texts: str) -> bool:
    """Whether a model of these languages can read each of the texts: half of its letters or more."""
    return all(lexicon.unknown_letters(text, languages) <= UNSUPPORTED_SHARE for text in texts)


def _sample(passages: Sequence[str]) -> tuple[str, ...]:
    """The beginning of the context, as far as the script is looked for."""
    return (" ".join(passage[: lexicon.LANGUAGE_SAMPLE] for passage in passages[:SAMPLED_PASSAGES]),)


def unscored(exchange: Exchange, reason: str) -> Relevance:
    """The relevance of an exchange without scores."""
    text = exchange.request.query or ""
    if exchange.choices and exchange.choices[0].text:
        answer = exchange.choices[0].text
        text = f"{text} {answer}" if text else answer
    return Relevance(scored=False, reason=reason, language=language(text) if text and not text.isspace() else None)


def _passages(exchange: Exchange) -> tuple[str, ...]:
    """What the service sent, then what the provider itself retrieved for the answer that is scored."""
    answer = _first(exchange.choices)
    return exchange.request.context if answer is None else exchange.request.context + answer.sources.retrieved


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
    made = compose(query, choice.text, _passages(exchange), choice.sources.quoted)
    return made if choice.text_complete else msgspec.structs.replace(made, truncated=True)


# ---------------------------------------------------------------- scores


def relevance(given: Texts, vectors: Vectors, calibration: Calibration = USE) -> Relevance:
    """The scores of one exchange from the vectors of its `pieces`, in their order, of the calibration's model.

    Without context only `answer_relevance` is given, with `scored` false. An answer of a single letter or digit gets
    no score of its own, since it matches by chance.
    """
    compared = Compared(given, vectors)
    has_answer = sum(character.isalnum() for character in given.answer) >= MIN_ANSWER_SIGNS
    if not given.context or not given.query:
        alone = calibration.alone.logit(compared.alone()) if has_answer and given.query else None
        return Relevance(
            scored=False,
            reason="no_context",
            language=given.language,
            answer_relevance=None if alone is None else sigmoid(alone),
            raw=None if alone is None else RawRelevance(answer_relevance=alone),
            windows=0,
            truncated=given.truncated,
        )
    context = calibration.context.logit(compared.context())
    answer = calibration.answer.logit(compared.answer()) if has_answer else None
    score, logit = _groundedness(compared, calibration) if has_answer else (None, None)
    return Relevance(
        scored=True,
        language=given.language,
        context_relevance=sigmoid(context),
        answer_relevance=None if answer is None else sigmoid(answer),
        groundedness=score,
        raw=RawRelevance(context, answer, logit),
        windows=len(given.context),
        truncated=given.truncated,
    )


def _groundedness(compared: Compared, calibration: Calibration) -> tuple[float, float]:
    """Score and logit: means over the answer's sentences, weighted by their length."""
    score = logit = 0.0
    for sentence in compared.groundedness():
        own = calibration.groundedness.logit(sentence.features)
        if sentence.features.unknown_number:
            own = min(own, _NUMBER_CAP_LOGIT)
        score += sentence.share * sigmoid(own)
        logit += sentence.share * own
    return score, logit


# ---------------------------------------------------------------- numbers


def measure(scores: Relevance, meters: Meters) -> None:
    """The scores that there are, and the reason where there is no context relevance."""
    if scores.reason is not None:
        meters["semantic_health_relevance_unscored_total", scores.reason](1.0)
    script = "other" if scores.language is None else scores.language
    if scores.context_relevance is not None:
        meters["semantic_health_context_relevance", script](scores.context_relevance)
    if scores.answer_relevance is not None:
        meters["semantic_health_answer_relevance", script](scores.answer_relevance)
    if scores.groundedness is not None:
        meters["semantic_health_groundedness", script](scores.groundedness)
    if scores.context_relevance is not None:
        meters["semantic_health_context_relevance_score"](scores.context_relevance)
