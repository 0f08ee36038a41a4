"""A drill's alerts at an Alertmanager of the user's own, which is a real one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml

from collector.cli import main
from collector.drill.alertmanager import (
    Address,
    Alertmanager,
    Arrival,
    Route,
    address_of,
    drill_labels,
    sent_to,
    waits_of,
)
from collector.drill.drill import Outcome, Quiet, Report, table
from collector.drill.stage import DrillError

from ..shipped.files import ALERTMANAGER, read_yaml  # noqa: TID252 - the root is not on the path
from ..shipped.servers import Receiver, eventually, free_port  # noqa: TID252

START = 20.0
USER, PASSWORD = "oncall", "s3cret@"
# bcrypt of the password above, at the lowest cost.
WEB = {"basic_auth_users": {USER: "$2b$04$YTGeAmdu/9CdCqY8Z4gFs.R/kRd8b1g9Q4RhOFUWm.QEQAvlqG06."}}


class Theirs:
    """An Alertmanager with a login and a path prefix, and what its receivers got."""

    def __init__(self, port: int, receiver: Receiver) -> None:
        self.address = Address("http", f"127.0.0.1:{port}", "/am", USER, PASSWORD)
        self.url = f"http://{USER}:s3cret%40@127.0.0.1:{port}/am/"
        self.receiver = receiver

    def ask(self, path: str, body: Any = None) -> Any:
        """What its API answers to a GET, or with a body to a POST; OSError where it does not."""
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        with contextlib.closing(http.client.HTTPConnection(self.address.host, timeout=5)) as connection:
            method = "GET" if body is None else "POST"
            connection.request(method, f"/am/api/v2/{path}", None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            said = answer.read()
        assert answer.status == 200, said
        return json.loads(said) if said else None


@pytest.fixture
def theirs(tmp_path: Path, needs_binary: Callable[[str], str]) -> Iterator[Theirs]:
    program = needs_binary("prometheus-alertmanager")
    receiver, port = Receiver(), free_port()
    config = {
        "route": {
            "receiver": "nobody", "group_by": ["alertname"], "group_wait": "1s", "group_interval": "5m",
            "routes": [{"matchers": ['severity="critical"'], "receiver": "phone", "group_wait": "3s"}],
        },
        "receivers": [
            {"name": "nobody"},
            {"name": "phone", "webhook_configs": [{"url": f"http://127.0.0.1:{receiver.port}/phone"}]},
        ],
    }  # fmt: skip
    (tmp_path / "config.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "web.yml").write_text(yaml.safe_dump(WEB))
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, f"--config.file={tmp_path / 'config.yml'}", f"--storage.path={tmp_path / 'kept'}",
             f"--web.listen-address=127.0.0.1:{port}", "--web.route-prefix=/am", "--cluster.listen-address=",
             f"--web.config.file={tmp_path / 'web.yml'}"],
            stdout=log, stderr=log,
        )  # fmt: skip
    found = Theirs(port, receiver)
    try:
        deadline = time.monotonic() + START
        while True:
            with contextlib.suppress(OSError):
                found.ask("status")
                break
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()[-2000:]
            time.sleep(0.1)
        yield found
    finally:
        process.terminate()
        process.wait(timeout=30)
        receiver.close()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_drill_pages_through_the_users_alertmanager(
    theirs: Theirs, needs_binary: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    needs_binary("prometheus")
    assert main(["drill", "SemhealthValidityLow", "--quiet", "0", "--json", "--alertmanager", theirs.url]) == 0
    out, err = capsys.readouterr()
    outcome = json.loads(out)["alerts"]["SemhealthValidityLow"]
    assert outcome["fired"] is outcome["delivered"] is True
    assert outcome["alertmanager"] == {"received": True, "receivers": ["phone"]}
    assert PASSWORD not in out + err
    pages = [alert for path, alert in theirs.receiver.alerts if path == "/phone"]
    assert [page["status"] for page in pages] == ["firing"]
    assert pages[0]["labels"]["alertname"] == "SemhealthValidityLow"
    assert pages[0]["labels"]["drill"] == "true"
    assert pages[0]["annotations"]["runbook_url"] == "alerts/runbooks/SemhealthValidityLow.md"
    left = time.monotonic()
    eventually(lambda: theirs.ask("alerts") == [], lambda: theirs.ask("alerts"))
    assert time.monotonic() - left < 30, "an alert that is left to Alertmanager's resolve_timeout stays for minutes"


async def _follow(theirs: Theirs, labels: dict[str, str], *, ask_for: str = "Sample", lasts: float = 60.0) -> Arrival:
    """What `follow` says of an alert that is posted once and ends after `lasts` seconds."""
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + lasts))
    alert = {"labels": {"alertname": "Sample", "severity": "critical", **labels}, "endsAt": ends}
    async with aiohttp.ClientSession() as session:
        alertmanager = Alertmanager(theirs.address, labels, session)
        await alertmanager.check()
        await asyncio.to_thread(theirs.ask, "alerts", [alert])
        return await alertmanager.follow(ask_for, lambda labels: True, 1.0)


async def test_whom_an_alertmanager_tells_is_said_only_where_it_does(theirs: Theirs) -> None:
    assert await _follow(theirs, {"drill": "told"}) == Arrival(True, ("phone",))
    assert theirs.receiver.named("/phone") == {"Sample"}
    assert await _follow(theirs, {"drill": "lost"}, ask_for="Another") == Arrival(False, ())
    assert await _follow(theirs, {"drill": "short"}, lasts=2.0) == Arrival(True, ()), "ended before the group's wait"


async def test_an_alert_that_is_silenced_there_tells_nobody(theirs: Theirs) -> None:
    now = time.time()
    starts, ends = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) for at in (now, now + 300))
    silence = {
        "matchers": [{"name": "drill", "value": "silenced", "isRegex": False}],
        "startsAt": starts, "endsAt": ends, "createdBy": "test", "comment": "test",
    }  # fmt: skip
    await asyncio.to_thread(theirs.ask, "silences", silence)
    assert await _follow(theirs, {"drill": "silenced"}) == Arrival(True, ())
    assert theirs.receiver.alerts == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"user": None}, "answered 401: put user and password into the address"),
        ({"password": "wrong-one"}, "answered 401: put user and password into the address"),
        ({"prefix": ""}, "answered 404: give the address that its web page has"),
    ],
)
async def test_what_is_no_alertmanager_is_refused_with_what_to_do(
    theirs: Theirs, change: dict[str, Any], said: str
) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(DrillError, match=said) as refused:
            await Alertmanager(msgspec.structs.replace(theirs.address, **change), {}, session).check()
    assert "wrong-one" not in str(refused.value)


def test_an_unreachable_alertmanager_ends_the_drill_before_it_begins(
    needs_binary: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("prometheus", "prometheus-alertmanager"):
        needs_binary(name)
    url = f"127.0.0.1:{free_port()}"
    assert main(["drill", "SemhealthValidityLow", "--alertmanager", f"http://me:hidden@{url}"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"semhealth: no Alertmanager answers at http://{url} (")
    assert "start it, or give the address that its web page has" in err
    assert "hidden" not in err


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:9093", Address("http", "127.0.0.1:9093")),
        ("https://am.example/", Address("https", "am.example:443")),
        ("http://am.example/a/b/#/alerts", Address("http", "am.example:80", "/a/b")),
        ("https://me:p%40ss@am.example:8443/x", Address("https", "am.example:8443", "/x", "me", "p@ss")),
        ("http://[::1]:9093", Address("http", "[::1]:9093")),
    ],
)
def test_an_address_is_read_with_its_port_prefix_and_login(url: str, address: Address) -> None:
    assert address_of(url) == address
    assert "p@ss" not in address.shown


@pytest.mark.parametrize(
    "url", ["", "am.example:9093", "ftp://am.example", "http://", "http://h:99999", "http://h/?a=b"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(DrillError, match="expected http"):
        address_of(url)


def test_prometheus_sends_with_scheme_prefix_and_login() -> None:
    assert sent_to(address_of("https://me:p@am.example/x")) == {
        "scheme": "https",
        "path_prefix": "/x",
        "basic_auth": {"username": "me", "password": "p"},
        "static_configs": [{"targets": ["am.example:443"]}],
    }
    assert "basic_auth" not in sent_to(address_of("http://am.example"))


def test_a_groups_wait_is_that_of_its_route_or_of_the_routes_around_it() -> None:
    route = msgspec.convert(read_yaml(ALERTMANAGER)["route"], Route)
    assert waits_of(route) == {
        "tickets": 30.0, "dead-mans-switch": 0.0, "pager": 10.0, "example-team-pager": 10.0,
        "example-team-tickets": 30.0, "notes": 30.0,
    }  # fmt: skip
    nested = Route("a", None, (Route(None, "1m30s", (Route("b"), Route("a", "5s"))),))
    assert waits_of(nested) == {"a": 90.0, "b": 90.0}


def test_the_alerts_of_two_drills_are_never_of_one_group() -> None:
    first, second = drill_labels(), drill_labels()
    assert first["drill"] == second["drill"] == "true"
    assert first["namespace"] != second["namespace"]
    assert "namespace" in read_yaml(ALERTMANAGER)["route"]["group_by"]


def test_the_report_shows_whom_the_users_alertmanager_tells_and_is_bad_where_it_is_nobody() -> None:
    told, lost, held = (Outcome(True, True, 4.2, (), each) for each in (
        Arrival(True, ("phone", "tickets")), Arrival(False, ()), Arrival(True, ())))  # fmt: skip
    quiet = Quiet(0.0, ())
    assert Report({"A": told}, quiet).is_good
    assert not Report({"A": told, "B": lost}, quiet).is_good
    assert not Report({"A": held}, quiet).is_good
    said = table(Report({"A": told, "B": lost, "C": held}, quiet))
    assert "your Alertmanager tells" in said
    assert "phone, tickets" in said
    assert "did not arrive" in said
    assert "NOBODY" in said
    plain = Report({"A": Outcome(True, True, 4.2, ())}, quiet)
    assert "Alertmanager" not in table(plain)
    assert b"alertmanager" not in msgspec.json.encode(plain)
