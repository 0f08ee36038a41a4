"""Compose and Kubernetes files hold to the published schemas of what reads them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import compose_spec
import kubernetes_validate
import pytest
from cloudcoil.models.prometheus_operator.v1 import PodMonitor, PrometheusRule

from .files import COMPOSE, KUBERNETES, read_yaml

OPERATOR = {"PodMonitor": PodMonitor, "PrometheusRule": PrometheusRule}
OBJECTS: list[dict[str, Any]] = [read_yaml(path) for path in sorted(KUBERNETES.glob("*.yaml"))]
KUBERNETES_VERSIONS = ("1.29", "1.33", "1.37")  # the first with native sidecars, and newer ones

each_of_kubernetes = pytest.mark.parametrize(
    "thing", [each for each in OBJECTS if each["kind"] not in OPERATOR], ids=lambda thing: thing["kind"]
)
each_of_the_operator = pytest.mark.parametrize(
    "thing", [each for each in OBJECTS if each["kind"] in OPERATOR], ids=lambda thing: thing["kind"]
)


def holds(thing: dict[str, Any]) -> bool:
    """Whether the Prometheus Operator knows every key and takes every value: what it does not know gets lost."""
    model = OPERATOR[thing["kind"]].model_validate(thing)
    return bool(model.model_dump(mode="json", by_alias=True, exclude_unset=True) == thing)


def test_all_kinds_are_there() -> None:
    assert {each["kind"] for each in OBJECTS} == {"Deployment", "NetworkPolicy", *OPERATOR}


@each_of_kubernetes
@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_kubernetes_takes_its_objects(thing: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(thing, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**thing, "spec": {**thing["spec"], "replica": 2}}, version, strict=True)


@each_of_the_operator
def test_the_prometheus_operator_takes_its_objects(thing: dict[str, Any]) -> None:
    assert holds(thing)


def test_a_key_or_a_value_that_the_operator_does_not_know_is_found() -> None:
    [monitor] = [each for each in OBJECTS if each["kind"] == "PodMonitor"]
    unknown = deepcopy(monitor)
    unknown["spec"]["podMetricsEndpoints"][0]["intervall"] = "15s"
    assert not holds(unknown)
    wrong = deepcopy(monitor)
    wrong["spec"]["podMetricsEndpoints"][0]["interval"] = "15 seconds"
    with pytest.raises(ValueError, match="interval"):
        holds(wrong)


def test_the_compose_specification_takes_the_file() -> None:
    text = COMPOSE.read_text(encoding="utf-8")
    assert set(compose_spec.PyCompose.from_yaml(text).service_names()) == read_yaml(COMPOSE)["services"].keys()
    for right, wrong in (("mem_limit: 2g", "mem_limit: 2q"), ("restart: unless", "restrat: unless")):
        assert right in text
        with pytest.raises(ValueError, match=r"services\."):
            compose_spec.PyCompose.from_yaml(text.replace(right, wrong, 1))
