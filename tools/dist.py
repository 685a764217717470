"""Build a release of the last commit into dist/: the sources and wheels of llamath and of its
engine, bills of materials, notes, a Homebrew formula, and signed sums.

Each is built twice and under different circumstances, and both must have the same bytes; zig
compiles the engine for each machine. A bill of materials is CycloneDX 1.6 JSON: the wheel with its
sha256 sum and what is in it. Of llamath these are the bundled model, the packages in the page's
scripts (preact and what it contains), the compiler whose libraries are in the engine of pages, and
the packages that the wheel and its extras need, with the versions, sums and licenses of
requirements/extras.txt; of llamath-native, the C++ runtime that is linked into it.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lock
import package_files
import zig_compiler
from llamath_native import build as native

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "src" / "llamath" / "embedded" / "model.safetensors"
PROJECTS = (".", "native")
"""The folders of llamath and of llamath-native."""
CIRCUMSTANCES = (
    {"TZ": "UTC", "LC_ALL": "C", "umask": 0o022},
    {"TZ": "Asia/Kolkata", "LC_ALL": "C.UTF-8", "umask": 0o077},
)
_SPDX = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
}


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout


def build(
    source: bytes,
    epoch: int,
    folder: Path,
    circumstances: dict[str, Any],
    project: str = ".",
    compiler: Mapping[str, str] = {},
    kind: str = "wheel",
) -> Path:
    """Build the wheel, or another kind of distribution, of a project of an archive of the
    repository in a new folder; a compiler is environment variables.
    """
    with tarfile.open(fileobj=io.BytesIO(source)) as archive:
        # since Python 3.11.4
        archive.extractall(
            folder / "source", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
        )
    names = {name: value for name, value in circumstances.items() if name != "umask"}
    environment = {
        **os.environ,
        **names,
        **compiler,
        "SOURCE_DATE_EPOCH": str(epoch),
        "PYTHONHASHSEED": str(circumstances["umask"]),
    }
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        kind,
        "-d",
        str(folder / "dist"),
    ]
    subprocess.run(
        command,
        cwd=folder / "source" / project,
        env=environment,
        umask=circumstances["umask"],
        check=True,
        capture_output=True,
    )
    (built,) = (folder / "dist").iterdir()
    return built


def bill_of_materials(
    wheel: Path, epoch: int, project: str = ".", *, crossed: bool = False
) -> dict[str, Any]:
    """Return the components of the wheel of a project as CycloneDX 1.6."""
    about = tomllib.loads((ROOT / project / "pyproject.toml").read_text())["project"]
    name, version = about["name"], about["version"]
    reference = f"pkg:pypi/{name}@{version}"
    pins = lock.read_lock("extras") if project == "." else {}
    required = {
        lock.normalize(re.split(r"[\s<>=!~\[;]", x, maxsplit=1)[0])
        for x in about.get("dependencies", ())
    }
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    contained = (
        [bundled_model(about), *bundled_scripts(wheel), compiler_of(_MODULE)]
        if project == "."
        else [compiler_of("the native engine: libc++, libunwind and compiler_rt")]
        if crossed
        else linked_runtime(wheel)
    )
    parts = [x["bom-ref"] for x in contained]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{reference}#{digest}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).isoformat().replace("+00:00", "Z"),
            "component": {
                "type": "application",
                "bom-ref": reference,
                "name": name,
                "version": version,
                "description": about["description"],
                "purl": reference,
                "licenses": [{"license": {"id": about["license"]}}],
                "hashes": [{"alg": "SHA-256", "content": digest}],
                "properties": [{"name": "llamath:file", "value": wheel.name}],
            },
        },
        "components": [*contained, *(_component(x, x.name in required) for x in pins.values())],
        "dependencies": [
            {
                "ref": reference,
                "dependsOn": [*parts, *sorted(f"pkg:pypi/{x}@{pins[x].version}" for x in required)],
            },
            *(
                {"ref": x}
                for x in (*parts, *(f"pkg:pypi/{x.name}@{x.version}" for x in pins.values()))
            ),
        ],
    }


def bundled_model(about: dict[str, Any]) -> dict[str, Any]:
    """Return the model in the wheel of llamath."""
    return {
        "type": "machine-learning-model",
        "bom-ref": "embedded",
        "name": "embedded",
        "version": about["version"],
        "description": "The bundled Llama, trained by tools/train_tiny.py",
        "licenses": [{"license": {"id": about["license"]}}],
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(MODEL.read_bytes()).hexdigest()}],
    }


def _component(pin: lock.Pin, required: bool) -> dict[str, Any]:
    reference = f"pkg:pypi/{pin.name}@{pin.version}"
    license_text = _SPDX.get(pin.license, pin.license)
    is_expression = (
        re.fullmatch(r"[A-Za-z0-9.+-]+(?: (?:AND|OR|WITH) [A-Za-z0-9.+-]+)*", license_text)
        is not None
    )
    return {
        "type": "library",
        "bom-ref": reference,
        "name": pin.name,
        "version": pin.version,
        "purl": reference,
        "scope": "required" if required else "optional",
        "hashes": [{"alg": "SHA-256", "content": x} for x in pin.sums],
        "licenses": [{"expression": license_text}]
        if is_expression
        else [{"license": {"name": license_text}}],
    }


def bundled_scripts(wheel: Path) -> list[dict[str, Any]]:
    """Return the packages that the notices at the top of the wheel's scripts name, with the
    licenses and sums of web/package-lock.json."""
    locked = json.loads((ROOT / "web" / "package-lock.json").read_text())["packages"]
    found: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(wheel) as file:
        for bundle in sorted(
            x for x in file.namelist() if x.startswith("llamath/web/static/") and x.endswith(".js")
        ):
            notices = file.read(bundle).decode().partition("*/")[0]
            for name, version, license_id in re.findall(
                r"(?m)^(\S+) (\S+) \((\S+)\): Copyright ", notices
            ):
                package = locked[f"node_modules/{name}"]
                if (package["version"], package["license"]) != (version, license_id):
                    raise ValueError(
                        f"{bundle} contains {name} {version}, web/package-lock.json "
                        f"has {package['version']}: run `make web`"
                    )
                algorithm, _, digest = package["integrity"].partition("-")
                reference = f"pkg:npm/{name.replace('@', '%40')}@{version}"
                found[reference] = {
                    "type": "library",
                    "bom-ref": reference,
                    "name": name,
                    "version": version,
                    "description": "Bundled in the scripts of the page",
                    "purl": reference,
                    "scope": "required",
                    "hashes": [
                        {
                            "alg": algorithm.upper().replace("SHA", "SHA-"),
                            "content": base64.b64decode(digest).hex(),
                        }
                    ],
                    "licenses": [{"expression": license_id}],
                }
    return list(found.values())


def linked_runtime(wheel: Path) -> list[dict[str, Any]]:
    """Return the parts of the C++ runtime that are linked into the library of llamath-native; none
    where it is another library's."""
    if "-static-libstdc++" not in native.LINK_FLAGS:
        return []
    with zipfile.ZipFile(wheel) as file:
        library = file.read(f"llamath_native/{native.LIBRARY}")
    built_by = re.findall(rb"GCC: \([^)]*\) ([0-9.]+)", library)
    compiler = native.find_compiler()
    assert built_by and compiler is not None
    version, found = built_by[-1].decode(), []
    for name in ("libstdc++", "libgcc"):
        command = [compiler, f"-print-file-name={name}.a"]
        archive = Path(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        )
        reference = f"pkg:generic/{name.replace('+', '%2B')}@{version}"
        found.append(
            {
                "type": "library",
                "bom-ref": reference,
                "name": name,
                "version": version,
                "description": "Linked into the native engine",
                "purl": reference,
                "scope": "required",
                "hashes": [
                    {"alg": "SHA-256", "content": hashlib.sha256(archive.read_bytes()).hexdigest()}
                ],
                "licenses": [{"expression": "GPL-3.0-or-later WITH GCC-exception-3.1"}],
            }
        )
    return found


_MODULE = "the engine of pages: wasi-libc, libc++ and compiler_rt"


def compiler_of(libraries: str) -> dict[str, Any]:
    """Return the compiler whose C and C++ libraries are in what it compiles."""
    return {
        **_component(lock.read_lock("wasm")["ziglang"], required=True),
        "description": f"Linked into {libraries}",
        "licenses": [{"expression": "MIT AND Apache-2.0 WITH LLVM-exception"}],
    }


def builds(folder: Path) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Yield what a release consists of: the project, the kind of distribution, and the variables
    of the compiler, whose script is in this folder.
    """
    for project in PROJECTS:
        yield project, "sdist", {}
    yield ".", "wheel", {}
    if not zig_compiler.is_installed():
        print("the engine is built for this machine alone: `make release` has zig", file=sys.stderr)
        yield "native", "wheel", {}
        return
    for machine in zig_compiler.MACHINES:
        yield "native", "wheel", zig_compiler.environment(machine, folder)


def release_notes(version: str) -> str:
    """Return what the changelog says of a version, or of what is not released yet."""
    parts = re.split(r"(?m)^## ", (ROOT / "CHANGELOG.md").read_text())
    found = [x for x in parts if re.match(rf"\[?{re.escape(version)}\b", x)]
    return "## " + (found or [x for x in parts if "nreleased" in x.splitlines()[0]])[0]


def sign(sums: Path) -> None:
    """Sign the sums by the SSH key of $LLAMATH_SIGNING_KEY."""
    key = os.environ.get("LLAMATH_SIGNING_KEY")
    if not key:
        print("not signed: LLAMATH_SIGNING_KEY names no SSH key", file=sys.stderr)
        return
    sums.with_suffix(".sig").unlink(missing_ok=True)
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", key, str(sums)]
    subprocess.run(command, check=True)


def main() -> None:
    if git("status", "--porcelain").strip():
        print("the working tree has changes: building the last commit", file=sys.stderr)
    source, epoch = git("archive", "--format=tar", "HEAD"), int(git("log", "-1", "--format=%ct"))
    folder = ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with tempfile.TemporaryDirectory() as scripts:
        for project, kind, compiler in builds(Path(scripts)):
            build_twice(source, epoch, folder, project, kind, compiler)
    describe(folder)


def describe(folder: Path) -> None:
    """Write the notes, the formula and the signed sums of what was built into a folder."""
    about = lock.project()["project"]
    (folder / "NOTES.md").write_text(release_notes(about["version"]))
    (wheel,) = folder.glob("llamath-*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (folder / "llamath.rb").write_text(package_files.formula(wheel.name, digest))
    sums = folder / "SHA256SUMS"
    lines = [
        f"{hashlib.sha256(x.read_bytes()).hexdigest()}  {x.name}" for x in sorted(folder.iterdir())
    ]
    sums.write_text("\n".join(lines) + "\n")
    sign(sums)
    print(sums.read_text(), end="")


def pack_tightly(wheel: Path) -> None:
    """Compress the files of a wheel by zopfli, where that is installed: the same files in the same
    order, smaller by a twentieth of what is compressed.
    """
    try:
        import zopfli.zlib
    except ImportError:
        print(f"{wheel.name} is packed by zlib: `make release` has zopfli", file=sys.stderr)
        return
    with zipfile.ZipFile(wheel) as archive:
        files = [(x, archive.read(x)) for x in archive.infolist()]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for entry, content in files:
            # raw deflate: without the header and the sum of zlib's format
            data = zopfli.zlib.compress(content, numiterations=5)[2:-4]
            write_deflated(archive, entry, content, data)
    wheel.write_bytes(packed.getvalue())


def write_deflated(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, content: bytes, data: bytes
) -> None:
    """Write a file that is compressed already, or as it is where that is smaller."""
    copy = zipfile.ZipInfo(entry.filename, entry.date_time)
    copy.external_attr, copy.create_system = entry.external_attr, entry.create_system
    if len(data) >= len(content):
        archive.writestr(copy, content, zipfile.ZIP_STORED)
        return
    copy.compress_type = zipfile.ZIP_DEFLATED
    copy.CRC, copy.file_size, copy.compress_size = zlib.crc32(content), len(content), len(data)
    stream = archive.fp
    assert stream is not None
    copy.header_offset = stream.tell()
    stream.write(copy.FileHeader(zip64=False))
    stream.write(data)
    archive.filelist.append(copy)
    archive.NameToInfo[copy.filename] = copy
    archive.start_dir = stream.tell()
    archive._didModify = True  # the directory is written when the archive is closed


def build_twice(
    source: bytes, epoch: int, folder: Path, project: str, kind: str, compiler: Mapping[str, str]
) -> None:
    """Build a distribution under two circumstances, compare, and keep it with its bill."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        built = [
            build(source, epoch, Path(x) / "build", how, project, compiler, kind)
            for x, how in zip((one, other), CIRCUMSTANCES, strict=True)
        ]
        for x in built if kind == "wheel" else ():
            pack_tightly(x)
        if built[0].name != built[1].name or built[0].read_bytes() != built[1].read_bytes():
            sys.exit(f"{built[0].name}: two builds of one commit differ")
        kept = Path(shutil.copy(built[0], folder))
    if kind == "wheel":
        bill = bill_of_materials(kept, epoch, project, crossed=bool(compiler))
        kept.with_suffix(".cdx.json").write_text(json.dumps(bill, indent=2) + "\n")


if __name__ == "__main__":
    main()
