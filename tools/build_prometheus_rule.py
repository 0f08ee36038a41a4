"""Writes deploy/kubernetes/prometheusrule.yaml from alerts/semhealth.rules.yml; --check only compares."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import indent

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "alerts" / "semhealth.rules.yml"
OBJECT = ROOT / "deploy" / "kubernetes" / "prometheusrule.yaml"

HEAD = """\
# yamllint disable rule:line-length
# For the Prometheus Operator: the rules of alerts/semhealth.rules.yml, unchanged; built by
# `python -m tools.build_prometheus_rule`. A Prometheus whose `ruleSelector` asks for a label (that of the chart
# kube-prometheus-stack asks for `release`) loads it only with that label, under `metadata.labels`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: semhealth
  labels:
    app.kubernetes.io/name: semhealth
spec:
"""


def built(rules: str) -> str:
    """The object as it should be: the text of the rules from `groups:` on, comments too, two spaces further in."""
    start = rules.index("groups:\n")
    return HEAD + indent(rules[start:], "  ")


def main(arguments: list[str]) -> int:
    """Write the object, or with --check exit 1 where it is out of date."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m tools.build_prometheus_rule [--check]", file=sys.stderr)
        return 2
    text = built(RULES.read_text(encoding="utf-8"))
    if OBJECT.exists() and OBJECT.read_text(encoding="utf-8") == text:
        return 0
    if arguments:
        print(
            "deploy/kubernetes/prometheusrule.yaml: out of date; run python -m tools.build_prometheus_rule",
            file=sys.stderr,
        )
        return 1
    OBJECT.write_text(text, encoding="utf-8")
    print("deploy/kubernetes/prometheusrule.yaml: written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
