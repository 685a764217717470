"""`/api/NAME`: the reports as JSON, exactly as the commands print them; who calls `serve` gives the functions that answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...model import Model
from ...utils.errors import LlamathError, RemoteError, UnknownModel
from ...utils.record_type import Record
from .error_page import RETRY_AFTER, PageError
from .messages import Answer
from .posted_configs import ID_HEADER, UnsupportedConfig, discard_body, read_posted

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from .pages import Pages


class ApiAnswer(Record):
    """The JSON text of an answer, the notes of the command, whether its verdict is negative, and the error that ended it."""

    text: str
    notes: str = ""
    exit_code: int = 0
    error: LlamathError | None = None
    is_usage: bool = False

    @property
    def status(self) -> int:
        """The HTTP status."""
        error = self.error
        if error is None:
            return 200
        if self.is_usage:
            return 400
        if isinstance(error, PageError):
            return error.status
        if isinstance(error, RemoteError):
            return 404 if error.code in ("missing", "id") else 424
        return 404 if isinstance(error, UnknownModel) and not isinstance(error, UnsupportedConfig) else 422


ModelResolver = Callable[[str], Model]
"""Finds a model of this server by name."""
ApiFunction = Callable[[Sequence[tuple[str, str]], ModelResolver], ApiAnswer]
"""Answers the parameters of a request."""


class ApiTool(Record):
    """What answers one route, and its parameter for models, of which one may be a config that is sent."""

    answer: ApiFunction
    models: str = ""


Api = Mapping[str, ApiTool]
"""The tools by the name of their route."""
SENT = "-"
"""The name of the config in the body, as that of standard input on the command line."""


async def respond(request: Request, tool: str, models: str, pages: Pages) -> Response:
    """Return the answer to a request, compressed if the client accepts that; the body of a POST is the config of the parameter `models`."""
    from starlette.responses import Response

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
        if not is_read:
            await discard_body(request)
        answer = Answer(status=error.status, body=error_json(error).encode(), headers={"Llamath-Exit-Code": "2"})
    headers |= {**answer.headers, **RETRY_AFTER.get(answer.status, {})}
    return Response(answer.body, answer.status, headers, media_type="application/json")


def error_json(error: PageError) -> str:
    """Return an error in the form in which the command line prints it."""
    return json.dumps({"error": {"message": str(error), "hint": error.hint, "code": error.code}}) + "\n"
