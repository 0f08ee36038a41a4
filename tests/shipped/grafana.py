"""A stand-in of the part of Grafana's HTTP API that pushing uses, with its versions and refusals.

Shapes and codes follow grafana.com/docs/grafana/latest/developers/http_api/ (dashboard, folder, data source). What it
keeps it keeps as Grafana does: an `id` and a `version` are added, and the version must be the one that is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from aiohttp import web

TOKEN = "synthetic-token"
Json = dict[str, Any]


class Grafana:
    """What is stored, and which writes came."""

    def __init__(self) -> None:
        self.folders: dict[str, Json] = {}
        self.dashboards: dict[str, tuple[Json, Json]] = {}  # by uid: the dashboard and its meta
        self.sources: dict[str, Json] = {}
        self.writes: list[str] = []
        self.saved_meanwhile: str | None = None  # a uid that somebody saves between our reading and our writing

    def application(self) -> web.Application:
        app = web.Application(middlewares=[_authorised], client_max_size=8 << 20)
        app.add_routes(
            [
                web.get("/api/folders", self._list_folders),
                web.post("/api/folders", self._create_folder),
                web.get("/api/dashboards/uid/{uid}", self._dashboard),
                web.post("/api/dashboards/db", self._save),
                web.get("/api/datasources/uid/{uid}", self._source),
                web.post("/api/datasources", self._create_source),
                web.put("/api/datasources/uid/{uid}", self._update_source),
            ]
        )
        return app

    async def _list_folders(self, _: web.Request) -> web.Response:
        return web.json_response([{"id": each["id"], "uid": each["uid"], "title": each["title"]}
                                  for each in self.folders.values()])  # fmt: skip

    async def _create_folder(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if asked["uid"] in self.folders:
            return _message(409, "a folder with the same uid already exists")
        self.folders[asked["uid"]] = {"id": len(self.folders) + 1, "version": 1, **asked}
        self.writes.append(f"folder {asked['title']}")
        return web.json_response(self.folders[asked["uid"]])

    async def _dashboard(self, request: web.Request) -> web.Response:
        uid = request.match_info["uid"]
        if uid not in self.dashboards:
            return _message(404, "Dashboard not found")
        dashboard, meta = self.dashboards[uid]
        answer = web.json_response({"dashboard": dashboard, "meta": meta})
        if uid == self.saved_meanwhile:
            self.dashboards[uid] = ({**dashboard, "version": dashboard["version"] + 1}, meta)
        return answer

    async def _save(self, request: web.Request) -> web.Response:
        asked = await request.json()
        sent, folder = asked["dashboard"], asked["folderUid"]
        if folder not in self.folders:
            return _message(404, "folder not found")
        old = self.dashboards.get(sent["uid"])
        if old is not None:
            if old[1].get("provisioned"):
                return _message(400, "Cannot save provisioned dashboard")
            if sent.get("version") != old[0]["version"] and not asked.get("overwrite"):
                return _message(412, "The dashboard has been changed by someone else", "version-mismatch")
        version = 1 if old is None else old[0]["version"] + 1
        number = len(self.dashboards) + 1 if old is None else old[0]["id"]
        meta = {"folderUid": folder, "provisioned": False, "slug": sent["uid"], "version": version}
        self.dashboards[sent["uid"]] = ({**sent, "id": number, "version": version}, meta)
        self.writes.append(f"dashboard {sent['uid']}")
        return web.json_response({"id": number, "uid": sent["uid"], "status": "success", "version": version})

    async def _source(self, request: web.Request) -> web.Response:
        found = self.sources.get(request.match_info["uid"])
        return _message(404, "Data source not found") if found is None else web.json_response(found)

    async def _create_source(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.sources[asked["uid"]] = self._stored(asked, 1)
        self.writes.append(f"source {asked['uid']}")
        return web.json_response({"datasource": self.sources[asked["uid"]], "message": "Datasource added"})

    async def _update_source(self, request: web.Request) -> web.Response:
        asked = await request.json()
        old = self.sources[request.match_info["uid"]]
        if asked.get("version") != old["version"]:
            return _message(409, "Datasource has already been updated by someone else")
        self.sources[asked["uid"]] = self._stored(asked, old["version"] + 1)
        self.writes.append(f"source {asked['uid']}")
        return web.json_response({"datasource": self.sources[asked["uid"]], "message": "Datasource updated"})

    @staticmethod
    def _stored(asked: Json, version: int) -> Json:
        kept = {key: value for key, value in asked.items() if key not in ("editable", "version")}
        return {**kept, "id": 1, "orgId": 1, "readOnly": False, "version": version}


@web.middleware
async def _authorised(request: web.Request, handler: Any) -> web.StreamResponse:
    match request.headers.get("Authorization"):
        case "Bearer synthetic-token":
            answer: web.StreamResponse = await handler(request)
            return answer
        case "Bearer synthetic-viewer" if request.method == "GET":
            seen: web.StreamResponse = await handler(request)
            return seen
        case "Bearer synthetic-viewer":
            return _message(403, "Access denied")
    return _message(401, "Invalid API key")


def _message(status: int, text: str, word: str | None = None) -> web.Response:
    body = {"message": text} if word is None else {"message": text, "status": word}
    return web.Response(status=status, text=json.dumps(body), content_type="application/json")


@contextmanager
def standing_in() -> Iterator[tuple[Grafana, str]]:
    """The stand-in and its address, in a thread of its own with its own loop."""
    import asyncio

    grafana = Grafana()
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> tuple[web.AppRunner, int]:
        runner = web.AppRunner(grafana.application())
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, int(runner.addresses[0][1])

    runner, port = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield grafana, f"http://127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
