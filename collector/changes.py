"""What of a configuration concerns whom, and the files that its processes read when they are started again."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec
from msgspec.structs import replace

from collector.config import (
    AdminAuth,
    AdminTls,
    Analysis,
    ConfigError,
    EmbedderSettings,
    Exporters,
    FindingSettings,
    Privacy,
    Problem,
    Proxy,
    Settings,
    Tls,
    ValidatorSettings,
    extra_labels,
    routes_of,
)

_KEPT = re.compile(r"(?:prices|ca)-(\d+)")


def digests_of(*paths: str | None) -> dict[str, str]:
    """The contents of these files, as digests; empty for one that cannot be read."""
    found = {}
    for path in paths:
        if path is not None:
            try:
                found[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            except OSError:
                found[path] = ""
    return found


def files_of_workers(settings: Settings) -> dict[str, str]:
    """What the workers read besides the settings, as digests."""
    tls = settings.proxy.tls
    return digests_of(tls.ca_file, tls.client_cert, tls.client_key)


def files_of_admin(settings: Settings) -> dict[str, str]:
    """What the admin port's TLS reads, as digests."""
    return digests_of(settings.admin_tls.cert_file, settings.admin_tls.key_file)


def for_workers(settings: Settings) -> bytes:
    """All but what only others read: workers are changed for new ones where it differs."""
    routes = tuple(
        replace(
            route, dialect=None, provider=None, contract=None, labels={}, objectives=(), objective_profile=None,
            cost_per_hour=None, findings=FindingSettings(),
        )
        for route in routes_of(settings)
    )  # fmt: skip
    rest = replace(
        settings, upstream=None, routes=routes, admin="", admin_auth=AdminAuth(), admin_tls=AdminTls(),
        label_headers={}, analysis=Analysis(), embedder=EmbedderSettings(), validator=ValidatorSettings(),
        exporters=Exporters(), privacy=Privacy(), findings=FindingSettings(), objective_profile="none", prices=None,
    )  # fmt: skip
    return msgspec.json.encode(rest)


def why_a_new_analyst(old: Settings, new: Settings) -> str:
    """What an analyst that runs cannot take from new settings, in words; empty where it can take all."""
    if extra_labels(old) != extra_labels(new):
        return "the labels differ"
    of_old, of_new = _fixed(old), _fixed(new)
    differing = [name for name in Settings.__struct_fields__ if getattr(of_old, name) != getattr(of_new, name)]
    return f"{differing[0]} differs" if differing else ""


def _fixed(settings: Settings) -> Settings:
    """The settings without what an analyst takes while it runs; the workers' are none of its own."""
    analysis = Analysis(records=settings.analysis.records, window=settings.analysis.window)
    return replace(
        settings, upstream=None, listen="", health=None, routes=(), label_headers={}, proxy=Proxy(), analysis=analysis,
        privacy=Privacy(), findings=FindingSettings(), objective_profile="none", prices=None, log_level="info",
    )  # fmt: skip


def keep_files(settings: Settings, runtime: Path, generation: int) -> Settings:
    """The settings with copies of the prices and of the CA file, which are sound and cannot be broken later.

    A process that is started again reads these copies. What holds keys is not copied. ConfigError where a file cannot
    be used any more, or cannot be copied.
    """
    tls = settings.proxy.tls
    prices = _copy("prices", settings.prices, runtime / f"prices-{generation}")
    ca_file = _copy("proxy.tls.ca_file", tls.ca_file, runtime / f"ca-{generation}")
    kept = replace(settings, prices=prices, proxy=replace(settings.proxy, tls=replace(tls, ca_file=ca_file)))
    if prices is not None:
        from collector.prices import read_table  # noqa: PLC0415 - only where a file of prices is stated

        read_table(Path(prices))
    if tls != Tls():
        from collector.proxy.plane import tls_context  # noqa: PLC0415 - the same

        try:
            tls_context(kept.proxy.tls)
        except OSError as error:
            raise ConfigError([Problem("proxy.tls", f"these files cannot be used: {error.strerror}")]) from error
    return kept


def forget_files(runtime: Path, generation: int) -> None:
    """Remove the copies of other generations."""
    for path in runtime.iterdir():
        found = _KEPT.fullmatch(path.name)
        if found is not None and int(found[1]) != generation:
            path.unlink(missing_ok=True)


def _copy(key: str, source: str | None, to: Path) -> str | None:
    if source is None:
        return None
    try:
        to.touch(mode=0o600)
        to.write_bytes(Path(source).read_bytes())
    except OSError as error:
        raise ConfigError([Problem(key, f"{source} cannot be read or kept: {error.strerror}")]) from error
    return str(to)
