"""The admin port over real HTTP and TLS: who is let in, and by which methods."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import ClientSession, TCPConnector, web
from aiohttp.test_utils import TestClient, TestServer

from collector.admin.access import guarded, is_loopback, is_own_name, server_tls, warnings
from collector.config import AdminAuth, AdminTls, Settings

TOKEN = "a-token-of-the-tests-4711"
OPEN_TO_ALL = AdminAuth()
OTHER = "b-token-of-the-tests-4711"
PATHS = ("/", "/metrics", "/records", "/records/1", "/summary")

Client = TestClient[web.Request, web.Application]
Ask = Callable[..., Awaitable[Client]]


def _application(reloads: list[str]) -> web.Application:
    async def tell(request: web.Request) -> web.Response:
        return web.Response(text=f"private {request.path}")

    async def reload(request: web.Request) -> web.Response:
        reloads.append(request.path)
        return web.Response(text="reloaded")

    app = web.Application()
    app.add_routes([web.get(path, tell) for path in ("/", "/metrics", "/records", "/records/{id}", "/summary")])
    app.add_routes([web.get("/livez", tell), web.get("/readyz", tell), web.post("/-/reload", reload)])
    return app


@pytest.fixture
def reloads() -> list[str]:
    return []


@pytest.fixture
async def port(reloads: list[str]) -> AsyncIterator[Ask]:
    clients: list[Client] = []

    async def begin(auth: AdminAuth = OPEN_TO_ALL, admin: str = "127.0.0.1:0", **environ: str) -> Client:
        app = guarded(_application(reloads), Settings(admin=admin, admin_auth=auth), environ)
        clients.append(TestClient(TestServer(app)))
        await clients[-1].start_server()
        return clients[-1]

    yield begin
    for client in clients:
        await client.close()


def _bearer(token: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"Authorization": f"{scheme} {token}"}


async def test_without_a_token_whoever_reaches_it_reads(port: Ask) -> None:
    client = await port()
    for path in PATHS:
        assert (await client.get(path)).status == 200
        assert (await client.head(path)).status == 200


async def test_with_a_token_only_who_shows_it_reads(port: Ask, reloads: list[str]) -> None:
    client = await port(SEMHEALTH_ADMIN_TOKEN=TOKEN)
    wrong: list[dict[str, str]] = [
        {},
        _bearer(OTHER),
        _bearer(TOKEN[:-1]),
        _bearer(TOKEN + "x"),
        _bearer(""),
        _bearer(TOKEN, "Basic"),
        {"Authorization": TOKEN},
        {"Authorization": "Bearer"},
        {"Authorization": ""},
    ]
    for headers in wrong:
        for path in (*PATHS, "/nothing"):
            refused = await client.get(path, headers=headers)
            assert refused.status == 401
            assert refused.headers["WWW-Authenticate"] == 'Bearer realm="semhealth"'
            assert "private" not in await refused.text()
        assert (await client.post("/-/reload", headers=headers)).status == 401
    assert reloads == []
    for path in PATHS:
        assert await (await client.get(path, headers=_bearer(TOKEN))).text() == f"private {path}"
    assert (await client.get("/", headers=_bearer(TOKEN, "bearer"))).status == 200
    assert (await client.post("/-/reload", headers=_bearer(TOKEN))).status == 200
    assert reloads == ["/-/reload"]


async def test_probes_need_no_token(port: Ask) -> None:
    client = await port(SEMHEALTH_ADMIN_TOKEN=TOKEN)
    for path in ("/livez", "/readyz"):
        assert (await client.get(path)).status == 200
    for path in ("/livez/", "/livez/x", "/LIVEZ"):
        assert (await client.get(path)).status == 401


async def test_a_token_file_is_read_again_when_it_changes_and_lets_nobody_in_while_it_is_broken(
    port: Ask, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    client = await port(AdminAuth(token_file=str(file)), SEMHEALTH_ADMIN_TOKEN=OTHER)

    async def statuses() -> tuple[int, int, int]:
        of_token, of_other, of_none = [
            (await client.get("/metrics", headers=headers)).status for headers in (_bearer(TOKEN), _bearer(OTHER), {})
        ]
        return of_token, of_other, of_none

    assert await statuses() == (200, 401, 401)
    (tmp_path / "new").write_text(OTHER)
    (tmp_path / "new").replace(file)
    assert await statuses() == (401, 200, 401)
    file.write_text("short")
    assert await statuses() == (401, 401, 401)
    file.unlink()
    assert await statuses() == (401, 401, 401)
    file.write_text(TOKEN)
    assert await statuses() == (200, 401, 401)
    assert "admin_auth.token_file cannot be used, nobody is let in" in caplog.text
    assert "short" not in caplog.text.replace("too short", "")
    assert OTHER not in caplog.text


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_it_is_only_read_but_for_the_reload(port: Ask, reloads: list[str], token: str | None) -> None:
    client = await port(**({} if token is None else {"SEMHEALTH_ADMIN_TOKEN": token}))
    headers = {} if token is None else _bearer(token)
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "LOCK"):
        for path in (*PATHS, "/livez", "/nothing", "/-/reload/"):
            refused = await client.request(method, path, headers=headers)
            assert refused.status == 405, (method, path)
            assert refused.headers["Allow"] == "GET, HEAD"
        if method != "POST":
            assert (await client.request(method, "/-/reload", headers=headers)).status == 405
    assert (await client.get("/-/reload", headers=headers)).status == 405
    assert reloads == []
    assert (await client.post("/-/reload", headers=headers)).status == 200


async def test_a_web_page_cannot_reach_it_by_a_name_of_its_own(port: Ask, reloads: list[str]) -> None:
    client = await port()
    for host in (
        "evil.example",
        "evil.example:9464",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "a@b",
        "[::1",
    ):
        for path in (*PATHS, "/nothing"):
            assert (await client.get(path, headers={"Host": host})).status == 403
        assert (await client.post("/-/reload", headers={"Host": host})).status == 403
    for host in ("localhost", "localhost:9464", "LOCALHOST:1", "127.0.0.1:9464", "[::1]:9464", "10.1.2.3:9464"):
        assert (await client.get("/metrics", headers={"Host": host})).status == 200
    assert (await client.post("/-/reload", headers={"Origin": "https://evil.example"})).status == 403
    assert (await client.post("/-/reload", headers={"Origin": "null"})).status == 403
    assert reloads == []


async def test_names_are_taken_where_it_is_not_on_loopback_or_has_a_token(port: Ask) -> None:
    named = {"Host": "semhealth.svc:9464"}
    assert (await (await port(admin="0.0.0.0:9464")).get("/metrics", headers=named)).status == 200
    client = await port(SEMHEALTH_ADMIN_TOKEN=TOKEN)
    assert (await client.get("/metrics", headers={**named, **_bearer(TOKEN)})).status == 200
    assert (await client.get("/metrics", headers=named)).status == 401


async def test_what_is_no_http_is_not_repeated_in_the_log(port: Ask, caplog: pytest.LogCaptureFixture) -> None:
    client = await port()
    caplog.set_level("DEBUG")
    good = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for raw in (b"CANARY\r\n\r\n", good + b"GET /CANARY HTTP/9\r\n\r\n", good + b"GET / HTTP/1.1\r\nCANARY\r\n\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        writer.write(raw)
        assert b" 400 Bad Request" in await asyncio.wait_for(reader.read(), 10)
        writer.close()
    assert caplog.text.count("Error handling request") == 3
    assert "CANARY" not in caplog.text


def test_what_loopback_and_own_names_are() -> None:
    assert [host for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost") if not is_loopback(host)] == []
    assert [host for host in ("0.0.0.0", "::", "10.0.0.1", "a.localhost", "example") if is_loopback(host)] == []
    assert is_own_name("")
    assert not is_own_name("localhost.")


def test_a_port_that_others_reach_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    auth, tls = AdminAuth(token_file=str(file)), AdminTls(cert_file="a", key_file="b")
    assert warnings(Settings(), {}) == []
    [warning] = warnings(Settings(admin="0.0.0.0:9464"), {})
    assert "no token is set" in warning
    [warning] = warnings(Settings(admin="[::]:9464", admin_auth=auth), {})
    assert "without TLS" in warning
    assert warnings(Settings(admin="0.0.0.0:9464", admin_tls=tls), {"SEMHEALTH_ADMIN_TOKEN": TOKEN}) == []


@pytest.fixture
def certificate(tmp_path: Path) -> AdminTls:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return AdminTls(cert_file=str(cert), key_file=str(key))


async def test_it_speaks_tls_of_1_2_and_above_and_nothing_else(certificate: AdminTls) -> None:
    runner = web.AppRunner(guarded(_application([]), Settings(), {}))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_tls(certificate))
    await site.start()
    port = runner.addresses[0][1]
    try:
        trusting = ssl.create_default_context(cafile=certificate.cert_file)
        async with ClientSession(connector=TCPConnector(ssl=trusting)) as session:
            assert (await session.get(f"https://localhost:{port}/metrics")).status == 200
        old = ssl.create_default_context(cafile=certificate.cert_file)
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("127.0.0.1", port, ssl=old, server_hostname="localhost")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"private" not in await asyncio.wait_for(reader.read(), 10)
        writer.close()
    finally:
        await runner.cleanup()


def test_without_files_there_is_no_tls_and_broken_ones_are_an_error(tmp_path: Path) -> None:
    assert server_tls(AdminTls()) is None
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("nonsense")
    with pytest.raises(OSError, match="PEM"):
        server_tls(AdminTls(cert_file=str(tmp_path / "cert.pem"), key_file=str(tmp_path / "key.pem")))
