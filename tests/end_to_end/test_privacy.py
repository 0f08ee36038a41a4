"""No canary that went through the sidecar comes out of it anywhere but to the other side of the wire."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, Script, Sidecar, Upstream, call, respond, wait_until

# Each is one place where something private travels.
CANARIES = {
    "the API key": "sk-canary-key-4711",
    "the x-api-key": "sk-ant-canary-key-4712",
    "the api-key": "canaryazurekey4713",
    "a header of the request": "canaryrequestheader",
    "a header of the answer": "canaryanswerheader",
    "a cookie": "canarycookie",
    "the query string": "canaryquery",
    "the prompt": "canaryprompt",
    "the system prompt": "canarysystem",
    "the passages": "canarypassage",
    "the answer": "canaryanswer",
    "the reasoning": "canaryreasoning",
    "the user": "canary.person@example.test",
    "the arguments of a tool": "canaryargument",
    "the schema of an answer": "canaryproperty",
    "the message of an error": "canaryerrormessage",
    "what is not JSON": "canarygarbage",
    "a name nobody knows": "canaryunknown",
}
PRIVATE_HEADERS = {
    "Authorization": f"Bearer {CANARIES['the API key']}",
    "x-api-key": CANARIES["the x-api-key"],
    "api-key": CANARIES["the api-key"],
    "X-Private": CANARIES["a header of the request"],
    "Cookie": f"session={CANARIES['a cookie']}",
}
ANSWER_HEADERS = (f"X-Secret: {CANARIES['a header of the answer']}", f"Set-Cookie: s={CANARIES['a cookie']}")
QUERY = f"?key={CANARIES['the query string']}"


class Receiver:
    """An OTLP/HTTP receiver that keeps what it is sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.bodies.append(str(self.headers).encode() + self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass
class Watched:
    """A sidecar at its most talkative, in front of an upstream that answers by path."""

    sidecar: Sidecar
    upstream: Upstream
    receiver: Receiver
    sent: list[str] = field(default_factory=list)

    def send(self, path: str, body: object, **headers: str) -> bytes:
        self.sent.append(path)
        try:
            return call(f"{self.sidecar.base}{path}{QUERY}", body, {**PRIVATE_HEADERS, **headers}).body
        except (OSError, http.client.HTTPException):
            return b""


def _sse(*events: object) -> bytes:
    return b"".join(
        b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n" for event in events
    )


def _chunk(delta: object, finish: str | None = None) -> dict[str, Any]:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


CALL = {
    "name": "find",
    "arguments": json.dumps({CANARIES["the schema of an answer"]: CANARIES["the arguments of a tool"]}),
}
WHOLE = {
    "id": "c",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": f"The {CANARIES['the answer']} is here.",
                "reasoning_content": CANARIES["the reasoning"],
                "tool_calls": [{"id": "t", "type": "function", "function": CALL}],
            },
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 4},
}
STREAM = _sse(
    _chunk({"role": "assistant", "content": CANARIES["the answer"]}),
    _chunk({"reasoning_content": CANARIES["the reasoning"]}),
    _chunk({"tool_calls": [{"index": 0, "function": CALL}]}),
    CANARIES["what is not JSON"].encode(),
    _chunk({}, "stop"),
    b"[DONE]",
)
ERROR = {
    "error": {
        "message": f"no such account: {CANARIES['the message of an error']}, {CANARIES['the user']}",
        "type": "invalid_request_error",
        "code": "no_account",
        "param": CANARIES["the schema of an answer"],
    }
}
CLAUDE = b"".join(
    b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), json.dumps(event).encode())
    for event in (
        {"type": "message_start", "message": {"id": "m", "model": "c", "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": CANARIES["the answer"]},
        },
        {"type": "error", "error": {"type": "overloaded_error", "message": CANARIES["the message of an error"]}},
    )
)


def _answer(connection: socket.socket, head: bytes, body: bytes) -> None:
    """What the upstream says, by the first word of the path."""
    word = head.split()[1].split(b"/")[1].split(b"?")[0].decode()
    kind = ("Content-Type: text/event-stream", *ANSWER_HEADERS)
    json_kind = ("Content-Type: application/json", *ANSWER_HEADERS)
    match word:
        case "whole":
            respond(connection, json.dumps(WHOLE).encode(), "200 OK", *json_kind)
        case "stream":
            respond(connection, STREAM, "200 OK", *kind)
        case "cut":
            respond(connection, STREAM[:200].ljust(200), "200 OK", *kind, "X-Cut: yes")
        case "half":
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
            connection.sendall(f"{ANSWER_HEADERS[0]}\r\nContent-Length: 100000\r\n\r\n".encode() + STREAM[:300])
        case "slow":
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + STREAM[:300])
            for _ in range(100):
                time.sleep(0.05)
                connection.sendall(_sse(_chunk({"content": CANARIES["the answer"]})))
        case "error":
            respond(connection, json.dumps(ERROR).encode(), "400 Bad Request", *json_kind)
        case "throttled":
            respond(connection, json.dumps(ERROR).encode(), "429 Too Many", *json_kind, "Retry-After: 3")
        case "events":
            respond(connection, _sse(ERROR), "200 OK", *kind)
        case "claude":
            respond(connection, CLAUDE, "200 OK", *kind)
        case "garbage":
            connection.sendall(f"{CANARIES['what is not JSON']} is no HTTP\r\n\r\n".encode())
        case "broken":
            respond(connection, CANARIES["what is not JSON"].encode(), "200 OK", *json_kind)
        case _:
            respond(connection, body, "200 OK", f"Content-Type: text/{CANARIES['a name nobody knows']}")


def _asked(**more: object) -> dict[str, Any]:
    passage = f"[1] The {CANARIES['the passages']} lies at the quay, and it is long enough to be one."
    return {
        "model": "m",
        "user": CANARIES["the user"],
        "messages": [
            {"role": "system", "content": f"You are {CANARIES['the system prompt']}."},
            {"role": "user", "content": f"Context:\n{passage}\n\nQuestion: what is {CANARIES['the prompt']}?"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "find",
                    "parameters": {
                        "type": "object",
                        "properties": {CANARIES["the schema of an answer"]: {"type": "integer"}},
                    },
                },
            }
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "harbour",
                "schema": {
                    "type": "object",
                    "properties": {CANARIES["the schema of an answer"]: {"const": CANARIES["the prompt"]}},
                    "required": [CANARIES["the schema of an answer"]],
                },
            },
        },
        **more,
    }


@pytest.fixture(scope="module")
def watched(new_directory: Callable[[], Any]) -> Iterator[Watched]:
    """Everything has been sent, and the sidecar has said all that it says; it still runs."""
    upstream, receiver = Upstream(_answer), Receiver()
    dead = Upstream(_answer)
    dead.close()
    config = new_directory() / "semhealth.yaml"
    config.write_text(
        f"routes:\n  - {{name: main, upstream: '{upstream.base}'}}\n"
        f"  - {{name: dead, prefix: /dead, upstream: '{dead.base}'}}\n"
        "label_headers: {team: X-Team}\nlog_level: debug\n"
    )
    sidecar = Sidecar(
        new_directory(),
        "--config", str(config),
        "--set", "embedder.cpu_share=1",
        "--set", f"exporters.otlp.endpoint={receiver.endpoint}",
        "--set", "exporters.otlp.interval=300ms",
    )  # fmt: skip
    try:
        sidecar.metrics_when(lambda m: m.total("semantic_health_relevance_ready") == 1, "the embedder is ready")
        watched = Watched(sidecar, upstream, receiver)
        _send_everything(watched)
        wait_until(lambda: len(sidecar.logged()) >= len(watched.sent), "everything is recorded")
        exported = len(receiver.bodies)
        wait_until(lambda: len(receiver.bodies) > exported + 1, "it is exported")
        yield watched
    finally:
        sidecar.end()
        upstream.close()
        receiver.close()


def _send_everything(watched: Watched) -> None:
    chat, messages = "v1/chat/completions", "v1/messages"
    for word in ("whole", "stream", "cut", "half", "error", "throttled", "events", "garbage", "broken"):
        streams = word in ("stream", "cut", "half", "events")
        watched.send(f"/{word}/{chat}", _asked(stream=streams), **{"X-Team": "search"})
    watched.send(f"/claude/{messages}", _asked(stream=True, max_tokens=9))
    watched.send(f"/error/{messages}", _asked(max_tokens=9))
    watched.send(f"/dead/{chat}", _asked())
    watched.send(f"/echo/{CANARIES['a name nobody knows']}", CANARIES["the prompt"].encode())
    watched.send(f"/echo/{chat}", CANARIES["what is not JSON"].encode())
    watched.send(f"/whole/{chat}", json.dumps(_asked()).encode()[:-30])
    # A client that goes away in the middle of a stream.
    host, _, port = watched.sidecar.base.removeprefix("http://").partition(":")
    body = json.dumps(_asked(stream=True)).encode()
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=30) as client:
        told = "".join(f"{name}: {value}\r\n" for name, value in PRIVATE_HEADERS.items())
        head = f"POST /slow/{chat}{QUERY} HTTP/1.1\r\nHost: x\r\n{told}Content-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        client.recv(65536)
        client.recv(65536)
    watched.sent.append("/slow")
    # Requests that the sidecar itself refuses.
    for refused in (
        f"GET /{CANARIES['the query string']}\r\n\r\n",
        f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {CANARIES['a header of the request']}\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: x\r\n{CANARIES['a header of the request']}\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ):
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=30) as client:
            client.sendall(refused.encode())
            client.settimeout(5)
            client.recv(65536)


def found_in(said: str | bytes) -> list[str]:
    """The canaries that this has in it, upper or lower case."""
    lowered = said.lower() if isinstance(said, bytes) else said.lower().encode()
    return [name for name, canary in CANARIES.items() if canary.lower().encode() in lowered]


def test_everything_private_did_travel(watched: Watched) -> None:
    """Else the other tests would say nothing."""
    arrived = b"".join(watched.upstream.heads)
    for name in (
        "the API key",
        "the x-api-key",
        "the api-key",
        "a header of the request",
        "a cookie",
        "the query string",
    ):
        assert CANARIES[name].encode() in arrived
    echoed = watched.sidecar.base
    whole = call(f"{echoed}/whole/v1/chat/completions", _asked()).body
    assert {"the answer", "the reasoning", "the arguments of a tool"} <= set(found_in(whole))
    outcomes = {record["outcome"] for record in watched.sidecar.logged()}
    assert outcomes >= {"completed", "truncated", "error_event", "upstream_error", "client_disconnect"}
    validity = [record["validity"]["result"] for record in watched.sidecar.logged() if record["validity"]]
    assert {"not_json", "schema_violation"} & set(validity)
    assert any(record["relevance"]["scored"] for record in watched.sidecar.logged())


def test_no_canary_is_in_the_metrics(watched: Watched) -> None:
    assert found_in(watched.sidecar.metrics().text) == []
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    assert found_in(call(f"{watched.sidecar.admin}/metrics", headers=accept).body) == []


def test_no_canary_is_in_the_records(watched: Watched) -> None:
    records = call(f"{watched.sidecar.admin}/records?limit=1000").body
    assert len(json.loads(records)["records"]) >= len(watched.sent)
    assert found_in(records) == []
    assert found_in(call(f"{watched.sidecar.admin}/summary").body) == []


def test_no_canary_is_in_the_exchange_log(watched: Watched) -> None:
    assert found_in(watched.sidecar.log_path.read_bytes()) == []


def test_no_canary_is_in_what_is_exported(watched: Watched) -> None:
    told = b"".join(watched.receiver.bodies)
    assert b"semantic_health_exchanges_total" in told
    assert found_in(told) == []


def test_no_canary_is_in_an_error_of_the_sidecars_own(watched: Watched) -> None:
    for path in ("/dead/v1/chat/completions", "/garbage/v1/chat/completions"):
        body = watched.send(path, _asked())
        assert b'"source":"semhealth"' in body
        assert found_in(body) == []


def test_no_canary_is_in_the_output_even_at_debug(watched: Watched) -> None:
    """The last test: it stops the sidecar, so that its last words count too."""
    assert watched.sidecar.end() == 0
    assert watched.sidecar.stderr != ""
    assert found_in(watched.sidecar.stdout + watched.sidecar.stderr) == []
    assert "Traceback" not in watched.sidecar.stderr


def test_content_is_told_apart_by_a_hash_that_can_be_keyed_or_left_out(
    start: Callable[..., Sidecar], upstream: Callable[[Script], Upstream]
) -> None:
    base = upstream(_answer).base
    hashes = {}
    for kind in ("sha256", "hmac", "none"):
        sidecar = start(
            "--upstream", base, "--set", f"privacy.text_hash={kind}", env={"SEMHEALTH_HMAC_KEY": "a key of some length"}
        )
        call(f"{sidecar.base}/whole/v1/chat/completions", _asked())
        [record] = wait_until(sidecar.logged, "the record")
        hashes[kind] = record["text"]["sha256"]
        assert record["text"]["chars"] > 0
    assert hashes["none"] is None
    assert len(hashes["hmac"]) == len(hashes["sha256"]) == 64
    assert hashes["hmac"] != hashes["sha256"]


# ---------------------------------------------------------------- what the sidecar itself is entrusted with

OWN = {
    "the admin token": "canary-admin-token-4714",
    "a wrong admin token": "canary-wrong-token-4715",
    "the embedder's key": "canaryembedderkey4716",
    "the header for OTLP": "canaryotlpheader4717",
    "the user of OTLP": "canaryotlpuser4718",
    "the password of OTLP": "canaryotlppassword4719",
    "the user of the proxy": "canaryproxyuser4720",
    "the password of the proxy": "canaryproxypassword4721",
    "the key of the hashes": "canaryhashkey4722",
    "the user of a URL": "canaryurluser4723",
    "the password of a URL": "canaryurlpassword4724",
}
PAIRS = (("the user of the proxy", "the password of the proxy"), ("the user of OTLP", "the password of OTLP"))
SECRETS = {
    **OWN,
    **{f"{user}, coded": base64.b64encode(f"{OWN[user]}:{OWN[word]}".encode()).decode() for user, word in PAIRS},
    **CANARIES,
}
BEARER = {"Authorization": f"Bearer {OWN['the admin token']}"}
URL_PASSWORD = OWN["the password of a URL"]
USERINFO = f"{OWN['the user of a URL']}:{URL_PASSWORD}"


def secrets_in(said: str | bytes) -> list[str]:
    """The secrets, the sidecar's own among them, that this has in it."""
    lowered = said.lower() if isinstance(said, bytes) else said.lower().encode()
    return [name for name, secret in SECRETS.items() if secret.lower().encode() in lowered]


class Hostile:
    """A server that repeats all it was sent, as an error of the status that is its turn."""

    def __init__(self, *statuses: int) -> None:
        self.received: list[bytes] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = str(self.headers).encode() + self.rfile.read(int(self.headers["Content-Length"]))
                status = statuses[len(outer.received) % len(statuses)]
                outer.received.append(sent)
                self.send_response(status, OWN["the embedder's key"])
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass
class Entrusted:
    """A sidecar that holds every secret it can hold, among servers that mean it ill, after all went wrong."""

    sidecar: Sidecar
    config: Path
    heads: list[bytes]
    hostile: list[Hostile]
    answers: list[bytes]


@pytest.fixture(scope="module")
def entrusted(new_directory: Callable[[], Any]) -> Iterator[Entrusted]:
    upstream, proxy = Upstream(_answer), Upstream(_answer)
    embedding, otlp = Hostile(401, 500, 200), Hostile(400, 500, 200)
    config = new_directory() / "semhealth.yaml"
    good = (
        f"routes:\n  - {{name: main, upstream: '{upstream.base}'}}\n"
        "  - {name: proxied, prefix: /proxied, upstream: 'http://proxied.example'}\n"
        "log_level: debug\nprivacy: {text_hash: hmac}\n"
        "embedder:\n  kind: http\n  cpu_share: 1\n  http: {model: m, key_env: EMBED_KEY, failures: 1,\n"
        f"    calibrated_as: all-MiniLM-L6-v2@53aa51172d14, url: 'http://{embedding.address}/v1/embeddings'}}\n"
    )
    config.write_text(good)
    otlp_user = f"{OWN['the user of OTLP']}:{OWN['the password of OTLP']}"
    proxy_user = f"{OWN['the user of the proxy']}:{OWN['the password of the proxy']}"
    sidecar = Sidecar(
        new_directory(),
        "--config", str(config), "--set", "exporters.otlp.interval=300ms",
        env={
            "SEMHEALTH_ADMIN_TOKEN": OWN["the admin token"],
            "SEMHEALTH_HMAC_KEY": OWN["the key of the hashes"],
            "EMBED_KEY": OWN["the embedder's key"],
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{otlp_user}@{otlp.address}",
            "OTEL_EXPORTER_OTLP_HEADERS": f"x-otlp={OWN['the header for OTLP']}",
            "no_proxy": "127.0.0.1",  # for OTLP
            "http_proxy": f"http://{proxy_user}@127.0.0.1:{proxy.port}",
        },
    )  # fmt: skip
    answers: list[bytes] = []

    def ask(url: str, body: object = None, headers: dict[str, str] | None = None, method: str | None = None) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer = call(url, body, headers, method)
            answers.append(repr(answer.headers).encode() + answer.body)

    try:
        for word in ("whole", "stream", "half", "error", "garbage", "broken", "proxied/whole", "proxied/garbage"):
            with contextlib.suppress(OSError, http.client.HTTPException):
                call(f"{sidecar.base}/{word}/v1/chat/completions{QUERY}", _asked(), PRIVATE_HEADERS)
        for path in ("/", "/metrics", "/records", "/records/nothing", "/summary", "/livez", "/readyz", "/nothing"):
            for shown in (OWN["the admin token"], OWN["a wrong admin token"]):
                ask(f"{sidecar.admin}{path}", headers={"Authorization": f"Bearer {shown}"})
        for raw in (
            f"GET /{OWN['a wrong admin token']} HTTP/9\r\n\r\n",
            f"GET /livez HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n{OWN['a wrong admin token']}\r\n\r\n",
        ):
            host, _, port = sidecar.admin.removeprefix("http://").partition(":")
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=10) as client:
                client.sendall(raw.encode())
                client.recv(65536)
        # A configuration that cannot be used, and an analyst that dies.
        config.write_text(good.replace("http://proxied.example", f"http://{USERINFO}@proxied.example"))
        ask(f"{sidecar.admin}/-/reload", b"", BEARER)
        os.kill(sidecar.popen.pid, signal.SIGHUP)
        config.write_text(good)
        os.kill(sidecar.pid("collector.app"), signal.SIGKILL)
        time.sleep(0.2)
        call(f"{sidecar.base}/whole/v1/chat/completions", _asked(), PRIVATE_HEADERS)
        wait_until(lambda: len(embedding.received) >= 3, "the embedding server was asked")
        told = len(otlp.received)
        wait_until(lambda: len(otlp.received) > told + 2, "it was exported")
        for path in ("/metrics", "/records?limit=1000", "/summary"):
            ask(f"{sidecar.admin}{path}", headers=BEARER)
        yield Entrusted(sidecar, config, upstream.heads + proxy.heads, [embedding, otlp], answers)
    finally:
        sidecar.end()
        upstream.close()
        proxy.close()
        embedding.close()
        otlp.close()


def test_the_secrets_did_what_they_are_for(entrusted: Entrusted) -> None:
    """Else the other tests would say nothing."""
    embedding, otlp = (b"".join(each.received) for each in entrusted.hostile)
    assert OWN["the embedder's key"].encode() in embedding
    assert OWN["the header for OTLP"].encode() in otlp
    assert "the user of the proxy, coded" in secrets_in(b"".join(entrusted.heads))
    assert any(b"semantic_health_exchanges_total" in answer for answer in entrusted.answers)
    assert any(b"a bearer token is needed" in answer for answer in entrusted.answers)
    assert any(b"not shown since it may hold a key" in answer for answer in entrusted.answers)


def test_nothing_that_the_sidecar_says_or_keeps_has_a_secret_in_it(entrusted: Entrusted) -> None:
    sidecar = entrusted.sidecar
    assert [(secrets_in(answer), answer[:200]) for answer in entrusted.answers if secrets_in(answer)] == []
    assert secrets_in(sidecar.log_path.read_bytes()) == []
    otlp = b"".join(each.partition(b"\n\n")[2] for each in entrusted.hostile[1].received)
    assert b"semantic_health" in otlp
    assert secrets_in(otlp) == []
    kept = [path for path in sidecar.directory.glob("semhealth-*/*") if path.is_file()]
    assert [path for path in kept if secrets_in(path.read_bytes())] == []
    assert any(path.name == "settings.json" for path in kept)
    assert [path for path in kept if path.stat().st_mode & 0o077 and path.name == "settings.json"] == []
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (sidecar.popen.pid, *sidecar.pids().values())]
    assert secrets_in(b"".join(lines)) == []


def test_no_secret_is_in_the_output_of_the_sidecar_that_holds_them(entrusted: Entrusted) -> None:
    """Stops the sidecar, so that its last words count too."""
    assert entrusted.sidecar.end() == 0
    said = entrusted.sidecar.stdout + entrusted.sidecar.stderr
    assert "collector.app" in said or "analyst" in said
    assert secrets_in(said) == []
    assert "Traceback" not in said


MISPLACED = [
    f"upstream: http://{USERINFO}@a.example",
    f"upstream: [http://{USERINFO}@a.example]",
    f"upstream: http://a.example/?key={URL_PASSWORD}",
    f"routes: [{{name: a, upstream: 'https://{USERINFO}@a.example'}}]",
    f"routes: [{{name: a, upstream: 'http://a.example', proxy: 'http://{USERINFO}@b.example'}}]",
    f"upstream: http://a.example\nadmin_auth: {{token_file: {URL_PASSWORD}}}",
    f"upstream: http://a.example\nadmin_auth: {{token_env: {URL_PASSWORD}-}}",
    f"upstream: http://a.example\nprivacy: {{text_hash: hmac, hmac_key_env: {URL_PASSWORD}-}}",
    f"upstream: http://a.example\nexporters: {{otlp: {{endpoint: 'http://{USERINFO}@a.example'}}}}",
    f"upstream: http://a.example\nembedder: {{http: {{url: 'http://{USERINFO}@a.example/v1'}}}}",
    f"upstream: http://a.example\nembedder: {{kind: http, http: {{key_env: {URL_PASSWORD}-}}}}",
    f"upstream: http://a.example\nadmin: {USERINFO}@127.0.0.1:0",
]


@pytest.mark.parametrize("text", MISPLACED)
def test_a_secret_that_stands_where_it_must_not_is_refused_and_not_repeated(text: str, tmp_path: Path) -> None:
    file = tmp_path / "semhealth.yaml"
    file.write_text(text)
    for command in (["check", str(file)], ["run", "--config", str(file), "--listen", "127.0.0.1:0"]):
        ended = subprocess.run(
            [sys.executable, "-m", "collector.cli", *command],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert ended.returncode == 2
        assert ended.stdout + ended.stderr != b""
        assert secrets_in(ended.stdout + ended.stderr) == []
