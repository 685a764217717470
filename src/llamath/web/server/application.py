"""The page over HTTP for a browser on this machine: requests need the token of this launch, a known
host name and no foreign origin.

A request names models only by id (see `web/server/pages.py`), or carries a config
(`web/server/posted_configs.py`) or the first bytes of a file of weights (`dropped_headers.py`); no
path or address is ever taken from it. The server sets no cookie and allows no other origin.
`description.py` describes the same for programs.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from ...utils.errors import safe
from ...utils.record_type import Record
from .error_page import RETRY_AFTER, PageError, error_json, error_page
from .json_api import SENT, Api
from .messages import Answer
from .pages import Pages
from .posted_configs import ID_HEADER, MAX_FIRST_BYTES, MAX_POSTED, discard_body, read_posted

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MAX_ACTIVE = 128
"""Requests that are answered at once; further ones are told to come back."""
_SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class AccessPolicy(Record):
    """Requests need the token and a known Host header (`127.0.0.1:8000`), or, with `port`, any
    IP address with that port.
    """

    token: str
    hosts: frozenset[str]
    port: int = 0
    one_time_path: str = ""

    def is_known_host(self, host: str) -> bool:
        """Whether a Host header names this server; foreign DNS names never do, which prevents
        DNS rebinding.
        """
        if host in self.hosts:
            return True
        name, _, port = host.rpartition(":")
        return bool(self.port) and port == str(self.port) and _is_ip_address(name)


def _is_ip_address(host: str) -> bool:
    try:
        return bool(ip_address(host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host))
    except ValueError:
        return False


def create_application(pages: Pages, policy: AccessPolicy, api: Api) -> ASGIApp:
    """Return the application that serves the pages under `/TOKEN/`, and the reports under
    `/TOKEN/api/`.
    """
    from starlette.applications import Starlette
    from starlette.routing import Route

    handlers = _RouteHandlers(pages, api)
    header = f"/{policy.token}/header"
    bodies = {header: _HEADER} | {
        f"/{policy.token}/api/{name}": _CONFIG for name, tool in api.items() if tool.models
    }
    routes = [
        Route(f"/{policy.token}/{path}", partial(handler, handlers), methods=["GET"])
        for path, handler in ROUTES.items()
    ]
    for name, tool in api.items():
        methods = ["GET", "POST"] if tool.models else ["GET"]
        routes.append(
            Route(
                f"/{policy.token}/api/{name}",
                partial(_report, tool=name, models=tool.models, pages=pages),
                methods=methods,
            )
        )
    routes.append(Route(header, partial(_header, pages=pages), methods=["POST"]))
    application = Starlette(routes=routes)
    application.router.redirect_slashes = False
    return _GuardedApplication(application, policy, bodies)


class _RouteHandlers:
    """The handlers of the routes."""

    def __init__(self, pages: Pages, api: Api) -> None:
        self.pages, self.api = pages, api

    async def start(self, _: Request) -> Response:
        """Show the launch's models, or the page to choose one."""
        return await self._page(self.pages.initial_ids(), "")

    async def choose(self, _: Request) -> Response:
        """Show the page to choose a model."""
        return await self._page((), "")

    async def show(self, request: Request) -> Response:
        """Show one model, or compare two."""
        model_ids = tuple(request.path_params.values())
        return await self._page(model_ids, "../" * len(model_ids))

    async def gallery_chunk(self, request: Request) -> Response:
        """Return a part of the gallery's data."""
        from starlette.responses import Response

        try:
            return Response(
                await self.pages.gallery_chunk(request.path_params["chunk"]),
                media_type="application/json",
            )
        except PageError as error:
            return Response(
                error_json(error),
                error.status,
                RETRY_AFTER.get(error.status),
                media_type="application/json",
            )

    async def openapi(self, _: Request) -> Response:
        """Return the OpenAPI description of the routes."""
        from starlette.responses import Response

        return Response(self._description, media_type="application/json")

    @cached_property
    def _description(self) -> bytes:
        """The OpenAPI description of the routes, made when it is first asked for."""
        from .description import describe

        return json.dumps(describe(self.api), ensure_ascii=False).encode()

    async def _page(self, model_ids: tuple[str, ...], link_prefix: str) -> Response:
        from starlette.responses import HTMLResponse

        try:
            return HTMLResponse(await self.pages.get(model_ids, link_prefix))
        except PageError as error:
            return HTMLResponse(
                error_page(error, link_prefix), error.status, RETRY_AFTER.get(error.status)
            )


async def _report(request: Request, tool: str, models: str, pages: Pages) -> Response:
    """Return the answer to a request, compressed if the client accepts that; the body of a POST
    is the config of the parameter `models`.
    """
    values = request.query_params.multi_items()
    accepts_gzip = "gzip" in request.headers.get("accept-encoding", "")
    headers = {"Vary": "Accept-Encoding"}
    is_read = request.method != "POST"
    try:
        if request.method == "POST":
            async with pages.work.configs.enter():
                is_read = True
                sent = await read_posted(request)
                values += [] if (models, SENT) in values else [(models, SENT)]
                answer = await pages.report(tool, values, accepts_gzip, sent)
            headers |= {ID_HEADER: sent.id} if answer.has_page else {}
        else:
            answer = await pages.report(tool, values, accepts_gzip, None)
    except PageError as error:
        answer = await _refusal(request, error, is_read)
    return _response(answer, headers)


async def _header(request: Request, pages: Pages) -> Response:
    """Return what the body, the first bytes of a file of `size` bytes, says of its tensors."""
    is_read = False
    try:
        size = request.query_params.get("size", "")
        if not (size.isascii() and size.isdigit() and len(size) < 20):
            raise PageError(400, f"size should be a number of bytes: found {safe(repr(size), 60)}")
        async with pages.work.headers.enter():
            is_read = True
            answer = await pages.header(await read_posted(request), int(size))
    except PageError as error:
        answer = await _refusal(request, error, is_read)
    return _response(answer, {})


async def _refusal(request: Request, error: PageError, is_read: bool) -> Answer:
    """Return the answer to a request that is refused, whose body may not have been read."""
    if not is_read:
        await discard_body(request)
    return Answer(
        status=error.status, body=error_json(error).encode(), headers={"Llamath-Exit-Code": "2"}
    )


def _response(answer: Answer, headers: Mapping[str, str]) -> Response:
    from starlette.responses import Response

    all_headers = {**headers, **answer.headers, **RETRY_AFTER.get(answer.status, {})}
    return Response(answer.body, answer.status, all_headers, media_type="application/json")


ROUTES: Mapping[str, Callable[[_RouteHandlers, Request], Awaitable[Response]]] = {
    "": _RouteHandlers.start,
    "choose": _RouteHandlers.choose,
    "gallery/{chunk}": _RouteHandlers.gallery_chunk,
    "model/{a}": _RouteHandlers.show,
    "models/{a}/{b}": _RouteHandlers.show,
    "openapi.json": _RouteHandlers.openapi,
}
"""The routes under `/TOKEN/` with their handlers."""


class _OneTimeEntry:
    """The access policy, and its one-time path until it is used."""

    def __init__(self, policy: AccessPolicy) -> None:
        self.policy, self.one_time_path = policy, policy.one_time_path

    def redeem(self, path: str) -> bool:
        """Whether `path` is the one-time path, which is valid only once."""
        if not self.one_time_path or not hmac.compare_digest(
            path.encode("utf-8", "surrogateescape"), f"/{self.one_time_path}".encode()
        ):
            return False
        self.one_time_path = ""
        return True


class _GuardedApplication:
    """Passes on the requests that the policy admits, a limited number at once, and adds the
    security headers to every response.
    """

    def __init__(
        self, application: ASGIApp, policy: AccessPolicy, bodies: Mapping[str, _Body]
    ) -> None:
        """Remember the paths that take a body."""
        self._application, self._entry, self._bodies, self._active = (
            application,
            _OneTimeEntry(policy),
            bodies,
            0,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.datastructures import MutableHeaders
        from starlette.requests import Request

        request = Request(scope)
        body = self._bodies.get(request.url.path)
        status = _refusal_status(request, self._entry.policy, body)
        answer = self._answer_of_guard(request, status, body)
        if answer is not None and answer.status_code == 503 and request.method == "POST":
            await discard_body(Request(scope, receive))
        policy = (
            "default-src 'none'; frame-ancestors 'none'" if status else ("frame-ancestors 'none'")
        )

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(
                    {**_SECURITY_HEADERS, "Content-Security-Policy": policy}
                )
            await send(message)

        self._active += 1
        try:
            await (answer or self._application)(scope, receive, send_guarded)
        finally:
            self._active -= 1

    def _answer_of_guard(
        self, request: Request, status: int, body: _Body | None
    ) -> Response | None:
        """Return the response to a request that is not passed on."""
        from starlette.responses import PlainTextResponse, RedirectResponse

        if status == 404 and self._entry.redeem(request.url.path):
            return RedirectResponse(f"/{self._entry.policy.token}/", 303)
        if status:
            return PlainTextResponse(
                "refused", status, {"Allow": _ALLOWED[body is not None]} if status == 405 else None
            )
        if self._active >= _MAX_ACTIVE:
            return PlainTextResponse("busy", 503, RETRY_AFTER[503])
        return None


_ALLOWED = {False: "GET, HEAD", True: "GET, HEAD, POST"}
"""The methods of a path, by whether it takes a body."""


def _refusal_status(request: Request, policy: AccessPolicy, body: _Body | None) -> int:
    """Return the HTTP status with which the policy refuses a request, or 0 if it admits it."""
    headers = request.headers
    host, origin = headers.get("host", "").lower(), headers.get("origin")
    if not policy.is_known_host(host) or len(headers.getlist("host")) != 1:
        return 421
    sends = request.method == "POST" and body is not None
    if request.method not in ("GET", "HEAD") and not sends:
        return 405
    if (origin is not None and origin != f"http://{host}") or headers.get(
        "sec-fetch-site", "none"
    ) not in ("none", "same-origin"):
        return 403
    if not sends and (headers.get("content-length", "0") != "0" or "transfer-encoding" in headers):
        return 413
    token = request.url.path.split("/")[1] if request.url.path.count("/") > 1 else ""
    if not hmac.compare_digest(token.encode("utf-8", "surrogateescape"), policy.token.encode()):
        return 404
    return _refusal_of_body(request, body) if sends and body is not None else 0


class _Body(NamedTuple):
    """What a path takes; pages of other sites cannot send these types without asking first,
    which is refused.
    """

    type: str
    max_bytes: int


_CONFIG, _HEADER = (
    _Body("application/json", MAX_POSTED),
    _Body("application/octet-stream", MAX_FIRST_BYTES),
)


def _refusal_of_body(request: Request, body: _Body) -> int:
    """Return the HTTP status with which a body is refused, or 0: it is of the type, and its length
    is declared and limited.
    """
    headers = request.headers
    if (
        headers.get("content-type", "").partition(";")[0].strip().lower() != body.type
        or "content-encoding" in headers
    ):
        return 415
    length = headers.get("content-length", "")
    if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()):
        return 411
    return 413 if len(length) > 12 or int(length) > body.max_bytes else 0
