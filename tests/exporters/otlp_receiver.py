"""An OTLP/HTTP receiver that keeps every request as it came, and answers as a test says."""

from __future__ import annotations

import gzip
import queue
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REQUESTS = {
    "metrics": ExportMetricsServiceRequest,
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
}

RESOURCES = {"metrics": "resource_metrics", "traces": "resource_spans", "logs": "resource_logs"}


@dataclass(frozen=True)
class Received:
    path: str
    headers: Mapping[str, str]
    body: Any

    @property
    def signal(self) -> str:
        return self.path.rpartition("/")[2]

    def spans(self) -> list[Any]:
        return [span for resource in self.body.resource_spans for scope in resource.scope_spans for span in scope.spans]

    def log_records(self) -> list[Any]:
        return [log for one in self.body.resource_logs for scope in one.scope_logs for log in scope.log_records]

    def resource(self) -> dict[str, str]:
        [one] = getattr(self.body, RESOURCES[self.signal])
        return {attribute.key: attribute.value.string_value for attribute in one.resource.attributes}


class OtlpReceiver:
    """On loopback; over TLS where a context is given. `answer` is sent with `status`, and `headers` beside it."""

    def __init__(
        self,
        status: int = 200,
        answer: bytes = b"",
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.requests: queue.Queue[Received] = queue.Queue()
        outer = self
        told = {"Content-Length": str(len(answer)), **(headers or {})}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                named = {name.lower(): value for name, value in self.headers.items()}
                kind = REQUESTS[self.path.rpartition("/")[2].partition("?")[0]]
                outer.requests.put(Received(self.path, named, kind.FromString(body)))
                self.send_response(status)
                for name, value in told.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        self.endpoint = f"http://127.0.0.1:{self.port}" if tls is None else f"https://localhost:{self.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def of(self, signal: str, seconds: float = 30.0) -> Received:
        """The next request of a signal; those of others before it are passed over."""
        while (received := self.requests.get(timeout=seconds)).signal != signal:
            pass
        return received

    def rest(self) -> Iterator[Received]:
        """What has come and was not looked at."""
        while not self.requests.empty():
            yield self.requests.get_nowait()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
