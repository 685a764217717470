"""Write the part of src/llamath/web/openapi.json that describes /api/…, from the commands' options and the tables of docs/reference.

    python tools/openapi.py           write it
    python tools/openapi.py --check   fail if it is stale

The routes of pages are written by hand in the same file.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import click

from docs import JSON_KEYS, REFERENCE
from llamath.cli.report_tools import TOOLS, ReportTool, is_list, parameter_of_models, parameter_schema, parameters, required

ROOT = Path(__file__).parents[1]
FILE = ROOT / "src" / "llamath" / "web" / "openapi.json"
MODEL = (
    "a preset's name or public id, ~1 for the first model of the command line, ModelArgs (dim=4096,n_layers=32,…), or with --hub owner/name"
)
SAMPLES: dict[str, list[str]] = {
    "model": ["gpt2", "llama-3-8b", "~1", "dim=64,n_layers=2,n_heads=4,vocab_size=99"],
    "models": ["gpt2", "llama-3-8b", "~1"],
    "on": ["h100", "8xh100", "mem=24GiB bw=1TB/s bf16=300TF"],
    "context": ["128", "1k", "max"],
    "ram": ["64GiB"],
    "target": ["8B"],
    "number": ["8030261248", "8B"],
    "like": ["llama-3-8b"],
    "against": ["qwen3"],
    "dtype": ["bf16", "fp8", "q4_k_m"],
    "kv_dtype": ["bf16", "fp8"],
    "set": ["num_hidden_layers=3", "layers=8"],
    "layout": ["tp=2"],
    "words": ["llama", "h100"],
}
"""Values that the commands accept, for requests that are made from this description."""
EXAMPLES = ("model", "models", "on", "context", "ram", "target", "number", "words")
"""Parameters whose sample values make a good request together."""
CONFIGS: list[dict[str, Any]] = [
    {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99},
    {"dim": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 99},
]
"""A config.json and a params.json, as examples."""
REFUSALS = {"403": "Refused", "413": "Refused", "421": "Refused"}
API_ERRORS = {
    "400": "An unknown, repeated or malformed parameter; or, as plain text, a request of more than 16 KiB.",
    "408": "The config did not arrive in time.",
    "422": "A value that the command refuses, or an answer that takes too long or needs too much memory.",
    "424": "The hub did not answer.",
    "429": "There are too many requests, or the server is busy.",
    "503": "There are too many connections (as plain text), the server is ending, or what computed the answer was killed.",
}


def keys(name: str) -> dict[str, Any]:
    """Return the keys of a command's JSON with what docs/reference says of them."""
    found: dict[str, Any] = {}
    for page in sorted(REFERENCE.glob("*.md")):
        for command, table in JSON_KEYS.findall(page.read_text()):
            for row in table.splitlines()[2:] if command.split()[1] == name else ():
                _, first, text, _ = re.split(r"(?<!\\)\|", row)
                for key in re.findall(r"`(\w+)`", first):
                    found.setdefault(key, {"description": text.strip().replace("`", "")})
    return found


def parameter(name: str, x: click.Parameter, *, sent: bool = False) -> dict[str, Any]:
    """Return a parameter; with `sent`, it may be left out for a config in the body."""
    schema = parameter_schema(name, x, MODEL)
    description = schema.pop("description")
    if name in SAMPLES:
        item = schema["items"] if is_list(x) else schema
        either = {"anyOf": [{"type": "string", "enum": SAMPLES[name]}, {k: v for k, v in item.items() if k != "default"}]}
        schema = {**schema, "items": either} if is_list(x) else either | ({"default": item["default"]} if "default" in item else {})
    result = {"name": name, "in": "query", "description": description, "schema": schema}
    if name in EXAMPLES:
        values = [SAMPLES[name][:1]] if is_list(x) and name != "models" else [SAMPLES[name]] if is_list(x) else SAMPLES[name]
        result["examples"] = {f"example {i}": {"value": value} for i, value in enumerate(values, 1)}
    if sent:
        schema.pop("minItems", None)
        result["description"] = f"{description.rstrip('.')}. `-` is the config that is sent, which is added if it is not named."
    return (
        result | ({"required": True} if required(name, x) and not sent else {}) | ({"style": "form", "explode": True} if is_list(x) else {})
    )


def path(tool: ReportTool) -> dict[str, Any]:
    own, models = parameters(tool, local=False).items(), parameter_of_models(tool)
    operations = {
        "get": {
            "operationId": tool.name,
            "summary": tool.description,
            "description": f"The JSON of `llamath {tool.name} --json`, byte for byte.",
            "parameters": [parameter(name, x) for name, x in own],
            "responses": responses(tool.name),
        }
    }
    if models:
        text = f"The JSON of `llamath {tool.name} - --json`, byte for byte, of a config that is sent: a config.json or params.json."
        operations["post"] = {
            "operationId": f"{tool.name}_of_config",
            "summary": tool.description,
            "description": text,
            "parameters": [*(parameter(name, x, sent=name == models) for name, x in own), {"$ref": "#/components/parameters/Name"}],
            "requestBody": {"$ref": "#/components/requestBodies/Config"},
            "responses": responses(tool.name, sent=True),
        }
    return {"parameters": [{"$ref": "#/components/parameters/Origin"}, {"$ref": "#/components/parameters/Site"}], **operations}


def responses(name: str, *, sent: bool = False) -> dict[str, Any]:
    """Return what a route answers, to a config that is `sent` or without one."""
    headers = {
        "Cache-Control": {"$ref": "#/components/headers/NoStore"},
        "X-Content-Type-Options": {"$ref": "#/components/headers/NoSniff"},
        "Llamath-Exit-Code": {"$ref": "#/components/headers/ExitCode"},
        "Llamath-Notes": {"$ref": "#/components/headers/Notes"},
    } | ({"Llamath-Model": {"$ref": "#/components/headers/Model"}} if sent else {})
    schema = {"type": "object", "minProperties": 1, "properties": keys(name)}
    refusals = REFUSALS | ({"411": "Refused", "415": "Refused"} if sent else {})
    return {
        "200": {"description": "The report.", "headers": headers, "content": {"application/json": {"schema": schema}}},
        **{status: {"$ref": f"#/components/responses/{x}"} for status, x in refusals.items()},
        "404": {"$ref": "#/components/responses/UnknownModel"},
        **{status: {"$ref": f"#/components/responses/Api{status}"} for status in API_ERRORS if sent or status != "408"},
    }


def api_components() -> dict[str, dict[str, Any]]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    plain = {"text/plain": {"schema": {"type": "string"}}}
    busy = {"Retry-After": {"required": True, "schema": {"type": "string", "pattern": "^[0-9]+$"}}}
    texts = {key: {"type": "string"} for key in ("message", "hint", "code")}
    inner = {"type": "object", "required": ["message", "hint", "code"], "properties": texts, "additionalProperties": False}
    examples = {f"example {i}": {"value": x} for i, x in enumerate(CONFIGS, 1)}
    return {
        "parameters": {
            "Name": {
                "name": "Llamath-Name",
                "in": "header",
                "description": "The name of the file that the config comes from, percent-encoded; it labels the model.",
                "schema": {"type": "string", "maxLength": 960, "pattern": "^([!'()*A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})*$"},
            }
        },
        "requestBodies": {
            "Config": {
                "description": "A config.json or params.json of at most 4 MiB, with its length declared.",
                "required": True,
                "content": {"application/json": {"schema": {"type": "object"}, "examples": examples}},
            }
        },
        "schemas": {"Error": {"type": "object", "required": ["error"], "properties": {"error": inner}, "additionalProperties": False}},
        "headers": {
            "ExitCode": {
                "required": True,
                "description": "The exit code of the command: 1 is a negative verdict.",
                "schema": {"type": "string", "enum": ["0", "1"]},
            },
            "Model": {
                "description": "The id by which this server knows the model that was sent, in pages (/model/ID) and as MODEL.",
                "schema": {"type": "string", "pattern": "^~[0-9a-f]{12}$"},
            },
            "Notes": {"description": "What the command says on stderr, as a JSON string.", "schema": {"type": "string"}},
        },
        "responses": {
            "UnknownModel": {
                "description": "Unknown model or part; or, as plain text, a missing token.",
                "content": error | plain,
            },
            **{
                f"Api{status}": {"description": text, "content": error | (plain if status in ("400", "503") else {})}
                | ({"headers": busy} if status in ("429", "503") else {})
                for status, text in API_ERRORS.items()
            },
        },
    }


def description() -> dict[str, Any]:
    """Return the whole file: the hand-written routes, and those of the API."""
    data: dict[str, Any] = json.loads(FILE.read_text())
    data["paths"] = {name: x for name, x in data["paths"].items() if not name.startswith("/api/")}
    data["paths"] |= {f"/api/{x.name}": path(x) for x in TOOLS.values() if not x.local}
    for kind, values in api_components().items():
        data["components"][kind] = data["components"].get(kind, {}) | values
    return data


def main() -> None:
    text = json.dumps(description(), indent=1, ensure_ascii=False) + "\n"
    if "--check" in sys.argv:
        sys.exit(0 if FILE.read_text() == text else "src/llamath/web/openapi.json is stale: run tools/openapi.py")
    FILE.write_text(text)


if __name__ == "__main__":
    main()
