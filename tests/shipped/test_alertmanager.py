"""Who is told of which alert."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from .files import ALERTMANAGER, TEMPLATE, alerts, read_yaml
from .test_rules import run


def test_amtool_takes_the_configuration(needs_binary: Callable[[str], str]) -> None:
    assert "SUCCESS" in run(needs_binary("amtool"), "check-config", str(ALERTMANAGER))


@pytest.mark.parametrize(
    ("receiver", "labels"),
    [
        *(
            ("dead-mans-switch" if name == "SemhealthWatchdog"
             else {"critical": "pager", "warning": "tickets", "info": "notes"}[rule["labels"]["severity"]],
             (f"alertname={name}", f"severity={rule['labels']['severity']}", "job=semhealth", "route=chat"))
            for name, rule in alerts().items()
        ),
        ("example-team-pager", ("alertname=SemhealthValidityLow", "severity=critical", "team=example-team")),
        ("example-team-tickets", ("alertname=SemhealthThrottled", "severity=warning", "team=example-team")),
        ("pager", ("alertname=SemhealthValidityLow", "severity=critical", "team=another")),
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
    urls = [hook["url"] for each in receivers for hook in each.get("webhook_configs", ())]
    assert len(urls) == 6
    assert all(url.startswith("http://127.0.0.1:") for url in urls)
    assert {key for each in receivers for key in each} == {"name", "webhook_configs", "slack_configs"}
    [chat] = [hook for each in receivers for hook in each.get("slack_configs", ())]
    assert set(chat) == {"api_url_file", "channel", "send_resolved", "title", "text"}


def test_a_message_says_what_where_how_much_and_where_to_read_on(needs_binary: Callable[[str], str]) -> None:
    told = {
        "receiver": "example-chat", "status": "firing", "groupLabels": {}, "externalURL": "http://am.example",
        "commonLabels": {"alertname": "SemhealthValidityLow", "route": "chat", "team": "search"},
        "commonAnnotations": {"summary": "Outputs are invalid."},
        "alerts": [{
            "status": "firing", "startsAt": "2026-01-02T03:04:05Z", "endsAt": "0001-01-01T00:00:00Z",
            "labels": {"severity": "critical", "route": "chat", "model": "m"}, "generatorURL": "", "fingerprint": "",
            "annotations": {"description": "30% are.", "runbook_url": "R", "dashboard_url": "D"},
        }],
    }  # fmt: skip

    def rendered(name: str, tmp: Path) -> str:
        (tmp / "told.json").write_text(json.dumps(told))
        return run(
            needs_binary("amtool"), "template", "render", f"--template.glob={TEMPLATE}",
            f"--template.text={{{{ template \"{name}\" . }}}}", f"--template.data={tmp / 'told.json'}",
        )  # fmt: skip

    with TemporaryDirectory() as directory:
        title = rendered("semhealth.title", Path(directory)).strip()
        text = rendered("semhealth.text", Path(directory))
    assert title == "[FIRING: 1] SemhealthValidityLow on route chat (search)"
    for part in ("Outputs are invalid.", "30% are.", "severity critical, route chat, model m", "runbook: R",
                 "dashboard: D"):  # fmt: skip
        assert part in text
