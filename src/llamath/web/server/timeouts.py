"""Limits of connections: of the time for sending a request and for reading the response, and of
their number.

uvicorn itself waits without limit for a request's headers and for slow readers. Where there are too
many connections, the oldest idle one makes room. It is told so and not reset, since its request may
be on the way.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from ...utils.record_type import Record

_LINGER_SECONDS = 2.0
"""The time in which a client can read that there are too many connections."""
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; "
    b"charset=utf-8\r\nContent-Length: 4\r\n"
    b"Retry-After: 2\r\nCache-Control: no-store\r\nConnection: close\r\n\r\nbusy"
)


def _max_connections() -> int:
    """Return the number of connections for which there are file descriptors, twice: others are
    being told that there are too many.
    """
    try:
        import resource
    except ImportError:  # Windows
        return 256
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 256 if soft == resource.RLIM_INFINITY else max(16, min(256, (soft - 64) // 2))


class ConnectionLimits(Record):
    """Time limits in seconds, and the number of connections above which the oldest idle one
    makes room; 0 is what the system allows.
    """

    request_seconds: float = 10.0
    response_seconds: float = 60.0
    max_connections: int = 0


class TimeoutProtocol(H11Protocol):
    """A connection with time limits, which trickling data does not extend."""

    limits = ConnectionLimits()
    timer: asyncio.TimerHandle | None = None
    opened_at = 0.0
    is_turned_away = False

    @property
    def is_idle(self) -> bool:
        """Whether no response is pending."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer, and let the oldest idle connection make room if there are too many;
        else this one.
        """
        super().connection_made(transport)
        self.opened_at = self.loop.time()
        self._restart_timer(self.limits.request_seconds)
        open_ones = [
            x
            for x in self.connections
            if isinstance(x, TimeoutProtocol) and not x.transport.is_closing()
        ]
        leaving = [x for x in open_ones if x.is_turned_away]
        staying = [x for x in open_ones if not x.is_turned_away]
        if len(staying) > self.limits.max_connections:
            min(
                (x for x in staying if x.is_idle and x is not self),
                key=lambda x: x.opened_at,
                default=self,
            ).turn_away()
        if len(leaving) > self.limits.max_connections:
            min(leaving, key=lambda x: x.opened_at).transport.abort()

    def turn_away(self) -> None:
        """Say that there are too many connections, and read nothing more; the client has a
        moment to read that.
        """
        self.is_turned_away = True
        self._unset_keepalive_if_required()
        self.transport.write(_BUSY)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._restart_timer(_LINGER_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Give the response its own time limit once the request is complete."""
        if self.is_turned_away:
            return
        was_idle = self.is_idle
        super().data_received(data)
        if was_idle and not self.is_idle:
            self._restart_timer(self.limits.response_seconds)

    def on_response_complete(self) -> None:
        """Restart the timer; the next request may have arrived already."""
        super().on_response_complete()
        self._restart_timer(
            self.limits.request_seconds if self.is_idle else self.limits.response_seconds
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        super().connection_lost(exc)
        if self.timer is not None:
            self.timer.cancel()

    def _restart_timer(self, seconds: float) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.loop.call_later(seconds, self.transport.abort)


def protocol_with_limits(limits: ConnectionLimits) -> type[TimeoutProtocol]:
    """Return the protocol class with these limits."""
    most = limits.max_connections or _max_connections()
    return type(
        "LimitedProtocol", (TimeoutProtocol,), {"limits": limits.replace(max_connections=most)}
    )
