"""`/api/NAME`: the reports as JSON, exactly as the commands print them; who calls `serve` gives the functions that answer."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...model import Model
from ...utils.errors import LlamathError, RemoteError, UnknownModel
from ...utils.record_type import Record
from .posted_configs import ID_HEADER, PostedConfig, UnsupportedConfig, read_posted
from .work_slots import PageError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from .pages import Pages

_MIN_COMPRESSED, _MAX_NOTES = 1000, 1500
"""The shortest answer that is compressed, in bytes, and the longest notes of a header, in characters."""


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
_SENT = "-"
"""The name of the config in the body, as that of standard input on the command line."""


async def respond(request: Request, tool: ApiTool, pages: Pages) -> Response:
    """Return the answer to a request, compressed if the client accepts that; the body of a POST is a config."""
    from starlette.responses import Response

    values = request.query_params.multi_items()
    accepts_gzip = "gzip" in request.headers.get("accept-encoding", "")
    sent: PostedConfig | None = None

    def find_model(text: str) -> Model:
        return sent.model if sent is not None and text == _SENT else pages.find_model(text)

    def work() -> tuple[ApiAnswer, bytes, bool]:
        answer = tool.answer(values, find_model)
        data = answer.text.encode()
        is_compressed = accepts_gzip and len(data) >= _MIN_COMPRESSED
        return answer, gzip.compress(data, 5, mtime=0) if is_compressed else data, is_compressed

    try:
        if request.method == "POST":
            sent = await read_posted(request)
            values += [] if (tool.models, _SENT) in values else [(tool.models, _SENT)]
        answer, data, is_compressed = await pages.work.run(work)
    except PageError as error:
        answer = ApiAnswer(text=error_json(error, {400: "usage", 429: "busy"}.get(error.status, "too_slow")), error=error)
        data, is_compressed = answer.text.encode(), False
    headers = {"Vary": "Accept-Encoding", "Llamath-Exit-Code": str(2 if answer.error else answer.exit_code)}
    if answer.notes and not answer.error:
        headers["Llamath-Notes"] = json.dumps(" ".join(answer.notes.split())[:_MAX_NOTES])
    if sent is not None and answer.error is None and sent.has_page:
        pages.keep(sent)
        headers[ID_HEADER] = sent.id
    headers |= {"Content-Encoding": "gzip"} if is_compressed else {}
    headers |= {"Retry-After": "2"} if answer.status == 429 else {}
    return Response(data, answer.status, headers, media_type="application/json")


def error_json(error: LlamathError, code: str) -> str:
    """Return an error in the form in which the command line prints it."""
    return json.dumps({"error": {"message": str(error), "hint": error.hint, "code": code}}) + "\n"
