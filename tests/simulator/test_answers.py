"""What the simulated model says, and what faults make of it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.simulator import corpus
from collector.simulator.answers import Ask, Reply, Tool, compose
from collector.simulator.faults import Strike

each_item = pytest.mark.parametrize("item", corpus.CORPUS, ids=lambda item: item.id)
TOOL = Tool("search", {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]})


def _ask(prompt: str, question: str, **more: Any) -> Ask:
    digest = hashlib.blake2b((prompt + question).encode(), digest_size=16).digest()
    return Ask("m", False, f"{prompt}\n{question}", question, digest, 10, **more)


def _text(reply: Reply) -> str:
    return "".join(reply.text)


@each_item
def test_with_its_passage_a_question_is_answered_from_it(item):
    (reply,) = compose(_ask(item.passage, item.question), 7, {})
    assert item.key in _text(reply)


@each_item
def test_without_the_sentence_the_answer_is_not_that_of_the_passage(item):
    (reply,) = compose(_ask(item.passage_cut, item.question), 7, {})
    assert item.key not in _text(reply)
    assert len(_text(reply)) > 10


@each_item
def test_with_the_passage_of_another_question_the_answer_is_not_found(item):
    other = next(other for other in corpus.of_domain(item.domain) if other is not item)
    (reply,) = compose(_ask(other.passage, item.question), 7, {})
    assert item.key not in _text(reply)


def test_a_known_question_without_any_context_is_answered_from_memory():
    item = corpus.CORPUS[3]
    (reply,) = compose(_ask("", item.question), 7, {})
    assert _text(reply) == item.answer


@settings(deadline=None)
@given(st.text(max_size=200), st.integers(0, 5))
def test_any_prompt_gets_the_same_answer_again(prompt, seed):
    ask = _ask("", prompt, choices=2, thinks=True)
    first, second = compose(ask, seed, {}), compose(ask, seed, {})
    assert first == second
    assert all(reply.text and reply.thinking for reply in first)


def test_another_seed_gives_another_answer():
    texts = {_text(compose(_ask("", "Tell me a story."), seed, {})[0]) for seed in range(8)}
    assert len(texts) > 1


def test_an_answer_is_in_the_language_of_the_question():
    (reply,) = compose(_ask("", "怎样养成早起的习惯？"), 7, {})
    assert any("一" <= character <= "鿿" for character in _text(reply))


def test_a_tool_is_asked_the_question_unless_the_context_is_there_already():
    item = corpus.CORPUS[5]
    (called,) = compose(_ask("", item.question, tools=(TOOL,)), 7, {})
    (answered,) = compose(_ask(item.passage, item.question, tools=(TOOL,)), 7, {})
    assert json.loads(called.calls[0].arguments) == {"query": item.question}
    assert called.ending == "tool_use"
    assert answered.calls == ()


def test_an_unknown_tool_result_is_passed_on():
    (reply,) = compose(_ask("", "How warm is it?", tools=(TOOL,), tool_result="21 degrees"), 7, {})
    assert "21 degrees" in _text(reply)


def test_the_faults_of_content_spoil_documents_and_arguments_only():
    item = corpus.CORPUS[0]
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    broken = {"invalid_json": Strike()}
    plain = _ask(item.passage, item.question)
    structured = _ask(item.passage, item.question, wants_json=True, schema=schema)
    assert compose(plain, 7, broken) == compose(plain, 7, {})
    assert json.loads(_text(compose(structured, 7, {})[0]))["answer"]
    with pytest.raises(json.JSONDecodeError):
        json.loads(_text(compose(structured, 7, broken)[0]))
    assert json.loads(_text(compose(structured, 7, {"schema_drift": Strike()})[0])) != {"answer": item.answer}


def test_arguments_that_must_be_an_object_drift_where_they_cannot_be_broken():
    ask = _ask("", "Find it.", tools=(TOOL,), tool_choice="any", arguments_must_parse=True)
    (reply,) = compose(ask, 7, {"invalid_json": Strike()})
    arguments = json.loads(reply.calls[0].arguments)
    assert isinstance(arguments, dict)
    assert not isinstance(arguments.get("query"), str)


@settings(deadline=None)
@given(st.integers(1, 40))
def test_a_limit_cuts_the_pieces_in_order(limit):
    ask = _ask("", "Tell me about both.", thinks=True, max_tokens=limit)
    (whole,) = compose(_ask("", "Tell me about both.", thinks=True), 7, {})
    (cut,) = compose(ask, 7, {})
    assert cut.token_count == min(limit, whole.token_count)
    assert (whole.thinking + whole.text)[: cut.token_count] == cut.thinking + cut.text
    assert (cut.ending == "length") == (whole.token_count > limit)


def test_truncation_by_length_halves_the_answer():
    ask = _ask("", "Tell me a story.")
    (whole,), (cut,) = compose(ask, 7, {}), compose(ask, 7, {"truncation": Strike("length")})
    assert cut.ending == "length"
    assert cut.token_count == whole.token_count // 2
