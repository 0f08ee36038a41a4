"""Who may ask the admin port for what: with a token if one is set, by reading methods, and not from a web page."""

from __future__ import annotations

import hmac
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from collector.admin_token import parse_token, read_token
from collector.config import AdminAuth, AdminTls, ConfigError, Settings, parse_address

log = logging.getLogger("semhealth.admin")

OPEN = frozenset({"/livez", "/readyz"})  # for probes, which have no token; they tell nothing but that it runs
RELOAD = "/-/reload"  # the one path that is written to
READING = ("GET", "HEAD")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Token:
    """What a request has to show. A file is read again when it changes; while it cannot be used, nobody is let in."""

    def __init__(self, auth: AdminAuth, environ: Mapping[str, str]) -> None:
        self._path = None if auth.token_file is None else Path(auth.token_file)
        said = environ.get(auth.token_env)
        self._token = parse_token(said).encode() if self._path is None and said else None
        self._read_at: tuple[int, int, int] | None = None

    @property
    def is_asked_for(self) -> bool:
        return self._path is not None or self._token is not None

    def admits(self, authorization: str) -> bool:
        """Whether this value of `Authorization` shows the token; compared in constant time."""
        if not self.is_asked_for:
            return True
        self._refresh()
        scheme, _, shown = authorization.partition(" ")
        is_right = hmac.compare_digest(shown.strip().encode("utf-8", "surrogateescape"), self._token or b"")
        return is_right and self._token is not None and scheme.lower() == "bearer"

    def _refresh(self) -> None:
        if self._path is None:
            return
        try:
            state = self._path.stat()
            read_at = (state.st_mtime_ns, state.st_ino, state.st_size)
            if read_at == self._read_at:
                return
            self._read_at = read_at
            self._token = read_token(self._path).encode()
        except (OSError, ConfigError) as error:
            if self._token is not None or self._read_at is None:
                log.error("admin_auth.token_file cannot be used, nobody is let in: %s", error)
            self._token = None


def guarded(app: web.Application, settings: Settings, environ: Mapping[str, str]) -> web.Application:
    """The same application, which answers only whom it should."""
    token = Token(settings.admin_auth, environ)
    is_local = is_loopback(parse_address(settings.admin)[0])

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method not in READING and not (request.method == "POST" and request.path == RELOAD):
            return _refused(
                405, f"the admin port is read with GET or HEAD; only {RELOAD} takes a POST", Allow="GET, HEAD"
            )
        if request.path in OPEN:
            return await handler(request)
        if is_local and not token.is_asked_for and not is_own_name(request.headers.get("Host", "")):
            return _refused(403, "the Host is neither an address nor localhost: a web page may have sent this")
        if request.method == "POST" and "Origin" in request.headers:
            return _refused(403, "a web page sent this")
        if not token.admits(request.headers.get("Authorization", "")):
            challenge = {"WWW-Authenticate": 'Bearer realm="semhealth"'}
            return _refused(401, "a bearer token is needed; see admin_auth in docs/security.md", **challenge)
        return await handler(request)

    app.middlewares.append(guard)
    logging.getLogger("aiohttp.server").addFilter(_without_request)
    return app


def warnings(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """What to say at the start of an admin port that more than this machine can reach."""
    host = parse_address(settings.admin)[0]
    if is_loopback(host):
        return []
    if not Token(settings.admin_auth, environ).is_asked_for:
        return [
            f"admin: {settings.admin} is not loopback, and no token is set: whoever reaches it reads records "
            "and metrics and can have the configuration reloaded; set admin_auth.token_file, or admit Prometheus alone"
        ]
    if settings.admin_tls.cert_file is None:
        return [f"admin: {settings.admin} is not loopback, and its token travels without TLS; see admin_tls"]
    return []


def server_tls(tls: AdminTls) -> ssl.SSLContext | None:
    """TLS of the admin port, None where none is set. OSError where its files cannot be used."""
    if tls.cert_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(tls.cert_file, tls.key_file, password="")  # never ask at a terminal
    return context


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine alone."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_own_name(authority: str) -> bool:
    """Whether a Host can be of no other's making: an address, `localhost`, or none.

    A page whose name was pointed at 127.0.0.1 after it was loaded (DNS rebinding) is named by that name.
    """
    if not authority:
        return True
    try:
        host = urlsplit(f"//{authority}").hostname or ""
        return host == "localhost" or bool(ip_address(host))
    except ValueError:
        return False


def _without_request(record: logging.LogRecord) -> bool:
    """Lets a record through without the error that quotes the bytes of a request which is not HTTP."""
    if record.exc_info and isinstance(record.exc_info[1], HttpProcessingError):
        record.exc_info = record.exc_text = None
    return True


def _refused(status: int, message: str, **headers: str) -> web.Response:
    return web.json_response({"error": {"message": message, "source": "semhealth"}}, status=status, headers=headers)
