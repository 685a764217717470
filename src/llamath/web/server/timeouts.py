"""How long a connection may take: to say what it wants, and to take the answer; the oldest idle one makes room for a new one.

uvicorn waits for a request's headers, and for a slow reader, as long as it takes.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


class Patient(H11Protocol):
    """A connection with a clock, in seconds, which what trickles in does not set back."""

    head, answer, most = 10.0, 60.0, 48
    clock: asyncio.TimerHandle | None = None
    since = 0.0

    @property
    def idle(self) -> bool:
        """Whether nothing has been asked for that is still to be answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock, and make room."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self._wait(self.head)
        others = [x for x in self.connections if isinstance(x, Patient) and not x.transport.is_closing()]
        idle = [x for x in others if x.idle and x is not self]
        if len(others) > self.most and idle:
            min(idle, key=lambda x: x.since).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Once all of a request is there, its answer has a time of its own."""
        before = self.idle
        super().data_received(data)
        if before and not self.idle:
            self._wait(self.answer)

    def on_response_complete(self) -> None:
        """The next request may be there already."""
        super().on_response_complete()
        self._wait(self.head if self.idle else self.answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        super().connection_lost(exc)
        if self.clock is not None:
            self.clock.cancel()

    def _wait(self, seconds: float) -> None:
        if self.clock is not None:
            self.clock.cancel()
        self.clock = self.loop.call_later(seconds, self.transport.abort)
