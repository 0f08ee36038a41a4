"""Where the shipped files are, and what is in them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = sorted((ROOT / "dashboards").glob("*.json"))
RULES = ROOT / "alerts" / "semhealth.rules.yml"
RULE_TESTS = sorted((ROOT / "alerts").glob("*.test.yml"))
ALERTMANAGER = ROOT / "alerts" / "alertmanager.yml"
TEMPLATE = ROOT / "alerts" / "semhealth.tmpl"
RUNBOOKS = ROOT / "alerts" / "runbooks"
PROMETHEUS = ROOT / "deploy" / "prometheus.yml"
COMPOSE = ROOT / "docker-compose.yml"
KUBERNETES = ROOT / "deploy" / "kubernetes"


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def dashboards() -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in DASHBOARDS]


def panels() -> list[dict[str, Any]]:
    """Every panel but the row headings."""
    return [panel for each in dashboards() for panel in each["panels"] if panel["type"] != "row"]


def panel_expressions() -> list[tuple[str, str]]:
    """Title and expression of every query of every panel."""
    return [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]


def annotation_expressions() -> list[tuple[str, str]]:
    """Name and expression of every annotation of every dashboard."""
    return [(mark["name"], mark["expr"]) for each in dashboards() for mark in each["annotations"]["list"]]


@cache
def rules() -> list[dict[str, Any]]:
    return [rule for group in read_yaml(RULES)["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


@cache
def recorded() -> dict[str, str]:
    return {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
