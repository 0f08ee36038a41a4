"""A scripted upstream for the benchmarks: a small JSON answer, a large body, or a stream of chat-completion frames."""

from __future__ import annotations

import argparse
import asyncio
import ssl
import sys
import time

import uvloop

BODY = (
    b'{"id":"b","object":"chat.completion","model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"'
    + b"word " * 150
    + b'"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":150,"total_tokens":159}}'
)
HEAD = (
    b"HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: bench\r\nx-request-id: req_bench\r\n"
    b"openai-processing-ms: 12\r\nx-ratelimit-limit-requests: 10000\r\nx-ratelimit-remaining-requests: 9999\r\n"
)
JSON_HEAD = HEAD + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
JSON_ANSWER = JSON_HEAD % len(BODY) + BODY
LARGE = JSON_HEAD % (2 * 1024 * 1024) + b'{"x":"' + b"x" * (2 * 1024 * 1024 - 8) + b'"}'
STREAM_HEAD = HEAD + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
STAMP = b'"created":'  # before the time of writing, in nanoseconds of the machine's monotonic clock


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def frame(number: int) -> bytes:
    """A frame of about 250 bytes, as OpenAI sends them."""
    return chunk(
        b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk",%b%d,"model":"bench",'
        b'"system_fingerprint":"fp_bench","choices":[{"index":0,"delta":{"content":" word%d"},"logprobs":null,'
        b'"finish_reason":null}]}\n\n' % (STAMP, time.monotonic_ns(), number)
    )


LAST = chunk(
    b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"bench","choices":'
    b'[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


class Upstream(asyncio.Protocol):
    """Reads requests with a Content-Length, and answers by path, whatever stands before it:

    /stream/FRAMES/GAP_MS (gap 0: all at once), /large, /idle, else JSON.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment] # a TCP transport
        self._held = b""
        self._left = 0  # bytes of a request's body that are still to come
        self._target = b""

    def data_received(self, data: bytes) -> None:
        if self._left:
            taken = min(self._left, len(data))
            self._left -= taken
            data = data[taken:]
            if self._left == 0:
                self._answer(self._target)
        if not data:
            return
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0:
            head = self._held[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            self._target = self._held.split(b" ", 2)[1]
            arrived = len(self._held) - end - 4
            self._held = self._held[end + 4 + length :]
            if arrived < length:
                self._left = length - arrived
                return
            self._answer(self._target)

    def _answer(self, target: bytes) -> None:
        if b"/stream/" in target:
            frames, gap = target.split(b"/stream/", 1)[1].split(b"/")[:2]
            if gap == b"0":
                whole = b"".join([frame(number) for number in range(int(frames))])
                self._transport.write(STREAM_HEAD + whole + LAST + b"0\r\n\r\n")
            else:
                self._transport.write(STREAM_HEAD)
                loop = asyncio.get_running_loop()
                self._next(loop, loop.time(), 0, int(frames), int(gap) / 1000)
        elif b"/large" in target:
            self._transport.write(LARGE)
        elif b"/idle" in target:
            self._transport.write(STREAM_HEAD + frame(0))
        else:
            self._transport.write(JSON_ANSWER)

    def _next(self, loop: asyncio.AbstractEventLoop, due: float, number: int, frames: int, gap: float) -> None:
        if self._transport.is_closing():
            return
        if number == frames:
            self._transport.write(LAST + b"0\r\n\r\n")
            return
        self._transport.write(frame(number))
        due += gap
        loop.call_at(due, self._next, loop, due, number + 1, frames, gap)


async def serve(port: int, tls_port: int, certificate: str, key: str) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", port, backlog=1024)
    if tls_port:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        await loop.create_server(Upstream, "127.0.0.1", tls_port, backlog=1024, ssl=context)
    await server.serve_forever()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tls-port", type=int, default=0, help="the same with TLS; needs --certificate and --key")
    parser.add_argument("--certificate", default="")
    parser.add_argument("--key", default="")
    given = parser.parse_args()
    uvloop.run(serve(given.port, given.tls_port, given.certificate, given.key))
    return 0


if __name__ == "__main__":
    sys.exit(main())
