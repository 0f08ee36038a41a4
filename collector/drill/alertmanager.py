"""An Alertmanager of the user's own, to which a drill sends its alerts besides."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
import msgspec
import yaml
from msgspec import Struct

from collector.drill.scaling import seconds_of
from collector.drill.stage import DrillError

PORTS = {"http": 80, "https": 443}
TIMEOUT = aiohttp.ClientTimeout(total=5.0)
MOST_BYTES = 8 * 1024 * 1024  # of one answer
GROUP_WAIT = 30.0  # seconds, where no route states it (Alertmanager's documentation, route)
LONGEST_WAIT = 120.0  # seconds that a drill goes on with a fault for a group's wait
SLACK = 2.0  # seconds for the notification itself
SETTLE = 15.0  # seconds from the drill's own receiver until the alert is there too
POLL = 0.5
TRIES = 3
WHERE = "give the address that its web page has, http or https, with the path before #/"


class Address(Struct, frozen=True):
    """Where an Alertmanager is. `host` always has its port; `prefix` is empty or begins with a slash."""

    scheme: str
    host: str
    prefix: str = ""
    user: str | None = None
    password: str = ""

    @property
    def shown(self) -> str:
        """The address without user and password."""
        return f"{self.scheme}://{self.host}{self.prefix}"


class Arrival(Struct, frozen=True):
    """What became of an alert at the user's Alertmanager.

    `receivers` are those that it notifies, sorted: none where a silence or an inhibition holds the alert back, or
    where it ended before the `group_wait` of its route did.
    """

    received: bool
    receivers: tuple[str, ...]


def drill_labels() -> dict[str, str]:
    """What tells the alerts of this drill from real ones, and keeps them out of their groups and inhibitions."""
    return {"drill": "true", "namespace": f"drill-{secrets.token_hex(4)}"}


def address_of(url: str) -> Address:
    """`http(s)://[user:password@]host[:port][/prefix]`; DrillError for anything else, which never shows a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise DrillError(_EXPECTED) from None
    if parts.scheme not in PORTS or not parts.hostname or parts.query:
        raise DrillError(_EXPECTED)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return Address(
        parts.scheme,
        f"{host}:{PORTS[parts.scheme] if port is None else port}",
        parts.path.rstrip("/"),
        None if parts.username is None else unquote(parts.username),
        unquote(parts.password or ""),
    )


_EXPECTED = "--alertmanager: expected http(s)://[user:password@]host[:port][/prefix], such as http://127.0.0.1:9093"


def sent_to(address: Address) -> dict[str, Any]:
    """The entry of `alerting.alertmanagers` in Prometheus' configuration."""
    login = {} if address.user is None else {"basic_auth": {"username": address.user, "password": address.password}}
    return {
        "scheme": address.scheme,
        "path_prefix": address.prefix or "/",
        "static_configs": [{"targets": [address.host]}],
        **login,
    }


class Route(Struct, frozen=True):
    """As far as a drill reads Alertmanager's routes."""

    receiver: str | None = None
    group_wait: str | None = None
    routes: tuple[Route, ...] = ()


class _Config(Struct, frozen=True):
    route: Route


class _Original(Struct, frozen=True):
    original: str


class _Status(Struct, frozen=True):
    config: _Original


class _Named(Struct, frozen=True):
    name: str


class _State(Struct, frozen=True):
    state: str


class _Held(Struct, frozen=True):
    labels: dict[str, str]
    receivers: tuple[_Named, ...]
    status: _State


def waits_of(route: Route, inherited: float = GROUP_WAIT, receiver: str | None = None) -> dict[str, float]:
    """For each receiver the longest `group_wait` of the routes that lead to it, in seconds."""
    own = inherited if route.group_wait is None else seconds_of(route.group_wait)
    name = receiver if route.receiver is None else route.receiver
    waits = {} if name is None else {name: own}
    for inner in route.routes:
        for leads_to, wait in waits_of(inner, own, name).items():
            waits[leads_to] = max(wait, waits.get(leads_to, 0.0))
    return waits


class Alertmanager:
    """The user's Alertmanager. `labels` are those that every alert of this drill carries."""

    def __init__(self, address: Address, labels: dict[str, str], session: aiohttp.ClientSession) -> None:
        self.address = address
        self._session = session
        self._filters = [("filter", f"{name}={json.dumps(value)}") for name, value in labels.items()]
        self._headers = {} if address.user is None else {"Authorization": _basic(address.user, address.password)}
        self._waits: dict[str, float] = {}

    async def check(self) -> None:
        """Ask it for its routes; DrillError where it does not answer as an Alertmanager does."""
        try:
            body = await self._get("status")
            original = msgspec.json.decode(body, type=_Status).config.original
            self._waits = waits_of(msgspec.convert(yaml.safe_load(original), _Config).route)
        except aiohttp.ClientResponseError as error:
            raise DrillError(f"{self.address.shown}/api/v2/status answered {error.status}: {_hint(error)}") from error
        except aiohttp.ClientConnectorCertificateError as error:
            raise DrillError(
                f"the certificate of {self.address.shown} is not trusted ({error.certificate_error}): name the file of "
                "its authority in SSL_CERT_FILE"
            ) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            reason = str(error) or "time-out"
            raise DrillError(
                f"no Alertmanager answers at {self.address.shown} ({reason}): start it, or {WHERE}"
            ) from error
        except (msgspec.MsgspecError, yaml.YAMLError, ValueError) as error:
            raise DrillError(
                f"{self.address.shown}/api/v2/status does not answer as an Alertmanager does: {WHERE}"
            ) from error

    async def follow(self, name: str, concerns: Callable[[dict[str, str]], bool], patience: float) -> Arrival:
        """What becomes of an alert there, which may take `patience` seconds to come.

        Returns when the groups of all its receivers have been notified, or it ended before.
        """
        began = time.monotonic()
        arrived: float | None = None
        since: dict[str, float] = {}
        told: set[str] = set()
        while True:
            held = await self._held(name, concerns)
            now = time.monotonic()
            arrived = now if arrived is None and held else arrived
            active = {to.name for each in held if each.status.state != "suppressed" for to in each.receivers}
            since = {to: since.get(to, now) for to in active}
            told |= {to for to, at in since.items() if now >= at + self._wait(to)}
            if arrived is None:
                if now >= began + patience:
                    return Arrival(False, ())
            elif not held or now >= arrived + min(LONGEST_WAIT, self._longest(held)):
                await asyncio.sleep(SLACK)
                return Arrival(True, tuple(sorted(told)))
            await asyncio.sleep(POLL)

    def _wait(self, receiver: str) -> float:
        return self._waits.get(receiver, GROUP_WAIT)

    def _longest(self, held: list[_Held]) -> float:
        return max((self._wait(to.name) for each in held for to in each.receivers), default=0.0) + POLL

    async def _held(self, name: str, concerns: Callable[[dict[str, str]], bool]) -> list[_Held]:
        """The alerts of this drill and this name; none where it does not answer three times."""
        for _ in range(TRIES):
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError):
                body = await self._get("alerts", [*self._filters, ("filter", f'alertname="{name}"')])
                return [each for each in msgspec.json.decode(body, type=list[_Held]) if concerns(each.labels)]
            await asyncio.sleep(POLL)
        return []

    async def _get(self, what: str, query: list[tuple[str, str]] | None = None) -> bytes:
        url = f"{self.address.shown}/api/v2/{what}"
        async with self._session.get(url, params=query, headers=self._headers, timeout=TIMEOUT) as answer:
            answer.raise_for_status()
            body = b""
            async for part in answer.content.iter_any():
                body += part
                if len(body) > MOST_BYTES:
                    raise aiohttp.ClientPayloadError(f"the answer has more than {MOST_BYTES} bytes")
            return body


def _basic(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def _hint(error: aiohttp.ClientResponseError) -> str:
    if error.status in (401, 403):
        return "put user and password into the address, as in https://user:password@host:9093"
    return WHERE
