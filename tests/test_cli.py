"""The command line: exit codes, what goes to which stream, and one clear sentence for what went wrong."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from pathlib import Path

import pytest

from collector.catalogue import METRICS
from collector.cli import main

COMMANDS = ("run", "demo", "check", "inspect", "objectives", "grafana", "metrics", "health")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("SEMHEALTH_", "OTEL_")):
            monkeypatch.delenv(name)


# ---------------------------------------------------------------- fixtures of recorded exchanges


def recorded(number: int = 1, text: str = "Twelve berths.", **more: object) -> dict[str, object]:
    """An exchange as `inspect` reads it."""
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-recorded-2026",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16},
    }
    return {
        "id": f"exchange-{number}",
        "provider": "openai",
        "host": "api.openai.com",
        "method": "POST",
        "url_path": "/v1/chat/completions",
        "request_headers": [["Content-Type", "application/json"]],
        "request_body": {"model": "gpt-recorded", "messages": [{"role": "user", "content": "How many berths?"}]},
        "status": 200,
        "response_headers": [
            ["Content-Type", "application/json"],
            ["x-ratelimit-limit-requests", "100"],
            ["x-ratelimit-remaining-requests", "99"],
        ],
        "response_body_b64": base64.b64encode(json.dumps(answer).encode()).decode(),
        **more,
    }


def streamed_har() -> dict[str, object]:
    """A HAR file with one streamed exchange of Anthropic's."""
    events = (
        {"type": "message_start", "message": {"id": "m", "model": "claude-har", "usage": {"input_tokens": 9}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Ahoy"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    )
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return {
        "log": {
            "version": "1.2",
            "entries": [
                {
                    "startedDateTime": "2026-03-04T05:06:07.000Z",
                    "request": {
                        "method": "POST",
                        "url": "https://api.anthropic.com/v1/messages?beta=true",
                        "headers": [{"name": "content-type", "value": "application/json"}],
                        "postData": {"text": json.dumps({"model": "claude-har", "stream": True, "messages": []})},
                    },
                    "response": {
                        "status": 200,
                        "headers": [{"name": "content-type", "value": "text/event-stream"}],
                        "content": {"text": base64.b64encode(body.encode()).decode(), "encoding": "base64"},
                    },
                }
            ],
        }
    }


def write(path: Path, content: object) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


# ---------------------------------------------------------------- the command itself


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"semhealth {version('semhealth')}\n"


def test_help_shows_every_command_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert set(COMMANDS) <= {line.split()[0] for line in shown.splitlines() if line.startswith("    ")}
    assert "semhealth run --upstream https://api.openai.com" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"usage: semhealth {command}" in capsys.readouterr().out


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "usage: semhealth" in said.err


def test_an_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ran"])
    assert ended.value.code == 2
    assert "invalid choice" in capsys.readouterr().err


def test_metrics_prints_every_metric_of_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics"]) == 0
    printed = capsys.readouterr().out
    assert [name for name in (metric.name for metric in METRICS) if f"| `{name}` |" not in printed] == []
    assert "semantic_health_context_relevance_score_observations" in printed
    assert "gen_ai.client.operation.duration" in printed


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = subprocess.Popen(
        [sys.executable, "-m", "collector.cli", "metrics"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert command.stdout is not None
    assert command.stderr is not None
    command.stdout.close()
    assert command.stderr.read() == b""
    assert command.wait(60) == 0
    command.stderr.close()


# ---------------------------------------------------------------- check


def test_check_finds_no_problem_in_a_good_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "good.yaml", "upstream: https://api.openai.com\nanalysis: {stall_threshold: 2s}\n")
    assert main(["check", file]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{file}: no problems"
    assert said[2] == "route default: / → https://api.openai.com"
    assert "no objectives" in said[3]


def test_check_prints_every_problem_with_its_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(
        tmp_path / "bad.yaml",
        "routes:\n  - {name: a, upstream: api.example}\nanalysis: {stall_treshold: 2s, window: soon}\n",
    )
    assert main(["check", file]) == 2
    said = capsys.readouterr()
    for path in ("routes[0].upstream: ", "analysis.stall_treshold: ", "analysis.window: "):
        assert any(line.startswith(path) for line in said.out.splitlines()), said.out
    assert "stall_threshold" in said.out  # the remedy
    assert said.err == f"semhealth: {file}: {len(said.out.splitlines())} problems\n"


def test_check_of_a_file_that_is_not_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "none.yaml")]) == 2
    assert "No such file" in capsys.readouterr().out


# ---------------------------------------------------------------- inspect


def inspected(capsys: pytest.CaptureFixture[str], *files: str) -> list[dict[str, object]]:
    assert main(["inspect", "--json", "--set", "embedder.kind=none", *files]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return [json.loads(line) for line in said.out.splitlines()]


def test_inspect_reads_one_exchange(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [record] = inspected(capsys, write(tmp_path / "one.json", recorded()))
    assert record["id"] == "exchange-1"
    assert (record["provider"], record["dialect"], record["outcome"]) == ("openai", "openai.chat", "completed")
    assert (record["request_model"], record["response_model"]) == ("gpt-recorded", "gpt-recorded-2026")
    assert record["usage"] == {
        "input_tokens": 12,
        "output_tokens": 4,
        "cache_read_input_tokens": None,
        "cache_write_input_tokens": None,
        "reasoning_output_tokens": None,
    }
    assert record["timing"]["duration"] is None  # type: ignore[index]
    assert record["rate_limits"][0]["remaining"] == 99  # type: ignore[index]


def test_inspect_reads_lists_json_lines_and_har_in_the_order_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = (
        write(tmp_path / "list.json", [recorded(1), recorded(2)]),
        write(tmp_path / "lines.jsonl", "\n".join(json.dumps(recorded(n)) for n in (3, 4)) + "\n"),
        write(tmp_path / "capture.har", streamed_har()),
    )
    records = inspected(capsys, *files)
    assert [record["id"] for record in records] == [*(f"exchange-{n}" for n in (1, 2, 3, 4)), "capture[0]"]
    har = records[-1]
    assert (har["dialect"], har["transport"], har["outcome"]) == ("anthropic.messages", "sse", "completed")
    assert har["started_at"] == "2026-03-04T05:06:07.000Z"
    assert har["text"]["chars"] == 4  # type: ignore[index]


def test_inspect_for_people_says_the_facts_and_not_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "one.json", recorded(text="A secret number of berths."))
    assert main(["inspect", "--set", "embedder.kind=none", file]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("exchange-1  completed  200  openai.chat over json  gpt-recorded → gpt-recorded-2026\n")
    assert "tokens      12 input, 4 output" in shown
    assert "requests: 99 of 100 left" in shown
    assert "secret" not in shown
    assert "berths" not in shown


def test_inspect_judges_structured_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = {"type": "object", "properties": {"berths": {"type": "integer"}}, "required": ["berths"]}
    asked = {
        "model": "gpt-recorded",
        "messages": [{"role": "user", "content": "How many berths?"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "harbour", "schema": schema}},
    }
    file = write(
        tmp_path / "two.json",
        [recorded(1, '{"berths": 12}', request_body=asked), recorded(2, '{"berths": "12"}', request_body=asked)],
    )
    first, second = inspected(capsys, file)
    assert first["validity"]["result"] == "valid"  # type: ignore[index]
    assert second["validity"]["result"] == "schema_violation"  # type: ignore[index]
    assert second["validity"]["judgements"][0]["keyword"] == "type"  # type: ignore[index]
    assert second["validity"]["schema_id"] == "harbour"  # type: ignore[index]


@pytest.mark.slow
def test_inspect_scores_relevance_with_the_default_embedder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passages = "[1] Quay Nine has twelve berths with water.\n\n[2] Tarn Blue is a cheese that ripens for sixty days."
    asked = {
        "model": "gpt-recorded",
        "messages": [{"role": "user", "content": f"Context:\n{passages}\n\nQuestion: How many berths has Quay Nine?"}],
    }
    file = write(tmp_path / "one.json", recorded(text="Quay Nine has twelve berths.", request_body=asked))
    assert main(["inspect", "--json", file]) == 0
    relevance = json.loads(capsys.readouterr().out)["relevance"]
    assert relevance["scored"] is True
    assert 0.5 < relevance["context_relevance"] <= 1


def test_what_inspect_cannot_read_is_one_sentence_and_the_rest_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write(tmp_path / "good.json", recorded())
    missing = str(tmp_path / "missing.json")
    cases = {
        missing: "cannot be read: No such file or directory",
        write(tmp_path / "text.json", "Dear diary"): "not JSON",
        write(tmp_path / "other.json", {"status": "fine"}): "not a recorded exchange",
        write(tmp_path / "empty.json", ""): "empty; expected recorded exchanges",
        write(tmp_path / "capture.json", streamed_har()): "give the file the suffix .har",
        write(tmp_path / "broken.har", "{"): "not HAR",
        str(tmp_path): "cannot be read: Is a directory",
    }
    for bad, said in cases.items():
        assert main(["inspect", "--json", "--set", "embedder.kind=none", bad, good]) == 1, bad
        shown = capsys.readouterr()
        assert shown.err.startswith(f"semhealth: {bad}"), shown.err
        assert said in shown.err
        assert shown.err.count("\n") == 1
        assert json.loads(shown.out)["id"] == "exchange-1"


def test_a_line_that_is_no_exchange_is_named_by_its_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "lines.jsonl", json.dumps(recorded(1)) + "\n" + "{broken\n")
    assert main(["inspect", "--json", "--set", "embedder.kind=none", file]) == 1
    shown = capsys.readouterr()
    assert [json.loads(line)["id"] for line in shown.out.splitlines()] == ["exchange-1"]
    assert f"{file}:2: not JSON" in shown.err


def test_inspect_refuses_an_unknown_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--set", "nothing=1", write(tmp_path / "one.json", recorded())]) == 2
    assert "nothing" in capsys.readouterr().err


# ---------------------------------------------------------------- health


@pytest.fixture
def answering() -> Callable[[int], str]:
    """An address that answers every path with this status."""
    servers: list[HTTPServer] = []

    def start(status: int) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = f"said {status} at {self.path}".encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"127.0.0.1:{servers[-1].server_address[1]}"

    yield start  # type: ignore[misc]
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (404, 1)])
def test_health_follows_the_answer(
    status: int, code: int, answering: Callable[[int], str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["health", "--admin", answering(status)]) == code
    assert capsys.readouterr().out == f"said {status} at /readyz\n"
    assert main(["health", "--health", answering(status)]) == code
    assert capsys.readouterr().out == f"said {status} at /-/readyz\n"


def test_health_without_an_answer_is_1_and_a_wrong_address_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--admin", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.startswith("semhealth: no answer from 127.0.0.1:1: ")
    assert main(["health", "--admin", "here"]) == 2
    assert capsys.readouterr().err.startswith("semhealth: expected host:port")


def test_health_and_suggest_reach_an_admin_port_with_tls_and_a_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key, token = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "token"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    token.write_text("a-token-of-the-tests\n")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_shown = self.headers["Authorization"] == "Bearer a-token-of-the-tests"
            body = b"ready\n" if self.path == "/readyz" else b'{"records":[]}'
            self.send_response(200 if is_shown or self.path == "/readyz" else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url, trusted = f"https://127.0.0.1:{server.server_address[1]}", ["--ca-file", str(cert)]
    suggest = ["objectives", "suggest", "--url", url]
    try:
        assert main(["health", "--admin", url, *trusted]) == 0
        assert main(["health", "--admin", url]) == 1
        assert "certificate verify failed" in capsys.readouterr().err
        assert main([*suggest, *trusted]) == 1
        assert "asks for its token; name the file that holds it with --token-file" in capsys.readouterr().err
        assert main([*suggest, *trusted, "--token-file", str(token)]) == 1
        assert "has no records yet" in capsys.readouterr().err
        monkeypatch.setenv("SEMHEALTH_ADMIN_TOKEN", "a-token-of-the-tests")
        assert main([*suggest, *trusted]) == 1
        assert "has no records yet" in capsys.readouterr().err
        assert main([*suggest, "--token-file", str(tmp_path / "nothing")]) == 2
    finally:
        server.shutdown()
        server.server_close()
