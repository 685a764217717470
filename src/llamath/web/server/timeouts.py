"""Time limits of connections: for sending a request and for reading the response; the oldest idle connection is closed for a new one.

uvicorn itself waits without limit for a request's headers and for slow readers.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from ...utils.record_type import Record


class ConnectionLimits(Record):
    """Time limits in seconds, and the number of connections above which the oldest idle one is closed."""

    request_seconds: float = 10.0
    response_seconds: float = 60.0
    max_connections: int = 48


class TimeoutProtocol(H11Protocol):
    """A connection with time limits, which trickling data does not extend."""

    limits = ConnectionLimits()
    timer: asyncio.TimerHandle | None = None
    opened_at = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no response is pending."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer, and close the oldest idle connection if there are too many."""
        super().connection_made(transport)
        self.opened_at = self.loop.time()
        self._restart_timer(self.limits.request_seconds)
        others = [x for x in self.connections if isinstance(x, TimeoutProtocol) and not x.transport.is_closing()]
        idle = [x for x in others if x.is_idle and x is not self]
        if len(others) > self.limits.max_connections and idle:
            min(idle, key=lambda x: x.opened_at).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Give the response its own time limit once the request is complete."""
        was_idle = self.is_idle
        super().data_received(data)
        if was_idle and not self.is_idle:
            self._restart_timer(self.limits.response_seconds)

    def on_response_complete(self) -> None:
        """Restart the timer; the next request may have arrived already."""
        super().on_response_complete()
        self._restart_timer(self.limits.request_seconds if self.is_idle else self.limits.response_seconds)

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
    return type("LimitedProtocol", (TimeoutProtocol,), {"limits": limits})
