"""`semhealth grafana push` against a stand-in of Grafana's API."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from collector.cli import main
from collector.grafana import differences, shipped_dashboards

from .files import DASHBOARDS, ROOT, read_yaml
from .grafana import TOKEN, Grafana, standing_in

NAMES = [path.stem for path in DASHBOARDS]


@pytest.fixture
def grafana(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Grafana, str]]:
    pytest.importorskip("grafana_client", reason="the extra `grafana` is not installed")
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    with standing_in() as found:
        yield found


def push(url: str, *more: str) -> int:
    return main(["grafana", "push", "--url", url, *more])


def test_everything_is_put_there_and_a_second_time_changes_nothing(
    grafana: tuple[Grafana, str], capsys: pytest.CaptureFixture[str]
) -> None:
    there, url = grafana
    assert push(url, "--prometheus", "http://prometheus:9090") == 0
    assert there.writes == [
        "folder semhealth", "source semhealth-prometheus", *(f"dashboard {name}" for name in NAMES)
    ]  # fmt: skip
    for path in DASHBOARDS:
        stored, meta = there.dashboards[path.stem]
        assert {key: value for key, value in stored.items() if key not in ("id", "version")} == json.loads(
            path.read_text(encoding="utf-8")
        )
        assert meta["folderUid"] == "semhealth"
    assert there.sources["semhealth-prometheus"]["jsonData"]["timeInterval"] == "15s"
    first = capsys.readouterr().out
    assert first.count(": new") == len(NAMES) + 2

    there.writes.clear()
    assert push(url, "--prometheus", "http://prometheus:9090") == 0
    assert there.writes == []
    assert capsys.readouterr().out.count(": as it should be") == len(NAMES) + 2


def test_a_dry_run_says_what_would_change_and_changes_nothing(
    grafana: tuple[Grafana, str], capsys: pytest.CaptureFixture[str]
) -> None:
    there, url = grafana
    assert push(url, "--dry-run") == 0
    assert there.writes == []
    assert "folder semhealth: new" in capsys.readouterr().out

    assert push(url) == 0
    stored, meta = there.dashboards["semhealth-streams"]
    panels = [{**each, "description": "mine"} if each["title"] == "First token" else each for each in stored["panels"]]
    there.dashboards["semhealth-streams"] = ({**stored, "panels": panels, "refresh": "5s"}, meta)
    there.writes.clear()
    capsys.readouterr()
    assert push(url, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "dashboard semhealth streams: changed\n  panels 'First token': description\n  refresh\n" in said
    assert said.count(": changed") == 1
    assert said.endswith("dry run: nothing was changed\n")
    assert there.writes == []

    assert push(url) == 0
    assert there.writes == ["dashboard semhealth-streams"]
    assert there.dashboards["semhealth-streams"][0]["version"] == 2
    assert there.dashboards["semhealth-streams"][0]["refresh"] == "30s"


def test_what_somebody_saves_meanwhile_is_not_overwritten(
    grafana: tuple[Grafana, str], capsys: pytest.CaptureFixture[str]
) -> None:
    there, url = grafana
    assert push(url) == 0
    stored, meta = there.dashboards["semhealth-limits"]
    there.dashboards["semhealth-limits"] = ({**stored, "title": "ours now"}, meta)
    there.saved_meanwhile = "semhealth-limits"
    assert push(url) == 1
    assert "412: somebody saved it meanwhile" in capsys.readouterr().err
    assert there.dashboards["semhealth-limits"][0]["title"] == "ours now"


def test_what_is_provisioned_from_a_file_is_left_alone(
    grafana: tuple[Grafana, str], capsys: pytest.CaptureFixture[str]
) -> None:
    there, url = grafana
    assert push(url) == 0
    stored, meta = there.dashboards["semhealth-overview"]
    there.dashboards["semhealth-overview"] = ({**stored, "refresh": "1m"}, {**meta, "provisioned": True})
    there.writes.clear()
    assert push(url) == 1
    assert "is provisioned from a file; change it there" in capsys.readouterr().err
    assert "dashboard semhealth-overview" not in there.writes


def test_an_existing_folder_of_the_title_is_used_and_another_title_moves_the_dashboards(
    grafana: tuple[Grafana, str],
) -> None:
    there, url = grafana
    there.folders["x1"] = {"id": 1, "uid": "x1", "title": "On call: LLM", "version": 1}
    assert push(url, "--folder", "On call: LLM") == 0
    assert {meta["folderUid"] for _, meta in there.dashboards.values()} == {"x1"}
    assert push(url, "--folder", "Elsewhere") == 0
    assert {meta["folderUid"] for _, meta in there.dashboards.values()} == {"elsewhere"}


@pytest.mark.parametrize(
    ("token", "said"),
    [("wrong", "401: the token is not known"), ("synthetic-viewer", "403: the token may not do this")],
)
def test_a_refused_token_is_explained_and_never_printed(
    grafana: tuple[Grafana, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, token: str,
    said: str,
) -> None:  # fmt: skip
    there, url = grafana
    monkeypatch.setenv("OTHER", token)
    assert push(url, "--token-env", "OTHER") == 1
    printed = capsys.readouterr()
    assert said in printed.err
    assert token not in printed.err + printed.out
    assert there.writes == []


def test_without_a_token_nothing_is_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("GRAFANA_TOKEN", raising=False)
    assert push("http://127.0.0.1:1") == 2
    assert "set GRAFANA_TOKEN" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:1", "http://127.0.0.1:1: no connection"),
        ("grafana.example", "expected http(s)://host"),
        ("http://me:secret@127.0.0.1:1/", "http://127.0.0.1:1: expected no user"),
    ],
)
def test_an_address_that_does_not_do_is_explained_without_what_is_secret_in_it(
    url: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("grafana_client", reason="the extra `grafana` is not installed")
    assert push(url, "--token", TOKEN) == 1
    printed = capsys.readouterr().err
    assert said in printed
    assert "secret" not in printed
    assert TOKEN not in printed


def test_what_grafana_adds_is_no_difference_and_what_it_lacks_is() -> None:
    assert differences({"a": 1, "id": None}, {"a": 1, "id": 7, "extra": 2}) == ()
    assert differences({"a": {"b": [1, 2]}}, {"a": {"b": [1]}}) == ("a: b: 1 → 2",)
    assert differences({"a": 1}, {}) == ("a",)
    assert differences({"panels": [{"title": "x", "id": 1}]}, {"panels": [{"title": "x", "id": 2}]}) == (
        "panels 'x': id",
    )


def test_what_is_pushed_is_what_is_shipped_and_what_the_kustomization_takes() -> None:
    assert [each["uid"] for each in shipped_dashboards()] == NAMES
    made = read_yaml(ROOT / "dashboards" / "kustomization.yaml")
    assert sorted(name for each in made["configMapGenerator"] for name in each["files"]) == [f"{n}.json" for n in NAMES]
    assert made["generatorOptions"]["labels"] == {"grafana_dashboard": "1"}
    for path in DASHBOARDS:
        assert path.stat().st_size < 256 * 1024, (
            f"{path.name}: kubectl apply keeps it in an annotation, at most 256 KiB"
        )
