"""The sums of files: `SHA256SUMS`, the metadata of downloads, the Hub's cache, the Hub itself, and LFS objects of a clone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("numpy")

from llamath.analysis.check.verify.check_checkpoint import VerifyReport
from llamath.analysis.check.verify_path import verify_path
from llamath.checkpoint.file_stream import CHUNK_BYTES, FileTask, stream_files
from llamath.checkpoint.file_sums import format_sums, parse_sums
from llamath.cli import cli
from llamath.utils.errors import FormatError
from support.hub_server import COMMIT, Hub, status

TINY = Path("examples/tiny-llama")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(TINY, tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("A tiny model.\n")
    return tmp_path / "model"


def run(*args: object) -> Any:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(
        cli, ["verify", *map(str, args)]
    )


def check(path: Path) -> VerifyReport:
    report = verify_path(str(path), full=True)
    assert isinstance(report, VerifyReport)
    return report


def damage(path: Path) -> None:
    """Change one bit in the middle of a file; its size and header stay."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def severities(report: VerifyReport) -> dict[str, str]:
    return {x.code: x.severity for x in report.findings if x.severity != "info"}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def git_sha1(path: Path) -> str:
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


# SHA256SUMS


def test_written_sums_are_those_of_sha256sum(folder: Path) -> None:
    done = run(folder, "-o", f"{folder}/SHA256SUMS")
    assert done.exit_code == 0 and f"wrote {folder}/SHA256SUMS" in done.stderr
    assert (
        subprocess.run(
            ["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True
        ).returncode
        == 0
    )
    expected = subprocess.run(
        ["sha256sum", "README.md", "config.json", "model.safetensors"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert (folder / "SHA256SUMS").read_text() == expected.stdout
    report = check(folder)
    assert report.ok and report.full is not None and report.full.compared == 3


def test_sums_are_not_overwritten_without_force(folder: Path) -> None:
    (folder / "SHA256SUMS").write_text("mine")
    done = run(folder, "-o", f"{folder}/SHA256SUMS")
    assert (
        done.exit_code == 2
        and "already exists" in done.stderr
        and (folder / "SHA256SUMS").read_text() == "mine"
    )
    assert run(folder, "-o", f"{folder}/SHA256SUMS", "--force").exit_code == 0 and check(folder).ok


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_wrong_sums_are_errors(folder: Path, name: str) -> None:
    run(folder, "-o", f"{folder}/SHA256SUMS")
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(
        data.replace(b"16", b"16 ", 1)
        if name == "config.json"
        else data[:-1] + bytes([data[-1] ^ 1])
    )
    report = check(folder)
    assert not report.ok and severities(report) == {"wrong_sum": "error"}
    assert name in report.findings[0].message and sha256(TINY / name) in report.findings[0].message
    assert run(folder, "--full").exit_code == 1 and run(folder).exit_code == 0
    (found,) = [x for x in report.full.files if x.matches is False]  # type: ignore[union-attr]
    assert (
        found.name == name
        and found.compared_with == ("SHA256SUMS",)
        and found.sha256 == sha256(folder / name)
    )


def test_damaged_files_get_no_sums(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((TINY / "model.safetensors").read_bytes()[:-4])
    done = run(folder, "-o", f"{folder}/SHA256SUMS")
    assert (
        done.exit_code == 1
        and "was not written" in done.stderr
        and not (folder / "SHA256SUMS").exists()
    )


def test_listed_files_that_are_missing_are_named(folder: Path) -> None:
    run(folder, "-o", f"{folder}/SHA256SUMS")
    (folder / "README.md").unlink()
    report = check(folder)
    assert (
        severities(report) == {"missing_file": "warning"}
        and "README.md" in report.findings[-1].message + report.findings[0].message
    )


def test_a_single_file_is_compared_alone(folder: Path) -> None:
    run(folder, "-o", f"{folder}/SHA256SUMS")
    (folder / "README.md").write_text("changed")
    report = check(folder / "model.safetensors")
    assert (
        report.ok
        and report.full is not None
        and [x.name for x in report.full.files] == ["model.safetensors"]
    )


@pytest.mark.parametrize(
    "line", ["{0} *{1}", "{0}  ./{1}", "SHA256 ({1}) = {0}", "# a comment\n\n{2}  {1}"]
)
def test_usual_forms_of_sums_are_read(folder: Path, line: str) -> None:
    digest = sha256(folder / "model.safetensors")
    (folder / "SHA256SUMS").write_text(
        line.format(digest, "model.safetensors", digest.upper()) + "\n"
    )
    assert check(folder).full.compared == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        "no sums",
        "d41d8cd98f00b204e9800998ecf8427e  model.safetensors",
        "\xff",
        "0" * 64 + "  a\n" + "1" * 64 + "  a",
    ],
)
def test_malformed_sums_are_refused(folder: Path, text: str) -> None:
    (folder / "SHA256SUMS").write_bytes(text.encode("latin-1"))
    done = run(folder, "--full")
    assert done.exit_code == 2 and "SHA256SUMS" in done.stderr


def test_sums_of_other_folders_are_not_followed(folder: Path) -> None:
    (folder.parent / "secret").write_text("secret")
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  ../secret\n{'0' * 64}  a/b\n")
    report = check(folder)
    assert report.ok and [x.name for x in report.full.files] == ["model.safetensors"]  # type: ignore[union-attr]
    assert "2 files in sub-folders were not compared" in " ".join(
        x.message for x in report.findings
    )


@pytest.mark.parametrize("name", ["README.md", "SHA256SUMS"])
def test_links_out_of_the_folder_are_refused(folder: Path, name: str) -> None:
    (folder.parent / "secret").write_text("secret")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(folder.parent / "secret")
    done = run(folder, *(["-o", f"{folder}/x"] if name == "README.md" else ["--full"]))
    assert done.exit_code == 2 and "symbolic link" in done.stderr


def test_parsed_sums_equal_formatted_ones() -> None:
    sums = {"a b.safetensors": "0" * 64, "Größe.bin": "f" * 64}
    assert parse_sums(format_sums(sums), "x") == sums
    with pytest.raises(FormatError):
        format_sums({"a\nb": "0" * 64})


# downloads


def download(folder: Path, etags: dict[str, str]) -> None:
    """Write what `hf download --local-dir` leaves next to the files."""
    place = folder / ".cache" / "huggingface" / "download"
    for name, etag in etags.items():
        path = place / f"{name}.metadata"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{COMMIT}\n{etag}\n1760000000.0\n")


def test_metadata_of_downloads_are_as_huggingface_hub_writes_them(folder: Path) -> None:
    local = pytest.importorskip("huggingface_hub._local_folder")
    local.write_download_metadata(
        folder, "model.safetensors", COMMIT, sha256(folder / "model.safetensors")
    )
    local.write_download_metadata(folder, "config.json", COMMIT, git_sha1(folder / "config.json"))
    report = check(folder)
    assert report.ok and report.full is not None and report.full.compared == 2
    assert report.full.files[0].compared_with == ("the Hub, when it was downloaded",)


def test_damaged_downloads_are_found(folder: Path) -> None:
    download(
        folder,
        {
            "model.safetensors": sha256(folder / "model.safetensors"),
            "config.json": git_sha1(folder / "config.json"),
        },
    )
    damage(folder / "model.safetensors")
    report = check(folder)
    assert (
        not report.ok
        and severities(report) == {"wrong_sum": "error"}
        and "download it again" in report.findings[0].hint
    )


def test_edited_configs_of_downloads_are_a_warning(folder: Path) -> None:
    download(folder, {"config.json": git_sha1(folder / "config.json")})
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    report = check(folder)
    assert report.ok and severities(report) == {"wrong_sum": "warning"}


def test_folders_inside_of_downloads_have_metadata(folder: Path) -> None:
    inner = folder / "original"
    inner.mkdir()
    for name in ("model.safetensors", "config.json"):
        shutil.move(folder / name, inner / name)
    download(folder, {"original/model.safetensors": sha256(inner / "model.safetensors")})
    assert check(inner).full.compared == 1  # type: ignore[union-attr]
    damage(inner / "model.safetensors")
    assert severities(check(inner)) == {"wrong_sum": "error"}


@pytest.mark.parametrize("text", ["", "one line", "a\nnot an etag\n1", "a\n" + "0" * 63 + "\n1"])
def test_unusable_metadata_are_ignored(folder: Path, text: str) -> None:
    download(folder, {"model.safetensors": "x"})
    (folder / ".cache/huggingface/download/model.safetensors.metadata").write_text(text)
    assert check(folder).ok and check(folder).full.compared == 0  # type: ignore[union-attr]


def test_names_of_blobs_in_the_cache_are_sums(tmp_path: Path) -> None:
    repo = tmp_path / "models--org--name"
    snapshot, blobs = repo / "snapshots" / COMMIT, repo / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for name, digest in (("model.safetensors", sha256), ("config.json", git_sha1)):
        blob = blobs / digest(TINY / name)
        shutil.copy(TINY / name, blob)
        (snapshot / name).symlink_to(os.path.relpath(blob, snapshot))
    report = check(snapshot)
    assert report.ok and report.full is not None and report.full.compared == 2
    damage(blobs / sha256(TINY / "model.safetensors"))
    assert severities(check(snapshot)) == {"wrong_sum": "error"}


def test_lfs_objects_of_a_clone_confirm_files(folder: Path) -> None:
    digest = sha256(folder / "model.safetensors")
    place = folder / ".git" / "lfs" / "objects" / digest[:2] / digest[2:4]
    place.mkdir(parents=True)
    shutil.copy(folder / "model.safetensors", place / digest)
    (file,) = check(folder).full.files  # type: ignore[union-attr]
    assert file.matches is True and file.compared_with == ("the clone's LFS objects",)


# the Hub


def serve(pair: Any, files: dict[str, bytes], siblings: list[dict[str, Any]]) -> None:
    hub = Hub(*pair, files)
    for revision in ("main", COMMIT):
        hub.api_answer(
            status(
                200,
                {},
                json.dumps({"id": "org/name", "sha": COMMIT, "siblings": siblings}).encode(),
            ),
            revision,
        )


@pytest.mark.parametrize("address", ["hf://org/name", f"hf://org/name@{COMMIT}"])
def test_local_files_are_compared_with_the_hub(pair: Any, folder: Path, address: str) -> None:
    files = {name: (folder / name).read_bytes() for name in ("config.json", "model.safetensors")}
    size = len(files["model.safetensors"])
    lfs = {
        "rfilename": "model.safetensors",
        "blobId": "0" * 40,
        "lfs": {"sha256": sha256(folder / "model.safetensors"), "size": size},
    }
    serve(
        pair,
        files,
        [
            lfs,
            {"rfilename": "config.json", "blobId": git_sha1(folder / "config.json")},
            {"rfilename": "a/b.txt", "blobId": "1" * 40},
        ],
    )
    done = run(folder, address, "--full")
    assert done.exit_code == 0 and "sums of 2 of 2 files compared with the Hub" in " ".join(
        done.stdout.split()
    )
    assert any("blobs=true" in x.path for x in pair[0].seen)
    damage(folder / "model.safetensors")
    done = run(folder, address, "--full", "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 1 and [
        x["code"] for x in found["findings"] if x["severity"] == "error"
    ] == ["wrong_sum"]


def test_hub_without_sums_is_an_error(pair: Any, folder: Path) -> None:
    files = {name: (folder / name).read_bytes() for name in ("config.json", "model.safetensors")}
    Hub(*pair, files)
    done = run(folder, "hf://org/name", "--full")
    assert done.exit_code == 2 and "no sums" in done.stderr


# reading


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 5])
@pytest.mark.slow
def test_digests_equal_those_of_hashlib(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    paths = [tmp_path / str(i) for i in range(3)]
    for i, path in enumerate(paths):
        path.write_bytes(data[i:])
    tasks = [
        FileTask(path=str(x), size=x.stat().st_size, algorithms=("git-sha1", "sha256"))
        for x in paths
    ]
    assert stream_files(tasks) == [{"git-sha1": git_sha1(x), "sha256": sha256(x)} for x in paths]


def test_consumers_receive_all_bytes_in_order(tmp_path: Path) -> None:
    data = os.urandom(2 * CHUNK_BYTES + 77)
    (tmp_path / "x").write_bytes(data)
    found = bytearray()

    class Collector:
        def feed(self, start: int, data: memoryview) -> None:
            assert start == len(found)
            found.extend(data)

    updates: list[tuple[int, int]] = []
    stream_files(
        [FileTask(path=str(tmp_path / "x"), size=len(data), consumer=Collector())],
        lambda done, total: updates.append((done, total)),
    )
    assert found == data and updates[-1] == (len(data), len(data))


def test_errors_of_a_consumer_end_the_reading(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(3 * CHUNK_BYTES))

    class Failing:
        def feed(self, *_: object) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stream_files([FileTask(path=str(tmp_path / "x"), size=3 * CHUNK_BYTES, consumer=Failing())])


def test_a_file_that_shrinks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(100))
    with pytest.raises(FormatError, match="has changed since"):
        stream_files([FileTask(path=str(tmp_path / "x"), size=200, algorithms=("sha256",))])
