"""Puts the shipped dashboards, and on request a data source for them, into a Grafana over its HTTP API."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml
from msgspec import Struct

TIMEOUT = 15.0  # seconds for one request
MOST_SHOWN = 8  # differences of one object that are named
FOLDER = "semhealth"
SET_BY_GRAFANA = ("id", "version")
_PLACES = (  # in an installed wheel, and in a checkout
    Path(__file__).resolve().parent / "shipped" / "dashboards",
    Path(__file__).resolve().parent.parent / "dashboards",
)

Json = dict[str, Any]  # what Grafana's API takes and gives; its shape is Grafana's


class GrafanaPushError(Exception):
    """Grafana could not be reached, refused, or has something that must not be overwritten."""


class Change(Struct, frozen=True):
    """What one object needs, or got. `differences` are paths, such as `panels 'Fast': targets`."""

    kind: Literal["folder", "data source", "dashboard"]
    name: str
    action: Literal["create", "update", "none"]
    differences: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = {"create": "new", "update": "changed", "none": "as it should be"}[self.action]
        shown = self.differences[:MOST_SHOWN]
        more = len(self.differences) - len(shown)
        return "\n".join(
            [
                f"{self.kind} {self.name}: {said}",
                *(f"  {each}" for each in shown),
                *([f"  and {more} more"] * (more > 0)),
            ]
        )


def shipped_dashboards() -> tuple[Json, ...]:
    """The dashboards that come with semhealth, by file name."""
    return tuple(json.loads(path.read_text(encoding="utf-8")) for path in sorted(_shipped().glob("semhealth-*.json")))


def _shipped() -> Path:
    for place in _PLACES:
        if place.is_dir():
            return place
    raise GrafanaPushError(f"{_PLACES[0]}: the dashboards are missing; install semhealth again")


def shipped_source(url: str) -> Json:
    """The data source of the provisioning files, for a Prometheus at another address."""
    text = (_shipped() / "provisioning" / "datasources" / "prometheus.yml").read_text(encoding="utf-8")
    sources: Sequence[Json] = yaml.safe_load(text)["datasources"]
    source = next(each for each in sources if each["type"] == "prometheus")
    # Links from exemplars name the tracing backend of the Compose file's environment.
    settings = {key: value for key, value in source["jsonData"].items() if key != "exemplarTraceIdDestinations"}
    return {**source, "url": url, "isDefault": False, "jsonData": settings}


def push(url: str, token: str, folder: str = FOLDER, prometheus: str | None = None, *, dry_run: bool) -> list[Change]:
    """Make a Grafana's folder, data source and dashboards what is shipped; a second time changes nothing.

    `url` is Grafana's own; `prometheus` is an address as Grafana reaches it, None leaves data sources alone. Raises
    GrafanaPushError; what was pushed before it stays.
    """
    api = _connect(url, token)
    try:
        place, changes = _push_folder(api, folder, dry_run)
        if prometheus is not None:
            changes.append(_push_source(api, shipped_source(prometheus), dry_run))
        return [*changes, *(_push_dashboard(api, each, place, dry_run) for each in shipped_dashboards())]
    except OSError as error:
        raise GrafanaPushError(f"{_shown(url)}: no connection: {type(error).__name__}") from error


def differences(wanted: object, found: object, path: str = "") -> tuple[str, ...]:
    """Paths at which what is wanted is not found. What is found beside it is Grafana's own and no difference."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return tuple(
            each
            for key, value in wanted.items()
            if key not in SET_BY_GRAFANA or path  # of the whole; a panel's id is ours
            for each in differences(value, found.get(key), f"{path}: {key}" if path else str(key))
        )
    if isinstance(wanted, list) and isinstance(found, list):
        if len(wanted) != len(found):
            return (f"{path}: {len(found)} → {len(wanted)}",)
        return tuple(
            each
            for i, (ours, theirs) in enumerate(zip(wanted, found, strict=True))
            for each in differences(ours, theirs, f"{path} {_name(ours, i)}")
        )
    return () if wanted == found else (path,)


def _name(item: object, position: int) -> str:
    named = item.get("title", item.get("name")) if isinstance(item, Mapping) else None
    return repr(named) if named is not None else str(position + 1)


def _push_folder(api: Any, title: str, dry_run: bool) -> tuple[str, list[Change]]:
    """The uid of the folder with this title, made where there is none."""
    for each in _ask(api.folder.get_all_folders):
        if each["title"] == title:
            return str(each["uid"]), [Change("folder", title, "none")]
    uid = re.sub(r"[^a-z0-9_-]+", "-", title.lower()).strip("-")[:40]
    if not uid:
        raise GrafanaPushError(f"folder {title!r}: expected a title with Latin letters or digits")
    if not dry_run:
        _ask(api.folder.create_folder, title, uid)
    return uid, [Change("folder", title, "create")]


def _push_source(api: Any, wanted: Json, dry_run: bool) -> Change:
    found = _found(api.datasource.get_datasource_by_uid, wanted["uid"])
    if found is None:
        if not dry_run:
            _ask(api.datasource.create_datasource, wanted)
        return Change("data source", wanted["name"], "create")
    differ = tuple(each for each in differences(wanted, found) if each != "editable")  # the API does not tell it
    if differ and not dry_run:
        if found.get("readOnly"):
            raise GrafanaPushError(f"data source {wanted['name']}: is provisioned from a file; change it there")
        _ask(api.datasource.update_datasource_by_uid, wanted["uid"], {**wanted, "version": found.get("version")})
    return Change("data source", wanted["name"], "update" if differ else "none", differ)


def _push_dashboard(api: Any, wanted: Json, folder: str, dry_run: bool) -> Change:
    found = _found(api.dashboard.get_dashboard, wanted["uid"])
    if found is None:
        if not dry_run:
            _ask(api.dashboard.update_dashboard, _request(wanted, folder, None))
        return Change("dashboard", wanted["title"], "create")
    differ = differences(wanted, found["dashboard"])
    if found["meta"].get("folderUid") != folder:
        differ = (*differ, "folder")
    if differ and not dry_run:
        if found["meta"].get("provisioned"):
            raise GrafanaPushError(f"dashboard {wanted['title']}: is provisioned from a file; change it there")
        _ask(api.dashboard.update_dashboard, _request(wanted, folder, found["dashboard"]))
    return Change("dashboard", wanted["title"], "update" if differ else "none", differ)


def _request(wanted: Json, folder: str, found: Json | None) -> Json:
    # With the version that was read, Grafana answers 412 where somebody saved the dashboard meanwhile.
    kept = {} if found is None else {key: found[key] for key in SET_BY_GRAFANA if key in found}
    return {
        "dashboard": {**wanted, **kept},
        "folderUid": folder,
        "message": "semhealth grafana push",
        "overwrite": False,
    }


# ---------------------------------------------------------------- Grafana's API


def _connect(url: str, token: str) -> Any:
    try:
        from grafana_client import GrafanaApi  # noqa: PLC0415 - an extra
        from grafana_client.client import TokenAuth  # noqa: PLC0415
    except ImportError as error:
        raise GrafanaPushError(
            "the extra is not installed; in an environment beside the sidecar's: pip install 'semhealth[grafana]'"
        ) from error
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise GrafanaPushError(f"expected http(s)://host, got {_shown(url)!r}")
    if parts.username is not None or parts.query or parts.fragment:
        raise GrafanaPushError(f"{_shown(url)}: expected no user, query or fragment; the token goes by --token-env")
    return GrafanaApi.from_url(url, credential=TokenAuth(token), timeout=TIMEOUT)


def _shown(url: str) -> str:
    """Scheme and host of an address alone: what else stands in it may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else "…"


def _found(read: Callable[[str], Any], uid: str) -> Json | None:
    """What has this uid, None where nothing has."""
    from grafana_client.client import GrafanaClientError  # noqa: PLC0415

    try:
        found: Json = read(uid)
    except GrafanaClientError as error:
        if error.status_code == 404:
            return None
        raise _refusal(error) from error
    except Exception as error:
        raise _refusal(error) from error
    return found


def _ask(call: Callable[..., Any], *arguments: object) -> Any:
    try:
        return call(*arguments)
    except Exception as error:
        raise _refusal(error) from error


def _refusal(error: Exception) -> Exception:
    """An error of the client's in words; any other as it is."""
    from grafana_client.client import GrafanaException, GrafanaTimeoutError  # noqa: PLC0415

    if isinstance(error, GrafanaTimeoutError):
        return GrafanaPushError(f"no answer within {TIMEOUT:g} s")
    if not isinstance(error, GrafanaException):
        return error
    match error.status_code:
        case 401:
            return GrafanaPushError("401: the token is not known; make one for a service account of the role Editor")
        case 403:
            return GrafanaPushError(
                "403: the token may not do this; dashboards need the role Editor, data sources Admin"
            )
        case 412:
            return GrafanaPushError("412: somebody saved it meanwhile, or its name is taken; look, then push again")
    return GrafanaPushError(str(error.message)[:200])
