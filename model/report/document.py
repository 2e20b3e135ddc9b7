"""A report as blocks, which Jinja2 templates write as Markdown and as one HTML page.

The page opens from a disk without a network, prints, and reads on a telephone: tables scroll
sideways in their own box. All text is plain: the page escapes it as HTML, the Markdown as Markdown.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.terminal import escape_controls

TEMPLATES = Path(__file__).parent / "templates"
MARKUP = re.compile(r"[\\`\[~|]|[<&](?=[A-Za-z/!?#])|\*(?=\S)|(?<!\w)_(?=\S)")
"""Characters that begin markup in CommonMark or its tables; a lone * or < and snake_case do not."""
BLOCK_MARKUP = re.compile(r"^(\d{1,9}(?=[.)](?:\s|$))|(?=[#>]|[-+*_=](?![\w.])))")
"""The start of a line that would be a list, a heading or a quotation."""


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    text: str
    kind: str = ""
    """`answer`, `warning` or nothing."""


@dataclass(frozen=True)
class Table:
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    first: int | None = None
    """The number of rows in Markdown; the page has all of them."""


@dataclass(frozen=True)
class Code:
    text: str

    @property
    def fence(self) -> str:
        """Backticks, more of them than the text has in a row."""
        return "`" * max(3, 1 + max(map(len, re.findall("`+", self.text)), default=0))


@dataclass(frozen=True)
class Figure:
    svg: str
    caption: str


@dataclass(frozen=True)
class Details:
    """Blocks that are folded on the page, and a section of their own in Markdown."""

    title: str
    blocks: Sequence["Block"]


Block = Heading | Paragraph | Table | Code | Figure | Details


@dataclass(frozen=True)
class Document:
    title: str
    blocks: list[Block] = field(default_factory=list)

    def render_markdown(self) -> str:
        return render_template("document.md.j2", title=self.title, blocks=self.blocks)

    def render_html(self) -> str:
        return render_template("document.html.j2", title=self.title, blocks=self.blocks)


def join_names(names: Sequence[str]) -> str:
    """Return names in a row; a name may hold a comma ("polarity, 50 labels")."""
    return ("; " if any("," in name for name in names) else ", ").join(names)


def render_template(template: str, **values: Any) -> str:
    """Render a template of this folder; a variable that is not given is an error."""
    text = str(_load_templates().get_template(template).render(**values))
    return escape_controls(text).strip() + "\n"


@cache
def _load_templates() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=lambda name: str(name).endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["a"] = lambda block, name: type(block).__name__ == name
    environment.filters["md"] = escape_markdown
    environment.filters["count"] = "{:,}".format
    return environment


def escape_markdown(text: object) -> str:
    """Return text as one line of Markdown that shows the text itself and asks for nothing."""
    line = escape_controls(" ".join(str(text).split()))
    return BLOCK_MARKUP.sub(r"\1\\", MARKUP.sub(r"\\\g<0>", line))
