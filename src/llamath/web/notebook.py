"""The page of a model in a notebook: the exported file in a frame that has no access to the
notebook.
"""

from __future__ import annotations

from html import escape

from ..loading import Source
from ..utils.errors import LlamathError, safe
from .page_data.checkpoint_data import load_with_checkpoint
from .server.model_ids import refuse_huge
from .server.page_html import model_page

_HEIGHTS = range(200, 10_001)


class NotebookPage:
    """The page of one or two models, which Jupyter, VS Code and others show where an expression
    has it as its value.
    """

    def __init__(self, title: str, html: str, height: int) -> None:
        self.title, self.html, self.height = title, html, height

    def __repr__(self) -> str:
        return f"<NotebookPage: {self.title}>"

    def _repr_html_(self) -> str:
        """Return a sandboxed frame: its script cannot reach the notebook, its cookies or its
        files, and the page makes no requests.
        """
        return (
            f'<iframe srcdoc="{escape(_in_frame(self.html))}" title="{escape(self.title)}" '
            'sandbox="allow-scripts" '
            'referrerpolicy="no-referrer" '
            f'style="width:100%;height:{self.height}px;border:0"></iframe>'
        )


def show(model: Source, other: Source | None = None, *, height: int = 900) -> NotebookPage:
    """Show the interactive page of a model, or of two side by side, in a notebook; `height` is
    in pixels.
    """
    if height not in _HEIGHTS:
        raise LlamathError(
            f"height should be from {_HEIGHTS[0]} to {_HEIGHTS[-1]:,} pixels, "
            f"found {safe(repr(height), 40)}"
        )
    models = [load_with_checkpoint(x) for x in ((model,) if other is None else (model, other))]
    for x in models:
        refuse_huge(x)
    return NotebookPage(" and ".join(safe(x.name) for x in models), model_page(models), height)


def _in_frame(html: str) -> str:
    """Return the page for the document of a frame: its links of the form #memory would lead to
    the notebook without a base.
    """
    policy, title = "base-uri 'none'", "</title>"
    assert html.count(policy) == 1 and title in html
    return html.replace(policy, "base-uri about:").replace(
        title, f'{title}<base href="about:srcdoc">', 1
    )
