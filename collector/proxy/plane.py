"""What all connections of one worker share: settings, routes, pool, tap and counts."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import ssl
import traceback
from typing import Protocol

from collector.config import Settings, Tls
from collector.model import Clock, ProxyVitals
from collector.proxy.handing import Heir
from collector.proxy.pool import Pool
from collector.proxy.routes import Routes
from collector.proxy.tap import Tap

REFUSED_REASONS = (
    "no_route", "bad_request", "head_over_cap", "body_over_cap", "unsupported_protocol", "over_connections", "draining",
)  # fmt: skip

MOST_TURNED_AWAY = 1000  # beyond it, connections over the bound are closed without a word
SAY_AGAIN = 60.0  # seconds between two lines about the same route

LOG = logging.getLogger("semhealth.proxy")


class Closable(Protocol):
    """A client's connection, as the worker sees it when it ends."""

    def is_flushed(self) -> bool: ...
    def give_way(self) -> None: ...
    def drain(self) -> None: ...
    def cut(self) -> None: ...


class Plane:
    """The worker's one set of collaborators, handed to every connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: Settings,
        routes: Routes,
        clock: Clock,
        *,
        number: int,
        boot: str,
        analyst: str | None,
    ) -> None:
        self.loop = loop
        self.settings = settings.proxy
        self.routes = routes
        self.clock = clock
        self.monotonic = clock.monotonic
        self.number = number
        self.boot = boot
        self.pool = Pool(loop, settings.proxy.pool_size, settings.proxy.pool_idle, settings.proxy.pool_age)
        self.tap = Tap(loop, analyst, settings.proxy.queue, self.vitals)
        self.tls = tls_context(settings.proxy.tls)
        self.refused = dict.fromkeys(REFUSED_REASONS, 0)
        self.clients: set[Closable] = set()  # at most `max_connections`
        self.turned_away: set[Closable] = set()  # told that they are too many; at most MOST_TURNED_AWAY
        self.tasks: set[asyncio.Task[None]] = set()  # connecting; at most one per client
        self.in_flight = 0
        self.held = 0  # bytes of bodies that wait to be signed; at most signed.MAX_HELD
        self.draining = False
        self.heir: Heir | None = None  # where connections are handed on, once this worker gives way
        self.lag = 0.0
        self.starved = 0  # how often a connection waited since no descriptor or memory was left for it
        self.next_id = itertools.count(1).__next__  # of the next exchange; they grow over the life of the worker
        self._complained: dict[str, float] = {}
        self._starvation_told = -SAY_AGAIN

    def complain(self, route: str, what: str) -> None:
        """Say in one line what is wrong with a route's upstream, at most once in SAY_AGAIN seconds each."""
        now = self.monotonic()
        said = self._complained.get(route)
        if said is None or now - said >= SAY_AGAIN:
            self._complained[route] = now  # bounded by the routes
            LOG.warning("route %s: %s; requests are answered with an error that names semhealth", route, what)

    def count_starvation(self, error: OSError) -> None:
        """A connection waits, since none can be accepted; said at most once in SAY_AGAIN seconds."""
        self.starved += 1
        now = self.monotonic()
        if now - self._starvation_told >= SAY_AGAIN:
            self._starvation_told = now
            LOG.warning(
                "new connections wait, they cannot be accepted: %s (tried in vain %d times so far); raise the limit of "
                "open files", errno.errorcode.get(error.errno or 0, type(error).__name__), self.starved
            )  # fmt: skip

    def vitals(self) -> ProxyVitals:
        """The totals as they stand; the worst lag since they were last asked for."""
        lag, self.lag = self.lag, 0.0
        tap = self.tap
        return ProxyVitals(
            worker=self.number,
            boot=self.boot,
            at=self.monotonic(),
            forwarded=tap.forwarded,
            unobserved=dict(tap.unobserved),
            refused=dict(self.refused),
            in_flight=self.in_flight,
            queue_bytes=tap.queued,
            loop_lag=lag,
            starved=self.starved,
        )


def tls_context(tls: Tls) -> ssl.SSLContext:
    """The system's trust, and the CA file's on top of it. OSError (ssl.SSLError) for files that cannot be used."""
    context = ssl.create_default_context()
    if tls.ca_file is not None:
        context.load_verify_locations(tls.ca_file)
    if tls.client_cert is not None:
        context.load_cert_chain(tls.client_cert, tls.client_key)
    context.set_alpn_protocols(["http/1.1"])
    return context


def report_fault(error: BaseException, where: str) -> None:
    """One line for a fault of our own: what and at which line of code, but never a byte that passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else "unknown place"
    LOG.error("unexpected %s at %s %s; that connection was closed", type(error).__name__, place, where)
