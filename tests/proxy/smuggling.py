"""Requests and answers that two parsers may read in two ways, and the one outcome that each may have.

The kinds are those of RFC 9112 (2.2, 3.2, 5.1, 5.2, 6.1, 6.3, 7.1, 11.1, 11.2) and of the published attacks on chains
of HTTP servers: CL.TE, TE.CL and TE.TE (Linhart et al., "HTTP Request Smuggling", 2005; Kettle, "HTTP Desync Attacks",
2019), upgrades to h2c ("h2c Smuggling", Bishop Fox, 2020), and chunk sizes and extensions that are read leniently.
All bytes are written by hand for this table.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_CUT = 260  # bytes of an attempt or a reply that is tried cut at every byte


class Reading(NamedTuple):
    """One request as an upstream may read it."""

    method: bytes
    target: bytes
    body: bytes = b""


class Refused(NamedTuple):
    """Answered so, and closed; nothing reaches an upstream."""

    status: int = 400


class BrokenOff(NamedTuple):
    """Answered 400 and closed; an upstream never has it whole."""


class Forwarded(NamedTuple):
    """The upstream reads exactly these, and then what follows on the connection, unless the sidecar closes it."""

    readings: tuple[Reading, ...]
    closes: bool = False


class Attempt(NamedTuple):
    """A client's bytes, and the only outcome that they may have."""

    name: str
    raw: bytes
    outcome: Refused | BrokenOff | Forwarded


GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
END = b"\r\n"
FIVE = b"Content-Length: 5\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
LAST = b"0\r\n\r\n"
HELLO = b"5\r\nhello\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
INNER = b"GET /inner HTTP/1.1\r\nHost: a\r\n\r\n"  # never to be read as a request where it is a body
OF_INNER = b"Content-Length: %d\r\n" % len(INNER)
NO, BROKEN = Refused(), BrokenOff()


def _posted(body: bytes = b"") -> Forwarded:
    return Forwarded((Reading(b"POST", b"/", body),))


def _got(target: bytes = b"/", method: bytes = b"GET") -> Forwarded:
    return Forwarded((Reading(method, target),))


def _chunks(name: str, body: bytes, outcome: BrokenOff | Forwarded = BROKEN) -> Attempt:
    return Attempt(name, POST + CHUNKED + END + body, outcome)


def _coded(name: str, value: bytes, outcome: Refused | Forwarded = NO) -> Attempt:
    return Attempt(f"coding: {name}", POST + b"Transfer-Encoding:" + value + END + END + HELLO + LAST, outcome)


def _long(name: str, value: bytes, outcome: Refused | Forwarded = NO) -> Attempt:
    return Attempt(f"length: {name}", POST + b"Content-Length:" + value + END + END + b"hello", outcome)


def _aimed(name: str, target: bytes, outcome: Refused | Forwarded) -> Attempt:
    return Attempt(f"target: {name}", b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n", outcome)


def _hosted(name: str, lines: bytes, outcome: Refused | Forwarded) -> Attempt:
    return Attempt(f"host: {name}", b"GET / HTTP/1.1\r\n" + lines + END, outcome)


def _line(name: str, line: bytes, outcome: Refused | Forwarded = NO) -> Attempt:
    return Attempt(f"line: {name}", GET + line + END + END, outcome)


def _opened(name: str, line: bytes, outcome: Refused | Forwarded = NO) -> Attempt:
    return Attempt(f"request line: {name}", line + b"\r\nHost: a\r\n\r\n", outcome)


WHOLE = _posted(b"hello")

FRAMINGS = (
    Attempt("CL.TE", POST + b"Content-Length: 6\r\n" + CHUNKED + END + LAST + b"G", NO),
    Attempt("TE.CL", POST + CHUNKED + b"Content-Length: 4\r\n\r\n" + b"5c\r\n" + INNER + LAST, NO),
    Attempt("CL.TE with an upgrade", POST + UPGRADE + FIVE + CHUNKED + END + LAST, NO),
    Attempt("CL.TE in HTTP/1.0", b"POST / HTTP/1.0\r\n" + FIVE + CHUNKED + END + LAST, NO),
    Attempt("CL.0: a length of zero before a body", POST + b"Content-Length: 0\r\n" + CHUNKED + END + LAST, NO),
    Attempt("TE.TE: two lines", POST + CHUNKED + b"Transfer-Encoding: cow\r\n\r\n" + LAST, NO),
    Attempt("TE.TE: two lines, other order", POST + b"Transfer-Encoding: cow\r\n" + CHUNKED + END + LAST, NO),
    Attempt("TE.TE: the same line twice", POST + CHUNKED + CHUNKED + END + LAST, NO),
    Attempt("TE.TE: identity beside it", POST + b"Transfer-Encoding: identity\r\n" + CHUNKED + END + LAST, NO),
    Attempt("TE.TE: folded", POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + LAST, NO),
    Attempt("TE.TE: folded with a tab", POST + b"Transfer-Encoding:\r\n\tchunked\r\n\r\n" + LAST, NO),
    Attempt("TE.TE: space before the colon", POST + b"Transfer-Encoding : chunked\r\n\r\n" + LAST, NO),
    Attempt("TE.TE: tab before the colon", POST + b"Transfer-Encoding\t: chunked\r\n\r\n" + LAST, NO),
    Attempt("TE.TE: in another line's value", GET + b"X: a\nTransfer-Encoding: chunked\r\n\r\n" + LAST, NO),
    Attempt("TE.TE: behind a carriage return", GET + b"X: a\rTransfer-Encoding: chunked\r\n\r\n" + LAST, NO),
    Attempt("TE.TE: an underscore", POST + b"Transfer_Encoding: chunked\r\n" + FIVE + END + b"hello", WHOLE),
    Attempt("two lengths", POST + FIVE + b"Content-Length: 6\r\n\r\nhello", NO),
    Attempt("the same length twice", POST + FIVE + FIVE + END + b"hello", NO),
    Attempt("a length and a folded one", POST + FIVE + b"X: a\r\n Content-Length: 6\r\n\r\nhello", NO),
    Attempt("a length behind a space", POST + FIVE + b"Content-Length : 6\r\n\r\nhello", NO),
    Attempt("a length that Connection lists", POST + b"Connection: content-length\r\n" + FIVE + END + b"hello", WHOLE),
    Attempt("chunks that Connection lists",
            POST + b"Connection: transfer-encoding\r\n" + CHUNKED + END + LAST, _posted()),
    Attempt("a request as a body", POST + OF_INNER + END + INNER, _posted(INNER)),
    Attempt("a request as a chunk", POST + CHUNKED + END + b"20\r\n" + INNER + END + LAST, _posted(INNER)),
    Attempt("a body of a GET", GET + OF_INNER + END + INNER, Forwarded((Reading(b"GET", b"/", INNER),))),
)  # fmt: skip

LENGTHS = (
    _long("plain", b" 5", WHOLE),
    _long("spaces around", b" \t5 \t", WHOLE),
    _long("zeros before", b" 0005", WHOLE),
    _long("a plus", b" +5"),
    _long("a minus", b" -5"),
    _long("minus zero", b" -0"),
    _long("hexadecimal", b" 0x5"),
    _long("an underscore", b" 0_5"),
    _long("a list", b" 5, 5"),
    _long("a list with an empty element", b" 5,"),
    _long("two numbers", b" 5 5"),
    _long("a fraction", b" 5.0"),
    _long("an exponent", b" 5e0"),
    _long("in quotes", b' "5"'),
    _long("a parameter", b" 5;a"),
    _long("a vertical tab", b" \x0b5"),
    _long("a zero byte", b" 5\0"),
    _long("other digits", b" \xd9\xa5"),
    _long("none", b""),
    _long("above 64 bits", b" 18446744073709551621"),
    _long("above 63 bits", b" 9223372036854775808"),
)

CODINGS = (
    _coded("plain", b" chunked", WHOLE),
    _coded("no space", b"chunked", WHOLE),
    _coded("another case", b" ChUnKeD", WHOLE),
    _coded("spaces around", b" \t chunked  ", WHOLE),
    _coded("a tab after", b" chunked\t"),
    _coded("prefixed", b" xchunked"),
    _coded("suffixed", b" chunkedx"),
    _coded("in quotes", b' "chunked"'),
    _coded("a parameter", b" chunked;q=1"),
    _coded("a parameter of another", b" gzip;q=1, chunked"),
    _coded("twice", b" chunked, chunked"),
    _coded("not last", b" chunked, gzip"),
    _coded("an empty element before", b" , chunked"),
    _coded("an empty element after", b" chunked,"),
    _coded("after identity", b" identity, chunked"),
    _coded("after a word that nobody knows", b" cow, chunked"),
    _coded("after a word without a comma", b" cow chunked"),
    _coded("identity", b" identity"),
    _coded("none", b""),
    _coded("a vertical tab", b" \x0bchunked"),
    _coded("a form feed", b" chunked\x0c"),
    _coded("a zero byte", b" chunked\0"),
    _coded("a byte above ASCII", b" \xa0chunked"),
)

CHUNKS = (
    _chunks("chunks", HELLO + LAST, WHOLE),
    _chunks("chunk size: zeros before", b"0000005\r\nhello\r\n" + LAST, WHOLE),
    _chunks("chunk size: several zeros last", HELLO + b"000\r\n\r\n", WHOLE),
    _chunks("chunk size: 0x", b"0x5\r\nhello\r\n" + LAST),
    _chunks("chunk size: a plus", b"+5\r\nhello\r\n" + LAST),
    _chunks("chunk size: a minus", b"-5\r\nhello\r\n" + LAST),
    _chunks("chunk size: an underscore", b"0_5\r\nhello\r\n" + LAST),
    _chunks("chunk size: a space before", b" 5\r\nhello\r\n" + LAST),
    _chunks("chunk size: a space after", b"5 \r\nhello\r\n" + LAST),
    _chunks("chunk size: a tab after", b"5\t\r\nhello\r\n" + LAST),
    _chunks("chunk size: none", b"\r\nhello\r\n" + LAST),
    _chunks("chunk size: no digit", b"g\r\nhello\r\n" + LAST),
    _chunks("chunk size: a comma", b"5,5\r\nhello\r\n" + LAST),
    _chunks("chunk size: a zero byte", b"5\0\r\nhello\r\n" + LAST),
    _chunks("chunk size: above 64 bits", b"10000000000000005\r\nhello\r\n" + LAST),
    _chunks("chunk size: far above 64 bits", b"f" * 40 + b"\r\nhello\r\n" + LAST),
    _chunks("chunk size: ends with a line feed", b"5\nhello\r\n" + LAST),
    _chunks("chunk size: ends with a carriage return", b"5\rhello\r\n" + LAST),
    _chunks("chunk: ends with a line feed", b"5\r\nhello\n" + LAST),
    _chunks("chunk: does not end", b"5\r\nhello" + LAST),
    _chunks("chunk: longer than it says", b"5\r\nhello!\r\n" + LAST),
    _chunks("chunk: shorter than it says", b"5\r\nhell\r\n" + LAST),
    _chunks("last chunk: line feeds", HELLO + b"0\n\n" + INNER),
    _chunks("last chunk: a line feed ends it", HELLO + b"0\r\n\n" + INNER),
    _chunks("last chunk: a carriage return ends it", HELLO + b"0\r\n\r" + INNER),
    _chunks("extension: a name", b"5;a\r\nhello\r\n" + LAST, WHOLE),
    _chunks("extension: a value", b"5;a=b\r\nhello\r\n" + LAST, WHOLE),
    _chunks("extension: in quotes", b'5;a="b c"\r\nhello\r\n' + LAST, WHOLE),
    _chunks("extension: a line feed", b"5;a\nhello\r\n" + LAST),
    _chunks("extension: a line feed and a chunk", b"2;\nxx\r\n25\r\n0\r\n\r\n" + INNER),
    _chunks("extension: a carriage return", b"5;a\rb\r\nhello\r\n" + LAST),
    _chunks("extension: a line in quotes", b'5;a="\r\n"\r\nhello\r\n' + LAST),
    _chunks("extension: an escaped line", b'5;a="\\\r\n"\r\nhello\r\n' + LAST),
    _chunks("extension: a zero byte", b"5;a\0\r\nhello\r\n" + LAST),
    _chunks("extension: nothing", b"5;\r\nhello\r\n" + LAST),
    _chunks("extension: a space before", b"5 ;a\r\nhello\r\n" + LAST),
    _chunks("trailer", HELLO + b"0\r\nX-Sum: 1\r\n\r\n", WHOLE),
    _chunks("trailer: a length", b"0\r\n" + OF_INNER + END + INNER),
    _chunks("trailer: a coding", b"0\r\nTransfer-Encoding: chunked\r\n\r\n" + INNER),
    _chunks("trailer: folded", b"0\r\nX: a\r\n b\r\n\r\n"),
    _chunks("trailer: space before the colon", b"0\r\nX : a\r\n\r\n"),
    _chunks("trailer: a bare line feed", b"0\r\nX: a\nY: b\r\n\r\n"),
    _chunks("trailer: a zero byte", b"0\r\nX: a\0\r\n\r\n"),
    _chunks("trailer: no colon", b"0\r\n" + INNER),
)

LINES = (
    _line("space before the colon", b"X : a"),
    _line("a tab before the colon", b"X\t: a"),
    _line("a zero byte in the name", b"X\0: a"),
    _line("a byte above ASCII in the name", b"X\xad: a"),
    _line("a byte order mark", b"\xef\xbb\xbfX: a"),
    _line("a control byte in the name", b"X\x01: a"),
    _line("a delimiter in the name", b"X(: a"),
    _line("no name", b": a"),
    _line("no colon", b"nonsense"),
    _line("a zero byte in the value", b"X: a\0b"),
    _line("a control byte in the value", b"X: a\x01b"),
    _line("a vertical tab in the value", b"X: a\x0bb"),
    _line("a delete in the value", b"X: a\x7fb"),
    _line("a folded value", b"X: a\r\n b"),
    _line("a folded nothing", b"X: a\r\n \r\n Y: b"),
    _line("a bare line feed", b"X: a\nY: b"),
    _line("a bare carriage return", b"X: a\rY: b"),
    _line("two carriage returns", b"X: a\r"),
    _line("an empty value", b"X:", _got()),
    _line("a byte above ASCII in the value", b"X: \xe9", _got()),
    Attempt("head: ends with a line feed", GET + b"\n" + INNER, NO),
    Attempt("head: ends with a carriage return", GET + b"\r" + INNER, NO),
    Attempt("head: line feeds alone", b"GET / HTTP/1.1\nHost: a\n\n" + INNER, NO),
    Attempt("head: begins folded", b"GET / HTTP/1.1\r\n X: a\r\nHost: a\r\n\r\n", NO),
    Attempt("head: empty lines before", b"\r\n\r\n" + GET + END, _got()),
)

REQUEST_LINES = (
    _opened("no version", b"GET /"),
    _opened("HTTP/0.9", b"GET / HTTP/0.9", Refused(505)),
    _opened("HTTP/1.2", b"GET / HTTP/1.2"),
    _opened("HTTP/1.10", b"GET / HTTP/1.10"),
    _opened("HTTP/2.0", b"GET / HTTP/2.0", Refused(505)),
    _opened("a version in small letters", b"GET / http/1.1"),
    _opened("another protocol", b"GET / ICE/1.0"),
    _opened("a version twice", b"GET / HTTP/1.1 HTTP/1.1"),
    _opened("two spaces", b"GET  / HTTP/1.1"),
    _opened("a tab", b"GET\t/ HTTP/1.1"),
    _opened("a space after", b"GET / HTTP/1.1 "),
    _opened("a space before", b" GET / HTTP/1.1"),
    _opened("a carriage return after", b"GET / HTTP/1.1\r"),
    _opened("a method with a delimiter", b"G(T / HTTP/1.1"),
    _opened("a method that nobody knows", b"FROB / HTTP/1.1", _got(method=b"FROB")),
    _opened("a method in small letters", b"get / HTTP/1.1", _got(method=b"get")),
    _opened("CONNECT", b"CONNECT internal:443 HTTP/1.1", Refused(405)),
    _opened("CONNECT to a path", b"CONNECT / HTTP/1.1", Refused(405)),
    _opened("CONNECT in small letters", b"connect internal:443 HTTP/1.1"),
    Attempt("HTTP/2 from its first byte", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Refused(505)),
    Attempt("HTTP/1.0", b"GET / HTTP/1.0\r\n\r\n", Forwarded((Reading(b"GET", b"/"),), closes=True)),
    Attempt(
        "HTTP/1.0 that wants to be kept",
        b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        Forwarded((Reading(b"GET", b"/"),), closes=True),
    ),
)

TARGETS = (
    _aimed("another server", b"http://internal/x", _got(b"/x")),
    _aimed("another server over TLS", b"https://internal/x?y", _got(b"/x?y")),
    _aimed("another server's root", b"http://internal", _got()),
    _aimed("another server's query", b"http://internal?x", _got(b"/?x")),
    _aimed("a user and a server", b"http://user@internal/x", _got(b"/x")),
    _aimed("a server before an at", b"http://a:80@internal/x", _got(b"/x")),
    _aimed("no server", b"http:///x", _got(b"/x")),
    _aimed("the metadata service", b"http://169.254.169.254/latest", _got(b"/latest")),
    _aimed("a file", b"file:///etc/passwd", _got(b"/etc/passwd")),
    _aimed("two slashes", b"//internal/x", _got(b"//internal/x")),
    _aimed("a backslash", b"/\\internal/x", _got(b"/\\internal/x")),
    _aimed("an at in the path", b"/@internal/x", _got(b"/@internal/x")),
    _aimed("an authority", b"internal:443", NO),
    _aimed("an at", b"@internal/x", NO),
    _aimed("a backslash in the server", b"http://a\\@internal/x", NO),
    _aimed("a scheme alone", b"http:/x", NO),
    _aimed("a query alone", b"?x", NO),
    _aimed("a tab", b"/a\tb", NO),
    _aimed("a zero byte", b"/a\0b", NO),
    _aimed("a delete", b"/a\x7fb", NO),
    _aimed("a carriage return", b"/a\rb", NO),
    _aimed("a line feed", b"/a\nb", NO),
    _aimed("an encoded line", b"/a%0d%0aX:%20b", _got(b"/a%0d%0aX:%20b")),
)

HOSTS = (
    _hosted("none", b"X: a\r\n", NO),
    _hosted("two", b"Host: a\r\nHost: internal\r\n", NO),
    _hosted("the same twice", b"Host: a\r\nHost: a\r\n", NO),
    _hosted("space before the colon", b"Host : internal\r\n", NO),
    _hosted("folded", b"Host:\r\n internal\r\n", NO),
    _hosted("folded under another line", b"X: a\r\n Host: internal\r\nHost: a\r\n", NO),
    _hosted("another server", b"Host: internal\r\n", _got()),
    _hosted("empty", b"Host:\r\n", _got()),
    _hosted("a user", b"Host: a@internal\r\n", _got()),
    _hosted("a list", b"Host: a, internal\r\n", _got()),
    _hosted("a path", b"Host: internal/x\r\n", _got()),
    _hosted("a port that is none", b"Host: a:99999\r\n", _got()),
    _hosted("Connection lists it", b"Host: internal\r\nConnection: host\r\n", _got()),
    _hosted("others beside it", b"Host: a\r\nX-Forwarded-Host: internal\r\nForwarded: host=internal\r\n", _got()),
    Attempt(
        "host: another in the target", b"GET http://internal/x HTTP/1.1\r\nHost: other\r\n\r\n", _got(b"/x")
    ),
)  # fmt: skip

H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
OFFERS = (
    Attempt("offer: h2c", GET + H2C + END, _got()),
    Attempt("offer: h2c in capitals", GET + b"Connection: upgrade\r\nUpgrade: H2C\r\n\r\n", _got()),
    Attempt("offer: h2c behind another", GET + b"Connection: upgrade\r\nUpgrade: websocket, h2c\r\n\r\n", _got()),
    Attempt("offer: h2c on a second line", GET + UPGRADE + b"Upgrade: h2c\r\n\r\n", _got()),
    Attempt("offer: h2c with a body", POST + H2C + FIVE + END + b"hello", WHOLE),
    Attempt("offer: that Connection does not name", GET + b"Upgrade: websocket\r\n\r\n", _got()),
    Attempt("offer: that is passed over", GET + UPGRADE + END, _got()),
    Attempt("expect: continue", POST + b"Expect: 100-continue\r\n" + FIVE + END + b"hello", WHOLE),
    Attempt("expect: continue twice", POST + b"Expect: 100-continue, 100-continue\r\n" + FIVE + END + b"hello", WHOLE),
    Attempt("expect: something else", POST + b"Expect: y 100-continue\r\n" + FIVE + END + b"hello", WHOLE),
    Attempt("expect: with chunks", POST + b"Expect: 100-continue\r\n" + CHUNKED + END + HELLO + LAST, WHOLE),
    Attempt("expect: without a body", GET + b"Expect: 100-continue\r\n\r\n", _got()),
    Attempt("trailers that are asked for", GET + b"TE: trailers, chunked\r\nConnection: TE\r\n\r\n", _got()),
    Attempt("a body and one behind it", POST + FIVE + END + b"hello" + INNER,
            Forwarded((Reading(b"POST", b"/", b"hello"), Reading(b"GET", b"/inner")))),
)  # fmt: skip

KINDS = {
    "framings": FRAMINGS,
    "lengths": LENGTHS,
    "codings": CODINGS,
    "chunks": CHUNKS,
    "lines": LINES,
    "request lines": REQUEST_LINES,
    "targets": TARGETS,
    "hosts": HOSTS,
    "offers": OFFERS,
}


# ---------------------------------------------------------------- answers


class Given(NamedTuple):
    """The client reads exactly this answer, and the next one is its own."""

    status: int
    body: bytes = b""


class Withheld(NamedTuple):
    """The client reads 502, or an answer that breaks off: never a whole one, and never a byte of a broken head."""


class Reply(NamedTuple):
    """An upstream's bytes after a request, and the only outcome that they may have; `closes` if it hangs up then."""

    name: str
    raw: bytes
    outcome: Given | Withheld
    method: bytes = b"GET"
    closes: bool = False


OK = b"HTTP/1.1 200 OK\r\n"
SECOND = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
READ, NEVER = Given(200, b"hello"), Withheld()


def _said(name: str, line: bytes) -> Reply:
    return Reply(f"answer: {name}", OK + line + b"\r\nContent-Length: 5\r\n\r\nhello", NEVER)


def _status(name: str, line: bytes) -> Reply:
    return Reply(f"answer: status line: {name}", line + b"\r\nContent-Length: 5\r\n\r\nhello", NEVER)


def _in_chunks(name: str, body: bytes, outcome: Given | Withheld = NEVER) -> Reply:
    return Reply(name, OK + CHUNKED + END + body, outcome)


REPLIES = (
    Reply("answer: a length", OK + FIVE + END + b"hello", READ),
    Reply("answer: chunks and a length", OK + CHUNKED + b"Content-Length: 3\r\n\r\n" + HELLO + LAST, READ),
    Reply("answer: a length and chunks", OK + b"Content-Length: 3\r\n" + CHUNKED + END + HELLO + LAST, READ),
    Reply("answer: chunked on two lines", OK + CHUNKED + CHUNKED + END + HELLO + LAST, READ),
    Reply("answer: two lengths", OK + FIVE + b"Content-Length: 3\r\n\r\nhello", NEVER),
    Reply("answer: the same length twice", OK + FIVE + FIVE + END + b"hello", READ),
    Reply("answer: a list of lengths", OK + b"Content-Length: 5, 5\r\n\r\nhello", NEVER),
    Reply("answer: a signed length", OK + b"Content-Length: +5\r\n\r\nhello", NEVER),
    Reply("answer: a hexadecimal length", OK + b"Content-Length: 0x5\r\n\r\nhello", NEVER),
    Reply("answer: an empty length", OK + b"Content-Length:\r\n\r\nhello", NEVER),
    Reply("answer: an endless length", OK + b"Content-Length: 99999999999999999999\r\n\r\nhello", NEVER),
    Reply("answer: bytes behind a length", OK + FIVE + END + b"hello" + SECOND, READ),
    Reply("answer: bytes behind the last chunk", OK + CHUNKED + END + HELLO + LAST + SECOND, READ),
    Reply("answer: bytes behind a 204", b"HTTP/1.1 204 No Content\r\n\r\n" + SECOND, Given(204)),
    Reply("answer: a body of a 304",
          b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello" + SECOND, Given(304)),
    Reply("answer: a body for HEAD", OK + FIVE + END + b"hello" + SECOND, Given(200), b"HEAD"),
    Reply("answer: chunks for HEAD", OK + CHUNKED + END + HELLO + LAST, Given(200), b"HEAD"),
    Reply("answer: no length", OK + END + b"hello", READ, closes=True),
    Reply("answer: HTTP/1.0", b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", READ),
    Reply("answer: a length that Connection lists",
                OK + b"Connection: content-length\r\n" + FIVE + END + b"hello", READ),
    Reply("answer: a thousand interim answers",
          b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 1000 + OK + FIVE + END + b"hello", READ),
    Reply("answer: an interim answer with a length",
          b"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nhello" + SECOND, NEVER),
    Reply("answer: an upgrade that nobody asked for",
          b"HTTP/1.1 101 Switching Protocols\r\n" + UPGRADE + END + SECOND, NEVER),
    Reply("answer: an interim answer and nothing", b"HTTP/1.1 100 Continue\r\n\r\n", NEVER, closes=True),
    Reply("answer: a body that is cut", OK + FIVE + END + b"hell", NEVER, closes=True),
    Reply("answer: chunks that are cut", OK + CHUNKED + END + HELLO, NEVER, closes=True),
    Reply("answer: a long head", OK + b"X: " + b"a" * 200_000 + END + FIVE + END + b"hello", NEVER),
    Reply("answer: line feeds alone", b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", NEVER),
    Reply("answer: no HTTP", b"\x16\x03\x01\x02\x00\x01\r\n\r\n", NEVER),
    _status("HTTP/2", b"HTTP/2 200 OK"),
    _status("HTTP/0.9", b"HTTP/0.9 200 OK"),
    _status("another protocol", b"ICY 200 OK"),
    _status("two digits", b"HTTP/1.1 20 OK"),
    _status("four digits", b"HTTP/1.1 2000 OK"),
    _status("below 100", b"HTTP/1.1 099 OK"),
    _status("zero", b"HTTP/1.1 000 OK"),
    _status("a sign", b"HTTP/1.1 +20 OK"),
    _status("a space before", b" HTTP/1.1 200 OK"),
    _status("a carriage return", b"HTTP/1.1 200 O\rK"),
    _said("space before the colon", b"X : a"),
    _said("a folded line", b"X: a\r\n b"),
    _said("a bare line feed", b"X: a\nContent-Length: 3"),
    _said("a bare carriage return", b"X: a\rContent-Length: 3"),
    _said("a zero byte", b"X: a\0b"),
    _said("a zero byte in a name", b"X\0: a"),
    _said("a line without a colon", b"nonsense"),
    _said("a line without a name", b": a"),
    _in_chunks("answer: chunk size: 0x", b"0x5\r\nhello\r\n" + LAST),
    _in_chunks("answer: chunk size: a plus", b"+5\r\nhello\r\n" + LAST),
    _in_chunks("answer: chunk size: a space", b"5 \r\nhello\r\n" + LAST),
    _in_chunks("answer: chunk size: above 64 bits", b"10000000000000005\r\nhello\r\n" + LAST),
    _in_chunks("answer: chunk size: a line feed", b"5\nhello\r\n" + LAST),
    _in_chunks("answer: chunk: longer than it says", b"5\r\nhello!\r\n" + LAST),
    _in_chunks("answer: last chunk: line feeds", HELLO + b"0\n\n" + SECOND),
    _in_chunks("answer: extension: a line feed", b"5;a\nhello\r\n" + LAST),
    _in_chunks("answer: extension", b"5;a=b\r\nhello\r\n" + LAST, READ),
    _in_chunks("answer: trailer: a length", HELLO + b"0\r\nContent-Length: 3\r\n\r\n" + SECOND),
    _in_chunks("answer: trailer", HELLO + b"0\r\nX-Sum: 1\r\n\r\n", READ),
)  # fmt: skip
