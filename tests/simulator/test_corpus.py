"""The corpus holds what the faults and the answers rely on."""

from __future__ import annotations

import pytest

from collector.simulator import corpus
from collector.simulator.corpus import CORPUS

each_item = pytest.mark.parametrize("item", CORPUS, ids=lambda item: item.id)


@each_item
def test_the_answer_stands_in_one_sentence_of_the_passage_and_in_no_other(item):
    holding = [index for index, sentence in enumerate(item.sentences) if item.key in sentence]
    assert holding == [item.answer_at]
    assert item.key in item.answer
    assert item.key in item.passage
    assert item.key not in item.passage_cut
    assert item.key not in item.mistaken


@each_item
def test_a_passage_has_a_few_sentences_that_end_as_sentences_do(item):
    assert 3 <= len(item.sentences) <= 5
    assert all(sentence[-1] in ".。" and sentence == sentence.strip() for sentence in item.sentences)
    assert item.question[-1] in "?？"


@each_item
def test_no_answer_stands_in_the_passages_of_another_item(item):
    others = [other for other in CORPUS if other is not item]
    assert not any(item.answer_sentence in other.passage for other in others)


def test_the_corpus_is_large_and_spans_domains_and_languages():
    assert len(CORPUS) >= 40
    assert len({item.id for item in CORPUS}) == len({item.question for item in CORPUS}) == len(CORPUS)
    assert len(corpus.DOMAINS) >= 6
    assert all(len(corpus.of_domain(domain)) >= 4 for domain in corpus.DOMAINS)
    assert sum(item.language == "zh" for item in CORPUS) >= 8


def test_nothing_in_a_text_breaks_tags_or_json_strings():
    texts = [text for item in CORPUS for text in (*item.sentences, item.question, item.answer, item.mistaken)]
    assert not any(character in text for text in texts for character in '"\\<>&\n')


def test_the_question_that_was_asked_last_is_found():
    first, second = CORPUS[0], CORPUS[9]
    assert corpus.asked_in(f"{first.question} and then {second.question}") is second
    assert corpus.asked_in("something else") is None
