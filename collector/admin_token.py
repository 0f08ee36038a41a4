"""The admin port from outside: its bearer token and where that comes from, and a connection to it."""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Mapping
from pathlib import Path

from collector.config import AdminAuth, ConfigError
from collector.config_tree import read_file

MAX_FILE = 8192  # bytes
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]{16,4096}=*")  # token68 of RFC 9110, 11.2, and not too short to be guessed


def parse_token(text: str) -> str:
    """A token without the line end of its file, or ConfigError, which never repeats it."""
    token = text.strip()
    if _TOKEN.fullmatch(token) is None:
        raise ConfigError(
            "expected one token of at least 16 letters, digits or -._~+/ (it is not shown); "
            "`openssl rand -hex 32` makes one"
        )
    return token


def read_token(path: Path) -> str:
    """The token that a file holds, or ConfigError."""
    return parse_token(read_file(path, MAX_FILE).decode("utf-8", "replace"))


def token_of(auth: AdminAuth, environ: Mapping[str, str]) -> str | None:
    """The token that these settings ask for, None where they ask for none; or ConfigError."""
    if auth.token_file is not None:
        return read_token(Path(auth.token_file))
    said = environ.get(auth.token_env)
    return parse_token(said) if said else None


def bearer(token: str | None) -> dict[str, str]:
    """The header that shows a token; none without one."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def connection_to(
    scheme: str, host: str, port: int | None, timeout: float, ca_file: str | None
) -> http.client.HTTPConnection:
    """A connection to an admin port, not yet opened. With https it is verified by `ca_file`, else as the system does.

    OSError where `ca_file` cannot be used.
    """
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout)
    return http.client.HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context(cafile=ca_file))
