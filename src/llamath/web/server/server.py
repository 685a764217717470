"""The server of the page: where it listens, and whom it lets in."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from ipaddress import ip_address

from ...core.errors import LlamathError, MissingExtra
from ...core.record_type import Record
from ...model import Model
from .application import Door, application
from .pages import Pages

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Ready(Record):
    """Where the page is: its address, and one that leads there a single time and may be seen by others, as a browser's arguments are."""

    address: str
    once: str


def serve(own: Sequence[Model], host: str, port: int, ready: Callable[[Ready], None], *, hub: bool = False) -> None:
    """Listen until interrupted; `ready` is told the address."""
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise MissingExtra(error.name or "starlette", "web") from None
    from .timeouts import Patient

    place = listening(host, port)
    shown, number = named(host), place.getsockname()[1]
    door = door_of(host, number)
    config = uvicorn.Config(
        application(Pages(own, hub), door),
        http=Patient,
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=64,
        timeout_keep_alive=5,
        h11_max_incomplete_event_size=16_384,
        timeout_graceful_shutdown=2,
    )
    start = f"http://{shown}:{number}"
    ready(Ready(address=f"{start}/{door.token}/", once=f"{start}/{door.once}"))
    uvicorn.Server(config).run(sockets=[place])


def door_of(host: str, number: int) -> Door:
    """Two secrets that are new, and the names under which this host may be asked."""
    names = (*(LOOPBACK if loopback(host) or everywhere(host) else ()), named(host).lower())
    return Door(
        token=secrets.token_urlsafe(24),
        once=secrets.token_urlsafe(24),
        hosts=frozenset(f"{x}:{number}" for x in names),
        port=number if everywhere(host) else 0,
    )


def named(host: str) -> str:
    """The host as an address names it; one that means every address of this machine is called by the machine's name."""
    if everywhere(host):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def everywhere(host: str) -> bool:
    """Whether this means every address of the machine: `0.0.0.0`, `::`."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def loopback(host: str) -> bool:
    """Whether this is a name for the machine itself."""
    return host in ("localhost", "::1") or host.startswith("127.")


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; 0 is any free port."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as undone:
            place = undone.enter_context(socket.socket(family, kind, protocol))
            if os.name == "posix":
                place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            place.bind(address)
            place.listen(64)
            undone.pop_all()
    except OSError as error:
        raise LlamathError(f"{host}:{port} cannot be listened on: {error.strerror}", hint="--port 0 takes any that is free") from None
    return place
