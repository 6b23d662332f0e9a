"""HTTP/1.1 as uvicorn speaks it, with three things that a service open to strangers needs.

An upgrade that is not offered is ignored, as RFC 9110 §7.8 asks: Java's own client offers HTTP/2 in this way with its first
request, and uvicorn's parser would take the request's body for another protocol's bytes. A request's head has a time
limit, so that clients who send it byte by byte do not hold connections for ever. And what is not HTTP is answered with a problem.

uvicorn's other parser, h11, ignores such upgrades by itself. It has neither of the other two, and takes three times the CPU of this one
(142 µs against 44 µs for a request of 1.5 kB and its answer, client included), so it is not used.
"""

from __future__ import annotations

import asyncio

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.service.problems import PROBLEM_MEDIA_TYPE, problem

__all__ = ["HEAD_SECONDS", "Protocol"]

HEAD_SECONDS = 10.0  # from the first byte, or the connection, to the end of the head: one packet, mostly


class Protocol(HttpToolsProtocol):
    """One connection."""

    _head_timer: asyncio.TimerHandle | None = None
    _resuming = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._start_head_timer()
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                if not self._go_on_without_upgrade():
                    self.send_400_response("The length of the body cannot be told from Content-Length and Transfer-Encoding.")
                    return
            except httptools.HttpParserError:
                self.send_400_response("What was received is not an HTTP/1.1 request.")
                return

    def _go_on_without_upgrade(self) -> bool:
        """Go on with a new parser, which is told how the head framed the body: the old one has stopped for good. False where that is no framing."""
        self.parser = httptools.HttpRequestParser(self)
        framing = [(name, value) for name, value in self.headers if name in (b"content-length", b"transfer-encoding")]
        if framing:
            self._resuming = True
            self.cycle.more_body = True
            try:
                self.parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(b"%s: %s\r\n" % field for field in framing) + b"\r\n")
            except httptools.HttpParserError:
                return False
            finally:
                self._resuming = False
        return True

    def on_message_begin(self) -> None:
        if not self._resuming:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._resuming:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._resuming:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._resuming:
            self._stop_head_timer()
            super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_is_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        self._refuse(408, f"The head of the request did not arrive within {HEAD_SECONDS:g} seconds.")

    def _refuse(self, status: int, detail: str) -> None:
        if self.transport.is_closing():
            return
        body = problem(status, detail)
        head = f"content-type: {PROBLEM_MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head.encode("ascii") + body)
        self.transport.close()
