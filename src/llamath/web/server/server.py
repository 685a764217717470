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
from .application import AccessPolicy, create_application
from .pages import Pages

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class ServerAddress(Record):
    """Where the page is: its address, and one that leads there a single time and may be seen by others, as a browser's arguments are."""

    address: str
    one_time_address: str


def serve(own: Sequence[Model], host: str, port: int, ready: Callable[[ServerAddress], None], *, hub: bool = False) -> None:
    """Listen until interrupted; `ready` is told the address."""
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise MissingExtra(error.name or "starlette", "web") from None
    from .timeouts import TimeoutProtocol

    place = listen(host, port)
    shown, number = host_in_url(host), place.getsockname()[1]
    door = access_policy(host, number)
    config = uvicorn.Config(
        create_application(Pages(own, hub), door),
        http=TimeoutProtocol,
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
    ready(ServerAddress(address=f"{start}/{door.token}/", one_time_address=f"{start}/{door.one_time_path}"))
    uvicorn.Server(config).run(sockets=[place])


def access_policy(host: str, number: int) -> AccessPolicy:
    """Two secrets that are new, and the names under which this host may be asked."""
    names = (*(LOOPBACK if is_loopback(host) or is_unspecified(host) else ()), host_in_url(host).lower())
    return AccessPolicy(
        token=secrets.token_urlsafe(24),
        one_time_path=secrets.token_urlsafe(24),
        hosts=frozenset(f"{x}:{number}" for x in names),
        port=number if is_unspecified(host) else 0,
    )


def host_in_url(host: str) -> str:
    """The host as an address names it; one that means every address of this machine is called by the machine's name."""
    if is_unspecified(host):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def is_unspecified(host: str) -> bool:
    """Whether this means every address of the machine: `0.0.0.0`, `::`."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether this is a name for the machine itself."""
    return host in ("localhost", "::1") or host.startswith("127.")


def listen(host: str, port: int) -> socket.socket:
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
