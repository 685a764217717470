"""Commands that write files, on a disk that is full: an error with exit code 2, and nothing is left or changed."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from llamath.web.gallery.site_files import write_gallery


def look(folder: Path) -> dict[str, bytes]:
    return {
        str(x.relative_to(folder)): x.read_bytes() if x.is_file() else b""
        for x in folder.rglob("*")
    }


def limited() -> None:
    """Files have at most 1,000 bytes, and pages are written by one process."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


THREE = ("gpt2", "distilgpt2", "gpt2-medium")


@pytest.mark.slow
def test_full_disk_ends_every_writer_with_an_error(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("mine")
    write_gallery(str(tmp_path / "site"), ["gpt2"], processes=1)
    (tmp_path / "site" / "notes.txt").write_text("x" * 900)
    before = look(tmp_path)
    for words in (
        ("export", *THREE, "-o", "new/deep"),
        ("export", *THREE, "-o", "mine", "--force"),
        ("export", *THREE, "-o", "site"),
        ("export", "gpt2", "-o", "page.html"),
        ("export", "gpt2", "-o", "mine/index.html", "--force"),
        ("count", "gpt2", "-o", "count.svg"),
    ):
        command = [sys.executable, "-B", "-m", "llamath", *words]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, preexec_fn=limited, timeout=600
        )
        said = " ".join(done.stderr.split())
        assert done.returncode == 2 and "Traceback" not in said, (words, done.returncode, said)
        assert "error: cannot write " in said and said.endswith("the disk or your quota is full"), (
            words,
            said,
        )
        assert look(tmp_path) == before, words


@pytest.mark.slow
def test_gallery_is_moved_into_a_folder_by_force(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.txt").write_text("mine")
    (tmp_path / "index.html").write_text("old")
    write_gallery(str(tmp_path), ["gpt2"], processes=1, force=True)
    assert (tmp_path / "models" / "mine.txt").read_text() == "mine" and "<html" in (
        tmp_path / "index.html"
    ).read_text()
    assert sorted(x.name for x in (tmp_path / "models").iterdir()) == [
        "gpt2.html",
        "mine.txt",
    ]
    assert not [x for x in os.listdir(tmp_path) if x.startswith(".")]
