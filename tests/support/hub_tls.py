"""A certificate for servers on loopback, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def make_certificate(folder: Path) -> tuple[str, str]:
    """Return the paths of a certificate for 127.0.0.1 and hub.invalid, and of its key."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("no openssl to make a certificate with")
    paths = [f"{folder}/cert.pem", f"{folder}/key.pem"]
    options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=hub.invalid".split()
    names = [
        "-addext",
        "subjectAltName=IP:127.0.0.1,DNS:hub.invalid",
        "-out",
        paths[0],
        "-keyout",
        paths[1],
    ]
    subprocess.run([openssl, *options, *names], check=True, capture_output=True)
    return paths[0], paths[1]
