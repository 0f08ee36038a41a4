"""Servers that are not ours, nginx and uvicorn, answer through the sidecar as they answer directly."""

from __future__ import annotations

import importlib.util
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.end_to_end.conftest import Process, call, is_ok, wait_until

from .conftest import Start, address_of
from .stage import difference
from .test_messages import CHUNKS, KIB, framed, request_of
from .wires import Head, Told, Wire

Places = tuple[tuple[str, int], tuple[str, int]]  # the server itself, and a sidecar in front of it

_DATE = re.compile(rb"(?i)^(date): .*")


def _ask(place: tuple[str, int], requests: tuple[bytes, ...]) -> list[Told]:
    told: list[Told] = []
    with Wire(socket.create_connection(place), told, b"%b:%d" % (place[0].encode(), place[1])) as wire:
        for request in requests:
            wire.send(request)
            wire.response(request.split(b" ")[0])
    return [Head(tuple(_DATE.sub(rb"\1: -", line) for line in each.lines)) if isinstance(each, Head) else each
            for each in told]  # fmt: skip


def _same(places: Places, *requests: bytes) -> list[Told]:
    direct, through = (_ask(place, requests) for place in places)
    assert through == direct, difference("client", direct, through)
    return direct


def _status(told: list[Told]) -> bytes:
    head = next(each for each in told if isinstance(each, Head))
    return head.lines[0][9:12]


# ---------------------------------------------------------------- nginx

NGINX = """
daemon off; master_process off; worker_processes 1; pid {home}/pid; error_log {home}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off; client_max_body_size 300m; large_client_header_buffers 8 128k; merge_slashes off;
  client_body_temp_path {home}/body; proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
  types {{ text/plain txt; }}
  gzip on; gzip_types text/plain; gzip_min_length 1;
  server {{
    listen 127.0.0.1:{port};
    root {home}/files;
    location / {{ }}
    location /said {{
      return 200 "$request_method $request_uri $http_host $http_x_a $http_te $http_connection $server_protocol\\n";
    }}
    location /empty {{ return 204; }}
    location /moved {{ return 301 /said; }}
    location /limited {{ client_max_body_size 1k; proxy_pass http://127.0.0.1:{port}/said; }}
    location /taken {{ proxy_pass http://127.0.0.1:{port}/said; proxy_set_header Host $http_host; }}
  }}
}}
"""


@pytest.fixture(scope="module")
def nginx(
    needs_binary: Callable[[str], str], start_sidecar: Start, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Places]:
    binary = needs_binary("nginx")
    home = tmp_path_factory.mktemp("nginx")
    home.chmod(0o755)
    _files(home / "files")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    configuration = home / "nginx.conf"
    configuration.write_text(NGINX.format(home=home, port=port))
    command = [binary, "-p", str(home), "-c", str(configuration), "-e", str(home / "error.log"), "-g", "user root;"]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: server.poll() is not None or is_ok(f"http://127.0.0.1:{port}/said"), "nginx answers")
        assert server.poll() is None, (home / "error.log").read_text()
        sidecar = start_sidecar("--upstream", f"http://127.0.0.1:{port}")
        yield ("127.0.0.1", port), address_of(sidecar)
    finally:
        server.terminate()
        server.wait()


def _files(home: Path) -> None:
    home.mkdir()
    (home / "a.txt").write_bytes(b"0123456789" * 1000)
    (home / "large").write_bytes(bytes(range(256)) * 4 * KIB)
    (home / "none").write_bytes(b"")


GZIP = b"Accept-Encoding: gzip\r\n"
NGINX_ASKED = {
    **{
        f"{method.decode()} of a page": request_of(method, b"/said?a=b")
        for method in (b"GET", b"POST", b"PUT", b"BREW")
    },
    "HEAD of a page": request_of(b"HEAD", b"/said"),
    "HEAD of a file": request_of(b"HEAD", b"/a.txt"),
    "OPTIONS": request_of(b"OPTIONS", b"/said"),
    "TRACE": request_of(b"TRACE", b"/said"),
    "a file": request_of(b"GET", b"/a.txt"),
    "an empty file": request_of(b"GET", b"/none"),
    "1 MiB": request_of(b"GET", b"/large"),
    "a compressed file, in chunks": request_of(b"GET", b"/a.txt", GZIP),
    "HEAD of it": request_of(b"HEAD", b"/a.txt", GZIP),
    "a range": request_of(b"GET", b"/a.txt", b"Range: bytes=5-14\r\n"),
    "a range from the end": request_of(b"GET", b"/large", b"Range: bytes=-10\r\n"),
    "a range that is none": request_of(b"GET", b"/a.txt", b"Range: bytes=99999-\r\n"),
    "204": request_of(b"GET", b"/empty"),
    "304": request_of(b"GET", b"/a.txt", b"If-Modified-Since: Fri, 31 Dec 2100 00:00:00 GMT\r\n"),
    "412": request_of(b"GET", b"/a.txt", b'If-Match: "none"\r\n'),
    "301": request_of(b"GET", b"/moved"),
    "404": request_of(b"GET", b"/none/such"),
    "405": request_of(b"POST", b"/a.txt", b"Content-Length: 2\r\n", b"hi"),
    "a path as it was sent": request_of(b"GET", b"/said//%2F/%7E;a=b?c=%zz&&?"),
    "a path of other bytes": request_of(b"GET", b"/said/caf\xe9?\xff"),
    "an upload": request_of(b"POST", b"/taken", *framed(KIB * KIB, "length")),
    "an upload in chunks": request_of(b"POST", b"/taken", *framed(100 * KIB, "chunks of 4096")),
    "chunks with trailers": request_of(b"POST", b"/taken", b"Transfer-Encoding: chunked\r\n", CHUNKS["trailers"]),
    "a value of 64 KiB": request_of(b"GET", b"/said", b"X-Long: " + b"v" * 64 * KIB + b"\r\n"),
}
BOUNDARY = re.compile(rb"[0-9]{20}")  # what nginx sets between parts


CLOSING = ("405", "412", "TRACE")  # after these nginx closes


@pytest.mark.parametrize("name", NGINX_ASKED)
def test_nginx_answers_the_same(nginx: Places, name: str) -> None:
    again = request_of(b"GET", b"/said/again")
    _same(nginx, NGINX_ASKED[name], *([] if name in CLOSING else [again]))


def test_nginx_gives_the_same_parts_of_a_file(nginx: Places) -> None:
    answers = [
        call(f"http://{host}:{port}/large", headers={"Range": "bytes=0-99,1000-1099"}, method="GET")
        for host, port in nginx
    ]
    assert [answer.status for answer in answers] == [206, 206]
    direct, through = (BOUNDARY.sub(b"-", answer.body) for answer in answers)
    assert through == direct
    assert len(direct) > 300


def test_nginx_refuses_an_upload_early_in_the_same_way(nginx: Places) -> None:
    upload = request_of(b"POST", b"/limited", b"Content-Length: 5000000\r\n", b"x" * 1000)
    assert _status(_same(nginx, upload)) == b"413"


def test_nginx_serves_many_requests_on_one_connection(nginx: Places) -> None:
    _same(nginx, *(NGINX_ASKED[name] for name in ("a file", "204", "304", "HEAD of a file", "an upload", "404")) , *[
        request_of(b"GET", b"/said?%d" % number) for number in range(50)
    ])  # fmt: skip


# ---------------------------------------------------------------- uvicorn


@pytest.fixture(scope="module")
def uvicorn(start_sidecar: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    if importlib.util.find_spec("uvicorn") is None:
        pytest.skip("uvicorn is not installed: it comes with the group dev")
    command = [sys.executable, "-m", "uvicorn", "tests.conformance.asgi_app:app", "--port", "0", "--no-access-log",
               "--http", "h11", "--timeout-keep-alive", "60", "--lifespan", "off"]  # fmt: skip
    server = Process(command, tmp_path_factory.mktemp("uvicorn"))
    try:
        port = int(server.wait_for_output(r"running on http://127\.0\.0\.1:(\d+)")[1])
        sidecar = start_sidecar("--upstream", f"http://127.0.0.1:{port}")
        yield ("127.0.0.1", port), address_of(sidecar)
    finally:
        server.end()


UVICORN_ASKED = {
    **{
        f"{method.decode()}": request_of(method, b"/a%2Fb//c?d=%zz&&")
        for method in (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"BREW")
    },
    "headers": request_of(b"GET", b"/", b"X-A: 1\r\nx-a: 2\r\nX-Name: caf\xe9\r\nAuthorization: Bearer made-up\r\n"),
    "100 lines": request_of(b"GET", b"/", b"".join(b"X-%d: 1\r\n" % number for number in range(100))),
    "an upload": request_of(b"POST", b"/", *framed(KIB * KIB, "length")),
    "an upload in chunks": request_of(b"POST", b"/", *framed(100 * KIB, "chunks of 4096")),
    "chunks with trailers": request_of(b"POST", b"/", b"Transfer-Encoding: chunked\r\n", CHUNKS["trailers"]),
    "a stream": request_of(b"GET", b"/chunks"),
    "1 MiB": request_of(b"GET", b"/large"),
    **{f"{status}": request_of(b"GET", b"/status/%d" % status) for status in (201, 204, 304, 404, 429, 500, 529)},
}


@pytest.mark.parametrize("name", UVICORN_ASKED)
def test_uvicorn_answers_the_same(uvicorn: Places, name: str) -> None:
    _same(uvicorn, UVICORN_ASKED[name], request_of(b"GET", b"/again"))


def test_uvicorn_waits_for_a_body_that_is_expected(uvicorn: Places) -> None:
    def ask(place: tuple[str, int]) -> list[Told]:
        told: list[Told] = []
        with Wire(socket.create_connection(place), told, b"h") as wire:
            wire.send(b"POST /continue HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
            assert wire.head().startswith(b"HTTP/1.1 100")
            wire.send(b"hello")
            assert wire.response().startswith(b"HTTP/1.1 200")
        return told[:1]

    direct, through = (ask(place) for place in uvicorn)
    assert through == direct


@pytest.mark.parametrize("compression", ["deflate", None])
def test_uvicorn_speaks_websocket_the_same(uvicorn: Places, compression: str | None) -> None:
    heard = []
    for host, port in uvicorn:
        url = f"ws://{host}:{port}/v1/realtime?model=a%2Fb"
        with connect(url, proxy=None, subprotocols=["realtime", "other"], compression=compression) as connection:  # type: ignore[list-item]
            said: list[object] = [connection.subprotocol, [str(each) for each in connection.protocol.extensions]]
            for message in ("hello", "naïve 🙂", b"\x00\xff", "x" * 200_000):
                connection.send(message)
                said.append(connection.recv(20))
            connection.send("close")
            with pytest.raises(ConnectionClosed) as ended:
                connection.recv(20)
            said += [ended.value.rcvd, ended.value.sent]
        heard.append(said)
    assert heard[0] == heard[1]
    assert heard[0][0] == "realtime"


def test_uvicorn_is_told_of_a_client_that_leaves(uvicorn: Places) -> None:
    """Its connection is given up, and it serves the next one."""
    for place in uvicorn:
        wire = Wire(socket.create_connection(place), [], b"h")
        wire.send(request_of(b"GET", b"/chunks"))
        wire.head()
        wire.reset()
        time.sleep(0.05)
        assert _status(_ask(place, (request_of(b"GET", b"/after"),))) == b"200"
