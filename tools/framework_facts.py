"""Write tests/truth/frameworks.json: the options and fields of training frameworks, their types and
choices, read from syntax trees of their sources; nothing is installed or run.

Usage: download torchtitan 0.2.2 and 0.3.0, accelerate and deepspeed (`pip download --no-deps`) and
check out NVIDIA/Megatron-LM; then `python tools/framework_facts.py FILES MEGATRON-LM`.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

FACTS = Path(__file__).parents[1] / "tests" / "truth" / "frameworks.json"
Read = Callable[[str], ast.Module]
Facts = dict[str, dict[str, object]]


class Field(NamedTuple):
    """A field of a class: its annotation and its value."""

    name: str
    annotation: ast.expr
    value: ast.expr | None


def reader(path: Path) -> Read:
    """Return a function that parses a file of a wheel, a source archive or a folder."""
    if path.is_dir():
        return lambda name: ast.parse((path / name).read_text())
    if path.suffix == ".whl":
        wheel = zipfile.ZipFile(path)
        return lambda name: ast.parse(wheel.read(name))
    archive = tarfile.open(path)  # noqa: SIM115
    root = archive.getnames()[0].split("/")[0]

    def read(name: str) -> ast.Module:
        member = archive.extractfile(f"{root}/{name}")
        assert member is not None
        return ast.parse(member.read())

    return read


def classes(*trees: ast.Module) -> dict[str, ast.ClassDef]:
    """Return the classes of modules by name."""
    return {x.name: x for tree in trees for x in tree.body if isinstance(x, ast.ClassDef)}


def class_fields(name: str, known: dict[str, ast.ClassDef]) -> Iterator[Field]:
    """Yield the annotated fields of a class, those of its bases first."""
    for base in known[name].bases:
        if isinstance(base, ast.Name) and base.id in known:
            yield from class_fields(base.id, known)
    for x in known[name].body:
        if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name):
            yield Field(x.target.id, x.annotation, x.value)


def of_type(annotation: ast.expr) -> dict[str, object]:
    """Return a type as text, and the choices of a Literal."""
    literals = [
        y.value
        for x in ast.walk(annotation)
        if isinstance(x, ast.Subscript) and ast.unparse(x.value) == "Literal"
        for y in ast.walk(x.slice)
        if isinstance(y, ast.Constant)
    ]
    return {"type": ast.unparse(annotation), **({"choices": literals} if literals else {})}


def nested(name: str, known: dict[str, ast.ClassDef], prefix: str = "") -> Facts:
    """Return the fields of a class, those of its sections by dotted names."""
    facts: Facts = {}
    for x in class_fields(name, known):
        kind = ast.unparse(x.annotation)
        if kind in known:
            facts |= nested(kind, known, f"{prefix}{x.name}.")
        else:
            facts[f"{prefix}{x.name}"] = of_type(x.annotation)
    return facts


def arguments(tree: ast.Module) -> Facts:
    """Return what `add_argument` is called with in a module, by option."""
    facts: Facts = {}
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") != "add_argument":
            continue
        given = {x.arg: x.value for x in call.keywords}
        fact: dict[str, object] = {}
        for key in ("type", "action", "nargs"):
            if key in given:
                fact[key] = ast.unparse(given[key]).strip("'")
        if isinstance(given.get("choices"), ast.List | ast.Tuple):
            fact["choices"] = ast.literal_eval(given["choices"])
        names = [x.value for x in call.args if isinstance(x, ast.Constant)]
        facts |= {str(x): fact for x in names if str(x).startswith("--")}
    return facts


MEGATRON_CLASSES = (
    *("megatron/core/model_parallel_config.py", "megatron/core/transformer/transformer_config.py"),
    "megatron/core/transformer/enums.py",
    *(f"megatron/training/config/{x}_config.py" for x in ("common", "training", "resilience")),
)


def megatron(read: Read) -> tuple[str, Facts]:
    """Return the arguments of Megatron-LM: those added by name, and a field's of a class."""
    module = read("megatron/training/arguments.py")
    known = classes(*map(read, MEGATRON_CLASSES))
    listed = {
        x.targets[0].id: x.value
        for x in ast.walk(module)
        if isinstance(x, ast.Assign)
        and isinstance(x.targets[0], ast.Name)
        and isinstance(x.value, ast.List)
    }
    facts: Facts = {}
    for call in ast.walk(module):
        if getattr(getattr(call, "func", None), "id", "") != "ArgumentGroupFactory":
            continue
        assert isinstance(call, ast.Call) and isinstance(call.args[0], ast.Name)
        if call.args[0].id not in known:
            continue
        left_out = next((x.value for x in call.keywords if x.arg == "exclude"), ast.List([]))
        left_out = listed[left_out.id] if isinstance(left_out, ast.Name) else left_out
        for x in class_fields(call.args[0].id, known):
            if x.name not in ast.literal_eval(left_out) and not x.name.startswith("_"):
                facts |= field_argument(x, known)
    facts |= arguments(module)
    version = [
        ast.literal_eval(x.value)
        for x in read("megatron/core/package_info.py").body
        if isinstance(x, ast.Assign) and ast.unparse(x.targets[0]) in ("MAJOR", "MINOR", "PATCH")
    ]
    return ".".join(map(str, version)), facts


def field_argument(x: Field, known: dict[str, ast.ClassDef]) -> Facts:
    """Return the options of a field, as Megatron's ArgumentGroupFactory names them."""
    option, kind = "--" + x.name.replace("_", "-"), ast.unparse(x.annotation)
    fact = of_type(x.annotation)
    default = x.value
    if isinstance(x.value, ast.Call):
        given = {y.arg: y.value for y in x.value.keywords}
        default = given.get("default")
        if named := re.search(r"'arg_names': (\[[^]]*\])", ast.unparse(x.value)):
            return dict.fromkeys(ast.literal_eval(named[1]), fact)
    if kind == "bool":
        if default is not None and ast.unparse(default) == "True":
            return {f"--{no}-{option[2:]}": {"action": "store_false"} for no in ("no", "disable")}
        return {option: {"action": "store_true"}}
    if kind in known and any(ast.unparse(y).endswith("Enum") for y in known[kind].bases):
        fact["choices"] = [
            y.targets[0].id
            for y in known[kind].body
            if isinstance(y, ast.Assign) and isinstance(y.targets[0], ast.Name)
        ]
    return {option: fact}


def accelerate(read: Read) -> Facts:
    """Return the fields of accelerate's configuration file, and those of its sections."""
    facts = nested("ClusterConfig", classes(read("accelerate/commands/config/config_args.py")))
    for option, fact in arguments(read("accelerate/commands/launch.py")).items():
        for section in ("fsdp", "parallelism_config"):
            if option.startswith(f"--{section}_"):
                facts[f"{section.removesuffix('_config')}_config.{option[2:]}"] = fact
        if option in ("--machine_rank", "--main_process_ip", "--config_file"):
            facts[option] = fact
    return facts


def deepspeed(read: Read) -> Facts:
    """Return the keys of DeepSpeed's configuration: its constants, and fields of two sections."""
    facts: Facts = {}
    for name in ("runtime/constants.py", "runtime/config.py"):
        for x in read(f"deepspeed/{name}").body:
            if isinstance(x, ast.Assign) and isinstance(x.value, ast.Constant):
                constant = ast.unparse(x.targets[0])
                key = x.value.value
                if isinstance(key, str) and re.fullmatch(r"[a-z][a-z0-9_]*", key):
                    section = "optimizer.type=" if constant.endswith("_OPTIMIZER") else ""
                    facts[f"{section}{key}"] = {"type": constant}
    sections = {
        "zero_optimization": ("runtime/zero/config.py", "DeepSpeedZeroConfig"),
        "bf16": ("runtime/precision_config.py", "DeepSpeedBF16Config"),
        "fp16": ("runtime/precision_config.py", "DeepSpeedFP16Config"),
    }
    for section, (name, kind) in sections.items():
        facts[section] = {"type": kind}
        facts |= nested(kind, classes(read(f"deepspeed/{name}")), f"{section}.")
    return facts


def torchtitan(read: Read, version: str) -> Facts:
    """Return the fields of torchtitan's configuration by section."""
    if version < "0.3":
        return nested("JobConfig", classes(read("torchtitan/config/job_config.py")))
    known = classes(read("torchtitan/config/configs.py"))
    return nested("TrainingConfig", known, "training.") | nested(
        "ParallelismConfig", known, "parallelism."
    )


def main(paths: list[Path]) -> None:
    """Read all sources and write the facts."""
    found: dict[str, dict[str, Facts]] = {}
    for path in paths:
        read = reader(path)
        if path.is_dir():
            version, facts = megatron(read)
            found.setdefault("megatron", {})[version] = facts
            continue
        name, version = path.name.removesuffix(".tar.gz").split("-")[:2]
        read_facts = {
            "accelerate": lambda read, _: accelerate(read),
            "deepspeed": lambda read, _: deepspeed(read),
            "torchtitan": torchtitan,
        }[name]
        found.setdefault(name, {})[version] = read_facts(read, version)
    FACTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main([Path(x) for x in sys.argv[1:]])
