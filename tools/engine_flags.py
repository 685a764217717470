"""Read the flags of engines from their argument classes, without importing them: `python
tools/engine_flags.py vllm@0.26.0=DIR vllm@0.33.0=DIR sglang@0.5.23=DIR` writes
`src/llamath/engines/flags.json` anew.

DIR is an unpacked wheel; versions of one engine come oldest first. Only names, the versions that
have them and whether a value follows are read; what a flag means for memory and layout stands in
the file of its engine. Engines that are not named keep their entry.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

FLAGS = Path(__file__).parents[1] / "src" / "llamath" / "engines" / "flags.json"
KINDS = ("switch", "value", "optional", "many")
VLLM_FILES = (
    "engine/arg_utils.py",
    "entrypoints/openai/cli_args.py",
    "entrypoints/common/cli_args.py",
)
_FIELD = re.compile(r"\w+\['\w+'\]")
FRONTEND = ("BaseFrontendArgs", "FrontendArgs")


def parse(path: Path) -> ast.Module:
    """Parse a file of an engine."""
    return ast.parse(path.read_text(encoding="utf-8"))


def kind_of_type(text: str) -> str:
    """Return whether a value of a type follows a flag."""
    text = text.replace(" ", "")
    words = set(text.split("|"))
    if words == {"bool", "str", "None"}:
        return "optional"
    if "bool" in words:
        return "switch"
    if any(x.startswith(("list[", "List[", "tuple[", "set[")) for x in words):
        return "many"
    if text.startswith(("Optional[", "Annotated[", "A[")):
        return kind_of_type(text.partition("[")[2].removesuffix("]"))
    return "value"


def fields_of(folder: Path) -> dict[str, dict[str, str]]:
    """Return the annotated fields of each class in a folder, with their types."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, {}).update(
                    (x.target.id, ast.unparse(x.annotation))
                    for x in node.body
                    if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name)
                )
    return found


def names_of(call: ast.Call) -> list[str]:
    """Return the names of a call of `add_argument`, the longest first."""
    names = [x.value for x in call.args if isinstance(x, ast.Constant) and isinstance(x.value, str)]
    return sorted(
        (x for x in names if x.startswith("-")), key=lambda x: (not x.startswith("--"), x)
    )


def kind_of_call(call: ast.Call, type_of: dict[str, str]) -> str:
    """Return whether a value follows the flag of a call of `add_argument`."""
    said = {x.arg: ast.unparse(x.value) for x in call.keywords if x.arg}
    if "nargs" in said:
        return {"'?'": "optional", "None": "value"}.get(said["nargs"], "many")
    action = said.get("action", "")
    if "store" in action.lower() or "Boolean" in action or "StoreTrue" in action:
        return "switch"
    spread = next((ast.unparse(x.value) for x in call.keywords if x.arg is None), "")
    field = _FIELD.search(spread)
    return kind_of_type(type_of.get(field[0] if field else "", "str"))


def vllm_flags(package: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the kind and names of vLLM's flags."""
    classes = fields_of(package / "config")
    for path in (package / x for x in VLLM_FILES if (package / x).exists()):
        tree = parse(path)
        of_kwargs = {
            x.targets[0].id: x.value.args[0].id
            for x in ast.walk(tree)
            if isinstance(x, ast.Assign)
            and isinstance(x.targets[0], ast.Name)
            and isinstance(x.value, ast.Call)
            and ast.unparse(x.value.func) in ("get_kwargs", "_compute_kwargs")
            and isinstance(x.value.args[0], ast.Name)
        }
        type_of = {
            f"{name}['{field}']": kind
            for name, of in of_kwargs.items()
            for field, kind in classes.get(of, {}).items()
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument"):
                if names := names_of(node):
                    yield kind_of_call(node, type_of), names
            elif isinstance(node, ast.ClassDef) and node.name in FRONTEND:
                for x in node.body:
                    if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name):
                        name = f"--{x.target.id.replace('_', '-')}"
                        yield kind_of_type(ast.unparse(x.annotation)), [name]


def sglang_flags(package: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the kind and names of SGLang's flags."""
    for path in sorted((package / "srt/arg_groups/fields").glob("*.py")):
        for node in ast.walk(parse(path)):
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and isinstance(node.annotation, ast.Subscript)
                and ast.unparse(node.annotation.value) == "A"
                and isinstance(node.annotation.slice, ast.Tuple)
            ):
                yield from _sglang_field(node.target.id, node.annotation.slice.elts)
    for node in ast.walk(parse(package / "srt/server_args.py")):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "parser.add_argument":
            yield kind_of_call(node, {}), names_of(node)


def _sglang_field(field: str, parts: list[ast.expr]) -> Iterator[tuple[str, list[str]]]:
    arg = next(
        (x for x in parts[1:] if isinstance(x, ast.Call) and ast.unparse(x.func) == "Arg"), None
    )
    said = {x.arg: x.value for x in arg.keywords if x.arg} if arg is not None else {}
    if "no_cli" in said or (arg is None and not any(_is_text(x) for x in parts[1:])):
        return
    name = said.get("cli_name")
    aliases = said.get("aliases")
    names = [ast.literal_eval(name) if name is not None else f"--{field.replace('_', '-')}"]
    names += ast.literal_eval(aliases) if aliases is not None else []
    kind = kind_of_type(ast.unparse(parts[0]))
    if "nargs" in said:
        kind = "optional" if ast.literal_eval(said["nargs"]) == "?" else "many"
    elif "action" in said:
        more = ast.unparse(said["action_kwargs"]) if "action_kwargs" in said else ""
        kind = "many" if "nargs" in more or "LoRA" in ast.unparse(said["action"]) else "switch"
    elif "type_parser" in said and kind == "many":
        kind = "value"
    yield kind, names


def _is_text(x: ast.expr) -> bool:
    return isinstance(x, ast.JoinedStr | ast.BinOp) or (
        isinstance(x, ast.Constant) and isinstance(x.value, str)
    )


READERS = {"vllm": vllm_flags, "sglang": sglang_flags}


def table(versions: Mapping[str, Iterable[tuple[str, list[str]]]]) -> dict[str, Any]:
    """Return the flags by kind, the names of one joined by `|`, each with the first and the last
    version that has it where not all have.
    """
    found: dict[str, tuple[str, list[str], list[str]]] = {}
    for version, flags in versions.items():
        for kind, names in flags:
            main = next((found[x][1][0] for x in names if x in found), names[0])
            known = found.get(main, ("", [], []))
            every = [*known[1], *(x for x in names if x not in known[1])]
            seen = [*known[2], *([version] if version not in known[2] else [])]
            found |= dict.fromkeys(every, (kind, every, seen))
    result: dict[str, Any] = {"versions": list(versions)}
    for kind, names, seen in found.values():
        span = "" if len(seen) == len(versions) else f"{seen[0]} to {seen[-1]}"
        result.setdefault(kind, {})["|".join(names)] = span
    return {
        kind: dict(sorted(x.items())) if isinstance(x, dict) else x for kind, x in result.items()
    }


def main(arguments: list[str]) -> None:
    """Write the file of flags."""
    flags = json.loads(FLAGS.read_text()) if FLAGS.exists() else {}
    folders: dict[str, dict[str, Path]] = {}
    for argument in arguments:
        wanted, _, folder = argument.partition("=")
        name, _, version = wanted.partition("@")
        folders.setdefault(name, {})[version] = Path(folder) / name
    for name, versions in folders.items():
        flags[name] = table({x: READERS[name](folder) for x, folder in versions.items()})
    FLAGS.write_text(json.dumps(flags, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
