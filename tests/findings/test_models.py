"""Two names of models are told to be one or another, as providers and gateways write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.findings.models import difference

ONE = """
claude-sonnet-4-0 claude-sonnet-4-20250514
Cohere-embed-v3-english embed-english-v3.0
gpt-4o gpt-4o-2024-11-20
gpt-4o-mini gpt-4o-mini-2024-07-18
our-testing-deployment gpt-35-turbo
gpt-5.2_2025-12-11 gpt-5.2-2025-12-11
text-embedding-ada-002 ada
anthropic.claude-3-5-haiku-20241022-v1:0 claude-3-5-haiku-20241022
us.anthropic.claude-opus-4-6-v1 claude-opus-4-6
anthropic.claude-v2:1 claude-2.1
anthropic.claude-v2 claude-2.0
deepseek-chat deepseek-v4-flash
compound-beta groq/compound
moonshotai/Kimi-K2-Instruct-0905:groq moonshotai/kimi-k2-instruct-0905
gpt-35-turbo gpt-3.5-turbo-0125
gpt-4-vision-preview gpt-4-1106-vision-preview
davinci-002 davinci:2023-07-21-v2
anthropic/claude-sonnet-4.6 anthropic/claude-4.6-sonnet-20260217
meta/llama-2-70b-chat internal/staging-llama-2-70b-chat-hf
claude-3-7-sonnet@20250219 claude-3-7-sonnet-20250219
grok-4-fast grok-4-fast-reasoning
mistral-large-latest mistral-large-2411
gemini-flash-latest gemini-2.5-flash-preview-09-2025
gemini-2.5-flash models/gemini-2.5-flash-001
llama3.2 llama3.2:3b
o3-mini o3-mini-2025-01-31
gpt-4-turbo gpt-4-turbo-2024-04-09
Qwen/Qwen3-235B-A22B qwen3-235b-a22b-instruct-2507
my-model /models/qwen2.5-7b-instruct-q4_k_m.gguf
"""
ANOTHER = """
gpt-4o gpt-4o-mini size
gpt-5 gpt-5-nano-2025-08-07 size
sim-large sim-small size
claude-opus-4-1 claude-sonnet-4-5 size
claude-sonnet-4-5 claude-sonnet-4-20250514 version
gpt-4o gpt-3.5-turbo version
google/gemini-2.0-flash-exp:free x-ai/grok-4 family
gpt-4o claude-3-haiku family
llama-3.1-70b llama-3.1-8b size
mistral-large-latest mistral-small-2506 size
"""


@pytest.mark.parametrize(("asked", "served"), [line.split(" ") for line in ONE.strip().splitlines()])
def test_aliases_dates_and_prefixes_are_no_difference(asked, served):
    assert difference(asked, served) is None


@pytest.mark.parametrize(("asked", "served", "differs"), [line.split(" ") for line in ANOTHER.strip().splitlines()])
def test_another_size_version_or_family_is_one(asked, served, differs):
    assert difference(asked, served) == differs


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_names_can_be_compared(asked, served):
    assert difference(asked, served) in (None, "family", "version", "size")
    assert difference(asked, asked) is None
