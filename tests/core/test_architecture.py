"""The architecture: which package may import which, no cycles, unique names, small folders, and no forbidden calls."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import budgets

ROOT = Path(__file__).parents[2] / "src" / "llamath"
TESTS = Path(__file__).parents[1]
ENGINE = TESTS.parent / "native"

MAY_IMPORT = {
    "utils": "",
    "render": "utils",
    "core": "utils",
    "embedded": "",
    "config_keys": "",
    "catalog": "utils core",
    "hardware": "utils render core",
    "engines": "utils",
    "questions": "utils core hardware",
    "checkpoint": "utils core embedded catalog",
    "families": "utils core config_keys checkpoint",
    "tokenizers": "utils core checkpoint",
    "generic": "utils core checkpoint families",
    "model": "utils render core checkpoint families generic",
    "loading": "utils embedded catalog checkpoint core families generic model config_keys",
    "api": "utils core questions checkpoint hardware engines loading model analysis conversion generation runtime torch native",
    "analysis": "utils render core config_keys questions checkpoint catalog families hardware engines embedded generic model loading",
    "conversion": "utils render core config_keys questions checkpoint families tokenizers loading model analysis",
    "generation": "utils core checkpoint embedded tokenizers model analysis",
    "torch": "utils render render/text core questions checkpoint tokenizers embedded loading model analysis generation",
    "native": "utils render core questions checkpoint tokenizers embedded model analysis generation",
    "runtime": "utils render render/text checkpoint tokenizers analysis generation torch native",
    "render/text": "utils render core config_keys hardware questions checkpoint model analysis",
    "render/svg": "utils render render/text model analysis",
    "web": "utils core config_keys catalog hardware embedded questions checkpoint families tokenizers loading model analysis generation native render render/text render/svg",
    "cli": "utils core api catalog hardware embedded questions checkpoint tokenizers loading model analysis conversion generation torch native runtime render render/text render/svg web",
    "__main__": "cli",
    "__init__": "utils render core questions checkpoint hardware analysis generation loading model conversion runtime api web cli",
}
"""Package or root module → those below it that it may import from, also inside functions."""

EXTRAS = {
    "click": {"cli"},
    "torch": {"torch", "generic"},
    "transformers": {"generic"},
    "tokenizers": {"tokenizers"},
    "jinja2": {"tokenizers"},
    "numpy": {"checkpoint", "native"},
    "llamath_native": {"native"},
    "rich": {"cli"},
    "resvg_py": {"render"},
    "anyio": {"cli"},  # the streams of mcp
    "mcp": {"cli"},
    "mcp_types": {"cli"},
    "huggingface_hub": {"checkpoint"},
    "fsspec": {"checkpoint"},
    "starlette": {"web"},
    "uvicorn": {"web"},
}
"""Third-party package → the packages that may import it."""

FREELY_NAMED = {"cli", "families"}
"""Packages whose modules are named after commands and model types."""
FREELY_SIZED = {"cli", "families", "families/multimodal"}
"""Folders with one module per command or family."""
MAX_FILES = 15


@cache
def modules() -> list[tuple[str, ast.Module]]:
    """Every file of the package and its syntax tree."""
    return [
        (str(path.relative_to(ROOT)), ast.parse(path.read_text()))
        for path in sorted(ROOT.rglob("*.py"))
    ]


def package_of(name: str) -> str:
    """The top-level package or module of a file or of a dotted name, or a folder with rules of its own."""
    first, *rest = name.replace("/", ".").removesuffix(".py").split(".")
    inner = f"{first}/{rest[0]}" if rest else ""
    return inner if inner in MAY_IMPORT else first or "__init__"


@cache
def imports(name: str, tree: ast.Module) -> tuple[tuple[str, str], ...]:
    return tuple(_imports(name, tree))


def _imports(name: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(dotted module, imported name) of every import that runs, inside functions too; a module of llamath begins with a dot."""
    typing = {
        id(x)
        for f in ast.walk(tree)
        if isinstance(f, ast.If) and "TYPE_CHECKING" in ast.dump(f.test)
        for x in ast.walk(f)
    }
    package = Path(name).parent.parts
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join(
                (*package[: len(package) - node.level + 1], *(node.module or "").split("."))
            ).strip(".")
            yield from ((f".{base}", x.name) for x in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", x.name) for x in node.names)
        elif isinstance(node, ast.Import):
            yield from ((x.name, "") for x in node.names)


def imported_packages(name: str, tree: ast.Module) -> set[str]:
    """The packages of llamath that a module imports from."""
    return {
        package_of(f"{module[1:]}.{imported}".strip("."))
        for module, imported in imports(name, tree)
        if module.startswith(".")
    }


def imported_files(name: str, tree: ast.Module) -> set[str]:
    """The files of llamath that a module imports from, inside functions too."""
    files = set()
    for module, imported in imports(name, tree):
        if module.startswith("."):
            place = ROOT.joinpath(*module[1:].split(".")) if module != "." else ROOT
            options = (
                place / f"{imported}.py",
                place / imported / "__init__.py",
                place.with_suffix(".py"),
                place / "__init__.py",
            )
            files.add(str(next(x for x in options if x.exists()).relative_to(ROOT)))
    return files - {name}


def cycle(graph: dict[str, set[str]]) -> set[str]:
    """The nodes on cycles of a graph, and those that need them."""
    left = dict(graph)
    while ready := {name for name, needs in left.items() if not needs & left.keys()}:
        left = {name: needs for name, needs in left.items() if name not in ready}
    return set(left)


def test_every_import_points_downward() -> None:
    wrong = []
    for name, tree in modules():
        here = package_of(name)
        wrong += [
            f"{name} imports {there}"
            for there in imported_packages(name, tree) - {here} - set(MAY_IMPORT[here].split())
        ]
    assert not wrong


def test_packages_form_no_cycle() -> None:
    assert not cycle({package: set(below.split()) for package, below in MAY_IMPORT.items()})


def test_modules_form_no_cycle_even_inside_functions() -> None:
    assert not cycle({name: imported_files(name, tree) for name, tree in modules()})


WRITTEN = "analysis/code/support/"
"""Functions of PyTorch that `llamath code` writes into files."""
ROOMS_OF_ANALYSIS = {
    "graph": "",
    "code": "graph",
    "storage": "graph",
    "check": "graph storage",
    "size": "graph storage",
    "learn": "graph code storage size",
    "understand": "graph storage check size learn",
}
"""Folder of `analysis` → those that it may import from."""


def folder_imports() -> set[tuple[str, str]]:
    """The folders of `analysis` with those that they import from."""
    found = {
        (str(Path(name).parent), str(Path(file).parent))
        for name, tree in modules()
        if name.startswith("analysis/")
        for file in imported_files(name, tree)
        if file.startswith("analysis/")
    }
    return {(a, b) for a, b in found if a != b}


def test_rooms_of_analysis_import_downward() -> None:
    rooms = {(a.split("/")[1], b.split("/")[1]) for a, b in folder_imports()}
    assert {a for a, _ in rooms} | {b for _, b in rooms} == set(ROOMS_OF_ANALYSIS)
    assert {(a, b) for a, b in rooms if a != b and b not in ROOMS_OF_ANALYSIS[a].split()} == set()


def test_folders_of_analysis_do_not_import_both_ways() -> None:
    found = {(a, b) for a, b in folder_imports() if not a.startswith(b) and not b.startswith(a)}
    assert len(found) > 20 and {(a, b) for a, b in found if (b, a) in found} == set()


def test_module_names_are_unique() -> None:
    names = Counter(
        Path(name).stem
        for name, _ in modules()
        if package_of(name) not in FREELY_NAMED and not name.endswith("__init__.py")
    )
    assert [name for name, n in names.items() if n > 1] == []


def test_the_root_and_every_folder_stay_small() -> None:
    assert len(list(ROOT.glob("*.py"))) <= 6
    files = Counter(
        str(Path(name).parent) for name, _ in modules() if not name.endswith("__init__.py")
    )
    assert {
        folder: n for folder, n in files.items() if n > MAX_FILES and folder not in FREELY_SIZED
    } == {}


def test_third_party_packages_are_imported_where_allowed() -> None:
    for name, tree in modules():
        for package in {
            module.partition(".")[0]
            for module, _ in imports(name, tree)
            if not module.startswith(".")
        }:
            if package not in sys.stdlib_module_names and not name.startswith(WRITTEN):
                assert package_of(name) in EXTRAS.get(package, set()), f"{name} imports {package}"


def test_what_code_writes_is_read_and_not_imported() -> None:
    importing = {
        name: file
        for name, tree in modules()
        for file in imported_files(name, tree)
        if file.startswith(WRITTEN)
    }
    assert not importing and any(name.startswith(WRITTEN) for name, _ in modules())


def test_test_names_have_at_most_ten_words() -> None:
    names = {
        name: path.name
        for path in sorted((*TESTS.rglob("test_*.py"), *ENGINE.glob("tests/test_*.py")))
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert names and not {name: file for name, file in names.items() if name.count("_") > 10}


def test_the_engine_needs_only_the_standard_library() -> None:
    found = {
        module.partition(".")[0]
        for path in sorted(ENGINE.glob("llamath_native/*.py"))
        for module, _ in imports(path.name, ast.parse(path.read_text()))
    }
    assert "subprocess" in found and found <= sys.stdlib_module_names


def test_nothing_executes_or_unpickles_files() -> None:
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec", "compile", "__import__"}, name
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in {
                    ("torch", "load"),
                    ("yaml", "load"),
                    ("os", "system"),
                }, name
        forbidden = {"pickle", "marshal", "shelve", "subprocess", "ctypes", "runpy", "yaml"}
        allowed = (
            {"subprocess"}
            if name
            in (
                "generic/transformers_process.py",
                "hardware/this_machine.py",
                "tokenizers/template_process.py",
            )
            else set()
        )
        allowed |= {"ctypes"} if package_of(name) == "native" else set()  # its own library only
        allowed |= (
            {"ctypes"} if name == "utils/worker_process.py" else set()
        )  # one function of Linux, to end with its parent
        assert not {module.partition(".")[0] for module, _ in imports(name, tree)} & (
            forbidden - allowed
        ), name


def test_jinja_only_parses_templates() -> None:
    imported = {
        (name, module, x)
        for name, tree in modules()
        for module, x in imports(name, tree)
        if module.partition(".")[0] == "jinja2"
    }
    assert {name for name, _, _ in imported} == {
        "tokenizers/jinja/evaluate_template.py",
        "tokenizers/jinja/render_template.py",
    }
    assert {(module, x) for _, module, x in imported} == {
        ("jinja2", x) for x in ("Environment", "TemplateSyntaxError", "ext", "nodes")
    }
    code = (ROOT / "tokenizers/jinja/render_template.py").read_text()
    assert [
        call
        for call in ("compile(", "from_string(", "compile_expression(", "get_template(")
        if call in code
    ] == []


def test_only_the_script_of_the_subprocess_imports_transformers() -> None:
    heavy = {
        name
        for name, tree in modules()
        for module, _ in imports(name, tree)
        if module.partition(".")[0] in ("torch", "transformers")
    }
    assert {
        name for name in heavy if package_of(name) != "torch" and not name.startswith(WRITTEN)
    } == {"generic/transformers_script.py"}
    script = next(tree for name, tree in modules() if name == "generic/transformers_script.py")
    assert not imported_packages("generic/transformers_script.py", script)


def test_import_needs_only_the_standard_library() -> None:
    code = "import sys; before = set(sys.modules); import llamath; print(*{x.split('.')[0] for x in set(sys.modules) - before})"
    imported = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(imported) <= sys.stdlib_module_names | {"llamath"}


def test_every_module_opens_with_a_sentence() -> None:
    def opens_with_a_sentence(tree: ast.Module) -> bool:
        doc = ast.get_docstring(tree) or ""
        return "\n" in doc or doc.rstrip().endswith((".", ":", ","))

    assert [name for name, tree in modules() if not opens_with_a_sentence(tree)] == []


def test_budgets_of_the_whole_house_are_kept() -> None:
    """Raising one needs a decision record; `python tools/budgets.py` prints all."""
    assert [x for x in budgets.budgets() if x.figure > x.limit] == [], (
        "Too many words: say in one place what two pages say and link to it, leave to the generated "
        "options what they state, and cut an output with a line `…` where the rest repeats."
    )
