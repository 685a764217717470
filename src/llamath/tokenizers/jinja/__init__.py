"""Chat templates in Jinja: evaluated node by node, with a budget of operations and with the
origin of every character.
"""

from __future__ import annotations

from .render_template import JinjaTemplate
from .template_text import TemplateText, origin_runs
from .template_values import Limits

__all__ = ["JinjaTemplate", "Limits", "TemplateText", "origin_runs"]
