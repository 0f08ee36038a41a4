"""Catalogue, rules and pages are in step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collector.catalogue import FINDING_RULE, FINDING_RULES, LABELS, FindingRule
from collector.findings.judge import CLAIMS, TREND_RULES
from tools.build_findings_index import INDEX, built

PAGES = Path(__file__).resolve().parent.parent.parent / "docs" / "findings"
SECTIONS = ["What it means", "How it is recognised", "What to do", "When it is wrong"]
each_rule = pytest.mark.parametrize("rule", FINDING_RULES, ids=[rule.id for rule in FINDING_RULES])


def test_every_rule_is_told_by_the_code_and_nothing_else_is():
    assert {claim.__name__ for claim, _ in CLAIMS} | TREND_RULES == set(FINDING_RULE)
    assert len(FINDING_RULE) == len(FINDING_RULES)
    assert LABELS["rule"].values == tuple(FINDING_RULE)


def test_every_rule_has_a_page_and_nothing_else_has():
    assert {page.stem for page in PAGES.glob("*.md")} - {"README"} == set(FINDING_RULE)


@each_rule
def test_a_rule_is_named_and_said_in_sentences(rule: FindingRule):
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", rule.id)
    assert rule.saw[0].isupper()
    assert rule.saw.endswith(".")
    assert rule.remedy[0].isupper()
    assert rule.remedy.endswith(".")


@each_rule
def test_a_page_says_severity_facts_and_its_four_parts(rule: FindingRule):
    page = (PAGES / f"{rule.id}.md").read_text(encoding="utf-8")
    title, _, head, *_ = page.split("\n")
    assert title == f"# {rule.id}"
    assert head.startswith(f"Severity: {rule.severity}. About the {rule.side}.")
    assert set(re.findall(r"`(\w+)`", head)) == set(rule.facts)
    assert page.split("\n\n")[2].replace("\n", " ") == rule.saw
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == SECTIONS
    assert all(len(part.strip()) > 30 for part in re.split(r"^## .+$", page, flags=re.MULTILINE)[1:])


def test_links_between_pages_lead_somewhere():
    for page in PAGES.glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_index_is_what_the_catalogue_says():
    assert INDEX.read_text(encoding="utf-8") == built(), "run python -m tools.build_findings_index"
