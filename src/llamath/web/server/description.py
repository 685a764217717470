"""`describe`: the OpenAPI description of a server's routes; those under `/api/` follow from the
tools that it serves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .json_api import SENT, Api, ApiTool

Json = dict[str, Any]

_SUMMARY = (
    "Pages of one language model, or of two compared, served on this machine, and reports as JSON. "
    "Requests without the token of this launch (404), with a foreign host name (421), from another "
    "origin or site (403) or with a body (413), except for configs that are sent to /api, are "
    "refused."
)
_REFUSED = dict.fromkeys(("403", "413", "421"), "Refused")
_PAGE = {"200": "Page", **_REFUSED, "422": "Notice", "429": "Busy", "503": "Unavailable"}
_PAGES: dict[str, tuple[str, str, dict[str, str]]] = {
    "": (
        "start",
        "The page of the models given on the command line if there are one or two, else the page "
        "to choose a model.",
        {**_PAGE, "404": "Refused"},
    ),
    "choose": ("choose", "The page to choose a model.", {**_PAGE, "404": "Refused"}),
    "gallery/{chunk}": (
        "gallery",
        "A part of the gallery's data, which its page asks for: facts or pictures of presets.",
        {"200": "Gallery", **_REFUSED, "404": "UnknownModel"}
        | {status: f"Api{status}" for status in ("422", "429", "503")},
    ),
    "model/{a}": ("one", "The page of one model.", {**_PAGE, "404": "Missing", "424": "Notice"}),
    "models/{a}/{b}": (
        "two",
        "The comparison of two models.",
        {**_PAGE, "404": "Missing", "424": "Notice"},
    ),
    "openapi.json": (
        "describe",
        "This OpenAPI description.",
        {"200": "OpenAPI", **_REFUSED, "404": "Refused", "503": "Unavailable"},
    ),
}
"""Routes of pages: the name of the operation, what it answers, and its responses by status."""
_API_ERRORS = {
    "400": "An unknown, repeated or malformed parameter; or, as plain text, a request of more "
    "than 16 KiB.",
    "408": "The config did not arrive in time.",
    "422": "A value that the command refuses, or an answer that takes too long or needs too much "
    "memory.",
    "424": "The hub did not answer.",
    "429": "There are too many requests, or the server is busy.",
    "503": "There are too many connections (as plain text), the server is ending, or what "
    "computed the answer was killed.",
}


def describe(api: Api) -> Json:
    """Return the description of the pages and of these tools."""
    routes = {f"/{name}": _page(name) for name in _PAGES}
    return {
        "openapi": "3.1.0",
        "info": {"title": "llamath serve", "version": "1", "description": _SUMMARY},
        "servers": [
            {
                "url": "http://127.0.0.1:{port}/{token}",
                "variables": {
                    "port": {"default": "8000", "description": "the printed port"},
                    "token": {"default": "TOKEN", "description": "new with each launch"},
                },
            }
        ],
        "paths": routes | {f"/api/{name}": _report(name, tool) for name, tool in api.items()},
        "components": _components(),
    }


def _ref(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}


def _refs(kind: str, names: Mapping[str, str]) -> Json:
    return {key: _ref(kind, name) for key, name in names.items()}


def _guarded(operations: Json) -> Json:
    """Return a path with the headers that the guard of the server reads."""
    return {"parameters": [_ref("parameters", x) for x in ("Origin", "Site")], **operations}


def _page(name: str) -> Json:
    operation, summary, responses = _PAGES[name]
    own = [_ref("parameters", x) for x in ("a", "b", "chunk") if f"{{{x}}}" in name]
    described = {"operationId": operation, "summary": summary}
    responses = dict(sorted(responses.items()))
    return _guarded(
        {"get": described | {"parameters": own, "responses": _refs("responses", responses)}}
    )


def _report(name: str, tool: ApiTool) -> Json:
    operations: Json = {
        "get": {
            "operationId": name,
            "summary": tool.summary,
            "description": f"The JSON of `llamath {name} --json`, byte for byte.",
            "parameters": list(_parameters(tool, sent=False)),
            "responses": _responses(sent=False),
        }
    }
    if tool.models:
        operations["post"] = {
            "operationId": f"{name}_of_config",
            "summary": tool.summary,
            "description": f"The JSON of `llamath {name} - --json`, byte for byte, of a config "
            "that is sent: a config.json or params.json.",
            "parameters": [*_parameters(tool, sent=True), _ref("parameters", "Name")],
            "requestBody": _ref("requestBodies", "Config"),
            "responses": _responses(sent=True),
        }
    return _guarded(operations)


def _parameters(tool: ApiTool, *, sent: bool) -> Iterator[Json]:
    """Yield the parameters of the query; with `sent`, the model may be left out for a config in
    the body.
    """
    for name, schema in tool.schema.get("properties", {}).items():
        own = {key: x for key, x in schema.items() if key != "description"}
        text = schema.get("description", "")
        required = name in tool.schema.get("required", ())
        if sent and name == tool.models:
            own.pop("minItems", None)
            text = (
                f"{text.rstrip('.')}. `{SENT}` is the config that is sent, which is added if "
                "it is not named."
            )
            required = False
        found: Json = {"name": name, "in": "query", "description": text, "schema": own}
        if required:
            found["required"] = True
        if own.get("type") == "array":
            found |= {"style": "form", "explode": True}
        yield found


def _responses(*, sent: bool) -> Json:
    """Return what a route of the API answers, to a config that is `sent` or without one."""
    refused = _REFUSED | ({"411": "Refused", "415": "Refused"} if sent else {})
    errors = {status: f"Api{status}" for status in _API_ERRORS if sent or status != "408"}
    report = "ReportOfConfig" if sent else "Report"
    return _refs(
        "responses",
        dict(sorted({"200": report, "404": "UnknownModel", **refused, **errors}.items())),
    )


def _content(schema: Json, kind: str = "application/json") -> Json:
    return {"content": {kind: {"schema": schema}}}


def _components() -> Json:
    text: Json = {"type": "string"}
    plain, html = _content(text, "text/plain"), _content(text, "text/html")
    error = _content(_ref("schemas", "Error"))
    error_or_plain = {"content": error["content"] | plain["content"]}
    html_or_plain = {"content": html["content"] | plain["content"]}
    of_json = {"Cache-Control": "NoStore", "X-Content-Type-Options": "NoSniff"}
    of_page = {**of_json, "Content-Security-Policy": "Policy"}
    of_report = {**of_json, "Llamath-Exit-Code": "ExitCode", "Llamath-Notes": "Notes"}
    busy = {"headers": _refs("headers", {"Retry-After": "RetryAfter"})}

    def headers(names: Mapping[str, str]) -> Json:
        return {"headers": _refs("headers", names)}

    report = {"description": "The report.", **_content({"type": "object", "minProperties": 1})}
    return {
        "schemas": {"Id": _id_schema(), "Error": _error_schema()},
        "parameters": _parameter_components(),
        "requestBodies": {
            "Config": {
                "description": "A config.json or params.json of at most 4 MiB, with its length "
                "declared.",
                "required": True,
                **_content({"type": "object"}),
            }
        },
        "headers": _header_components(),
        "responses": {
            "Page": {"description": "A page.", **headers(of_page), **html},
            "Gallery": {
                "description": "The facts or pictures of some presets.",
                **headers(of_json),
                **_content(_GALLERY),
            },
            "OpenAPI": {
                "description": "OpenAPI",
                **headers(of_json),
                **_content({"type": "object", "required": ["openapi", "paths"]}),
            },
            "Report": {**report, **headers(of_report)},
            "ReportOfConfig": {**report, **headers({**of_report, "Llamath-Model": "Model"})},
            "Notice": {
                "description": "An error page: the config cannot be shown (422), or the hub did "
                "not provide it (424).",
                **headers({**of_page}),
                **html,
            },
            "Busy": {"description": _API_ERRORS["429"], **busy, **html},
            "Missing": {
                "description": "Unknown model; or, as plain text, unknown path or missing token.",
                **html_or_plain,
            },
            "Refused": {
                "description": "Refused: foreign host name (421), other origin or site (403), "
                "body (413), its type "
                "(415) or undeclared length (411), missing token or unknown path (404).",
                **plain,
            },
            "UnknownModel": {
                "description": "Unknown model or part; or, as plain text, a missing token.",
                **error_or_plain,
            },
            "Unavailable": {
                "description": _API_ERRORS["503"].replace("answer", "page"),
                **busy,
                **html_or_plain,
            },
            **{
                f"Api{status}": {"description": words}
                | (error_or_plain if status in ("400", "503") else error)
                | (busy if status in ("429", "503") else {})
                for status, words in _API_ERRORS.items()
            },
        },
    }


def _id_schema() -> Json:
    name = "[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
    forms = (("^[a-z0-9][a-z0-9.-]*$", 80), ("^~[1-9][0-9]*$", 4), ("^~[0-9a-f]{12}$", 13))
    return {
        "description": "The slug of a preset, ~1 for the first model of the command line, the id "
        "of a config that "
        "was sent, or, with --allow hub, hub:owner:name.",
        "examples": ["gpt2", "~1"],
        "anyOf": [
            {"type": "string", "maxLength": length, "pattern": pattern}
            for pattern, length in (*forms, (f"^hub:{name}:{name}$", 197))
        ],
    }


def _error_schema() -> Json:
    keys = ("message", "hint", "code")
    inner = {
        "type": "object",
        "required": list(keys),
        "properties": {key: {"type": "string"} for key in (*keys, "field")},
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "required": ["error"],
        "properties": {"error": inner},
        "additionalProperties": False,
    }


_GALLERY: Json = {
    "type": "object",
    "required": ["models"],
    "properties": {
        "models": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id"],
                "properties": {
                    "id": {"type": "string"},
                    "name": {"type": "string"},
                    "total": {"type": "integer"},
                },
            },
        }
    },
}


def _parameter_components() -> Json:
    def in_path(name: str, schema: Json, text: str) -> Json:
        return {"name": name, "in": "path", "required": True, "description": text, "schema": schema}

    def in_header(name: str, schema: Json, text: str) -> Json:
        return {
            "name": name,
            "in": "header",
            "description": text,
            "schema": {"type": "string", **schema},
        }

    chunk = {"type": "integer", "minimum": 0, "maximum": 99999}
    sites = ["none", "same-origin", "same-site", "cross-site"]
    percent_encoded = "^([!'()*A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})*$"
    return {
        "a": in_path("a", _ref("schemas", "Id"), "The model."),
        "b": in_path("b", _ref("schemas", "Id"), "The model that it is compared with."),
        "chunk": in_path("chunk", chunk, "The number of the part, from 0."),
        "Origin": in_header("Origin", {"maxLength": 200}, "The origin of this server, if given."),
        "Site": in_header(
            "Sec-Fetch-Site",
            {"enum": sites},
            "The relation between the site of the request and this server; only none and "
            "same-origin are accepted.",
        ),
        "Name": in_header(
            "Llamath-Name",
            {"maxLength": 960, "pattern": percent_encoded},
            "The name of the file that the config comes from, percent-encoded; it labels the "
            "model.",
        ),
    }


def _header_components() -> Json:
    def header(schema: Json, text: str = "", *, required: bool = True) -> Json:
        described = {"schema": {"type": "string", **schema}} | (
            {"description": text} if text else {}
        )
        return described | ({"required": True} if required else {})

    return {
        "NoStore": header({"enum": ["no-store"]}),
        "NoSniff": header({"enum": ["nosniff"]}),
        "Policy": header({"pattern": "frame-ancestors 'none'"}),
        "RetryAfter": header({"pattern": "^[0-9]+$"}),
        "ExitCode": header(
            {"enum": ["0", "1"]}, "The exit code of the command: 1 is a negative verdict."
        ),
        "Notes": header({}, "What the command says on stderr, as a JSON string.", required=False),
        "Model": header(
            {"pattern": "^~[0-9a-f]{12}$"},
            "The id by which this server knows the model that was sent, in pages (/model/ID) and "
            "as MODEL.",
            required=False,
        ),
    }
