"""The page over HTTP for a browser on this machine: requests need the launch's token, a known host name and no foreign origin.

A request names models only by id (see `web/server/pages.py`); no path, address or body is ever taken from it. The server sets no cookie
and allows no other origin. `openapi.json` describes the same for programs.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ...core.errors import LlamathError
from ...core.record_type import Record
from .chooser import error_page
from .page_html import read_asset
from .pages import Pages

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

Answer = Callable[["Request"], Awaitable["Response"]]
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class AccessPolicy(Record):
    """Requests need the token and a known Host header (`127.0.0.1:8000`), or, with `port`, any IP address with that port."""

    token: str
    hosts: frozenset[str]
    port: int = 0
    one_time_path: str = ""

    def is_known_host(self, host: str) -> bool:
        """Whether a Host header names this server; a DNS name of someone else's never does (DNS rebinding)."""
        if host in self.hosts:
            return True
        name, _, port = host.rpartition(":")
        return bool(self.port) and port == str(self.port) and _is_ip_address(name)


def _is_ip_address(host: str) -> bool:
    try:
        return bool(ip_address(host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host))
    except ValueError:
        return False


def create_application(pages: Pages, door: AccessPolicy) -> Starlette:
    """Return the application that serves the pages under `/TOKEN/`."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.routing import Route

    answers = RouteHandlers(pages)
    guard = Middleware(BaseHTTPMiddleware, dispatch=partial(guard_request, OneTimeEntry(door)))
    routes = [Route(f"/{door.token}/{path}", partial(handler, answers), methods=["GET"]) for path, handler in ROUTES.items()]
    made = Starlette(routes=routes, middleware=[guard])
    made.router.redirect_slashes = False
    return made


class RouteHandlers:
    """The handlers of the routes."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages

    async def start(self, _: Request) -> Response:
        """Show the launch's models, or the page to choose one."""
        return await self._page(self.pages.first(), "")

    async def choose(self, _: Request) -> Response:
        """Show the page to choose a model."""
        return await self._page((), "")

    async def show(self, request: Request) -> Response:
        """Show one model, or compare two."""
        wanted = tuple(request.path_params.values())
        return await self._page(wanted, "../" * len(wanted))

    async def openapi(self, _: Request) -> Response:
        """Return the OpenAPI description of the routes."""
        from starlette.responses import JSONResponse

        return JSONResponse(json.loads(read_asset("../openapi.json")))

    async def _page(self, wanted: tuple[str, ...], up: str) -> Response:
        from starlette.responses import HTMLResponse

        try:
            return HTMLResponse(await self.pages.get(wanted, up))
        except LlamathError as error:
            status = getattr(error, "status", 422)
            title = {404: "No such model", 424: "The hub did not answer", 429: "Busy"}.get(status, "This model cannot be shown")
            more = {"Retry-After": "2"} if status == 429 else None
            return HTMLResponse(error_page(title, str(error), up), status, more)


ROUTES: Mapping[str, Callable[[RouteHandlers, Request], Awaitable[Response]]] = {
    "": RouteHandlers.start,
    "choose": RouteHandlers.choose,
    "model/{a}": RouteHandlers.show,
    "models/{a}/{b}": RouteHandlers.show,
    "openapi.json": RouteHandlers.openapi,
}
"""The routes under `/TOKEN/`, and the handlers that answer them."""


class OneTimeEntry:
    """The access policy, and its one-time path until it is used."""

    def __init__(self, door: AccessPolicy) -> None:
        self.policy, self.one_time_path = door, door.one_time_path

    def redeem(self, path: str) -> bool:
        """Whether `path` is the one-time path, which is valid only once."""
        if not self.one_time_path or not hmac.compare_digest(path.encode("utf-8", "surrogateescape"), f"/{self.one_time_path}".encode()):
            return False
        self.one_time_path = ""
        return True


async def guard_request(entry: OneTimeEntry, request: Request, call: Answer) -> Response:
    """Answer a request if the policy admits it, and add the security headers to every response."""
    from starlette.responses import PlainTextResponse, RedirectResponse

    status = refusal_status(request, entry.policy)
    if status == 404 and entry.redeem(request.url.path):
        answer: Response = RedirectResponse(f"/{entry.policy.token}/", 303)
    elif status:
        answer = PlainTextResponse("refused", status, {"Allow": "GET, HEAD"} if status == 405 else None)
    else:
        answer = await call(request)
    answer.headers.update(HEADERS)
    answer.headers["Content-Security-Policy"] = "default-src 'none'; frame-ancestors 'none'" if status else "frame-ancestors 'none'"
    return answer


def refusal_status(request: Request, door: AccessPolicy) -> int:
    """Return the status with which a request is refused, or 0."""
    headers = request.headers
    host, origin = headers.get("host", "").lower(), headers.get("origin")
    if not door.is_known_host(host) or len(headers.getlist("host")) != 1:
        return 421
    if request.method not in ("GET", "HEAD"):
        return 405
    if (origin is not None and origin != f"http://{host}") or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return 403
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        return 413
    given = request.url.path.split("/")[1] if request.url.path.count("/") > 1 else ""
    return 0 if hmac.compare_digest(given.encode("utf-8", "surrogateescape"), door.token.encode()) else 404
