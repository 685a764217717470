"""Requests that schemathesis makes from the shipped OpenAPI file, all its checks on: `schema.py [examples per operation]`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llamath
from llamath.web.server.page_html import STATIC_FOLDER

ROOT = Path(__file__).parents[1]
SCHEMA = Path(STATIC_FOLDER).parent / "openapi.json"
SETTINGS = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "403", "404", "421", "422", "424", "429"]
"""
"""A page of a model that there is not, or of a configuration that is none, is refused though its id is well formed."""


def requested(address: str, examples: int, seed: int = 1) -> dict[str, Any]:
    """Run schemathesis; return its requests and failures."""
    with tempfile.TemporaryDirectory() as folder:
        settings, result = Path(folder) / "schemathesis.toml", Path(folder) / "found.json"
        settings.write_text(SETTINGS)
        program = os.path.join(sysconfig.get_path("scripts"), "schemathesis")
        arguments = [program, "--config-file", str(settings), "run", str(SCHEMA), "--url", address.rstrip("/"), "--checks", "all"]
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
        arguments += ["--report", "json", "--report-json-path", str(result), "--generation-database", "none", "--workers", "1"]
        done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True)
        if not result.exists():
            raise SystemExit(done.stdout + done.stderr)
        report = json.loads(result.read_text())
        return {
            "schemathesis": report["schemathesis_version"],
            "seed": seed,
            "requests": report["test_cases"]["generated"],
            "operations": report["operations"]["tested"],
            "failures": [f"{x['title']}: {', '.join(map(str, x['operations']))}" for x in report["failures"]],
            "errors": [x["title"] for x in report["errors"]],
            "output": done.stdout[-3000:] if report["failures"] or report["errors"] else "",
        }


@contextmanager
def place() -> Iterator[str]:
    """A server with `--hub`, whose hub is a small one on loopback."""
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

    keep("requests", [{"title": "requests that schemathesis makes of openapi.json", "requests": total, "wrong": wrong, "runs": runs}])
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
