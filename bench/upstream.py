"""A scripted upstream for the benchmarks: a small JSON answer, or a paced stream of chat-completion frames."""

from __future__ import annotations

import argparse
import asyncio
import sys

import uvloop

BODY = (
    b'{"id":"b","object":"chat.completion","model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"'
    + b"word " * 150
    + b'"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":150,"total_tokens":159}}'
)
JSON_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def frame(number: int) -> bytes:
    """A frame of about 240 bytes, as OpenAI sends them."""
    return chunk(
        b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"bench",'
        b'"system_fingerprint":"fp_bench","choices":[{"index":0,"delta":{"content":" word%d"},"logprobs":null,'
        b'"finish_reason":null}]}\n\n' % number
    )


LAST = chunk(
    b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"bench","choices":'
    b'[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


class Upstream(asyncio.Protocol):
    """Reads requests with a Content-Length; a path of /stream/FRAMES/GAP_MS answers a stream, any other JSON."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment] # a TCP transport
        self._held = b""

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0:
            head = self._held[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._held) < end + 4 + length:
                return
            target = self._held.split(b" ", 2)[1]
            self._held = self._held[end + 4 + length :]
            self._answer(target)

    def _answer(self, target: bytes) -> None:
        if b"/stream/" not in target:
            self._transport.write(JSON_ANSWER)
            return
        frames, gap = target.split(b"/stream/", 1)[1].split(b"/")[:2]
        self._transport.write(STREAM_HEAD)
        self._next(0, int(frames), int(gap) / 1000)

    def _next(self, number: int, frames: int, gap: float) -> None:
        if self._transport.is_closing():
            return
        if number == frames:
            self._transport.write(LAST + b"0\r\n\r\n")
            return
        self._transport.write(frame(number))
        asyncio.get_running_loop().call_later(gap, self._next, number + 1, frames, gap)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
