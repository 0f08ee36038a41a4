"""Through which forward proxy an upstream is reached, as the settings or the environment say."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import unquote_to_bytes, urlsplit

from msgspec import Struct

from collector.config import ConfigError, Route, parse_upstream

NONE = "none"  # what a route says that goes to its upstream directly, whatever the environment says
DEFAULT_PORT = 80

_HOST = re.compile(r"[A-Za-z0-9_.:-]{1,253}")


class ForwardProxy(Struct, frozen=True):
    """A proxy that speaks HTTP without TLS; `authorization` is the value of its own header line, empty for none."""

    host: str
    port: int
    authorization: bytes = b""


def forward_proxy_of(route: Route, environ: Mapping[str, str]) -> ForwardProxy | None:
    """The proxy for a route's upstream, None for a direct connection. ConfigError where it is none that can be used.

    The route's own setting comes first, then `https_proxy` or `http_proxy` by the upstream's scheme, then `all_proxy`,
    in small letters before capitals, and `no_proxy` as curl reads it, with networks. An upstream on this machine is
    never asked for through a proxy of the environment.
    """
    if route.proxy is not None:
        return None if route.proxy == NONE else parse_forward_proxy(route.proxy, "routes[].proxy", may_have_user=False)
    upstream = parse_upstream(route.upstream)
    name = _first_set(environ, f"{upstream.scheme}_proxy", "all_proxy")
    if name is None or _is_here(upstream.host) or _is_exempt(upstream.host, upstream.port, environ):
        return None
    return parse_forward_proxy(environ[name], name, may_have_user=True)


def parse_forward_proxy(url: str, where: str, *, may_have_user: bool) -> ForwardProxy:
    """`http://[user:password@]host[:port]`, or without the scheme. ConfigError, which does not repeat the text."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{where}: expected a proxy such as http://host:3128") from error
    if parts.scheme != "http":
        raise ConfigError(
            f"{where}: expected a proxy such as http://host:3128; semhealth speaks to no proxy over TLS or SOCKS. "
            "`proxy: none` on a route leaves the environment's out"
        )
    if host is None or not _HOST.fullmatch(host) or port == 0 or parts.path not in ("", "/") or parts.query:
        raise ConfigError(f"{where}: expected a proxy such as http://host:3128")
    if parts.username is None:
        return ForwardProxy(host, DEFAULT_PORT if port is None else port)
    if not may_have_user:
        raise ConfigError(f"{where}: expected a proxy without a user; one with credentials is read from https_proxy")
    user = unquote_to_bytes(parts.username) + b":" + unquote_to_bytes(parts.password or "")
    return ForwardProxy(host, DEFAULT_PORT if port is None else port, b"Basic " + base64.b64encode(user))


def _first_set(environ: Mapping[str, str], *names: str) -> str | None:
    for name in names:
        for spelt in (name, name.upper()):
            if environ.get(spelt):
                return spelt
    return None


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_exempt(host: str, port: int, environ: Mapping[str, str]) -> bool:
    name = _first_set(environ, "no_proxy")
    entries = environ[name].lower().split(",") if name is not None else ()
    return any(_matches(host, port, entry.strip()) for entry in entries)


def _matches(host: str, port: int, entry: str) -> bool:
    if entry == "*":
        return True
    try:
        return ip_address(host) in ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        pass  # a name
    name, separator, digits = entry.rpartition(":")
    if separator and digits.isdigit():
        if int(digits) != port:
            return False
        entry = name.strip("[]")
    entry = entry.removeprefix("*").removeprefix(".")
    return bool(entry) and (host == entry or host.endswith(f".{entry}"))
