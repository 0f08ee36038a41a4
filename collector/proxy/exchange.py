"""One request and its answer: bytes go on as they come, and the tap is told afterwards."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Protocol

from collector.model import BytesSeen, ClientBlocked, ExchangeEnded, HowEnded, RequestSeen, ResponseSeen
from collector.proxy.answers import Problem, problem_answer
from collector.proxy.bodies import NO_BODY, Body, BodyError, EndlessBody, UnchunkedBody, body_of
from collector.proxy.heads import (
    END,
    HeadError,
    UpstreamHead,
    forwarded_response,
    has_bare_line_feed,
    read_response,
)
from collector.proxy.outbound import ForwardProxyError
from collector.proxy.plane import Plane, report_fault
from collector.proxy.prepared import Prepared
from collector.proxy.tap import Watch
from collector.proxy.upstream_side import UpstreamConnection, connect

HELD_BYTES = 256 * 1024  # of a request, kept while connecting, and for the one repetition on a stale connection
UPLOAD_PATIENCE = 10.0  # seconds without a byte of an upload whose answer is complete, after which it is given up

# Why the client is not read at the moment; reasons add up. Plain numbers: an operation on an IntFlag takes 1 µs.
UPSTREAM_FULL = 1  # the upstream does not take more of the request
CONNECTING = 2  # enough of the request is held
PIPELINE = 4  # enough of the next request is held
EARLY_ANSWER = 8  # the upstream refused before the request was complete
EVERY_REASON = 15


class Client(Protocol):
    """The side of the service, as an exchange sees it."""

    is_blocked: bool
    blocked_since: float

    def send(self, data: bytes) -> None: ...
    def hold(self, data: bytes) -> None: ...
    def take_held(self) -> bytes: ...
    def pause(self, reason: int) -> None: ...
    def resume(self, reason: int) -> None: ...
    def finish_writing(self) -> None: ...
    def exchange_over(self, *, keep: bool, linger: bool = False) -> None: ...
    def break_off(self, *, reset: bool) -> None: ...


class Exchange(Watch):
    """Lives from a complete request head to its `ExchangeEnded`. All methods are no-ops after that."""

    __slots__ = (
        "_added",
        "_answer",
        "_asked",
        "_body",
        "_client",
        "_client_waited_from",
        "_closes",
        "_connect",
        "_connecting",
        "_ended",
        "_forwarded_at",
        "_is_answered",
        "_is_half_closed",
        "_is_pooled",
        "_is_tunnel",
        "_plane",
        "_request",
        "_seen_at",
        "_sent",
        "_sent_bytes",
        "_timer",
        "_unread",
        "_upstream",
        "destination",
        "request_done",
    )

    def __init__(self, plane: Plane, client: Client, asked: Prepared) -> None:
        super().__init__(plane.next_id())
        self._seen_at = plane.monotonic()
        self._plane = plane
        self._client = client
        self._asked = asked
        self.destination = asked.destination
        self._request: Body = NO_BODY
        self.request_done = asked.framing == "none"
        self._upstream: UpstreamConnection | None = None
        self._is_pooled = False
        self._sent: list[bytes] | None = []  # the request so far, while it may have to be (re)sent; at most HELD_BYTES
        self._sent_bytes = 0
        self._connecting: asyncio.Task[None] | None = None
        self._connect: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unread = b""  # an answer's head that is not complete; at most `max_head`
        self._answer: UpstreamHead | None = None
        self._body: Body = NO_BODY
        self._is_answered = False  # the answer is complete, the upload is not
        self._is_tunnel = False
        self._is_half_closed = False  # one side of a tunnel sends no more
        self._closes = False  # the client was told that its connection ends with this answer
        self._ended = False
        self._forwarded_at: float | None = None
        self._added = 0.0
        self._client_waited_from = self._seen_at

    def begin(self, rest: bytes) -> None:
        """Forward the head, and what of the body came with it; what belongs to the next request is given back."""
        plane = self._plane
        plane.in_flight += 1
        asked = self._asked
        body = rest
        try:
            self._request, taken = body_of(asked.framing, asked.length, rest)
        except BodyError:
            self._tell_request(b"")
            self._request_is_broken()
            return
        self.request_done = self._request.done
        if taken < len(rest):
            self._client.hold(rest[taken:])
            body = rest[:taken]
        try:
            self._launch(asked.sent, body)
        finally:  # now that the upstream has it
            self._tell_request(body)

    def _tell_request(self, body: bytes) -> None:
        plane, asked = self._plane, self._asked
        at = self._seen_at
        seen = RequestSeen(self.id, at, plane.clock.wall(), self.destination.route, asked.raw, asked.span_id)
        if body:
            plane.tap.begin(self, len(asked.raw) + len(body), seen, BytesSeen(self.id, at, False, body))
        else:
            plane.tap.begin(self, len(asked.raw), seen)

    def _launch(self, head: bytes, body: bytes) -> None:
        """Send what there is of the request, over a pooled connection or a new one."""
        sent = head + body
        self._sent, self._sent_bytes = [sent], len(sent)
        upstream = self._plane.pool.take(self.destination.origin, UpstreamConnection)
        if upstream is None:
            if self._sent_bytes > HELD_BYTES:
                self._client.pause(CONNECTING)
            self._start_connecting()
        else:
            self._is_pooled = True
            self._attach(upstream)

    # ------------------------------------------------------------ from the client

    def from_client(self, data: bytes) -> None:
        """More of the request's body, of a tunnel, or of the next request."""
        if self._ended:
            return
        if self._is_tunnel:
            self._forward(data)
        elif self.request_done:
            self._client.hold(data)
        else:
            taken = self._take_request(data)
            if taken is None:
                return
            if taken < len(data):
                self._client.hold(data[taken:])
                data = data[:taken]
            if data:
                self._forward(data)
            if self._is_answered:
                self._go_on_with_upload()
            elif self._request.done:
                self._start_waiting()

    @property
    def is_tunnel(self) -> bool:
        """Whether bytes now pass both ways as they are; what was sent into a tunnel is owed to the other side."""
        return self._is_tunnel

    def client_finished(self) -> None:
        """The client sends no more, but still reads; only a tunnel has to say so to the other side."""
        if not self._is_tunnel or self._upstream is None:
            return
        if self._is_half_closed:
            self._end("complete")
            self._client.exchange_over(keep=False)
        else:
            self._is_half_closed = True
            self._upstream.finish_writing()

    def client_gone(self) -> None:
        """The client closed or was lost: the upstream stops at once, since tokens cost money."""
        self._end("complete" if self._is_tunnel or self._is_answered else "client_disconnect")

    def client_unblocked(self, since: float) -> None:
        """The client reads again, having read nothing since then."""
        if self._ended:
            return
        self._tell_blocked(since)
        if self._upstream is not None:
            self._upstream.resume()

    def client_blocked(self) -> None:
        """The client does not read: neither do we."""
        if self._upstream is not None:
            self._upstream.pause()

    def _take_request(self, data: bytes) -> int | None:
        """How many bytes belong to this request; None when its framing is broken, which ends the exchange."""
        try:
            taken = self._request.take(data)
        except BodyError:
            self._request_is_broken()
            return None
        self.request_done = self._request.done
        return taken

    def _request_is_broken(self) -> None:
        if self._is_answered:
            self._finish()
        elif self._answer is None:
            problem = Problem(400, "bad_request", "the request's chunked coding is broken")
            self._answer_with("client_disconnect", problem, linger=True)
        else:
            self._end("client_disconnect")
            self._client.break_off(reset=True)

    def _forward(self, data: bytes) -> None:
        upstream = self._upstream
        if upstream is not None and upstream.is_usable():
            upstream.write(data)
        at = self._plane.monotonic()
        self._plane.tap.tell(self, len(data), BytesSeen(self.id, at, False, data))
        self._keep(data)

    def _keep(self, data: bytes) -> None:
        """Hold what may have to be sent (again)."""
        if self._sent is None:
            return
        self._sent.append(data)
        self._sent_bytes += len(data)
        if self._sent_bytes > HELD_BYTES:
            if self._upstream is None:
                self._client.pause(CONNECTING)
            else:
                self._sent = None

    # ------------------------------------------------------------ connecting

    def _start_connecting(self) -> None:
        task = self._plane.loop.create_task(self._connect_upstream())
        self._connecting = task
        self._plane.tasks.add(task)
        task.add_done_callback(self._plane.tasks.discard)

    async def _connect_upstream(self) -> None:
        plane = self._plane
        host = self.destination.origin.host
        started = plane.monotonic()
        try:
            upstream = await connect(plane, self.destination.origin)
        except TimeoutError:
            problem = Problem(504, "upstream_timeout", f"connecting to {host} took too long")
            self._added -= plane.monotonic() - started
            self._answer_with("upstream_timeout", problem)
        except (OSError, UnicodeError) as error:
            problem = Problem(502, "upstream_unreachable", f"cannot connect to {host}: {_plain_reason(error)}")
            self._added -= plane.monotonic() - started
            self._answer_with("connect_failed", problem)
        except Exception as error:  # noqa: BLE001 - the boundary of this task: the worker lives on
            report_fault(error, f"on route {self.destination.route}")
            self.cut()
        else:
            if self._ended:
                upstream.abort()
                return
            self._connect = plane.monotonic() - started
            self._added -= self._connect
            try:
                self._attach(upstream)
                self._client.resume(CONNECTING)
            except Exception as error:  # noqa: BLE001 - as above
                report_fault(error, f"on route {self.destination.route}")
                self.cut()

    def _attach(self, upstream: UpstreamConnection) -> None:
        assert self._sent is not None  # noqa: S101 - held until it is sent for the first time
        self._upstream = upstream
        upstream.exchange = self
        if self._client.is_blocked:
            upstream.pause()
        upstream.write(b"".join(self._sent))
        self._forwarded_at = at = self._plane.monotonic()
        self._added += at - self._seen_at
        if not self._is_pooled or self._sent_bytes > HELD_BYTES:
            self._sent = None
        if upstream.is_full:
            self._client.pause(UPSTREAM_FULL)
        if self.request_done:
            self._start_waiting()

    def _start_waiting(self) -> None:
        """The request is sent in full: from now on the answer's head may take `response_timeout`."""
        patience = self._plane.settings.response_timeout
        if patience is not None and self._answer is None and self._upstream is not None and self._timer is None:
            self._timer = self._plane.loop.call_later(patience, self._waited_too_long)

    def _waited_too_long(self) -> None:
        host = self.destination.origin.host
        self._answer_with("upstream_timeout", Problem(504, "upstream_timeout", f"{host} did not answer in time"))

    # ------------------------------------------------------------ from the upstream

    def from_upstream(self, data: bytes) -> None:
        """More of the answer."""
        if self._answer is None:
            self._read_answer(data)
            return
        body = self._body
        try:
            taken = body.take(data)
        except BodyError:
            self._end("upstream_cut")
            self._client.break_off(reset=True)
            return
        is_surplus = taken < len(data)
        if is_surplus:
            if self._is_answered:
                self._finish()
                return
            data = data[:taken]
        self._client.send(body.content() if isinstance(body, UnchunkedBody) else data)
        at = self._plane.monotonic()
        self._plane.tap.tell(self, len(data), BytesSeen(self.id, at, True, data))
        if body.done:
            self._complete(reusable=not is_surplus)

    def upstream_finished(self) -> bool:
        """The upstream sends no more; whether it may still read: in a tunnel whose client has more to say."""
        if not self._is_tunnel or self._is_half_closed:
            return False
        self._is_half_closed = True
        self._client.finish_writing()
        return True

    def upstream_closed(self, *, reset: bool) -> None:
        """The upstream closed its connection, or it broke."""
        upstream, self._upstream = self._upstream, None
        if self._ended or upstream is None:
            return
        upstream.exchange = None
        if self._is_tunnel:
            self._end("complete")
            if reset:
                self._client.break_off(reset=True)
            else:
                self._client.exchange_over(keep=False)
        elif self._is_answered:
            self._finish()
        elif self._answer is not None:
            if isinstance(self._body, EndlessBody) and not reset:
                self._complete(reusable=False)
            else:
                self._end("upstream_cut")
                # A body without a stated end must not seem to have ended well: only a reset says so.
                is_unframed = isinstance(self._body, EndlessBody | UnchunkedBody)
                self._client.break_off(reset=reset or is_unframed)
        elif self._is_pooled and self._sent is not None and not self._unread:
            # It had grown stale in the pool: the one case that is tried again (RFC 9110, 9.2.2; nothing was answered).
            self._is_pooled = False
            self._client.resume(UPSTREAM_FULL)
            self._stop_waiting()
            self._added -= self._plane.monotonic() - self._seen_at
            self._start_connecting()
        else:
            host = self.destination.origin.host
            problem = Problem(502, "upstream_failed", f"{host} closed the connection before it answered")
            self._answer_with("upstream_failed", problem)

    def upstream_full(self) -> None:
        """The upstream does not take more for now."""
        self._client.pause(UPSTREAM_FULL)

    def upstream_drained(self) -> None:
        """The upstream takes bytes again."""
        self._client.resume(UPSTREAM_FULL)

    def _read_answer(self, data: bytes) -> None:
        plane = self._plane
        read_at = plane.monotonic()
        asked = self._asked
        most = plane.settings.max_head
        searched = 0
        if self._unread:
            searched = max(0, len(self._unread) - 3)
            data = self._unread + data
        while (end := data.find(END, searched) + len(END)) >= len(END):
            if end > most:
                break
            searched = 0
            try:
                answer = read_response(data[:end], asked.method, to_http10=asked.is_http10)
            except HeadError:
                self._answer_is_broken()
                return
            data = data[end:]
            if answer.status >= 200 or answer.status == 101:
                self._unread = b""
                self._begin_answer(answer, data, read_at)
                return
            self._sent = None
            if not asked.is_http10:
                self._client.send(forwarded_response(answer, hide_load=asked.hides_load))
        self._unread = data
        if len(data) > most or has_bare_line_feed(data):
            self._answer_is_broken()

    def _begin_answer(self, answer: UpstreamHead, rest: bytes, read_at: float) -> None:
        if answer.status == 101:
            self._begin_tunnel(answer, rest, read_at)
            return
        asked = self._asked
        part = content = rest
        try:
            if asked.is_http10 and answer.framing == "chunked":
                body: Body = (unchunked := UnchunkedBody())
                taken = unchunked.take(rest) if rest else 0
                part, content = rest[:taken], unchunked.content()
            else:
                body, taken = body_of(answer.framing, answer.length, rest)
                if taken < len(rest):
                    part = content = rest[:taken]
        except BodyError:
            self._answer_is_broken()
            return
        self._body = body
        self._closes = asked.wants_close or answer.framing == "close" or not self.request_done or self._plane.draining
        self._pass_on(answer, part, content, read_at)
        if body.done:
            self._complete(reusable=taken == len(rest))
        elif answer.status >= 400 and not self.request_done:
            self._client.pause(EARLY_ANSWER)

    def _begin_tunnel(self, answer: UpstreamHead, rest: bytes, read_at: float) -> None:
        if not self._asked.wants_upgrade:
            self._answer_is_broken()
            return
        self._body, self._is_tunnel = EndlessBody(), True
        self._pass_on(answer, rest, rest, read_at)
        self.request_done = True
        self._client.resume(PIPELINE)
        held = self._client.take_held()
        if held:
            self._forward(held)

    def _pass_on(self, answer: UpstreamHead, part: bytes, content: bytes, read_at: float) -> None:
        """The first bytes of an answer: its head, and what of the body came with it."""
        plane = self._plane
        self._answer = answer
        self._sent = None
        if self._timer is not None:
            self._stop_waiting()
        sent = answer.forwarded
        if self._closes or self._asked.hides_load:
            sent = forwarded_response(answer, close=self._closes, hide_load=self._asked.hides_load)
        self._client.send(sent + content)
        at = plane.monotonic()
        self._added += at - read_at
        forwarded_at = self._seen_at if self._forwarded_at is None else self._forwarded_at
        raw = answer.raw
        seen = ResponseSeen(self.id, at, forwarded_at, self._connect, raw)
        if part:
            plane.tap.tell(self, len(raw) + len(part), seen, BytesSeen(self.id, at, True, part))
        else:
            plane.tap.tell(self, len(raw), seen)

    def _complete(self, *, reusable: bool) -> None:
        """The answer has ended. An upstream that answered early reads on, so that the upload goes on with it."""
        answer = self._answer
        assert answer is not None  # noqa: S101 - called once it was read
        if not self.request_done and reusable and answer.status < 400 and not self._asked.is_http10:
            self._is_answered = True
            self._body = NO_BODY
            self._go_on_with_upload()
            return
        close = self._closes or not self.request_done or self._plane.draining
        keeps = reusable and self.request_done and answer.keeps_alive
        self._end("complete", keep_upstream=keeps)
        self._client.exchange_over(keep=not close, linger=not self.request_done)

    def _go_on_with_upload(self) -> None:
        """The answer is complete: wait for the rest of the upload, as long as some of it comes."""
        if self.request_done:
            self._finish()
        else:
            self._stop_waiting()
            self._timer = self._plane.loop.call_later(UPLOAD_PATIENCE, self._finish)

    def _finish(self) -> None:
        """The answer was complete before; now the upload is, or nobody wants it any more."""
        self._end("complete")
        self._client.exchange_over(keep=False, linger=not self.request_done)

    # ------------------------------------------------------------ the end

    def cut(self) -> None:
        """End both sides now: the deadline of a shutdown has passed, or the sidecar met a fault of its own."""
        if not self._ended:
            self._end("complete" if self._is_answered else "shutdown")
            self._client.break_off(reset=True)

    def _answer_is_broken(self) -> None:
        host = self.destination.origin.host
        problem = Problem(502, "upstream_failed", f"{host} answered with something that is not HTTP/1.1")
        self._answer_with("upstream_failed", problem)

    def _answer_with(self, how: HowEnded, problem: Problem, *, linger: bool = False) -> None:
        """Answer in the upstream's stead. Nothing of an answer has reached the client yet."""
        if self._ended:
            return
        if how != "client_disconnect":
            self._plane.complain(self.destination.route, problem.message)
        linger = linger or not self.request_done
        close = linger or self._asked.wants_close or self._plane.draining
        self._client.send(problem_answer(problem, bodyless=self._asked.method == b"HEAD", close=close))
        if self._forwarded_at is None:
            self._added += self._plane.monotonic() - self._seen_at
        self._end(how, status=problem.status)
        self._client.exchange_over(keep=not close, linger=linger)

    def _end(self, how: HowEnded, *, status: int | None = None, keep_upstream: bool = False) -> None:
        if self._ended:
            return
        self._ended = True
        plane = self._plane
        plane.in_flight -= 1
        if self._timer is not None:
            self._stop_waiting()
        if self._connecting is not None:
            if self._connecting is not asyncio.current_task(plane.loop):
                self._connecting.cancel()
            self._connecting = None
        if self._client.is_blocked:
            self._tell_blocked(self._client.blocked_since)
        added = max(0.0, self._added)
        ended = ExchangeEnded(self.id, plane.monotonic(), how, added, status, self._forwarded_at, self._connect)
        plane.tap.end(self, ended)
        self._sent = None
        upstream, self._upstream = self._upstream, None
        if upstream is None:
            return
        upstream.exchange = None
        if keep_upstream and not upstream.is_full and upstream.is_usable():
            upstream.resume()
            plane.pool.put(upstream)
        elif how == "complete" and (self._is_tunnel or (self._is_answered and self.request_done)):
            upstream.close()  # once it has all that was sent
        else:
            upstream.abort()

    def _tell_blocked(self, since: float) -> None:
        """Tell how long the client did not read, as far as it fell into this exchange."""
        at = self._plane.monotonic()
        since = max(since, self._client_waited_from)
        self._client_waited_from = at
        self._plane.tap.tell(self, 0, ClientBlocked(self.id, at, at - since))

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _plain_reason(error: Exception) -> str:
    """Why connecting failed, in words without addresses."""
    if isinstance(error, ForwardProxyError):
        return str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate could not be verified"
    if isinstance(error, ssl.SSLError):
        return "the TLS handshake failed"
    if isinstance(error, socket.gaierror | UnicodeError):
        return "its name could not be resolved"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectionResetError):
        return "connection reset"
    return "it could not be reached"
