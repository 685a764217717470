"""A server of pages that runs in a thread, and questions to it over a socket."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llamath.model import Model
from llamath.web.server.server import Ready, serve


class Place:
    """A server, by what it said of its address."""

    def __init__(self, where: Ready) -> None:
        self.address, self.once = where.address, where.once
        self.port = int(self.address.split(":")[2].split("/")[0])
        self.path = "/" + self.address.split("/", 3)[3]

    def ask(
        self, path: str | None = None, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], str]:
        wire = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        said = {"Host": f"127.0.0.1:{self.port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
        wire.request(method, self.path if path is None else path, body=body, headers=said)
        answer = wire.getresponse()
        found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
        wire.close()
        return found


@contextmanager
def served(own: Sequence[Model], host: str = "127.0.0.1", *, hub: bool = False) -> Iterator[Place]:
    import uvicorn

    said: list[Ready] = []
    servers: list[Any] = []
    run = uvicorn.Server.run

    def noted(self: Any, sockets: Any = None) -> None:
        servers.append(self)
        run(self, sockets)

    uvicorn.Server.run = noted  # type: ignore[assignment, method-assign]
    thread = threading.Thread(target=serve, args=(own, host, 0, said.append), kwargs={"hub": hub}, daemon=True)
    thread.start()
    try:
        until = time.monotonic() + 60
        while not (servers and servers[0].started) and time.monotonic() < until:
            time.sleep(0.02)
        yield Place(said[0])
    finally:
        uvicorn.Server.run = run  # type: ignore[method-assign]
        servers[0].should_exit = True
        thread.join(20)
