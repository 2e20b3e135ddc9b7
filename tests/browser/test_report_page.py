"""The report's page in a browser: what is folded on the screen is on the paper."""

from model.report.document import Details, Document, Paragraph


def test_a_printed_report_has_the_folded_parts(page, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(
        Document("T", [Details("Folded", [Paragraph("inside", "inside")])]).render_html()
    )
    page.goto(file.as_uri())
    assert not page.locator(".inside").is_visible()
    page.emulate_media(media="print")
    assert page.locator(".inside").bounding_box()["height"] > 10
