"""A route asks its model server for the load: the report is in the record, and the service does not see it."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable

from .conftest import Script, Sidecar, Upstream, call, respond

BODY = json.dumps(
    {
        "id": "synthetic",
        "object": "chat.completion",
        "model": "made-up",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    }
).encode()
ASKED = {"model": "made-up", "messages": [{"role": "user", "content": "Why is the sky blue?"}]}
FORMAT = "endpoint-load-metrics-format"
REPORT = "TEXT named_metrics.kv_cache_usage_perc=0.25, named_metrics.num_requests_waiting=3.0"
LOAD = {"kv_cache_usage_perc": 0.25, "num_requests_waiting": 3.0}


def _serve(connection: socket.socket, head: bytes, body: bytes) -> None:
    """Answers as vLLM does: with a load report where it is asked for one (vLLM documentation, ORCA metrics)."""
    (name,) = re.findall(rb"(?i)\r\nx-name: (\S+)", head)
    told = [f"x-request-id: {name.decode()}"]
    if re.search(rb"(?im)^endpoint-load-metrics-format: TEXT\r?$", head) is not None:
        told.append(f"endpoint-load-metrics: {REPORT}")
    respond(connection, BODY, "200 OK", *told)


def test_a_load_report_is_asked_for_recorded_and_hidden(
    start: Callable[..., Sidecar], upstream: Callable[[Script], Upstream]
) -> None:
    server = upstream(_serve)
    routes = [("asking", "orca=TEXT"), ("silent", "orca=null")]
    settings = [
        f"routes[{number}].{setting}"
        for number, (name, orca) in enumerate(routes)
        for setting in (f"name={name}", f"prefix=/{name}", f"upstream={server.base}", orca)
    ]
    sidecar = start(*(word for setting in settings for word in ("--set", setting)))
    path = "v1/chat/completions"
    plain = call(f"{server.base}/{path}", ASKED, {"x-name": "plain"})
    asked = call(f"{sidecar.base}/asking/{path}", ASKED, {"x-name": "asked"})
    by_itself = call(f"{sidecar.base}/asking/{path}", ASKED, {"x-name": "by-itself", FORMAT: "TEXT"})
    silent = call(f"{sidecar.base}/silent/{path}", ASKED, {"x-name": "silent"})

    assert [answer.body for answer in (asked, by_itself, silent)] == [BODY] * 3
    assert set(asked.headers) == set(silent.headers) == set(plain.headers) - {"connection"}
    assert by_itself.headers["endpoint-load-metrics"] == REPORT
    asks = [len(re.findall(rf"(?im)^{FORMAT}:".encode(), head)) for head in server.heads]
    assert asks == [0, 1, 1, 0]

    assert sidecar.record_of("asked")["upstream"]["load"] == LOAD
    assert sidecar.record_of("by-itself")["upstream"]["load"] == LOAD
    unasked = sidecar.record_of("silent")
    assert unasked["route"] == "silent"
    assert not unasked["upstream"]["load"]
