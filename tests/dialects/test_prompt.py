"""Facts of a prompt's words: in every dialect the same, bounded, and without the words."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.dialects.anthropic_messages import AnthropicMessages
from collector.dialects.bedrock_converse import BedrockConverse
from collector.dialects.cohere import CohereChat
from collector.dialects.conversation import Turn
from collector.dialects.gemini import GeminiGenerate
from collector.dialects.ollama import Ollama
from collector.dialects.openai_chat import OpenAiChat
from collector.dialects.openai_completions import OpenAiCompletions
from collector.dialects.openai_responses import OpenAiResponses
from collector.dialects.prompt import LONG, MAX_SYSTEM_CHARS, estimated_tokens, prompt_facts
from collector.model import PromptFacts

SYSTEM = "<!-- v17 -->\r\nBe brief."  # 23 characters
ANSWER = "a" * 203
DIALECTS = [
    (OpenAiChat(), {"messages": [{"role": "developer", "content": SYSTEM}, {"role": "assistant", "content": ANSWER}]}),
    (
        OpenAiResponses(),
        {
            "instructions": SYSTEM,
            "input": [{"role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]}],
        },
    ),
    (
        AnthropicMessages(),
        {"system": [{"type": "text", "text": SYSTEM}], "messages": [{"role": "assistant", "content": ANSWER}]},
    ),
    (
        GeminiGenerate(),
        {
            "systemInstruction": {"parts": [{"text": SYSTEM}]},
            "contents": [{"role": "model", "parts": [{"text": ANSWER}]}],
        },
    ),
    (
        BedrockConverse(),
        {"system": [{"text": SYSTEM}], "messages": [{"role": "assistant", "content": [{"text": ANSWER}]}]},
    ),
    (CohereChat(), {"messages": [{"role": "system", "content": SYSTEM}, {"role": "assistant", "content": ANSWER}]}),
    (Ollama(), {"system": SYSTEM, "messages": [{"role": "assistant", "content": ANSWER}]}),
]


@pytest.mark.parametrize(("dialect", "body"), DIALECTS, ids=[dialect.name for dialect, _ in DIALECTS])
def test_every_dialect_tells_the_facts_of_its_prompt(dialect, body):
    facts = dialect.request_facts(json.dumps(body).encode())
    assert facts.prompt == PromptFacts(6, 1, True, None, 51)


@pytest.mark.parametrize("dialect", [OpenAiChat(), OpenAiCompletions()], ids=["chat", "completions"])
@pytest.mark.parametrize(
    ("options", "told"),
    [({"include_usage": True}, True), ({"include_usage": False}, False), ({}, None), (None, None), ("junk", None)],
)
def test_whether_a_stream_was_asked_for_its_usage(dialect, options, told):
    facts = dialect.request_facts(json.dumps({"model": "m", "stream_options": options}).encode())
    assert facts.include_usage is told
    assert facts.model == "m"


def test_models_that_may_stand_in_are_told():
    body = json.dumps({"model": "m", "models": ["a", "b"] * 20}).encode()
    assert OpenAiChat().request_facts(body).fallback_models == ("a", "b") * 4


def test_without_a_system_prompt_nothing_is_known_of_it():
    assert prompt_facts([]) == PromptFacts()
    assert prompt_facts([Turn("user", "text", "<!-- a -->\r\n"), Turn("system", "document", "long")]) == PromptFacts()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("abcd", 1),
        ("abcde", 2),
        ("中文字", 3),
        ("abcd中文", 3),
        ("é" * 8, 2),
        ("日本語 abcd", 5),
        ("한국어", 3),
    ],
)
def test_tokens_are_estimated_by_script(text, tokens):
    assert estimated_tokens(text) == tokens


def test_long_texts_are_estimated_from_their_beginning():
    assert estimated_tokens("中" * 100_000) == 100_000
    assert estimated_tokens("中a" * 50_000) == pytest.approx(62_500, rel=0.01)
    assert prompt_facts([Turn("system", "text", "a" * 400_000)]).system_tokens == 100_000


FILLING = "The warehouse in the north keeps its stock of paper dry and counts it on Mondays. " * 60
assert len(FILLING) > LONG


@pytest.mark.parametrize(
    ("first", "last", "kind"),
    [
        ("Always answer in English.", "You must always answer in French.", "conflict"),
        ("必须用中文回答。", "Always reply in English.", "conflict"),
        ("Respond only in JSON.", "Never use JSON.", "conflict"),
        ("", "Always answer in French. And only ever reply in German.", "conflict"),
        ("", "Always keep answers short where appropriate.", "vague"),
        ("", "The output must try to be friendly.", "vague"),
        ("", "回答必须尽量简短。", "vague"),
        ("Always answer in English.", "Always answer in English.", None),
        ("", "Always answer in English.", None),
        ("", "Never give answers of more than 50 words.", None),
        ("Always keep answers short where appropriate.", "", None),  # it stands early
        ("", "Try to find the invoice. It must be paid where possible.", None),  # nothing about the answer
        ("", "If the user writes French, the answer may be in French.", None),
        ("Answer in English.", "The manual can be read in German.", None),
    ],
)
def test_late_constraints_are_told_where_they_are_vague_or_conflict(first, last, kind):
    facts = prompt_facts([Turn("system", "text", f"{first} {FILLING} {last}")])
    assert facts.late_constraint == kind
    assert prompt_facts([Turn("system", "text", f"{first} {last}")]).late_constraint is None, "in a short prompt"
    assert prompt_facts([Turn("user", "text", f"{first} {FILLING} {last}")]).late_constraint is None, "of a user"


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), st.text()), max_size=6))
def test_any_turns_have_facts(turns):
    facts = prompt_facts([Turn(role, "text", text) for role, text in turns])
    assert (facts.system_tokens is None) == all(role != "system" for role, _ in turns)


def test_hostile_prompts_take_no_time():
    hostile = (
        "<!--" * 50_000,
        "always answer " * 20_000,
        "如有必要" * 20_000,
        "where necessary " * 20_000,
        "不要" * 99_000,
    )
    began = time.perf_counter()
    for text in hostile:
        prompt_facts([Turn("system", "text", text[: 2 * MAX_SYSTEM_CHARS])])
    assert time.perf_counter() - began < 3.0
