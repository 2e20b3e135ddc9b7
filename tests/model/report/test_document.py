"""Text of a report stays text: in Markdown, on the page and in its figures."""

from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from amazon_electra.model.report.document import convert_to_page, escape_markdown, fence_code
from tests.model.report.evaluations import render, write_cells

HOSTILE = [
    "![](https://evil.example/pixel.png)", "[a link](https://evil.example)",
    "<img src=https://evil.example/x.png>", "<https://evil.example>",
    "&lt;img src=x&gt; &amp; &#33;[](x)", "\\![](https://evil.example)",
    "`code` | a cell | ~~gone~~", "**bold** _emphasis_ *more*", "[ref]: https://evil.example",
    "snake_case, 2 * 3 < 7, 16*, a\\b", "# no heading", "- no list", "1. no list",
    "> no quotation", "--- ===", "line\n\n# another",
]  # fmt: skip


def read_texts(markdown):
    """Return every inline token's type, and the text of each paragraph and cell."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown)
    inline = [token for token in tokens if token.type == "inline"]
    kinds = {child.type for token in inline for child in token.children}
    return kinds, ["".join(child.content for child in token.children) for token in inline]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_asks_for_nothing_and_is_shown_as_it_is(text):
    safe = escape_markdown(text)
    readable = "+4.2 points (+1.1 to +7.3), p < 0.001"
    assert escape_markdown(readable) == readable
    markdown = (
        f"# {safe}\n\n{safe}\n\n**{safe}**\n\n| {safe} | n |\n| --- | --- |\n| {safe} | 1 |\n"
    )
    kinds, shown = read_texts(markdown)
    assert kinds <= {"text", "text_special", "strong_open", "strong_close"}
    expected = " ".join(text.split())
    assert shown == [*[expected] * 4, "n", expected, "1"]
    page = convert_to_page(text, markdown)
    assert "<img" not in page
    assert "<a" not in page


def test_a_terminal_that_shows_a_report_obeys_nothing_in_it(tmp_path):
    """Neither in the Markdown nor on the page, whatever the text is shown as."""
    text = "a\x1b]0;title\x07 \u202eb"
    cells = write_cells(tmp_path, {text: 0.8}, seeds=[0])
    _, markdown = render(tmp_path, cells, title=text, command=text, dump={text: text})
    for shown in (markdown, (tmp_path / "report" / "report.html").read_text()):
        assert r"a\x1b]0;title\x07 \u202eb" in shown
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)


def test_a_block_of_code_cannot_be_left():
    [token] = MarkdownIt().parse(fence_code("x\n````\n# y"))
    assert (token.type, token.content) == ("fence", "x\n````\n# y\n")


def test_a_name_is_no_mathematics(tmp_path):
    names = [r"$\foo$", "$a$ and $b$", r"\$ $x$", "5$ < 6 & 7"]
    cells = write_cells(tmp_path, dict.fromkeys(names, 0.8), seeds=[0])
    _, text = render(tmp_path, cells)
    svg = ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    shown = {"".join(one.itertext()).partition("  ")[0] for one in svg.iter()}
    assert {*names} <= shown
