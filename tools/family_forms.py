"""Write src/llamath/web/forms/family_forms.json, the closed forms of the families of all presets;
with --check, fail if it is out of date."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from llamath.web.forms.page_forms import FORMS_FILE, build_family_forms


def text_of(found: dict[str, list[object]]) -> str:
    """Return the file: one line for each expression and each form."""
    parts = []
    for name, lines in found.items():
        written = (json.dumps(x, ensure_ascii=False, separators=(",", ":")) for x in lines)
        parts.append(f'"{name}": [\n' + ",\n".join(written) + "\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    text, file = text_of(build_family_forms()), Path(FORMS_FILE)
    if "--check" not in sys.argv:
        file.write_text(text, encoding="utf-8")
    elif not file.exists() or file.read_text(encoding="utf-8") != text:
        sys.exit(f"{file.name} is out of date: run python tools/family_forms.py")


if __name__ == "__main__":
    main()
