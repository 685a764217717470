"""The page over HTTP, for this machine's own browser: who asks must know the launch's token, name this host and come from no other site.

A request names a preset by its slug or nothing at all; no path, address or body is ever taken from one. The server keeps no cookie and
tells no other origin anything.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from html import escape
from typing import TYPE_CHECKING

from ..catalog import read, slugs
from ..errors import LlamathError, MissingExtra
from ..loading import load
from ..model import Model
from .page import page, policy, style

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

Answer = Callable[["Request"], Awaitable["Response"]]
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
KEPT, AT_ONCE, WAITING, SECONDS = 16, 2, 16, 20
"""Pages kept, pages made at once, requests that may wait for one, and how long."""
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Pages:
    """Pages by the slugs of their models, made one or two at a time; those named on the command line have no slug."""

    def __init__(self, own: Sequence[Model]) -> None:
        self.own, self.known = tuple(own), frozenset(slugs())
        self.made: OrderedDict[tuple[str, ...], str] = OrderedDict()
        self.gate, self.waiting = asyncio.Semaphore(AT_ONCE), 0

    def knows(self, wanted: Sequence[str]) -> bool:
        """Whether every one is a preset, spelt as the list has it."""
        return all(x in self.known for x in wanted)

    async def of(self, wanted: tuple[str, ...]) -> str | None:
        """The page; None where too many wait already, or it takes too long."""
        if wanted in self.made:
            self.made.move_to_end(wanted)
            return self.made[wanted]
        if self.waiting >= WAITING:
            return None
        self.waiting += 1
        try:
            async with self.gate:
                text = await asyncio.wait_for(asyncio.to_thread(self._make, wanted), SECONDS)
        except TimeoutError:
            return None
        finally:
            self.waiting -= 1
        self.made[wanted] = text
        while len(self.made) > KEPT:
            self.made.popitem(last=False)
        return text

    def _make(self, wanted: tuple[str, ...]) -> str:
        models = tuple(map(preset, wanted)) or self.own
        return page(models) if models else listed(sorted(self.known))


def preset(slug: str) -> Model:
    """The preset of this slug, and never a file of that name."""
    found = read(slug)
    return load(found.config).replace(name=found.name, source=f"preset {slug}: {found.source}")


def listed(names: Sequence[str]) -> str:
    """A page that names the presets."""
    look = style()
    items = "\n".join(f'<li><a href="model/{escape(x)}">{escape(x)}</a></li>' for x in names)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy("", look)}">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>Models · llamath</title><style>{look}</style></head>
<body><main id="page"><h1>Models</h1><ul class="presets">
{items}
</ul></main></body></html>
"""


def application(own: Sequence[Model], token: str, hosts: frozenset[str]) -> Starlette:
    """The pages under `/TOKEN/`, for requests to these hosts (`127.0.0.1:8000`)."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import HTMLResponse, PlainTextResponse
    from starlette.routing import Route

    pages = Pages(own)

    async def shown(request: Request) -> Response:
        wanted = tuple(request.path_params.values())
        if not pages.knows(wanted):
            return PlainTextResponse("no such model", 404)
        text = await pages.of(wanted)
        return PlainTextResponse("too much at once", 429) if text is None else HTMLResponse(text)

    async def guarded(request: Request, call: Answer) -> Response:
        status = refusal(request, token, hosts)
        answer = PlainTextResponse("refused", status) if status else await call(request)
        answer.headers.update(HEADERS)
        if "Content-Security-Policy" not in answer.headers:
            answer.headers["Content-Security-Policy"] = (
                "frame-ancestors 'none'" if not status else "default-src 'none'; frame-ancestors 'none'"
            )
        return answer

    routes = [Route(f"/{token}/{path}", shown, methods=["GET"]) for path in ("", "model/{a}", "models/{a}/{b}")]
    made = Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=guarded)])
    made.router.redirect_slashes = False
    return made


def refusal(request: Request, token: str, hosts: frozenset[str]) -> int:
    """The status with which a request is refused; 0: it is not."""
    said = request.headers
    host, origin = said.get("host", "").lower(), said.get("origin")
    if host not in hosts or len(said.getlist("host")) != 1:
        return 421
    if (origin is not None and origin != f"http://{host}") or said.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return 403
    if request.method not in ("GET", "HEAD"):
        return 405
    if said.get("content-length", "0") != "0" or "transfer-encoding" in said:
        return 413
    given = request.url.path.split("/")[1] if request.url.path.count("/") > 1 else ""
    return 0 if hmac.compare_digest(given.encode(), token.encode()) else 404


def serve(own: Sequence[Model], host: str, port: int, ready: Callable[[str], None]) -> None:
    """Listen until interrupted; `ready` is told the address."""
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise MissingExtra(error.name or "starlette", "web") from None
    place = listening(host, port)
    shown = f"[{host}]" if ":" in host else host
    number = place.getsockname()[1]
    token = secrets.token_urlsafe(24)
    hosts = frozenset(f"{x}:{number}" for x in (*(LOOPBACK if loopback(host) else ()), shown.lower()))
    config = uvicorn.Config(
        application(own, token, hosts),
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=64,
        timeout_keep_alive=5,
        h11_max_incomplete_event_size=16_384,
        timeout_graceful_shutdown=2,
    )
    ready(f"http://{shown}:{number}/{token}/")
    uvicorn.Server(config).run(sockets=[place])


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
