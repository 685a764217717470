"""Requests that schemathesis makes from the description that a server answers, all its checks
on: `schema.py [examples per operation]`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import llamath

ROOT = Path(__file__).parents[1]
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
"""Values that the commands accept: without them, nearly all generated requests are refused."""
EXAMPLES = ("model", "models", "on", "context", "ram", "target", "number", "words")
"""Parameters whose sample values make a good request together."""
CONFIGS: list[dict[str, Any]] = [
    {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 99,
    },
    {"dim": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 99},
]
"""A config.json and a params.json."""
SETTINGS = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "403", "404", "421", "422", "424", "429"]
"""
"""A page of a model that there is not, or of a configuration that is none, is refused though its
id is well formed."""


def served_description(address: str) -> dict[str, Any]:
    """Return the description that a server answers."""
    with urlopen(f"{address.rstrip('/')}/openapi.json", timeout=120) as reply:
        found: dict[str, Any] = json.load(reply)
    return found


def with_samples(description: dict[str, Any]) -> dict[str, Any]:
    """Return a description whose parameters also name values that the server accepts."""
    found: dict[str, Any] = json.loads(json.dumps(description))
    for path in found["paths"].values():
        for method in path.keys() & {"get", "post"}:
            for x in path[method]["parameters"]:
                if (values := SAMPLES.get(x.get("name", ""))) is not None:
                    _add_samples(x, values)
    found["components"]["schemas"]["Id"]["anyOf"].insert(
        0, {"type": "string", "enum": SAMPLES["models"]}
    )
    content = found["components"]["requestBodies"]["Config"]["content"]["application/json"]
    content["examples"] = {f"example {i}": {"value": x} for i, x in enumerate(CONFIGS)}
    found["components"]["parameters"]["chunk"]["examples"] = {"the first": {"value": 0}}
    return found


def _add_samples(parameter: dict[str, Any], values: list[str]) -> None:
    schema, name = parameter["schema"], parameter["name"]
    is_list = schema.get("type") == "array"
    item = schema["items"] if is_list else schema
    either = {
        "anyOf": [
            {"type": "string", "enum": values},
            {key: x for key, x in item.items() if key != "default"},
        ]
    }
    kept = {"default": item["default"]} if "default" in item else {}
    parameter["schema"] = {**schema, "items": either} if is_list else either | kept
    if name in EXAMPLES:
        chosen: list[Any] = (
            [values[:1]] if is_list and name != "models" else [values] if is_list else values
        )
        parameter["examples"] = {f"example {i}": {"value": x} for i, x in enumerate(chosen)}


def requested(address: str, examples: int, seed: int = 1, phases: str = "") -> dict[str, Any]:
    """Run schemathesis on the description that a server answers; return its requests and
    failures. `phases` are some of those of schemathesis, all if it is empty."""
    with tempfile.TemporaryDirectory() as folder:
        settings, result, schema = (
            Path(folder) / x for x in ("schemathesis.toml", "found.json", "openapi.json")
        )
        settings.write_text(SETTINGS)
        schema.write_text(json.dumps(with_samples(served_description(address))))
        program = [
            sys.executable,
            "-c",
            "from schemathesis.cli import schemathesis; schemathesis()",
        ]
        arguments = [
            *program,
            "--config-file",
            str(settings),
            "run",
            str(schema),
            "--url",
            address.rstrip("/"),
            "--checks",
            "all",
        ]
        arguments += [
            "--max-examples",
            str(examples),
            "--seed",
            str(seed),
            "--continue-on-failure",
            "--request-timeout",
            "300",
            "--max-response-time",
            "300",
        ]
        arguments += [
            "--report",
            "json",
            "--report-json-path",
            str(result),
            "--generation-database",
            "none",
            "--workers",
            "1",
            *(("--phases", phases) if phases else ()),
        ]
        done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True)
        if not result.exists():
            raise SystemExit(done.stdout + done.stderr)
        report = json.loads(result.read_text())
        return {
            "schemathesis": report["schemathesis_version"],
            "seed": seed,
            "requests": report["test_cases"]["generated"],
            "operations": report["operations"]["tested"],
            "failures": [
                f"{x['title']}: {', '.join(map(str, x['operations']))}" for x in report["failures"]
            ],
            "errors": [x["title"] for x in report["errors"]],
            "output": done.stdout[-3000:] if report["failures"] or report["errors"] else "",
        }


@contextmanager
def place() -> Iterator[str]:
    """A server with `--allow hub`, whose hub is a small one on loopback."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.hub_server import CONFIG, Hub, sites
    from support.serving import served

    with sites(1) as (hub,):
        os.environ |= {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}
        Hub(hub, hub, {"config.json": json.dumps(CONFIG).encode()}, "A/0")
        with served([llamath.load("gpt2")], hub=True) as result:
            yield result.address


def main() -> None:
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with place() as address:
        runs = []
        while sum(x["requests"] for x in runs) < 10_000 and len(runs) < 40:
            runs.append(requested(address, examples, len(runs) + 1))
            print(f"  {runs[-1]}", flush=True)
    total = sum(x["requests"] for x in runs)
    wrong = [y for x in runs for y in (*x["failures"], *x["errors"])]
    sys.path.insert(0, str(ROOT / "bench"))
    from harness import keep

    title = "requests that schemathesis makes of the served description"
    keep("requests", [{"title": title, "requests": total, "wrong": wrong, "runs": runs}])
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
