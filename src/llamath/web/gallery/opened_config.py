"""`answer`: what the page of a site shows of a config that it counts with this library, which runs
in the browser.
"""

from __future__ import annotations

import json

from ...analysis.understand.count.count_report import CountReport
from ...core.tree import CountedOnly
from ...model import with_family
from ...utils.errors import LlamathError, safe
from ..forms.page_forms import with_family_forms
from ..page_data.page_data import build_page_data
from ..server.page_html import compressed_data
from ..server.posted_configs import PostedConfig


def answer(name: str, text: str, links: str) -> str:
    """Return, as JSON, the data of the model's page with these links, or the text of its count if
    it is counted only, or what is wrong with the config.
    """
    try:
        return json.dumps(_shown(PostedConfig(text.encode(), name), json.loads(links)))
    except LlamathError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return json.dumps({"wrong": f"{error}{hint}"})


def _shown(config: PostedConfig, links: dict[str, object]) -> dict[str, str]:
    model = with_family(config.model)
    title = safe(model.name)
    try:
        data = with_family_forms(build_page_data([model])) | {"gallery": links}
    except CountedOnly as error:
        return {"title": title, "count": f"{CountReport(model=model)}\n\n{error}"}
    return {"title": title, "page": compressed_data(data)}
