"""Upstreams over TLS, over IPv6, behind forward proxies and behind names that move are reached as a service would."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Sidecar, call

from .conftest import Start, address_of
from .stage import Listener, Script, ScriptedUpstream, Stage, until
from .test_messages import AGAIN, CHUNKS, EXPECT, KIB, OK, answering, framed, request_of
from .test_tunnels import SWITCHED, UPGRADE
from .wires import Ended, Head, Wire

NAME = "private.test"  # a name that no resolver knows (RFC 6761, 6.2)

# ---------------------------------------------------------------- TLS


class Authority:
    """A private CA, with a certificate of its own making for the upstream and one for the client."""

    def __init__(self, home: Path, openssl: str) -> None:
        self.home = home
        self._openssl = openssl
        self._run("req", "-x509", *self._new_key("ca"), "-out", "ca.pem", "-subj", "/CN=Private CA", "-days", "2")
        for name in ("upstream", "client"):
            (home / "names").write_text(f"subjectAltName=DNS:localhost,DNS:{NAME}\n")
            self._run("req", *self._new_key(name), "-out", "request.pem", "-subj", f"/CN={name}")
            self._run(
                "x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2",
                "-extfile", "names", "-out", f"{name}.pem",
            )  # fmt: skip

    def _run(self, *arguments: str) -> None:
        subprocess.run([self._openssl, *arguments], cwd=self.home, check=True, capture_output=True)

    @staticmethod
    def _new_key(name: str) -> tuple[str, ...]:
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key")

    def path(self, name: str) -> str:
        return str(self.home / name)

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("upstream.pem"), self.path("upstream.key"))
        context.load_verify_locations(self.path("ca.pem"))
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.path("ca.pem"))
        context.load_cert_chain(self.path("client.pem"), self.path("client.key"))
        return context

    @property
    def settings(self) -> tuple[str, ...]:
        keys = {"ca_file": "ca.pem", "client_cert": "client.pem", "client_key": "client.key"}
        return tuple(
            word for key, name in keys.items() for word in ("--set", f"proxy.tls.{key}={self.path(name)}")
        )  # fmt: skip


@pytest.fixture(scope="module")
def authority(needs_binary: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), needs_binary("openssl"))


@pytest.fixture(scope="module")
def over_tls(authority: Authority) -> Iterator[ScriptedUpstream]:
    upstream = ScriptedUpstream()
    context = authority.server()
    upstream.wrap = lambda plain: context.wrap_socket(plain, server_side=True)
    yield upstream
    upstream.close()


@pytest.fixture(scope="module")
def tls_stage(authority: Authority, over_tls: ScriptedUpstream, start_sidecar: Start) -> Stage:
    sidecar = start_sidecar("--upstream", f"https://localhost:{over_tls.port}", *authority.settings)

    def direct() -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", over_tls.port))
        return authority.client().wrap_socket(plain, server_hostname="localhost")

    return Stage(over_tls, address_of(sidecar), direct, b"localhost:%d" % over_tls.port)


def _ask(request: bytes, response: bytes) -> tuple[Script, Script]:
    def client(wire: Wire) -> None:
        for sent in (request, AGAIN):
            wire.send(sent)
            wire.response()

    def upstream(wire: Wire) -> None:
        wire.send(OK if wire.request().startswith(b"GET /again ") else response)

    return client, upstream


def _chunked_answer(size: int) -> bytes:
    line, body = framed(size, "chunks of 4096")
    return b"HTTP/1.1 200 OK\r\n" + line + b"\r\n" + body


def _expectation() -> tuple[Script, Script]:
    def client(wire: Wire) -> None:
        wire.send(EXPECT + b"Content-Length: 5\r\n\r\n")
        wire.head()
        wire.send(b"hello")
        wire.response()

    def upstream(wire: Wire) -> None:
        head = wire.head()
        wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        wire.body(head)
        wire.send(OK)

    return client, upstream


def _tunnel() -> tuple[Script, Script]:
    def client(wire: Wire) -> None:
        wire.send(UPGRADE)
        wire.head()
        for _ in range(5):
            wire.send(b"ping")
            wire.take(4)

    def upstream(wire: Wire) -> None:
        wire.head()
        wire.send(SWITCHED)
        for _ in range(5):
            wire.take(4)
            wire.send(b"pong")

    return client, upstream


def _cut() -> tuple[Script, Script]:
    def client(wire: Wire) -> None:
        wire.send(AGAIN)
        wire.head()
        wire.rest()

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n0123")
        wire.leave("fin")

    return client, upstream


def _left() -> tuple[Script, Script]:
    def client(wire: Wire) -> None:
        wire.send(AGAIN)
        wire.head()
        wire.leave("fin")

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        wire.gone()

    return client, upstream


PLAYS = {
    "GET": _ask(request_of(b"GET", b"/a%2Fb?c"), OK),
    "an upload of 1 MiB": _ask(request_of(lines=framed(KIB * KIB, "length")[0], body=b"x" * KIB * KIB), OK),
    "an answer of 1 MiB in chunks": _ask(request_of(), _chunked_answer(KIB * KIB)),
    "trailers": _ask(request_of(lines=b"Transfer-Encoding: chunked\r\n", body=CHUNKS["trailers"]), _chunked_answer(9)),
    "early hints": _ask(request_of(), b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK),
    "an expectation": _expectation(),
    "a tunnel": _tunnel(),
    "an answer that is cut": _cut(),
    "a client that leaves": _left(),
}


@pytest.mark.parametrize("name", PLAYS)
def test_an_upstream_with_a_private_ca_that_wants_a_client_certificate(tls_stage: Stage, name: str) -> None:
    tls_stage.same(*PLAYS[name])


def test_without_a_client_certificate_such_an_upstream_is_not_reached(
    authority: Authority, over_tls: ScriptedUpstream, start_sidecar: Start
) -> None:
    sidecar = start_sidecar("--upstream", f"https://localhost:{over_tls.port}", *authority.settings[:2])
    over_tls.begin(lambda wire: None)
    answer = call(f"{sidecar.base}/v1/x")
    over_tls.end()
    assert answer.status == 502
    assert answer.json()["error"]["source"] == "semhealth"


# ---------------------------------------------------------------- IPv6


@pytest.fixture(scope="module")
def ipv6_stage(start_sidecar: Start) -> Iterator[Stage]:
    try:
        upstream = ScriptedUpstream("::1")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    sidecar = start_sidecar("--listen", "[::1]:0", "--upstream", f"http://[::1]:{upstream.port}")
    yield Stage(upstream, address_of(sidecar))
    upstream.close()


@pytest.mark.parametrize("name", PLAYS)
def test_an_upstream_and_a_listener_of_ipv6(ipv6_stage: Stage, name: str) -> None:
    ipv6_stage.same(*PLAYS[name])


# ---------------------------------------------------------------- forward proxies


class ForwardProxy(Listener):
    """Makes tunnels to one upstream, whatever host it is asked for; keeps the heads of what it is asked."""

    def __init__(self, to_port: int, refuses_with: bytes = b"") -> None:
        self.heads: list[bytes] = []
        self._to_port = to_port
        self._refuses_with = refuses_with
        super().__init__()

    def serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += connection.recv(4096)
            self.heads.append(head)
            if self._refuses_with:
                connection.sendall(b"HTTP/1.1 " + self._refuses_with + b"\r\nContent-Length: 0\r\n\r\n")
                return
            with socket.create_connection(("127.0.0.1", self._to_port)) as upstream:
                connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                threading.Thread(target=self._copy, args=(upstream, connection), daemon=True).start()
                self._copy(connection, upstream)

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def plain() -> Iterator[ScriptedUpstream]:
    """Stands for the proxy of plain upstreams: it is sent what the upstream would be sent, and answers."""
    upstream = ScriptedUpstream()
    yield upstream
    upstream.close()


@pytest.fixture(scope="module")
def forward_proxy(over_tls: ScriptedUpstream) -> Iterator[ForwardProxy]:
    proxy = ForwardProxy(over_tls.port)
    yield proxy
    proxy.close()


@pytest.fixture(scope="module")
def refusing() -> Iterator[ForwardProxy]:
    proxy = ForwardProxy(0, b"407 Proxy Authentication Required")
    yield proxy
    proxy.close()


@pytest.fixture(scope="module")
def behind_proxies(
    authority: Authority,
    plain: ScriptedUpstream,
    forward_proxy: ForwardProxy,
    refusing: ForwardProxy,
    start_sidecar: Start,
    tmp_path_factory: pytest.TempPathFactory,
) -> Sidecar:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[1]
    path = tmp_path_factory.mktemp("settings") / "semhealth.yaml"
    path.write_text(f"""
upstream: https://{NAME}
routes:
  - {{name: plain, prefix: /plain, upstream: "http://plain.test:8000/base"}}
  - {{name: bare, prefix: /bare, upstream: "http://plain.test"}}
  - {{name: exempt, prefix: /exempt, upstream: "https://exempt.test"}}
  - {{name: none, prefix: /none, upstream: "https://none.test", proxy: none}}
  - {{name: refused, prefix: /refused, upstream: "https://refused.test", proxy: "http://127.0.0.1:{refusing.port}"}}
  - {{name: nobody, prefix: /nobody, upstream: "https://nobody.test", proxy: "http://127.0.0.1:{nobody}"}}
  - {{name: nobody-plain, prefix: /deaf, upstream: "http://nobody.test", proxy: "http://127.0.0.1:{nobody}"}}
""")
    env = {
        "HTTPS_PROXY": f"http://made-up:pass%20word@127.0.0.1:{forward_proxy.port}",
        "http_proxy": f"http://made-up:pass%20word@127.0.0.1:{plain.port}",
        "NO_PROXY": "localhost,.test2,exempt.test:443",
    }
    return start_sidecar("--config", str(path), *authority.settings, env=env)


@pytest.mark.parametrize("name", PLAYS)
def test_an_upstream_over_tls_behind_a_proxy_of_the_environment(
    authority: Authority, over_tls: ScriptedUpstream, forward_proxy: ForwardProxy, behind_proxies: Sidecar, name: str
) -> None:
    def direct() -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", over_tls.port))
        return authority.client().wrap_socket(plain, server_hostname=NAME)

    Stage(over_tls, address_of(behind_proxies), direct, NAME.encode()).same(*PLAYS[name])
    assert (
        forward_proxy.heads[-1]
        == (
            f"CONNECT {NAME}:443 HTTP/1.1\r\nHost: {NAME}:443\r\n"
            "Proxy-Authorization: Basic bWFkZS11cDpwYXNzIHdvcmQ=\r\n\r\n"
        ).encode()
    )


@pytest.mark.parametrize(
    ("asked", "line", "host"),
    [
        (b"GET /plain/v1/a%2Fb?c", b"GET http://plain.test:8000/base/v1/a%2Fb?c HTTP/1.1", b"plain.test:8000"),
        (b"POST /plain", b"POST http://plain.test:8000/base HTTP/1.1", b"plain.test:8000"),
        (b"GET /bare?x", b"GET http://plain.test/?x HTTP/1.1", b"plain.test"),
        (b"GET /bare//", b"GET http://plain.test// HTTP/1.1", b"plain.test"),
    ],
)
def test_a_plain_upstream_behind_a_proxy_is_asked_for_in_absolute_form(
    plain: ScriptedUpstream, behind_proxies: Sidecar, asked: bytes, line: bytes, host: bytes
) -> None:
    heads: list[bytes] = []

    def client(wire: Wire) -> None:
        wire.send(asked + b" HTTP/1.1\r\nX-A: 1\r\nHost: <host>\r\nX-B: 2\r\n\r\n")
        wire.response()

    def upstream(wire: Wire) -> None:
        heads.append(wire.request())
        wire.send(OK)

    heard = Stage(plain, address_of(behind_proxies)).through(client, upstream)
    assert heads == [
        line
        + b"\r\nX-A: 1\r\nHost: "
        + host
        + b"\r\nProxy-Authorization: Basic bWFkZS11cDpwYXNzIHdvcmQ=\r\nX-B: 2\r\n\r\n"
    ]
    assert isinstance(heard.client[0], Head)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/exempt", "cannot connect to exempt.test: its name could not be resolved"),
        ("/none", "cannot connect to none.test: its name could not be resolved"),
        ("/refused", "cannot connect to refused.test: its forward proxy refused with 407"),
        ("/nobody", "cannot connect to nobody.test: its forward proxy could not be reached"),
        ("/deaf", "cannot connect to nobody.test: its forward proxy could not be reached"),
    ],
)
def test_what_a_proxy_has_to_do_with_a_failure_is_said(behind_proxies: Sidecar, path: str, message: str) -> None:
    answer = call(f"{behind_proxies.base}{path}")
    assert (answer.status, answer.json()["error"]["message"]) == (502, message)


def test_credentials_of_a_proxy_are_in_no_log(behind_proxies: Sidecar) -> None:
    told = behind_proxies.stdout + behind_proxies.stderr
    assert "cannot connect to refused.test" in told
    assert not {word for word in ("made-up", "pass%20word", "bWFkZS11") if word in told}


# ---------------------------------------------------------------- names that move


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that stands at /etc/hosts for processes that are started as long as the test runs, and for no others."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost moving.test\n")
    start = 'mount --bind "$0" /etc/hosts && exec "$@"'
    namespace = ("unshare", "--mount", "sh", "-c", start, str(hosts))
    try:
        tried = subprocess.run([*namespace, "cat", "/etc/hosts"], capture_output=True, timeout=20, check=False)
    except OSError:
        pytest.skip("unshare is not here, so a name cannot be made to move for one process")
    if tried.returncode or b"moving.test" not in tried.stdout:
        pytest.skip("unshare --mount is not allowed here, so a name cannot be made to move for one process")
    python = tmp_path / "python"
    words = " ".join(f"'{word}'" for word in (*namespace, sys.executable))
    python.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    return hosts


POOL_AGE = 3.0


def test_a_name_that_moves_is_followed_by_new_connections_and_busy_ones_grow_old(
    hosts: Path, start_sidecar: Start
) -> None:
    before = ScriptedUpstream("127.0.0.1")
    after = ScriptedUpstream("127.0.0.2", before.port)
    where = {before: b"before", after: b"after!"}

    for upstream, name in where.items():
        upstream.begin(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n" + name))
    sidecar = start_sidecar(
        "--upstream", f"http://moving.test:{before.port}", "--set", f"proxy.pool_age={POOL_AGE}s"
    )  # fmt: skip

    def served_by() -> bytes:
        return call(f"{sidecar.base}/").body

    try:
        assert served_by() == b"before"
        began = time.monotonic()
        hosts.write_text("127.0.0.2 localhost moving.test\n")
        assert served_by() == b"before"  # over the connection that was kept
        until(lambda: served_by() == b"after!")  # asked all the time, it never becomes idle
        assert time.monotonic() - began < POOL_AGE + 10.0
        assert before.accepted == 1
        hosts.write_text("127.0.0.1 localhost moving.test\n")
        after.end()
        assert served_by() == b"before"  # whose connection was closed is looked up anew at once
    finally:
        for upstream in where:
            upstream.end()
            upstream.close()


def test_a_restart_of_the_upstream_on_the_same_name_is_not_seen(stage: Stage) -> None:
    """Connections that the upstream closed while they were idle are replaced without a word to the client."""

    def client(wire: Wire) -> None:
        for _ in range(3):
            wire.send(AGAIN)
            wire.response()
            time.sleep(0.05)

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(OK)
        wire.leave("fin")

    heard = stage.through(client, upstream)
    assert heard.client[:2] * 3 == heard.client
    assert Ended("rst") not in heard.client
