"""DESIGN §3 as data: who may import whom, no cycles, the standard library alone at import, and nothing forbidden in the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "llamath"

MAY = {
    "core": "",
    "embedded": "",
    "config_keys": "",
    "catalog": "core",
    "hardware": "core",
    "checkpoint": "core embedded",
    "families": "core config_keys checkpoint",
    "tokenizers": "core checkpoint",
    "model": "core checkpoint families",
    "loading": "embedded catalog checkpoint core families model config_keys",
    "api": "core checkpoint hardware loading model analysis conversion",
    "analysis": "core config_keys checkpoint catalog families hardware embedded model loading",
    "conversion": "core checkpoint tokenizers loading model analysis",
    "run": "core checkpoint tokenizers embedded loading model analysis",
    "render": "core config_keys catalog hardware checkpoint loading model analysis",
    "web": "core config_keys catalog hardware embedded checkpoint families loading model analysis render",
    "cli": "core catalog hardware embedded checkpoint tokenizers loading model analysis conversion run render web",
    "__main__": "cli",
    "__init__": "core hardware analysis loading model conversion api",
}
"""Room → the rooms below it that it may import from."""

EXTRAS = {
    "click": {"cli"},
    "torch": {"run"},
    "tokenizers": {"tokenizers"},
    "numpy": {"conversion", "run"},
    "rich": {"cli"},
    "huggingface_hub": {"checkpoint"},
    "fsspec": {"checkpoint"},
    "starlette": {"web"},
    "uvicorn": {"web"},
}
"""Third-party package → the rooms that may import it."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def room(parts: tuple[str, ...]) -> str:
    return parts[0].removesuffix(".py") if parts else "__init__"


def edges(name: str, tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """(imported room or package, whether inside a function) of every import that runs."""
    late = {id(x) for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)) for x in ast.walk(f)}
    typing = {id(x) for f in ast.walk(tree) if isinstance(f, ast.If) and "TYPE_CHECKING" in ast.dump(f.test) for x in ast.walk(f)}
    package = Path(name).parent.parts
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            for full in [(*base, *(node.module or "").split("."))] if node.module else [(*base, x.name) for x in node.names]:
                yield room(tuple(x for x in full if x)), id(node) in late
        elif isinstance(node, ast.ImportFrom):
            yield f":{(node.module or '').split('.')[0]}", id(node) in late
        elif isinstance(node, ast.Import):
            yield from ((f":{x.name.split('.')[0]}", id(node) in late) for x in node.names)


def test_every_import_points_downward() -> None:
    wrong = []
    for name, tree in modules():
        here = room(Path(name).parts)
        for there, _ in edges(name, tree):
            if there.startswith(":") or there == here:
                continue
            if there not in MAY[here].split():
                wrong.append(f"{name} imports {there}")
    assert not wrong


def test_rooms_form_no_cycle() -> None:
    placed: set[str] = set()
    todo = {room: set(may.split()) for room, may in MAY.items()}
    while todo:
        ready = {room for room, may in todo.items() if may <= placed}
        assert ready, f"a cycle among {sorted(todo)}"
        placed |= ready
        todo = {room: may for room, may in todo.items() if room not in ready}


def beside(name: str, tree: ast.Module) -> Iterator[str]:
    """The modules that one needs before it can be imported; a package for what is taken from it, be that a module or not."""
    inside = {id(x) for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.If)) for x in ast.walk(f)}
    package = Path(name).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in inside:
            place = ROOT.joinpath(*package[: len(package) - node.level + 1], *(node.module or "").split("."))
            file = place.with_suffix(".py")
            yield str((file if file.exists() else place / "__init__.py").relative_to(ROOT))


def test_modules_form_no_cycle() -> None:
    todo = {name: set(beside(name, tree)) for name, tree in modules()}
    todo["__init__.py"] -= {"__init__.py"}
    while ready := {name for name, needs in todo.items() if not needs & todo.keys()}:
        todo = {name: needs for name, needs in todo.items() if name not in ready}
    assert not todo, f"a cycle among {sorted(todo)}"


def test_third_parties_stay_in_their_rooms() -> None:
    for name, tree in modules():
        for there, _ in edges(name, tree):
            package = there.removeprefix(":")
            if there.startswith(":") and package not in sys.stdlib_module_names:
                assert room(Path(name).parts) in EXTRAS.get(package, set()), f"{name} imports {package}"


def test_nothing_that_executes_files_occurs() -> None:
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec", "compile", "__import__"}, name
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in {("torch", "load"), ("yaml", "load"), ("os", "system")}, name
        forbidden = {":pickle", ":marshal", ":shelve", ":subprocess", ":ctypes", ":runpy", ":yaml", ":jinja2"}
        assert not {there for there, _ in edges(name, tree)} & forbidden, name


def test_import_needs_the_standard_library_alone() -> None:
    code = "import sys; before = set(sys.modules); import llamath; print(*{x.split('.')[0] for x in set(sys.modules) - before})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(found) <= sys.stdlib_module_names | {"llamath"}


@pytest.mark.parametrize("name", [name for name, _ in modules()])
def test_every_module_opens_with_a_sentence(name: str) -> None:
    doc = ast.get_docstring(ast.parse((ROOT / name).read_text()))
    assert (doc and doc.split("\n")[0].rstrip().endswith((".", ":", ","))) or (doc and "\n" in doc), name
