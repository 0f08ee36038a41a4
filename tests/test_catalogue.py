"""The catalogue is one, whole and without contradictions."""

from __future__ import annotations

import re

import pytest

from collector import catalogue
from collector.catalogue import BY_NAME, FINISH_WORDS, LABELS, METRICS, ending_of, label_names, label_rules, provider_of


def test_metric_names_are_unique_and_follow_prometheus() -> None:
    assert len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"semantic_health_[a-z0-9_]+", metric.name), metric.name
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.help.endswith("."), metric.name


def test_a_unit_stands_in_the_name() -> None:
    for metric in METRICS:
        if metric.unit:
            assert metric.name.removesuffix("_total").endswith(metric.unit), metric.name


def test_histograms_have_rising_buckets_and_nothing_else_has_any() -> None:
    for metric in METRICS:
        assert bool(metric.buckets) == (metric.kind == "histogram"), metric.name
        assert list(metric.buckets) == sorted(set(metric.buckets)), metric.name


def test_every_label_has_its_row() -> None:
    for metric in METRICS:
        names = label_names(metric)
        assert len(set(names)) == len(names) == len(label_rules(metric)), metric.name
        assert all(re.fullmatch(r"[a-z_]+", name) for name in names), metric.name


def test_vocabularies_are_closed_and_without_repetition() -> None:
    for name in (
        "OUTCOMES", "VALIDITY_RESULTS", "VALIDITY_KINDS", "RELEVANCE_REASONS", "LANGUAGES", "ERROR_KINDS", "TRANSPORTS",
        "METHODS", "ANOMALIES", "UNOBSERVED_REASONS", "REFUSED_REASONS", "THROTTLE_SOURCES", "VERDICTS", "TOKEN_TYPES",
    ):  # fmt: skip
        words = getattr(catalogue, name)
        assert len(set(words)) == len(words) > 0, name
    for label in LABELS.values():
        assert label.values is None or len(label.values) <= label.bound


@pytest.mark.parametrize(
    ("word", "ending"),
    [
        (None, None), ("stop", "completed"), ("STOP", "completed"), ("Stop", "completed"), ("length", "incomplete"),
        ("max_tokens", "incomplete"), ("MAX_TOKENS", "incomplete"), ("content_filter", "blocked"),
        ("SAFETY", "blocked"), ("refusal", "refusal"), ("error", "error"), ("pause_turn", "incomplete"),
        ("tool_use", "completed"), ("something_new", "completed"), ("", "completed"),
    ],
)  # fmt: skip
def test_a_finish_word_has_one_meaning(word: str | None, ending: str | None) -> None:
    assert ending_of(word) == ending


def test_finish_words_that_differ_in_case_alone_mean_the_same() -> None:
    meanings: dict[str, set[str]] = {}
    for word, ending in FINISH_WORDS.items():
        meanings.setdefault(word.lower(), set()).add(ending)
    assert {word: found for word, found in meanings.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    ("host", "provider"),
    [
        ("api.openai.com", "openai"), ("API.OPENAI.COM:443", "openai"), ("eu.api.openai.com", "openai"),
        ("notapi.openai.com.evil.test", None), ("my-res.openai.azure.com", "azure.ai.openai"),
        ("bedrock-runtime.eu-west-1.amazonaws.com", "aws.bedrock"), ("bedrock-runtime.evil.test", None),
        ("us-central1-aiplatform.googleapis.com", "gcp.vertex_ai"), ("localhost:8000", None),
        ("[::1]:80", None), ("", None),
    ],
)  # fmt: skip
def test_a_provider_is_known_by_the_end_of_its_host(host: str, provider: str | None) -> None:
    assert provider_of(host) == provider
