"""Scores of query, context and answer, with the real weights of the encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.catalogue import LANGUAGES, RELEVANCE_REASONS
from collector.embedding.use import UseEmbedder
from collector.measures import relevance as measure
from collector.measures.relevance import (
    DEFAULT_LANGUAGES,
    calibration_of,
    is_known,
    may_score_answer,
    reason_not_scored,
    relevance,
    texts,
    unscored,
)
from collector.measures.relevance_table import CALIBRATIONS, MINILM, USE
from collector.measures.relevance_texts import (
    MAX_ANSWER_CHARS,
    MAX_ANSWER_PIECES,
    MAX_CONTEXT_CHARS,
    MAX_CONTEXT_PIECES,
    MAX_QUERY_CHARS,
    MAX_QUOTES,
    compose,
    language,
)
from collector.measures.relevance_weights import LOWERING, Calibration, CalibrationError
from collector.model import (
    Choice,
    EmbeddingModel,
    Exchange,
    FrameCounts,
    Record,
    Relevance,
    ReportedUsage,
    RequestFacts,
    Sources,
    TextFacts,
    Timing,
    ToolCall,
    UpstreamFacts,
)

from .records import Heard


@pytest.fixture(scope="module")
def use() -> UseEmbedder:
    return UseEmbedder()


def score(use: UseEmbedder, query: str, answer: str, *passages: str) -> Relevance:
    given_texts = compose(query, answer, passages)
    return relevance(given_texts, use.embed(given_texts.pieces))


def value(number: float | None) -> float:
    assert number is not None
    return number


def exchange(
    query: str | None = "Who built it?",
    answer: str | None = "Edda Finch.",
    context: Sequence[str] = ("It was built by Edda Finch.",),
    *,
    outcome: str = "completed",
    ending: str | None = "completed",
    tools: int = 0,
    complete: bool = True,
) -> Exchange:
    record = Record(
        id="1", started_at="", route="default", method="POST", trace_id=None, client_request_id=None,
        retry_attempt=None, dialect="openai.chat", provider=None, operation=None, transport="json", stream=False,
        status=200, outcome=outcome, phase=None, request_model=None, response_model=None, finish_reasons=(), usage=None,
        usage_reported=ReportedUsage(), text=TextFacts(None, 0), correction_ratio=None, tool_calls=(), error=None,
        frames=FrameCounts(), timing=Timing(), bytes_in=0, bytes_out=0, rate_limits=(), retry_after=None,
        upstream=UpstreamFacts(), validity=None, relevance=Relevance(scored=False), findings=(), anomalies=(),
    )  # fmt: skip
    return Exchange(
        record=record,
        request=RequestFacts(query=query, context=tuple(context)),
        choices=()
        if answer is None
        else (Choice(0, answer, complete, "stop", ending), Choice(1, "Other.", True, "stop", None)),
        tool_calls=tuple(ToolCall(0, index, "find", "{}", True) for index in range(tools)),
        ended_at=0.0,
        monotonic=0.0,
    )


# ---------------------------------------------------------------- what is scored


@pytest.mark.parametrize(
    ("given_exchange", "reason"),
    [
        (exchange(), None),
        (exchange(outcome="incomplete"), None),
        (exchange(answer=None), "empty_output"),
        (exchange(answer=""), "empty_output"),
        (exchange(answer=" \n\t"), "empty_output"),
        (exchange(answer="", tools=1), "tool_only"),
        (exchange(answer="", tools=1, outcome="blocked"), "tool_only"),
        (exchange(answer="Edda", tools=1), None),
        (exchange(outcome="blocked"), "blocked"),
        (exchange(ending="refusal"), "blocked"),
        (exchange(outcome="truncated"), "truncated"),
        (exchange(outcome="client_disconnect"), "truncated"),
        (exchange(outcome="error_event", query=None), "truncated"),
        (exchange(query=None), "no_query"),
        (exchange(query=" ", context=()), "no_query"),
        (exchange(context=()), "no_context"),
        (exchange(context=("", " \n")), "no_context"),
        (exchange(query="ποιος το έχτισε;"), "language_unsupported"),
        (exchange(query="ποιος το έχτισε;", context=()), "no_context"),
        (exchange(query="Кто её построил?"), None),
        (exchange(query="谁建造的？"), None),
    ],
)  # fmt: skip
def test_the_first_reason_that_applies_is_given(given_exchange: Exchange, reason: str | None) -> None:
    assert reason_not_scored(given_exchange) == reason
    assert reason is None or reason in RELEVANCE_REASONS


def test_answer_relevance_may_be_given_without_context_where_the_script_is_known() -> None:
    assert may_score_answer(exchange(context=()))
    assert not may_score_answer(exchange())
    assert not may_score_answer(exchange(query=None, context=()))
    assert not may_score_answer(exchange(query="ποιος το έχτισε;", context=()))


def test_an_exchange_without_scores_still_tells_its_script() -> None:
    assert unscored(exchange(answer="", query="谁建造的？"), "empty_output") == Relevance(False, "empty_output", "cjk")
    assert unscored(exchange(answer=None, query=None), "empty_output") == Relevance(False, "empty_output", None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Who built the bridge?", "latin"),
        ("¿Quién construyó el puente?", "latin"),
        ("谁建造了青石桥？", "cjk"),
        ("灯台はだれが建てましたか", "cjk"),
        ("다리를 누가 지었나요", "cjk"),
        ("Кто построил мост?", "other"),
        ("用 Prometheus 和 Grafana 监控服务", "mixed"),
        ("42", "other"),
    ],
)
def test_the_script_is_told(text: str, expected: str) -> None:
    assert language(text) == expected
    assert expected in LANGUAGES


# ---------------------------------------------------------------- what is embedded


def test_no_piece_is_blank_or_there_twice() -> None:
    made = compose(
        "Who?", "Edda. She built the lighthouse. Edda.", ["It is red and tall. It is red and tall.", "", " "]
    )
    assert all(piece.strip() for piece in made.pieces)
    assert len(set(made.pieces)) == len(made.pieces)
    assert made.context == ("It is red and tall.",)
    assert not made.truncated


def test_bounds_hold_and_are_told() -> None:
    long_context = [f"Sentence number {number} speaks of boats and bridges." for number in range(3000)]
    made = compose("q" * 9000, "It is a long answer. " * 3000, long_context)
    assert made.truncated
    assert len(made.context) <= MAX_CONTEXT_PIECES
    assert len(made.answer_sentences) <= MAX_ANSWER_PIECES
    assert len(made.query) <= MAX_QUERY_CHARS
    assert len(made.answer) <= MAX_ANSWER_CHARS
    assert len(made.whole_context) <= MAX_CONTEXT_CHARS
    assert len(made.pieces) < 200


def test_of_many_sentences_the_ones_that_matter_are_embedded(use: UseEmbedder) -> None:
    filler = [f"Boat number {number} left the northern harbour at nine with salt." for number in range(300)]
    told = "The lighthouse of Marrow Point was built by Edda Finch."
    made = compose("Who built the lighthouse of Marrow Point?", "Edda Finch.", [*filler, told])
    assert made.truncated
    assert told in made.context
    scores = relevance(made, use.embed(made.pieces))
    assert scores.truncated is True
    assert value(scores.groundedness) > 0.8


def test_text_that_was_capped_is_told() -> None:
    assert texts(exchange(complete=False)).truncated
    assert not texts(exchange()).truncated
    with pytest.raises(ValueError, match="without query"):
        texts(exchange(query=None))


def test_the_first_of_several_choices_is_scored() -> None:
    assert texts(exchange()).answer == "Edda Finch."


@given(st.text(max_size=60), st.text(max_size=120), st.lists(st.text(max_size=120), max_size=4))
def test_any_text_gets_finite_scores_from_0_to_1(query: str, answer: str, passages: list[str]) -> None:
    if not query.strip():
        return
    made = compose(query, answer, passages)
    for piece in made.pieces:
        piece.encode()
    random = np.random.default_rng(len(query))
    scores = relevance(made, random.standard_normal((len(made.pieces), 16)).astype(np.float32))
    for number in (scores.context_relevance, scores.answer_relevance, scores.groundedness):
        assert number is None or 0.0 <= number <= 1.0
    assert scores.scored == (len(made.context) > 0)


def test_lone_surrogates_are_no_obstacle(use: UseEmbedder) -> None:
    assert score(use, "Who \ud83d built it?", "Edda \ude00.", "Edda built it \ud83d\ude00.").scored


# ---------------------------------------------------------------- scores

MARROW = (
    "The lighthouse of Marrow Point stands on the southern cliff of the island. It was designed by the engineer Edda "
    "Finch and opened in 1871. The tower is 42 metres tall. Boats from Tarn reach the island every day at nine."
)
TARN = (
    "The cheese market of Tarn is held on the first Sunday of May. Farmers of eleven villages bring their wheels to "
    "the old square. The heaviest wheel of all weighed 61 kilograms."
)
QINGSHI = "青石桥位于东港镇南边，横跨白沙河。这座桥由工匠林远山设计，于1871年建成。全桥长四十二米，可以通行马车。"
DONGGANG = "东港镇每年五月的第一个星期日举办奶酪集市。十一个村子的农民都会把奶酪带到老广场上。最重的一块有六十一公斤。"

ROWS = [
    ("Who designed the lighthouse of Marrow Point?", "The engineer Edda Finch.", MARROW, TARN),
    ("When was the lighthouse of Marrow Point opened?", "In 1871.", MARROW, TARN),
    ("When is the cheese market of Tarn held?", "On the first Sunday of May.", TARN, MARROW),
    ("How heavy was the heaviest wheel of cheese?", "It weighed 61 kilograms.", TARN, MARROW),
    ("青石桥是谁设计的？", "是工匠林远山设计的。", QINGSHI, DONGGANG),
    ("东港镇的奶酪集市什么时候举办？", "每年五月的第一个星期日。", DONGGANG, QINGSHI),
]


@pytest.mark.parametrize(("query", "answer", "own", "other"), ROWS)
def test_the_right_context_and_answer_score_high_and_others_low(
    use: UseEmbedder, query: str, answer: str, own: str, other: str
) -> None:
    right = score(use, query, answer, other, own)
    assert min(value(right.context_relevance), value(right.answer_relevance), value(right.groundedness)) > 0.8
    lost = score(use, query, answer, other)
    assert value(lost.context_relevance) < 0.75  # the threshold; two of the passages share the query's town
    assert value(lost.groundedness) < 0.4
    foreign_answer = next(row[1] for row in ROWS if row[2] is other)
    foreign = score(use, query, foreign_answer, own)
    assert value(foreign.groundedness) < 0.4
    assert value(foreign.answer_relevance) < 0.5


@pytest.mark.parametrize(("query", "answer", "own", "other"), ROWS)
def test_a_cut_context_is_noticed(use: UseEmbedder, query: str, answer: str, own: str, other: str) -> None:
    key = {"Finch": "designed", "1871": "1871", "May": "May", "61": "61", "林远山": "林远山", "五月": "五月"}
    word = next(value for name, value in key.items() if name in answer)
    sentences = own.replace("。", "。\n").replace(". ", ".\n").split("\n")
    cut = " ".join(sentence for sentence in sentences if word not in sentence)
    assert len(cut) < len(own) - 10
    before, after = score(use, query, answer, own), score(use, query, answer, cut)
    assert value(after.groundedness) < value(before.groundedness) - 0.3
    assert before.raw is not None
    assert after.raw is not None
    assert value(after.raw.context_relevance) < value(before.raw.context_relevance)


def test_a_number_that_the_context_does_not_hold_caps_groundedness(use: UseEmbedder) -> None:
    query = "When was the lighthouse of Marrow Point opened?"
    assert value(score(use, query, "It was opened in 1871.", MARROW).groundedness) > 0.8
    assert value(score(use, query, "It was opened in 1877.", MARROW).groundedness) <= measure.UNGROUNDED_NUMBER_CAP
    assert value(score(use, "Who opened it in 1877?", "In 1877 it was Edda Finch.", MARROW).groundedness) > 0.5


def test_an_answer_is_judged_sentence_by_sentence(use: UseEmbedder) -> None:
    query = "Tell me about the lighthouse of Marrow Point."
    right = "It was designed by the engineer Edda Finch. The tower is 42 metres tall."
    half = "It was designed by the engineer Edda Finch. Its keeper paints watercolours of foxes."
    all_right, half_right = (value(score(use, query, answer, MARROW).groundedness) for answer in (right, half))
    assert all_right > 0.8
    assert 0.3 < half_right < all_right - 0.2


def test_numbers_of_a_list_and_of_citations_are_no_claims(use: UseEmbedder) -> None:
    answer = "1. It was designed by the engineer Edda Finch [7].\n2. The tower is 42 metres tall [8, 9]."
    assert value(score(use, "What is known of the lighthouse?", answer, MARROW).groundedness) > 0.7


def test_without_context_the_answer_alone_is_scored(use: UseEmbedder) -> None:
    fit = score(use, "In which year did the war end?", "The war ended in 1945.")
    unfit = score(use, "In which year did the war end?", "Slice the onions and fry them in butter.")
    for scores in (fit, unfit):
        assert (scores.scored, scores.reason) == (False, "no_context")
        assert scores.context_relevance is None
        assert scores.groundedness is None
    assert value(fit.answer_relevance) > 0.6
    assert value(unfit.answer_relevance) < 0.3


@pytest.mark.parametrize("answer", ["", "?!", "4", "Answer: "])
def test_an_answer_of_no_words_gets_no_score_of_its_own(use: UseEmbedder, answer: str) -> None:
    scores = score(use, "How many are there?", answer, "There are 4 of them in the harbour.")
    assert scores.answer_relevance is None
    assert scores.groundedness is None
    assert scores.context_relevance is not None


def test_the_logit_stands_beside_each_score(use: UseEmbedder) -> None:
    scores = score(use, ROWS[0][0], ROWS[0][1], MARROW)
    assert scores.raw is not None
    for name in ("context_relevance", "answer_relevance", "groundedness"):
        logit = value(getattr(scores.raw, name))
        assert getattr(scores, name) == pytest.approx(1 / (1 + np.exp(-logit)))
    assert scores.windows == 4


def test_vectors_of_zeros_or_nan_give_low_scores_and_never_nan() -> None:
    made = compose("Who built it?", "Edda Finch built it.", ["It was built by a bear."])
    for filling in (0.0, np.nan, np.inf):
        scores = relevance(made, np.full((len(made.pieces), 8), filling, dtype=np.float32))
        for number in (scores.context_relevance, scores.answer_relevance, scores.groundedness):
            assert 0.0 <= value(number) < 0.6
    with pytest.raises(ValueError, match="expected"):
        relevance(made, np.zeros((1, 8), dtype=np.float32))


@given(st.floats(0.0, 0.99), st.floats(0.001, 0.5))
def test_a_closer_context_never_scores_lower(cosine: float, step: float) -> None:
    def scored(closeness: float) -> float:
        made = compose("alpha", "omega", ["unrelated sentence of context here"])
        vectors = np.zeros((len(made.pieces), 3), dtype=np.float32)
        vectors[:, 2] = 1.0
        vectors[made.pieces.index("alpha")] = (1.0, 0.0, 0.0)
        vectors[made.pieces.index(made.context[0])] = (closeness, np.sqrt(1 - closeness**2), 0.0)
        return value(relevance(made, vectors).context_relevance)

    assert scored(cosine) <= scored(min(cosine + step, 1.0))


@pytest.mark.parametrize("weights", CALIBRATIONS, ids=lambda one: one.model)
def test_every_weight_has_the_sign_that_its_feature_means(weights: Calibration) -> None:
    for part in (weights.context, weights.groundedness, weights.answer, weights.alone):
        assert part.bias < 0
        for name, weight in part.weights.items():
            assert weight <= 0 if name in LOWERING else weight >= 0


def test_a_calibration_of_other_features_is_refused() -> None:
    fewer = msgspec.structs.replace(USE.alone, weights={"to_query": 1.0})
    with pytest.raises(CalibrationError, match=r"alone: expected weights \['to_query', 'type_fit'\]"):
        msgspec.structs.replace(USE, alone=fewer)
    with pytest.raises(CalibrationError, match="finite"):
        msgspec.structs.replace(USE, alone=msgspec.structs.replace(USE.alone, bias=float("nan")))
    assert msgspec.json.decode(msgspec.json.encode(USE), type=Calibration) == USE


def test_weights_hold_for_the_model_and_version_they_were_fitted_for() -> None:
    assert calibration_of(UseEmbedder.model) == USE
    assert calibration_of(EmbeddingModel("all-MiniLM-L6-v2", MINILM.versions[0], 384)) == MINILM
    assert calibration_of(EmbeddingModel("all-MiniLM-L6-v2", "another", 384)) is None
    assert calibration_of(EmbeddingModel("of-my-own", "3", 512)) is None
    assert set(DEFAULT_LANGUAGES) == set(UseEmbedder.model.languages or ())


# ---------------------------------------------------------------- languages

ENGLISH = ("en",)


@pytest.mark.parametrize(
    ("text", "english", "default"),
    [
        ("Who built the lighthouse?", True, True),
        ("42 km", True, True),
        ("Edda Finch", True, True),
        ("Why is the café of Señor Núñez closed?", True, True),
        ("灯台はだれが建てましたか", False, True),
        ("青石桥是谁设计的？", False, True),
        ("¿Cuánto cuesta?", False, True),
        ("La entrada al museo cuesta ocho euros.", False, True),
        ("Wie lange dauert eine Fahrt mit der Seilbahn?", False, True),
        ("Кто построил мост?", False, True),
        ("كم سعر التذكرة؟", False, True),
        ("ποιος το έχτισε;", False, False),
        ("किसने बनाया", False, False),
        ("", True, True),
    ],
)
def test_a_model_reads_the_languages_that_it_names(text: str, english: bool, default: bool) -> None:
    assert is_known(ENGLISH, text) is english
    assert is_known(DEFAULT_LANGUAGES, text) is default
    assert is_known(None, text)


def test_an_english_model_refuses_other_languages_in_query_answer_or_context() -> None:
    assert reason_not_scored(exchange(), ENGLISH) is None
    assert reason_not_scored(exchange(query="谁建造的？"), ENGLISH) == "language_unsupported"
    assert reason_not_scored(exchange(answer="是林远山建造的。"), ENGLISH) == "language_unsupported"
    assert reason_not_scored(exchange(context=(QINGSHI,)), ENGLISH) == "language_unsupported"
    assert reason_not_scored(exchange(context=(QINGSHI,))) is None
    assert not may_score_answer(exchange(query="谁建造的？", context=()), ENGLISH)


# ---------------------------------------------------------------- what an answer cites


def test_marks_and_quotes_name_the_sentences_that_are_cited() -> None:
    passages = ["Boats leave at nine.", "Edda Finch built the lighthouse. It is red and very tall."]
    assert compose("Who?", "Edda Finch [2].", passages).cited == (1, 2)
    assert compose("Who?", "Edda Finch【1†boats.txt】.", passages).cited == (0,)
    assert compose("Who?", "Edda Finch.", passages).cited == ()
    assert compose("Who?", "Edda Finch [7].", passages).cited == ()  # there is no seventh
    assert compose("Who?", "Edda Finch.", passages, ["edda finch built the  lighthouse."]).cited == (1,)
    assert compose("Who?", "Edda Finch.", passages, ["It"]).cited == ()  # too short to be looked for
    many = compose("Who?", "Edda Finch.", passages, ["nothing of it"] * MAX_QUOTES + [passages[0]])
    assert many.cited == ()


def test_the_context_that_is_cited_decides_how_relevant_it_is(use: UseEmbedder) -> None:
    query, answer = "Who designed the lighthouse of Marrow Point?", "The engineer Edda Finch"
    right, wrong = (score(use, query, f"{answer} [{number}].", TARN, MARROW) for number in (2, 1))
    assert right.raw is not None
    assert wrong.raw is not None
    assert value(wrong.raw.context_relevance) < value(right.raw.context_relevance) - 0.3


def test_what_the_provider_retrieved_is_context_too() -> None:
    given_exchange = exchange(context=())
    assert reason_not_scored(given_exchange) == "no_context"
    first, *others = given_exchange.choices
    found = msgspec.structs.replace(first, sources=Sources(quoted=(MARROW,), retrieved=(TARN, MARROW)))
    with_sources = msgspec.structs.replace(given_exchange, choices=(found, *others))
    assert reason_not_scored(with_sources) is None
    made = texts(with_sources)
    assert len(made.passages) == 2
    assert [made.context[index] in MARROW for index in made.cited] == [True] * len(made.passages[1])


# ---------------------------------------------------------------- readings


def told(scores: Relevance) -> dict[str, tuple[Any, ...]]:
    heard = Heard()
    measure.measure(scores, heard)
    return {
        reading.metric.removeprefix("semantic_health_"): (reading.value, *reading.labels) for reading in heard.readings
    }


def test_a_scored_exchange_is_told_in_histograms_and_in_the_window() -> None:
    assert told(Relevance(True, None, "latin", 0.9, 0.8, 0.7)) == {
        "context_relevance": (0.9, "main", "m-1", "latin"),
        "answer_relevance": (0.8, "main", "m-1", "latin"),
        "groundedness": (0.7, "main", "m-1", "latin"),
        "context_relevance_score": (0.9, "main", "m-1"),
    }


def test_an_unscored_exchange_is_counted_by_its_reason() -> None:
    assert told(Relevance(False, "budget")) == {"relevance_unscored_total": (1.0, "main", "budget")}
    assert told(Relevance(False, "no_context", "cjk", answer_relevance=0.4)) == {
        "relevance_unscored_total": (1.0, "main", "no_context"),
        "answer_relevance": (0.4, "main", "m-1", "cjk"),
    }
