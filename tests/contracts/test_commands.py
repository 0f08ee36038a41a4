"""`semhealth check` says where a contract is wrong; `semhealth inspect --contract` tries one on recorded exchanges."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from collector.cli import main

CONTRACT = """
rules:
  - {name: large, cel: output.amount > 1000}
  - {name: private, no_personal_data: {kinds: [email]}}
"""


def recorded(number: int, text: str) -> dict[str, object]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = {"model": "gpt-1", "choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    return {
        "id": f"exchange-{number}",
        "host": "api.openai.com",
        "url_path": "/v1/chat/completions",
        "request_body": {"model": "gpt", "messages": [{"role": "user", "content": "How much?"}]},
        "status": 200,
        "response_headers": [["content-type", "application/json"]],
        "response_body_b64": base64.b64encode(json.dumps(body).encode()).decode(),
    }


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A contract and a file of exchanges."""
    monkeypatch.setenv("SEMHEALTH_EMBEDDER", "none")
    contract = tmp_path / "contract.yaml"
    contract.write_text(CONTRACT)
    texts = ['{"amount": 5000}', '{"amount": 5}', '{"amount": 6, "by": "bob@acme.io"}', '{"sum": 1}', "Sorry."]
    exchanges = tmp_path / "recorded.json"
    exchanges.write_text(json.dumps([recorded(number, text) for number, text in enumerate(texts, 1)]))
    return str(contract), str(exchanges)


def test_inspect_counts_what_each_rule_said_and_names_the_records(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "--contract", *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = lines[next(number for number, line in enumerate(lines) if line.startswith("rule ")) :]
    assert [line.split() for line in table[:3]] == [
        ["rule", "kept", "broken", "not_evaluated", "skipped"],
        ["large", "1", "2", "2", "0"],
        ["private", "4", "1", "0", "0"],
    ]
    assert table[3:] == [
        "large broken: exchange-2, exchange-3",
        "private broken, email: exchange-3",
        "large not_evaluated, missing: exchange-4",
        "large not_evaluated, not_json: exchange-5",
    ]


def test_inspect_as_json_tells_rules_in_the_records_and_the_table_elsewhere(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "--json", "--contract", *files]) == 0
    said = capsys.readouterr()
    validity = [json.loads(line)["validity"] for line in said.out.splitlines()]
    assert [each["result"] for each in validity] == [
        "valid", "contract_violation", "contract_violation", "contract_error", "not_json",
    ]  # fmt: skip
    assert validity[2]["judgements"][0]["rules"] == [
        {"rule": "large", "result": "broken", "reason": None},
        {"rule": "private", "result": "broken", "reason": "email"},
    ]
    assert "large not_evaluated, not_json: exchange-5" in said.err
    assert "acme.io" not in said.out + said.err


def test_inspect_refuses_a_wrong_contract(
    tmp_path: Path, files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("rules: [{name: a, cel: output.a >}]")
    assert main(["inspect", "--contract", str(wrong), files[1]]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"{wrong}: rule a: cel: position 11: Syntax error" in said.err


def test_check_says_the_file_the_rule_and_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "contract.yaml").write_text(
        "rules:\n- {name: one, cel: output.a >}\n- {name: two, cel: ouput.a > 1}\n- {name: ok, cel: output.a > 1}\n"
    )
    config = tmp_path / "semhealth.yaml"
    config.write_text("routes:\n- {name: r, upstream: 'http://a', contract: contract.yaml}\n")
    assert main(["check", str(config)]) == 2
    contract = tmp_path / "contract.yaml"
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"routes[0].contract: {contract}: rule one: cel: position 11: Syntax error")
    assert lines[1] == (
        f"routes[0].contract: {contract}: rule two: cel: position 6: undeclared reference to 'ouput.a' (line 2)"
    )
    (tmp_path / "contract.yaml").write_text("rules:\n- {name: ok, cel: output.a > 1}\n")
    assert main(["check", str(config)]) == 0
