"""Rules and routes with their times shortened: durations only, so that thresholds and names stay as shipped."""

from __future__ import annotations

import math
import re
from typing import Any

from collector.config import parse_duration

# A power keeps the order of all durations and brings 3 days to a minute and a half, 5 minutes to 6 seconds.
REFERENCE, SCALED, POWER = 300.0, 6.0, 0.4
SHORTEST = 1.0  # seconds; what is scraped every half second can be no finer

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
_PART = re.compile(r"([0-9]+)(ms|[smhdwy])")
_DURATION = r"(?:[0-9]+(?:ms|[smhdwy]))+"
# Strings and comments are taken whole, so that nothing inside of them is read. PromQL has durations in brackets and
# after `offset` alone.
_TOKEN = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`|\#[^\n]*)"""
    rf"|\[\s*(?P<range>{_DURATION})\s*(?P<colon>:)?\s*(?P<step>{_DURATION})?\s*\]"
    rf"|\b(?P<offset>offset)\s+(?P<sign>-?)\s*(?P<by>{_DURATION})",
)


def seconds_of(text: str) -> float:
    """A duration as Prometheus writes it, such as `1h30m`, in seconds; ValueError for anything else."""
    if not re.fullmatch(_DURATION, text):
        raise ValueError(f"expected a duration such as 5m or 1h30m, got {text!r}")
    return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def scaled_seconds(seconds: float) -> float:
    """How long a duration lasts in a drill; longer ones stay longer, and 0 stays 0."""
    if seconds <= 0.0:
        return 0.0
    return max(SHORTEST, SCALED * math.pow(seconds / REFERENCE, POWER))


def scaled(text: str) -> str:
    """The same for a duration as text."""
    return f"{round(scaled_seconds(seconds_of(text)) * 1000)}ms"


def scaled_expression(expression: str) -> str:
    """A PromQL expression with the durations of its ranges and offsets shortened, and nothing else changed."""

    def shortened(found: re.Match[str]) -> str:
        if found["text"] is not None:
            return found[0]
        if found["range"] is not None:
            step = scaled(found["step"]) if found["step"] is not None else ""
            return f"[{scaled(found['range'])}{found['colon'] or ''}{step}]"
        return f"offset {found['sign']}{scaled(found['by'])}"

    return _TOKEN.sub(shortened, expression)


def scaled_rules(rules: Any) -> Any:
    """A file of rules, as read from YAML, with its times shortened; groups are evaluated every second."""
    return {"groups": [_scaled_group(group) for group in rules["groups"]]}


def longest_window(rules: Any) -> float:
    """The longest range of any rule, shortened, in seconds."""
    found = [
        scaled_seconds(seconds_of(token["range"]))
        for group in rules["groups"]
        for rule in group["rules"]
        for token in _TOKEN.finditer(rule["expr"])
        if token["range"] is not None
    ]
    return max(found, default=0.0)


def _scaled_group(group: Any) -> Any:
    rules = []
    for rule in group["rules"]:
        times = {key: scaled(rule[key]) for key in ("for", "keep_firing_for") if key in rule}
        rules.append({**rule, **times, "expr": scaled_expression(rule["expr"])})
    return {**group, "interval": "1s", "rules": rules}


def scaled_alertmanager(config: Any) -> Any:
    """Alertmanager's configuration with the waits of its routes shortened."""
    return {**config, "route": _scaled_route(config["route"])}


def told_at(config: Any, receiver: str) -> Any:
    """Alertmanager's configuration with every receiver a webhook at `receiver` (a URL), under its name."""
    return {
        **config,
        "receivers": [
            {"name": each["name"], "webhook_configs": [{"url": f"{receiver}/{each['name']}", "send_resolved": False}]}
            for each in config["receivers"]
        ],
    }


def _scaled_route(route: Any) -> Any:
    waits = {
        key: f"{max(1, round(scaled_seconds(parse_duration(str(route[key])))))}s"
        for key in ("group_wait", "group_interval")
        if key in route
    }
    inner = {"routes": [_scaled_route(each) for each in route["routes"]]} if "routes" in route else {}
    return {**route, **waits, **inner}
