"""The sidecar from its first second to its last: start, stop, signals, settings, and upstreams that are not there."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, Answer, Script, Sidecar, Simulator, Upstream, call, is_ok, respond, wait_until
from .load import requests

ANALYST = "collector.app"
READY = 20.0  # seconds; the promise is 2 on a machine that is not busy
CHAT = "/v1/chat/completions"


def chat(model: str = "sim-large", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Give me three ideas."}], **more}


def event(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}
    return b"data: %b\n\n" % json.dumps({"id": "c", "model": "slow", "choices": [choice]}).encode()


def slow_stream(events: int, pause: float) -> Script:
    """A stream that goes on for `events` times `pause` seconds."""

    def serve(connection: socket.socket, _head: bytes, _body: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for number in range(events):
            connection.sendall(event(f"{number} "))
            time.sleep(pause)
        connection.sendall(event("", "stop") + b"data: [DONE]\n\n")

    return serve


@pytest.fixture
def run_cli(new_directory: Callable[[], Path]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command to its end."""

    def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "SEMHEALTH_"))}
        return subprocess.run(
            [sys.executable, "-m", "collector.cli", *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=new_directory(),
            env={**clean, "PYTHONPATH": str(ROOT), **(env or {})},
        )

    return run


class Reader:
    """A client that reads a streamed answer in a thread while the test does something else."""

    def __init__(self, url: str, body: object) -> None:
        self.answer: Answer | None = None
        self.error: Exception | None = None

        def read() -> None:
            try:
                self.answer = call(url, body)
            except Exception as error:  # noqa: BLE001 - the test looks at whatever it was
                self.error = error

        self._thread = threading.Thread(target=read)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()


# ---------------------------------------------------------------- starting


def test_it_is_ready_soon_while_the_embedding_model_still_loads(
    start: Callable[..., Sidecar], simulator: Simulator, record_property: Callable[[str, object], None]
) -> None:
    sidecar = start("--upstream", simulator.base, embedder=True)
    record_property("ready_after", sidecar.ready_after)
    assert sidecar.ready_after < READY
    assert call(f"{sidecar.base}{CHAT}", chat()).status == 200
    wait_until(sidecar.logged, "the exchange is recorded")
    sidecar.metrics_when(lambda m: m.total("semantic_health_relevance_ready") == 1, "the model is loaded in the end")


def test_a_taken_port_is_one_clear_sentence(run_cli: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_cli("run", "--upstream", "http://127.0.0.1:1", "--listen", address, "--admin", "127.0.0.1:0")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"semhealth: listen: cannot listen on {address}: another process listens there; stop it, or choose another "
        "with --listen\n"
    )


def test_an_exchange_log_that_cannot_be_written_is_one_clear_sentence(run_cli: Callable[..., Any]) -> None:
    done = run_cli(
        "run", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
        "--exchange-log", "/proc/exchanges.jsonl",
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "semhealth: exchange log: cannot write /proc/exchanges.jsonl: No such file or directory; choose another file "
        "with --exchange-log\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--config", "no-such.yaml"], "no-such.yaml"),
        (["--upstream", "http://127.0.0.1:1", "--set", "analysis.stall_treshold=1s"], "stall_treshold"),
        (["--upstream", "http://127.0.0.1:1", "--set", "analysis.stall_threshold=soon"], "analysis.stall_threshold"),
        (["--upstream", "ftp://127.0.0.1"], "upstream"),
        ([], "upstream"),
    ],
    ids=["no file", "unknown key", "no duration", "no such scheme", "nothing"],
)
def test_settings_that_cannot_be_used_are_named_and_end_with_2(
    run_cli: Callable[..., Any], arguments: list[str], said: str
) -> None:
    done = run_cli("run", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert all(line.startswith("semhealth: ") for line in done.stderr.splitlines())


def test_nothing_stays_behind_after_a_failed_start(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        run_cli(
            "run", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", address,
            env={"TMPDIR": str(tmp_path)},
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- stopping


def test_sigterm_lets_a_running_stream_finish_and_flushes_the_log(
    start: Callable[..., Sidecar], upstream: Callable[[Script], Upstream], tmp_path: Path
) -> None:
    sidecar = start("--upstream", upstream(slow_stream(15, 0.1)).base, env={"TMPDIR": str(tmp_path)})
    assert len(list(tmp_path.iterdir())) == 1
    reader = Reader(f"{sidecar.base}{CHAT}", chat(stream=True))
    sidecar.metrics_when(lambda m: m.total("semantic_health_in_flight") == 1, "the stream runs")
    sidecar.popen.terminate()
    wait_until(lambda: not accepts(sidecar.base), "nothing new is accepted")
    reader.join()
    assert reader.error is None
    assert reader.answer is not None
    assert reader.answer.body.endswith(b"data: [DONE]\n\n")
    assert sidecar.wait() == 0
    [record] = sidecar.logged()
    assert (record["outcome"], record["text"]["chars"]) == ("completed", len("".join(f"{n} " for n in range(15))))
    assert list(tmp_path.iterdir()) == []  # the runtime directory is gone


def accepts(base: str) -> bool:
    host, _, port = base.removeprefix("http://").partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def test_sigterm_cuts_a_stream_that_outlasts_the_drain_timeout(
    start: Callable[..., Sidecar], upstream: Callable[[Script], Upstream]
) -> None:
    sidecar = start("--upstream", upstream(slow_stream(300, 0.1)).base, "--set", "drain_timeout=1s")
    reader = Reader(f"{sidecar.base}{CHAT}", chat(stream=True))
    sidecar.metrics_when(lambda m: m.total("semantic_health_in_flight") == 1, "the stream runs")
    began = time.monotonic()
    sidecar.popen.terminate()
    assert sidecar.wait() == 0
    assert 0.9 < time.monotonic() - began < 12
    reader.join()
    assert reader.answer is None or b"[DONE]" not in reader.answer.body
    [record] = sidecar.logged()
    assert (record["outcome"], record["phase"]) == ("truncated", "streaming")


def test_sigint_stops_it_too(start: Callable[..., Sidecar], simulator: Simulator) -> None:
    sidecar = start("--upstream", simulator.base)
    sidecar.popen.send_signal(signal.SIGINT)
    assert sidecar.wait() == 0
    assert "Traceback" not in sidecar.stderr


def test_records_of_the_last_moment_are_in_the_log(start: Callable[..., Sidecar], simulator: Simulator) -> None:
    sidecar = start("--upstream", simulator.base)
    for number in range(10):
        path, body = requests(number)
        call(f"{sidecar.base}{path}", body)
    sidecar.popen.terminate()
    assert sidecar.wait() == 0
    assert len(sidecar.logged()) == 10


# ---------------------------------------------------------------- the exchange log


def test_sighup_reopens_an_exchange_log_that_was_moved(start: Callable[..., Sidecar], simulator: Simulator) -> None:
    sidecar = start("--upstream", simulator.base)
    assert stat.S_IMODE(sidecar.log_path.stat().st_mode) == 0o600
    call(f"{sidecar.base}{CHAT}", chat())
    wait_until(sidecar.logged, "the first record")
    moved = sidecar.log_path.with_suffix(".moved")
    sidecar.log_path.rename(moved)
    sidecar.popen.send_signal(signal.SIGHUP)
    wait_until(sidecar.log_path.exists, "the log is opened anew")
    call(f"{sidecar.base}{CHAT}", chat())
    wait_until(sidecar.logged, "the second record")
    assert len(moved.read_bytes().splitlines()) == 1
    assert len(sidecar.logged()) == 1
    assert stat.S_IMODE(sidecar.log_path.stat().st_mode) == 0o600


# ---------------------------------------------------------------- health


def test_the_health_port_answers_health_and_nothing_else(
    start: Callable[..., Sidecar], simulator: Simulator, run_cli: Callable[..., Any]
) -> None:
    sidecar = start("--upstream", simulator.base, "--health", "127.0.0.1:0")
    assert call(f"{sidecar.health}/-/healthz").body == b"ok\n"
    assert call(f"{sidecar.health}/-/readyz").body == b"ready\n"
    assert call(f"{sidecar.health}{CHAT}", chat()).status == 404
    assert call(f"{sidecar.admin}/livez").status == 200
    assert simulator.counts()["in_flight"] == 0
    address = sidecar.health.removeprefix("http://")
    asked = run_cli("health", "--health", address)
    assert (asked.returncode, asked.stdout) == (0, "ready\n")
    asked = run_cli("health", "--admin", sidecar.admin.removeprefix("http://"))
    assert (asked.returncode, asked.stdout) == (0, "ready\n")
    asked = run_cli("health", env={"SEMHEALTH_ADMIN": sidecar.admin.removeprefix("http://")})
    assert asked.returncode == 0
    sidecar.end()
    asked = run_cli("health", "--health", address)
    assert asked.returncode == 1
    assert asked.stderr.startswith(f"semhealth: no answer from {address}: ")


def test_the_proxy_says_it_is_well_without_an_analyst(start: Callable[..., Sidecar], simulator: Simulator) -> None:
    sidecar = start("--upstream", simulator.base, "--health", "127.0.0.1:0")
    analyst = sidecar.pid(ANALYST)
    os.kill(analyst, signal.SIGSTOP)
    try:
        for address in (sidecar.base, sidecar.health):
            assert is_ok(f"{address}/-/healthz")
            assert is_ok(f"{address}/-/readyz")
        assert call(f"{sidecar.base}{CHAT}", chat()).status == 200
    finally:
        os.kill(analyst, signal.SIGCONT)


# ---------------------------------------------------------------- upstreams and routes


def test_an_unreachable_upstream_is_a_502_that_names_semhealth(start: Callable[..., Sidecar], free_port: int) -> None:
    sidecar = start("--upstream", f"http://127.0.0.1:{free_port}")
    answer = call(f"{sidecar.base}{CHAT}", chat())
    assert answer.status == 502
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert (error["source"], error["type"]) == ("semhealth", "upstream_unreachable")
    [record] = wait_until(sidecar.logged, "the record")
    assert (record["status"], record["outcome"], record["error"]["source"]) == (502, "upstream_error", "sidecar")
    sidecar.metrics_when(
        lambda m: m.total("semantic_health_errors_total", source="sidecar") == 1, "the error is counted as ours"
    )


def test_an_upstream_that_does_not_answer_in_time_is_a_504(
    start: Callable[..., Sidecar], upstream: Callable[[Script], Upstream]
) -> None:
    silent = upstream(lambda connection, _head, _body: time.sleep(10))
    sidecar = start("--upstream", silent.base, "--set", "proxy.response_timeout=300ms")
    answer = call(f"{sidecar.base}{CHAT}", chat())
    assert answer.status == 504
    assert answer.json()["error"]["source"] == "semhealth"
    [record] = wait_until(sidecar.logged, "the record")
    assert (record["status"], record["error"]["kind"], record["error"]["source"]) == (504, "timeout", "sidecar")


ROUTES = """
routes:
  - name: fast
    prefix: /fast
    upstream: {fast}
    labels: {{tier: gold}}
  - name: deep
    prefix: /fast/deep
    upstream: {deep}/v1
label_headers:
  team: X-Team
"""


@pytest.fixture
def two_routes(
    start: Callable[..., Sidecar], simulator: Simulator, upstream: Callable[[Script], Upstream], tmp_path: Path
) -> tuple[Sidecar, Upstream]:
    """`/fast` is the simulator, `/fast/deep` a scripted upstream under `/v1`."""
    deep = upstream(lambda connection, _head, _body: respond(connection, b'{"deep": true}'))
    config = tmp_path / "semhealth.yaml"
    config.write_text(ROUTES.format(fast=simulator.base, deep=deep.base))
    return start("--config", str(config)), deep


def test_two_routes_take_their_prefixes_and_the_longest_wins(two_routes: tuple[Sidecar, Upstream]) -> None:
    sidecar, deep = two_routes
    assert call(f"{sidecar.base}/fast{CHAT}", chat()).json()["object"] == "chat.completion"
    assert call(f"{sidecar.base}/fast/deep/things?a=1").json() == {"deep": True}
    assert deep.heads[0].split(b"\r\n")[0] == b"GET /v1/things?a=1 HTTP/1.1"
    wait_until(lambda: len(sidecar.logged()) == 2, "both are recorded")
    assert sorted(record["route"] for record in sidecar.logged()) == ["deep", "fast"]
    assert [record["route"] for record in sidecar.records("&route=deep")] == ["deep"]


def test_no_route_is_a_404_that_names_semhealth_and_is_counted(two_routes: tuple[Sidecar, Upstream]) -> None:
    sidecar, _ = two_routes
    answer = call(f"{sidecar.base}/fastest/chat", chat())
    assert answer.status == 404
    assert answer.json()["error"]["source"] == "semhealth"
    sidecar.metrics_when(lambda m: m.total("semantic_health_refused_total", reason="no_route") == 1, "it is counted")
    assert sidecar.logged() == []


def test_labels_of_routes_and_headers_reach_the_metrics(two_routes: tuple[Sidecar, Upstream]) -> None:
    sidecar, _ = two_routes
    call(f"{sidecar.base}/fast{CHAT}", chat(), {"X-Team": "search"})
    call(f"{sidecar.base}/fast{CHAT}", chat())
    call(f"{sidecar.base}/fast/deep/things", b"{}", {"x-team": "search"})
    name = "semantic_health_exchanges_total"
    metrics = sidecar.metrics_when(lambda m: m.total(name) == 3, "all three are counted")
    assert metrics.total(name, route="fast", tier="gold", team="search") == 1
    assert metrics.total(name, route="fast", tier="gold", team="unknown") == 1
    assert metrics.total(name, route="deep", tier="unknown", team="search") == 1


def test_two_instances_live_side_by_side(start: Callable[..., Sidecar], simulator: Simulator) -> None:
    one, other = start("--upstream", simulator.base), start("--upstream", simulator.base)
    call(f"{one.base}{CHAT}", chat())
    call(f"{one.base}{CHAT}", chat())
    call(f"{other.base}{CHAT}", chat())
    for sidecar, number in ((one, 2), (other, 1)):
        sidecar.metrics_when(lambda m, n=number: m.total("semantic_health_exchanges_total") == n, "each its own")
        wait_until(lambda s=sidecar, n=number: len(s.logged()) == n, "the log has them too")
    assert one.end() == 0
    assert call(f"{other.base}{CHAT}", chat()).status == 200


def test_a_provider_nobody_knows_yields_status_timing_and_sizes(
    start: Callable[..., Sidecar], upstream: Callable[[Script], Upstream]
) -> None:
    stream = (b'event: word\ndata: {"w": "one"}\n\n', b": breathing\n\n", b'event: word\ndata: {"w": "two"}\n\n')

    def serve(connection: socket.socket, head: bytes, body: bytes) -> None:
        if b" /speak " not in head.split(b"\r\n")[0]:
            respond(connection, body, "201 Created", "Content-Type: application/json")
            return
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for piece in stream:
            connection.sendall(piece)
            time.sleep(0.05)

    sidecar = start("--upstream", upstream(serve).base)
    sent = json.dumps({"anything": ["at", "all"]}).encode()
    echoed = call(f"{sidecar.base}/echo?key=none", sent)
    spoken = call(f"{sidecar.base}/speak", b"{}")
    assert (echoed.status, echoed.body) == (201, sent)
    assert spoken.body == b"".join(stream)
    wait_until(lambda: len(sidecar.logged()) == 2, "both are recorded")
    first, second = sidecar.logged()
    assert (first["dialect"], first["transport"], first["status"]) == ("unknown", "json", 201)
    assert (first["outcome"], first["bytes_in"], first["bytes_out"]) == ("completed", len(sent), len(sent))
    assert 0 <= first["timing"]["first_byte"] <= first["timing"]["duration"] < 10
    assert first["usage"] is None
    assert (second["dialect"], second["transport"], second["stream"]) == ("unknown", "sse", True)
    assert (second["outcome"], second["frames"]["data"], second["frames"]["comments"]) == ("completed", 2, 1)
    assert second["bytes_out"] == sum(map(len, stream))
    assert second["timing"]["duration"] >= 0.1


def test_a_client_that_goes_away_cancels_the_upstream(
    start: Callable[..., Sidecar], new_directory: Callable[[], Path]
) -> None:
    slow = Simulator(new_directory(), "--gap", "0.1")
    try:
        sidecar = start("--upstream", slow.base)
        host, _, port = sidecar.base.removeprefix("http://").partition(":")
        body = json.dumps(chat(stream=True)).encode()
        with socket.create_connection((host, int(port)), timeout=30) as client:
            head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            received = b""
            while b'"content":"' not in received.replace(b'"content":""', b""):
                received += client.recv(65536)
        wait_until(lambda: slow.counts()["cancelled"] == 1, "the upstream is told")
        [record] = wait_until(sidecar.logged, "the record")
        assert (record["outcome"], record["phase"]) == ("client_disconnect", "streaming")
    finally:
        slow.end()
