"""Who is told of which alert."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from .files import ALERTMANAGER, alerts, read_yaml
from .test_rules import run


def test_amtool_takes_the_configuration(needs_binary: Callable[[str], str]) -> None:
    assert "SUCCESS" in run(needs_binary("amtool"), "check-config", str(ALERTMANAGER))


@pytest.mark.parametrize(
    ("receiver", "labels"),
    [
        *(
            ({"critical": "pager", "warning": "tickets", "info": "dead-mans-switch"}[rule["labels"]["severity"]],
             (f"alertname={name}", f"severity={rule['labels']['severity']}", "job=semhealth", "route=chat"))
            for name, rule in alerts().items()
        ),
        ("pager", ("alertname=SomebodyElses", "severity=critical")),
        ("tickets", ("alertname=SomebodyElses", "severity=info")),
        ("tickets", ("alertname=SomebodyElses",)),
    ],
)  # fmt: skip
def test_an_alert_goes_to_the_receiver_of_its_severity(
    receiver: str, labels: tuple[str, ...], needs_binary: Callable[[str], str]
) -> None:
    said = run(needs_binary("amtool"), "config", "routes", "test", f"--config.file={ALERTMANAGER}", *labels)
    assert said.strip() == receiver


def test_inhibitions_name_alerts_that_exist_and_never_hold_for_want_of_a_label() -> None:
    for rule in read_yaml(ALERTMANAGER)["inhibit_rules"]:
        for side in ("source_matchers", "target_matchers"):
            [named] = [each for each in rule[side] if each.startswith("alertname")]
            assert set(re.findall(r"\w+", named.split("=", 1)[1])) <= set(alerts())
            guarded = {each.split("=~")[0] for each in rule[side] if each.endswith('=~".+"')}
            assert guarded & set(rule["equal"]), "missing labels count as equal: one of them has to be there"


def test_no_secret_and_no_address_of_anybody_is_in_it() -> None:
    receivers = read_yaml(ALERTMANAGER)["receivers"]
    urls = [hook["url"] for each in receivers for hook in each["webhook_configs"]]
    assert len(urls) == 3
    assert all(url.startswith("http://127.0.0.1:") for url in urls)
    assert {key for each in receivers for key in each} == {"name", "webhook_configs"}
