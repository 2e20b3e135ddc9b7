"""Renders the templates beside this module: reports and cards as Markdown, and pages of HTML, which
open without a network. What a template of Markdown prints of others' text is escaped.
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.terminal import escape_controls
from amazon_electra.model.report import formats

TEMPLATES = Path(__file__).parent / "templates"
MARKUP = re.compile(r"[\\`\[~|]|[<&](?=[A-Za-z/!?#])|\*(?=\S)|(?<=\S)\*|(?<!\w)_(?=\S)")
"""Characters that begin markup in CommonMark or its tables; a lone * or < and snake_case do not."""
BLOCK_MARKUP = re.compile(r"^(\d{1,9}(?=[.)](?:\s|$))|(?=[#>]|[-+*_=](?![\w.])))")
"""The start of a line that would be a list, a heading or a quotation."""


def render_template(template: str, **values: Any) -> str:
    """Return a rendered template of Markdown; a variable that is not given is an error."""
    text = str(_load_templates(is_markdown=True).get_template(template).render(**values))
    return re.sub(r"\n{3,}", "\n\n", escape_controls(text).strip()) + "\n"


def convert_to_page(title: str, markdown: str) -> str:
    """Return Markdown, which may hold HTML of ours, as one page; its sections are folded."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    tags = {
        "table_open": '<div class="wide"><table>\n',
        "table_close": "</table></div>\n",
        "blockquote_open": '<blockquote class="warning" role="alert">\n',
    }
    for rule, tag in tags.items():
        parser.add_render_rule(rule, lambda *_, tag=tag: tag)
    top, *sections = parser.render(markdown).split("<h2>")
    for section in sections:
        heading, body = section.split("</h2>", 1)
        top += f"<details><summary><h2>{heading}</h2></summary>{body}</details>\n"
    page = _load_templates(is_markdown=False).get_template("page.html.j2")
    return escape_controls(str(page.render(title=title, content=top))).strip() + "\n"


@cache
def _load_templates(is_markdown: bool) -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def escape(value: object) -> Markup:
        return value if isinstance(value, Markup) else Markup(escape_markdown(value))

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=escape if is_markdown else None,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "md": escape,
        "count": "{:,}".format,
        "percent": "{:.0%}".format,
        "names": join_names,
        "fence": lambda text: Markup(fence_code(text)),
        "title": formats.get_title,
    }
    shown = {n: value for n, value in vars(formats).items() if n.startswith("format_")}
    environment.globals |= shown
    return environment


def join_names(names: Sequence[str]) -> str:
    """Return names in a row; a name may hold a comma ("polarity, 50 labels")."""
    names = list(names)
    return ("; " if any("," in name for name in names) else ", ").join(names)


def fence_code(text: str) -> str:
    """Return a block of code, fenced with more backticks than the text has in a row."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def escape_markdown(text: object) -> str:
    """Return text as one line of Markdown that shows the text itself and asks for nothing."""
    line = escape_controls(" ".join(str(text).split()))
    return BLOCK_MARKUP.sub(r"\1\\", MARKUP.sub(r"\\\g<0>", line))
