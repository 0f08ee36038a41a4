"""Words, numbers and sentences of a text in any script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.measures.relevance_lexicon import (
    MAX_PIECE_CHARS,
    Places,
    Whole,
    answer_text,
    cited_numbers,
    names,
    normal,
    numbers_told,
    scripts,
    sentences,
    strongest,
    without,
    words,
)


def tokens(text: str) -> set[str]:
    return set(words(normal(text)).weights)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("twelve", "12"),
        ("the Third", "the 3rd"),
        ("1970s", "1970"),
        ("3,500 people", "3500 people"),
        ("veinte", "20"),
        ("zwölf", "12"),
        ("lighthouses", "lighthouse"),
        ("ＡＢＣ １２", "abc 12"),
        ("ninety", "90"),
    ],
)
def test_spellings_of_the_same_are_one_token(one: str, other: str) -> None:
    assert tokens(one) == tokens(other)


def test_numbers_are_those_in_digits() -> None:
    assert words(normal("In 1972, twelve of 3,500 paid 25% or $1.9 million at 10:30.")).numbers == {
        "1972", "3500", "25", "1.9", "10:30",
    }  # fmt: skip


def test_text_without_spaces_is_compared_by_pairs() -> None:
    assert tokens("青石桥1871年") == {"青石", "石桥", "1871", "年"}
    assert tokens("Grafana监控L4") == {"grafa", "监控", "l", "4"}
    weights = words(normal("桥的青石")).weights
    assert weights["桥的"] < weights["青石"]


def test_long_words_weigh_more_than_short_ones() -> None:
    weights = words("is of lighthouse 7").weights
    assert weights["is"] == weights["of"] < weights["light"] == weights["7"] == 1.0


def test_the_share_of_words_is_weighted() -> None:
    places = Places([{"light", "of"}, {"light"}, {"of"}, set()])
    both, word, little, none = places.shares(words("lighthouse of"))
    assert both == 1.0
    assert 0.9 < word < 1.0
    assert little == pytest.approx(1.0 - word)
    assert none == 0.0
    assert places.shares(words("")) == [0.0] * 4


def test_without_known_words_the_new_ones_are_left_or_all() -> None:
    assert set(without(words("edda finch built"), words("who built it")).weights) == {"edda", "finch"}
    assert set(without(words("built it"), words("who built it")).weights) == {"built", "it"}


def test_runs_of_characters_are_looked_for_in_the_whole() -> None:
    whole = Whole(normal("The lighthouse was built by Edda Finch. 青石桥由林远山设计。"))
    assert whole.share_of("edda finch") == 1.0
    assert whole.share_of("林远山") == 1.0
    assert whole.share_of("marcus vale") == 0.0
    assert whole.share_of("edd") == 1.0
    assert whole.share_of("") == 0.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "The tower is tall. It was built in 1871! Is it red? No.",
            ["The tower is tall.", "It was built in 1871! Is it red? No."],
        ),
        (
            "青石桥建于一八七一年八月。这座桥由工匠林远山先生设计！",
            ["青石桥建于一八七一年八月。", "这座桥由工匠林远山先生设计！"],
        ),
        ("- one is a first item\n- two is a second item", ["one is a first item", "two is a second item"]),
        ("1. One is a first item.\n2. Two is a second.", ["One is a first item.", "Two is a second."]),
        (
            'He said "it is very tall." Then he left the place.',
            ['He said "it is very tall."', "Then he left the place."],
        ),
        ("A price of 3.50 per boat is fine.", ["A price of 3.50 per boat is fine."]),
        (" \n\n ", []),
    ],
)
def test_sentences_are_cut_where_they_end(text: str, expected: list[str]) -> None:
    assert list(sentences(text)) == expected


@given(st.text(alphabet='ab1。.!? \n-"”)你', max_size=4000))
def test_no_sentence_is_blank_or_too_long_and_no_letter_is_lost(text: str) -> None:
    found = sentences(text)
    assert all(piece.strip() == piece != "" and len(piece) <= MAX_PIECE_CHARS for piece in found)
    kept = "".join(character for piece in found for character in piece if character in "ab你")
    assert kept == "".join(character for character in text if character in "ab你")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Answer: Edda Finch", "Edda Finch"),
        ("The answer is: Edda Finch", "Edda Finch"),
        ("The answer is 42", "42"),
        ("答案是：林远山", "林远山"),
        ("Respuesta: Edda Finch", "Edda Finch"),
        ("Edda Finch [1][2, 3].", "Edda Finch ."),
        ("Answers differ: some say so.", "Answers differ: some say so."),
        ("The answer is not known.", "The answer is not known."),
    ],
)
def test_what_introduces_an_answer_is_no_part_of_it(text: str, expected: str) -> None:
    assert answer_text(text) == expected


def test_letters_are_counted_by_script() -> None:
    counts = scripts("abé 你好 мир ελ 12")
    assert (counts.latin, counts.cjk, counts.other) == (3, 4, 5)
    assert counts.others == {"cyrillic": 3, "greek": 2}
    assert scripts("12 !?").total == 0


def test_the_sentences_with_most_of_the_words_are_kept_in_order() -> None:
    pieces = ["boats leave at nine", "the lighthouse is red", "nothing here", "edda built the lighthouse"]
    assert strongest(pieces, words("edda lighthouse"), 2) == (1, 3)
    assert strongest(pieces, words("xyz"), 2) == (0, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Who designed the lighthouse of Marrow Point?", {"marro", "point"}),
        ("What did I pay in 2019?", {"2019"}),
        ("¿Cuánto mide el puente de Río Pardo?", {"río", "pardo"}),
        ("It is red. Who built it?", set()),
        ("WHO BUILT THE LIGHTHOUSE IN 1871?", {"1871"}),
        ("who designed marrow point?", set()),
        ("青石桥是谁设计的？", set()),
        ("What does USB mean?", {"usb"}),
    ],
)
def test_names_are_capitals_inside_a_sentence_and_numbers(text: str, expected: set[str]) -> None:
    assert set(names(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("forty-two boats", {"40", "42"}),
        ("forty thousand homes", {"40", "40000"}),
        ("1.9 million euros", {"1.9", "1900000"}),
        ("treinta y un años", {"30"}),
        ("全桥长四十二米", {"42"}),
        ("海拔三千二百米", {"3200"}),
        ("建于一八七一年", {"1871"}),
        ("五万人", {"50000"}),
        ("最多借六本", {"6"}),
        ("no numbers here", set()),
        ("x" * 400 + " 7", {"7"}),
    ],
)
def test_numbers_are_read_in_digits_and_in_words(text: str, expected: set[str]) -> None:
    assert numbers_told(normal(text)) == expected


def test_several_chinese_numerals_are_a_number_but_words_are_none() -> None:
    assert "42" in words(normal("长四十二米")).numbers
    assert words(normal("万一下雨千万别去，一个人")).numbers == frozenset()
    assert "42" in words(normal("42米")).numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is red [2].", {2}),
        ("Red [1, 3] and tall【4†boats.txt】.", {1, 3, 4}),
        ("A list a[i] and [see there].", set()),
        ("None.", set()),
    ],
)
def test_marks_of_citations_name_passages(text: str, expected: set[int]) -> None:
    assert cited_numbers(text) == expected
