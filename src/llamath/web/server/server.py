"""The web server: its socket, its access policy and its limits."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ...checkpoint.hub import Limits
from ...model import FamilyModel
from ...utils.errors import Argument, ArgumentError, Call, LlamathError, MissingExtra, Name, wording
from ...utils.record_type import Record
from .application import AccessPolicy, create_application
from .messages import Launch
from .model_ids import HUB_LIMITS
from .pages import Pages

if TYPE_CHECKING:
    from .json_api import Api
    from .timeouts import ConnectionLimits

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class ServerAddress(Record):
    """The address of the page, and a one-time address for the browser's command line, which
    other users may see.
    """

    address: str
    one_time_address: str


def serve(
    models: Sequence[FamilyModel],
    host: str,
    port: int,
    ready: Callable[[ServerAddress], None],
    *,
    api: Callable[[], Api] = dict,
    hub: bool = False,
    hub_limits: Limits = HUB_LIMITS,
    limits: ConnectionLimits | None = None,
) -> None:
    """Serve until interrupted; `ready` is called with the address.

    `api`, a function of a module, returns what answers `/api/NAME`. With `hub`, pages of models on
    the hub are served too.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise MissingExtra(error.name or "starlette", "web") from None
    from .timeouts import ConnectionLimits, protocol_with_limits

    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise LlamathError(
            "a server cannot run in a running event loop, such as that of a notebook",
            hint=f"{Call('show', Name('model'))} shows the page there",
        )

    listener = listen(host, port)
    url_host, port_number = _host_in_url(host), listener.getsockname()[1]
    policy = access_policy(host, port_number)
    pages = Pages(
        Launch(models=tuple(models), api=api, hub=hub, hub_limits=hub_limits, words=wording())
    )
    base_url = f"http://{url_host}:{port_number}"
    try:
        pages.work.prepare()  # while this process imports the rest
        config = uvicorn.Config(
            create_application(pages, policy, api()),
            http=protocol_with_limits(limits or ConnectionLimits()),
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=5,
            h11_max_incomplete_event_size=16_384,
            timeout_graceful_shutdown=2,
        )

        class Server(uvicorn.Server):
            async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
                """Kill what computes first, so that no response is waited for."""
                pages.work.close()
                await super().shutdown(sockets)

        ready(
            ServerAddress(
                address=f"{base_url}/{policy.token}/",
                one_time_address=f"{base_url}/{policy.one_time_path}",
            )
        )
        Server(config).run(sockets=[listener])
    finally:
        pages.work.close()


def access_policy(host: str, port: int) -> AccessPolicy:
    """Return a policy with two new secrets and the host names of this server."""
    host_names = (
        *(_LOOPBACK if is_loopback(host) or is_unspecified(host) else ()),
        _host_in_url(host).lower(),
    )
    return AccessPolicy(
        token=secrets.token_urlsafe(24),
        one_time_path=secrets.token_urlsafe(24),
        hosts=frozenset(f"{x}:{port}" for x in host_names),
        port=port if is_unspecified(host) else 0,
    )


def _host_in_url(host: str) -> str:
    """Return the host as in a URL; the unspecified address becomes the machine's name."""
    if is_unspecified(host):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def is_unspecified(host: str) -> bool:
    """Whether the host is the unspecified address: `0.0.0.0` or `::`."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether the host is a loopback address."""
    return host in ("localhost", "::1") or host.startswith("127.")


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 selects any free port."""
    if not 0 <= port <= 65_535:
        raise ArgumentError("port", f" should be from 0 to 65,535, found {port:,}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        with ExitStack() as cleanup:
            listener = cleanup.enter_context(socket.socket(family, kind, protocol))
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(64)
            cleanup.pop_all()
    except OSError as error:
        raise LlamathError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            hint=f"{Argument('port', 0)} selects a free port",
        ) from None
    return listener
