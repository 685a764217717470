"""`/api/NAME`: the reports as JSON, exactly as the commands print them; who calls `serve` gives
the functions that answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...model import Model
from ...utils.errors import LlamathError, RemoteError, UnknownModel
from ...utils.record_type import Record
from .error_page import PageError
from .posted_configs import UnsupportedConfig


class ApiAnswer(Record):
    """The JSON text of an answer, the notes of the command, whether its verdict is negative, and
    the error that ended it.
    """

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
        return (
            404
            if isinstance(error, UnknownModel) and not isinstance(error, UnsupportedConfig)
            else 422
        )


ModelResolver = Callable[[str], Model]
"""Finds a model of this server by name."""
ApiFunction = Callable[[Sequence[tuple[str, str]], ModelResolver], ApiAnswer]
"""Answers the parameters of a request."""


class ApiTool(Record):
    """What answers one route, its parameter for models, of which one may be a config that is
    sent, and its parameters as JSON Schema.
    """

    answer: ApiFunction
    models: str = ""
    summary: str = ""
    schema: Mapping[str, Any] = {}


Api = Mapping[str, ApiTool]
"""The tools by the name of their route."""
SENT = "-"
"""The name of the config in the body, as that of standard input on the command line."""
