"""A report as blocks, written as Markdown and as one HTML page that needs nothing else.

The page opens from a disk without a network, prints, and reads on a telephone: tables scroll sideways in their own box.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass, field


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
    """So many rows in Markdown, all of them on the page."""


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Figure:
    svg: str
    caption: str


@dataclass(frozen=True)
class Details:
    """Folded away in HTML, a section of its own in Markdown."""

    title: str
    blocks: Sequence["Block"]


Block = Heading | Paragraph | Table | Code | Figure | Details


@dataclass(frozen=True)
class Document:
    title: str
    blocks: list[Block] = field(default_factory=list)

    def markdown(self) -> str:
        return f"# {self.title}\n\n" + "\n\n".join(filter(None, map(_markdown, self.blocks))) + "\n"

    def html(self) -> str:
        body = "\n".join(map(_html, self.blocks))
        title = html.escape(self.title)
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n{body}\n"
            "</main>\n</body>\n</html>\n"
        )


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Paragraph(text, kind):
            return {"answer": f"**{text}**", "warning": f"> **Warning:** {text}"}.get(kind, text)
        case Table(header, rows, caption, first):
            lines = [_row(header), "|" + " --- |" * len(header), *map(_row, rows[:first])]
            return (f"{caption}\n\n" if caption else "") + "\n".join(lines)
        case Code(text):
            return f"```\n{text}\n```"
        case Figure(_, caption):
            return f"*Figure in report.html: {caption}*"
        case Details(title, blocks):
            return f"### {title}\n\n" + "\n\n".join(filter(None, map(_markdown, blocks)))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{html.escape(text)}</h{level}>"
        case Paragraph(text, kind):
            role = ' role="alert"' if kind == "warning" else ""
            return f'<p class="{kind or "plain"}"{role}>{html.escape(text)}</p>'
        case Table(header, rows, caption):
            return _html_table(header, rows, caption)
        case Code(text):
            return f"<pre><code>{html.escape(text)}</code></pre>"
        case Figure(svg, caption):
            return f"<figure>{svg}<figcaption>{html.escape(caption)}</figcaption></figure>"
        case Details(title, blocks):
            inner = "\n".join(map(_html, blocks))
            return f"<details><summary>{html.escape(title)}</summary>\n{inner}\n</details>"


def _html_table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    head = "".join(f'<th scope="col">{html.escape(str(cell))}</th>' for cell in header)
    body = "\n".join("<tr>" + "".join(f"<td>{html.escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
    title = f'<p class="caption">{html.escape(caption)}</p>' if caption else ""
    return f'{title}<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


STYLE = """
:root { color-scheme: light dark; --line: #c8ccd2; --soft: #f3f5f7; --ink: #1b1f24; --paper: #fff; --mark: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --line: #444c56; --soft: #22272e; --ink: #d8dee6; --paper: #15191e; --mark: #6cb2ff; }
  figure { background: #fff; }
}
body { margin: 0; color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 1rem; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
.answer { font-size: 1.2rem; border-left: .3rem solid var(--mark); padding: .4rem 1rem; background: var(--soft); }
.warning { border-left: .3rem solid #c62828; padding: .4rem 1rem; color: #c62828; font-weight: 600; }
.wide { overflow-x: auto; }
table { width: max-content; border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .8rem 0; }
.caption { font-weight: 600; margin: 1rem 0 0; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .7rem; text-align: left; vertical-align: top; }
td { max-width: 22rem; }
th { background: var(--soft); } pre { overflow-x: auto; background: var(--soft); padding: .8rem; }
figure { margin: 1rem 0; overflow-x: auto; }
figure svg { width: 100%; min-width: 26rem; max-width: 42rem; height: auto; }
figcaption { font-size: .9rem; padding: .3rem; color: #57606a; } details { margin: .6rem 0; }
summary { cursor: pointer; font-weight: 600; }
@media (min-width: 60rem) { table { width: auto; } }
@media print {
  details > * { display: block; } details::details-content { content-visibility: visible; block-size: auto; }
  pre { white-space: pre-wrap; } .wide { overflow: visible; } table { width: auto; }
}
"""
