"""Write the functions of src/llamath/api.py that answer questions; with --check, fail if they are
stale.

Names, types, defaults, and the help of the arguments are those of the records in
src/llamath/questions; each function parses its arguments and calls `answer_NAME`.
"""

from __future__ import annotations

import builtins
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill, indent
from typing import Any

from llamath.questions.question_list import QUESTIONS
from llamath.questions.settings import Field, Question
from llamath.questions.value_kinds import Several

MODELS = dict.fromkeys(("path", "a", "b"), "str | os.PathLike[str]") | {"name": "str"}
"""The types of arguments that are models, where it is not `Source`."""
MORE = {
    "changes": "Mapping[str, Any]",
    "progress": "Callable[[int, int], None]",
    "via": "Via",
}
"""The types of arguments that are no part of a question; they may be None."""
API = Path(__file__).parents[1] / "src" / "llamath" / "api.py"
BEGIN = "# Written by tools/signatures.py from the questions: change them there.\n"
END = "# End of what tools/signatures.py writes.\n"


def parameter(name: str, field: Field[Any]) -> str:
    """Return an argument of a function."""
    kind = field.kind.annotation
    if field.is_required:
        return f"{name}: {kind}"
    default = field.signature_default
    optional = " | None" if default is None else ""
    return f"{name}: {kind}{optional} = {default!r}"


def is_variadic(field: Field[Any]) -> bool:
    """Whether an argument is `*words`."""
    return field.positional and isinstance(field.kind, Several)


def docstring(question: type[Question]) -> str:
    """Return the docstring of a function: that of the question, and its arguments."""
    paragraphs = (question.__doc__ or "").strip().split("\n\n")
    lines = [fill(f"---{' '.join(x.split())}", 96)[3:] for x in paragraphs]
    arguments = "\n".join(
        fill(f"{name}: {field.text()}", 96, subsequent_indent="    ", break_on_hyphens=False)
        for name, field in question.described.items()
    )
    return "\n\n".join([*lines, arguments])


def signature(
    question: type[Question], source: str, report: str, *, is_optional: bool = False
) -> Iterator[str]:
    """Yield the lines of a signature, with the type of the models, which may be optional, and of
    the result.
    """
    described = question.described
    positional = [x for x, y in described.items() if y.positional]
    yield f"def {question.function}("
    for model in question.models:
        default = " | None = None" if is_optional else ""
        yield f"    {model}: {MODELS.get(model, source)}{default},"
    for name in positional:
        if is_variadic(field := described[name]):
            yield f"    *{name}: {field.kind.kind.annotation},"
        else:
            yield f"    {parameter(name, field)},"
    if not any(map(is_variadic, described.values())):
        yield "    *,"
    for name in described:
        if name not in positional:
            shadows = "  # noqa: A002" if hasattr(builtins, name) else ""
            yield f"    {parameter(name, described[name])},{shadows}"
    for name in question.more:
        yield f"    {name}: {MORE[name]} | None = None,"
    yield f") -> {report}:"


def function(question: type[Question]) -> Iterator[str]:
    """Yield the lines of a function."""
    report = question.report
    if question.report_of_tensors:
        report += f" | {question.report_of_tensors}"
        # what is named may be built or counted without a family, where its passes do not matter
        known = "FamilyModel" if "via" in question.more else "NamedSource"
        for source, found in ((known, question.report), ("Source", report)):
            yield "@overload"
            yield from signature(question, source, found)
            yield "    ..."
    if question.report_of_all:
        yield from (
            "@overload",
            f"def {question.function}() -> {question.report_of_all}:",
            "    ...",
        )
        yield "@overload"
        yield from signature(question, "Source", report)
        yield "    ..."
        report += f" | {question.report_of_all}"
    yield from signature(question, "Source", report, is_optional=bool(question.report_of_all))
    yield indent(f'"""{docstring(question)}\n"""', "    ")
    module = question.__module__.removeprefix("llamath")
    yield f"    from {module} import {question.__name__}\n"
    values = ", ".join(f"{x}={x}" for x in question.described)
    loader = question.loader
    models = "".join(f"{loader}({x}), " if loader else f"{x}, " for x in question.models)
    yield f"    question = {question.__name__}.parse({values})"
    more = "".join(f", {x}={x}" for x in question.more)
    yield f"    return answer_{question.function}({models}question{more})\n\n"


def written(text: str) -> str:
    """Return the text of api.py with its functions written anew."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    functions = "\n".join(line for x in QUESTIONS for line in function(x))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ruff = shutil.which("ruff", path=path) or "ruff"
    command = [ruff, "format", "--stdin-filename", API, "-"]
    whole = f"{before}{BEGIN}\n\n{functions}\n{END}{after}"
    done = subprocess.run(command, input=whole, capture_output=True, text=True, check=True)
    return done.stdout


def main() -> int:
    old = API.read_text()
    new = written(old)
    if new == old:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"stale: {API.name}: run python tools/signatures.py", file=sys.stderr)
        return 1
    API.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
