"""`llamath serve` in a thread of the tests, and a client for it."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llamath.model import Model
from llamath.web.server.server import ServerAddress, serve

HANG_S = 120


class Place:
    """A running server and its addresses."""

    def __init__(self, where: ServerAddress, server: Any) -> None:
        self.address, self.once, self._server = where.address, where.one_time_address, server
        self.port = int(self.address.split(":")[2].split("/")[0])
        self.path = "/" + self.address.split("/", 3)[3]

    def ask(
        self,
        path: str | None = None,
        method: str = "GET",
        body: bytes | None = None,
        **headers: str,
    ) -> tuple[int, dict[str, str], str]:
        """Send a request; return the status, the headers, and the body as text."""
        status, found, data = self.ask_bytes(path, method, body, **headers)
        return status, found, data.decode()

    def ask_bytes(
        self,
        path: str | None = None,
        method: str = "GET",
        body: bytes | None = None,
        **headers: str,
    ) -> tuple[int, dict[str, str], bytes]:
        wire = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        addresses = {"Host": f"127.0.0.1:{self.port}"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        wire.request(method, self.path if path is None else path, body=body, headers=addresses)
        answer = wire.getresponse()
        reply = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        wire.close()
        return reply

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._server.server_state.connections)

    @staticmethod
    def wait_for(condition: Callable[[], bool]) -> bool:
        """Wait until the condition holds; False if it does not within the hang guard."""
        guard = time.monotonic() + HANG_S
        while not condition():
            if time.monotonic() > guard:
                return False
            time.sleep(0.02)
        return True


@contextmanager
def served(own: Sequence[Model], host: str = "127.0.0.1", **options: Any) -> Iterator[Place]:
    """Serve models on a free port; `options` are those of `serve`."""
    import uvicorn

    from llamath.cli.serve import api_functions

    options = {"api": api_functions} | options
    addresses: list[ServerAddress] = []
    servers: list[Any] = []
    run = uvicorn.Server.run

    def noted(self: Any, sockets: Any = None) -> None:
        servers.append(self)
        run(self, sockets)

    uvicorn.Server.run = noted  # type: ignore[assignment, method-assign]
    thread = threading.Thread(
        target=serve, args=(own, host, 0, addresses.append), kwargs=options, daemon=True
    )
    thread.start()
    try:
        assert Place.wait_for(lambda: not thread.is_alive() or bool(servers and servers[0].started))
        assert servers, "the server did not start"
        yield Place(addresses[0], servers[0])
    finally:
        uvicorn.Server.run = run  # type: ignore[method-assign]
        for server in servers:
            server.should_exit = True
        thread.join(HANG_S)
