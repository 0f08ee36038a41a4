"""Whole messages: methods, targets, heads, bodies and answers without one arrive as if there were nothing between."""

from __future__ import annotations

import pytest

from .stage import Script, Stage
from .wires import Body, Head, Wire

KIB = 1024
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
AGAIN = b"GET /again HTTP/1.1\r\nHost: <host>\r\n\r\n"


def ask(stage: Stage, request: bytes, response: bytes = OK, method: bytes = b"GET") -> None:
    """One exchange, and another on the same connection, which shows that both sides agree where the first ended."""

    def client(wire: Wire) -> None:
        wire.send(request)
        wire.response(method)
        wire.send(AGAIN)
        wire.response()

    def upstream(wire: Wire) -> None:
        wire.send(OK if wire.request().startswith(b"GET /again ") else response)

    heard = stage.same(client, upstream)
    assert sum(isinstance(each, Head) for each in heard.upstream) == 2


def asking(request: bytes) -> Script:
    """A client that asks once."""

    def client(wire: Wire) -> None:
        wire.send(request)
        wire.response()

    return client


def answering(response: bytes) -> Script:
    """An upstream that gives every request the same answer."""

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(response)

    return upstream


def request_of(method: bytes = b"POST", target: bytes = b"/v1/x", lines: bytes = b"", body: bytes = b"") -> bytes:
    return b"%b %b HTTP/1.1\r\nHost: <host>\r\n%b\r\n%b" % (method, target, lines, body)


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


# ---------------------------------------------------------------- methods

METHODS = (
    b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"PATCH", b"PROPFIND", b"REPORT", b"MKCOL",
    b"SEARCH", b"PURGE", b"M-SEARCH", b"LINK", b"BREW", b"get", b"X!#$%&'*+-.^_`|~9",
)  # fmt: skip


@pytest.mark.parametrize("method", METHODS, ids=bytes.decode)
def test_every_method_passes(stage: Stage, method: bytes) -> None:
    response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + (b"" if method == b"HEAD" else b"ok")
    ask(stage, request_of(method), response, method)


@pytest.mark.parametrize("method", [b"GET", b"DELETE", b"OPTIONS", b"BREW"], ids=bytes.decode)
def test_a_body_passes_with_any_method(stage: Stage, method: bytes) -> None:
    ask(stage, request_of(method, lines=b"Content-Length: 5\r\n", body=b"hello"))


def test_the_server_as_a_whole_can_be_asked(stage: Stage) -> None:
    ask(stage, request_of(b"OPTIONS", b"*"))


# ---------------------------------------------------------------- targets

TARGETS = (
    b"/", b"/?", b"/a?", b"/?a=b&&c", b"/a%2Fb", b"/a%2fb", b"//", b"//a//b/", b"/a;b=c;d", b"/a/../b", b"/../../x",
    b"/./a/.", b"/%2e%2e/%2E", b"/a%00b", b"/%zz%", b"/a+b%20c", b"/a?b?c/d", b"/a?q=%E2%82%AC", b"/caf\xe9",
    b"/\xe2\x82\xac?\xff\xfe", b"/a:b@c", b"/~!$&'()*+,;=", b"/http://o.test/", b"/a|b^c`d{e}\"<f>\\g", b"/[1]?[]=1",
    b"/" + b"a" * 8000 + b"?" + b"q" * 20000,
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: repr(target[:24])[1:])
def test_targets_arrive_byte_for_byte(stage: Stage, target: bytes) -> None:
    ask(stage, request_of(b"GET", target))


# ---------------------------------------------------------------- head lines

LINES = {
    "odd case": b"x-ODD: 1\r\nACCEPT: */*\r\ncontent-TYPE: a/b\r\n",
    "duplicates in order": b"X-A: 1\r\nX-B: 2\r\nX-A: 1\r\nx-a: 3\r\n",
    "empty values": b"X-Empty:\r\nX-Blank:   \r\n",
    "spaces around values": b"X-A:1\r\nX-B:  2  \r\nX-C:\t3\t\r\n",
    "obs-text": b"X-Name: caf\xe9 \xff\x80\r\n",
    "UTF-8": "X-Name: naïve 🙂\r\n".encode(),
    "every name byte": b"!#$%&'*+-.^_`|~09aZ: 1\r\n",
    "colons and quotes": b'X-A: a:b:"c;d",,\\"\r\n',
    "names that begin as hop names": b"Connectionx: 1\r\nX-Connection: 2\r\nTE-X: 3\r\nUpgrade-Insecure: 1\r\n",
    "a value of 64 KiB": b"X-Large: " + b"v" * 64 * KIB + b"\r\n",
    "8 values of 8 KiB": b"".join(b"X-%d: " % number + b"v" * 8 * KIB + b"\r\n" for number in range(8)),
    "500 lines": b"".join(b"X-%d: %d\r\n" % (number, number) for number in range(500)),
    "cookies": b"Set-Cookie: a=b; Path=/\r\nSet-Cookie: c=d\r\nCookie: a=b; c=d\r\n",
    "forwarding lines": b"Via: 1.1 x\r\nForwarded: for=192.0.2.1\r\nX-Forwarded-For: 192.0.2.1\r\nMax-Forwards: 3\r\n",
    "keys": b"Authorization: Bearer made-up\r\nX-Api-Key: made-up\r\n",
    "tracing": b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\ntracestate: a=b\r\n",
    "trailers announced": b"Trailer: X-Sum\r\n",
    "content codings": b"Accept-Encoding: gzip, br;q=0.5\r\nContent-Encoding: identity\r\n",
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_request_lines_keep_bytes_order_case_and_number(stage: Stage, name: str) -> None:
    ask(stage, request_of(b"GET", lines=LINES[name]))


@pytest.mark.parametrize("name", LINES)
def test_answer_lines_keep_bytes_order_case_and_number(stage: Stage, name: str) -> None:
    ask(stage, request_of(), b"HTTP/1.1 200 OK\r\n" + LINES[name] + b"Content-Length: 2\r\n\r\nok")


@pytest.mark.parametrize("line", [b"HOST:<host>", b"host:   <host>  ", b"Host:\t<host>"], ids=repr)
def test_a_host_line_keeps_its_name_and_place(stage: Stage, line: bytes) -> None:
    request = b"GET / HTTP/1.1\r\nX-Before: 1\r\n" + line + b"\r\nX-After: 1\r\n\r\n"
    sent, got = (play(asking(request), answering(OK)).upstream[0] for play in (stage.direct, stage.through))
    assert isinstance(sent, Head)
    assert isinstance(got, Head)
    assert got.lines[:2] == sent.lines[:2]
    assert got.lines[3:] == sent.lines[3:]
    assert got.lines[2] == line.partition(b":")[0] + b": " + stage.upstream.authority


HOP_LINES = (
    b"Connection: keep-alive\r\nKeep-Alive: timeout=5, max=100\r\n",
    b"Connection: x-private, Keep-Alive\r\nX-Private: 1\r\nX-Public: 2\r\n",
    b"Proxy-Connection: keep-alive\r\nTE: trailers\r\nConnection: TE\r\n",
    b"Proxy-Authorization: Basic bWFkZS11cA==\r\nProxy-Authenticate: Basic\r\n",
    b"Upgrade: h2c, foo/2\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n",
)


@pytest.mark.parametrize("lines", HOP_LINES, ids=lambda lines: lines.partition(b":")[0].decode() + str(len(lines)))
def test_lines_of_the_hop_stop_in_both_directions_and_nothing_else_does(stage: Stage, lines: bytes) -> None:
    heads: list[bytes] = []
    response = b"HTTP/1.1 200 OK\r\nX-Kept: 1\r\n" + lines + b"Content-Length: 2\r\n\r\nok"

    def client(wire: Wire) -> None:
        wire.send(request_of(b"GET", lines=lines + b"X-Kept: 1\r\n"))
        heads.append(wire.response())

    def upstream(wire: Wire) -> None:
        heads.append(wire.request())
        wire.send(response)

    stage.same(client, upstream)
    for head in heads[2:]:  # those that passed the sidecar
        names = {line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:]}
        assert names <= {b"", b"host", b"x-kept", b"x-public", b"content-length"}


# ---------------------------------------------------------------- bodies

SIZES = (0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, KIB * KIB)
CODINGS = ("length", "chunks of 1", "chunks of 4096", "one chunk")


def framed(size: int, coding: str) -> tuple[bytes, bytes]:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    if coding == "length":
        return b"Content-Length: %d\r\n" % size, body
    step = {"chunks of 1": 1, "chunks of 4096": 4096}.get(coding, max(size, 1))
    return b"Transfer-Encoding: chunked\r\n", chunked(body, step)


BODIES = [(size, coding) for size in SIZES for coding in CODINGS if size <= 64 * KIB + 1 or coding != "chunks of 1"]


@pytest.mark.parametrize(("size", "coding"), BODIES)
def test_request_bodies_pass(stage: Stage, size: int, coding: str) -> None:
    line, body = framed(size, coding)
    ask(stage, request_of(lines=line, body=body))


@pytest.mark.parametrize(("size", "coding"), BODIES)
def test_answer_bodies_pass(stage: Stage, size: int, coding: str) -> None:
    line, body = framed(size, coding)
    ask(stage, request_of(b"GET"), b"HTTP/1.1 200 OK\r\n" + line + b"\r\n" + body)


@pytest.mark.parametrize("size", SIZES)
def test_answers_that_end_with_their_connection_pass(stage: Stage, size: int) -> None:
    def client(wire: Wire) -> None:
        wire.send(request_of(b"GET"))
        wire.response()

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(b"HTTP/1.1 200 OK\r\n\r\n" + framed(size, "length")[1])
        wire.leave("fin")

    heard = stage.same(client, upstream)
    assert isinstance(heard.client[1], Body)
    assert heard.client[1].size == size


CHUNKS = {
    "extensions": b'3;name=value\r\nabc\r\n2;a="b;c"\r\nde\r\n0;last\r\n\r\n',
    "leading zeros and capitals": b"00A\r\n0123456789\r\n0000\r\n\r\n",
    "trailers": b"3\r\nabc\r\n0\r\nX-Sum: 1\r\nx-sum: 2\r\nServer-Timing: a;dur=1\r\n\r\n",
    "obs-text in trailers": b"3\r\nabc\r\n0\r\nX-Name: caf\xe9\r\n\r\n",
    "trailers alone": b"0\r\nX-Sum: 1\r\n\r\n",
    "empty lines in the content": b"8\r\n\r\n\r\n\r\n\r\n\r\n0\r\n\r\n",
    "64 trailers": b"0\r\n" + b"".join(b"X-%d: 1\r\n" % number for number in range(64)) + b"\r\n",
}


@pytest.mark.parametrize("name", CHUNKS)
def test_chunks_and_trailers_of_requests_pass(stage: Stage, name: str) -> None:
    ask(stage, request_of(lines=b"Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n", body=CHUNKS[name]))


@pytest.mark.parametrize("name", CHUNKS)
def test_chunks_and_trailers_of_answers_pass(stage: Stage, name: str) -> None:
    head = b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n"
    ask(stage, request_of(b"GET", lines=b"TE: trailers\r\nConnection: TE\r\n"), head + CHUNKS[name])


# ---------------------------------------------------------------- answers

STATUSES = (
    b"200 OK", b"200", b"200 ", b"201 Created", b"202 Accepted", b"203 caf\xe9", b"206 Partial Content", b"226 IM Used",
    b"300 Many", b"301 Moved", b"307 There", b"400 Bad", b"401 Who", b"402 Pay", b"404 No", b"407 Proxy", b"408 Late",
    b"409 No", b"413 Long", b"418 Teapot", b"421 Elsewhere", b"422 No", b"425 Early", b"429 Slow down", b"451 No",
    b"499 Gone", b"500 Oh", b"502 Bad", b"503 Busy", b"504 Late", b"529 Full", b"599 What", b"799 Odd", b"999 Odd",
)  # fmt: skip


@pytest.mark.parametrize("status", STATUSES, ids=lambda status: status.decode("latin-1") + "." * status.endswith(b" "))
def test_status_and_reason_pass(stage: Stage, status: bytes) -> None:
    ask(stage, request_of(b"GET"), b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\nno")


BODYLESS = {
    "HEAD with a length": (b"HEAD", b"200 OK", b"Content-Length: 5000\r\n"),
    "HEAD with chunks": (b"HEAD", b"200 OK", b"Transfer-Encoding: chunked\r\n"),
    "HEAD with neither": (b"HEAD", b"200 OK", b""),
    "HEAD refused": (b"HEAD", b"404 No", b"Content-Length: 9\r\n"),
    "204": (b"DELETE", b"204 No Content", b""),
    "204 after POST": (b"POST", b"204 No Content", b"X-A: 1\r\n"),
    "304": (b"GET", b"304 Not Modified", b'ETag: "a"\r\n'),
    "304 with a length": (b"GET", b"304 Not Modified", b"Content-Length: 5000\r\n"),
    "304 with chunks": (b"GET", b"304 Not Modified", b"Transfer-Encoding: chunked\r\n"),
    "205": (b"POST", b"205 Reset", b"Content-Length: 0\r\n"),
}


@pytest.mark.parametrize("name", BODYLESS)
def test_answers_without_a_body_end_with_their_head(stage: Stage, name: str) -> None:
    method, status, lines = BODYLESS[name]
    ask(stage, request_of(method), b"HTTP/1.1 " + status + b"\r\n" + lines + b"\r\n", method)


# ---------------------------------------------------------------- interim answers

INTERIM = {
    "100 unasked": b"HTTP/1.1 100 Continue\r\n\r\n",
    "102": b"HTTP/1.1 102 Processing\r\n\r\n",
    "103": b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\nLink: </b>; rel=preload\r\n\r\n",
    "100, 103, 103": b"HTTP/1.1 100 \r\n\r\nHTTP/1.1 103 Early\r\nLink: <a>\r\n\r\nHTTP/1.1 103\r\nX: \xe9\r\n\r\n",
    "199": b"HTTP/1.1 199 Odd\r\nX-A: 1\r\n\r\n",
}


@pytest.mark.parametrize("cut", ["in one write", "byte by byte"])
@pytest.mark.parametrize("name", INTERIM)
def test_interim_answers_pass_before_the_final_one(stage: Stage, name: str, cut: str) -> None:
    def client(wire: Wire) -> None:
        wire.send(request_of(b"GET"))
        wire.response()
        wire.send(AGAIN)
        wire.response()

    def upstream(wire: Wire) -> None:
        if wire.request().startswith(b"GET /again "):
            wire.send(OK)
        elif cut == "in one write":
            wire.send(INTERIM[name] + OK)
        else:
            wire.drip(INTERIM[name] + OK)

    heard = stage.same(client, upstream)
    assert sum(isinstance(each, Head) for each in heard.client) == 2 + INTERIM[name].count(b"HTTP/1.1")


EXPECT = b"PUT /v1/x HTTP/1.1\r\nHost: <host>\r\nExpect: 100-continue\r\n"


@pytest.mark.parametrize("framing", ["length", "chunks of 4096"])
def test_an_expectation_that_is_accepted(stage: Stage, framing: str) -> None:
    line, body = framed(10_000, framing)

    def client(wire: Wire) -> None:
        wire.send(EXPECT + line + b"\r\n")
        assert wire.head().startswith(b"HTTP/1.1 100")
        wire.send(body)
        wire.response()
        wire.send(AGAIN)
        wire.response()

    def upstream(wire: Wire) -> None:
        head = wire.head()
        if b"Expect" in head:
            assert wire.is_quiet(0.05)  # nobody in between may answer in the upstream's stead
            wire.send(b"HTTP/1.1 100 Continue\r\nX-A: 1\r\n\r\n")
            wire.body(head)
        wire.send(OK)

    stage.same(client, upstream)


@pytest.mark.parametrize(
    "status", [b"417 Expectation Failed", b"413 Content Too Large", b"401 Unauthorized", b"200 OK"]
)
def test_an_expectation_that_is_refused(stage: Stage, status: bytes) -> None:
    def client(wire: Wire) -> None:
        wire.send(EXPECT + b"Content-Length: 5000000\r\n\r\n")
        wire.response()
        wire.rest()

    def upstream(wire: Wire) -> None:
        wire.head()
        wire.send(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        wire.leave("fin")

    stage.same(client, upstream)


def test_an_expectation_that_is_passed_over(stage: Stage) -> None:
    def client(wire: Wire) -> None:
        wire.send(EXPECT + b"Content-Length: 5\r\n\r\n")
        assert wire.is_quiet(0.1)
        wire.send(b"hello")
        wire.response()
        wire.send(AGAIN)
        wire.response()

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(OK)

    stage.same(client, upstream)


def test_a_body_that_does_not_wait_for_its_expectation(stage: Stage) -> None:
    ask(stage, EXPECT + b"Content-Length: 5\r\n\r\nhello", b"HTTP/1.1 100 Continue\r\n\r\n" + OK)
