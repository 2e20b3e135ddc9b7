"""Workbooks as shops send them: a sheet, a header somewhere, cells with types."""

import zipfile
from html import escape

import pytest

from amazon_electra.beam_jobs.reading import work_units
from amazon_electra.beam_jobs.reading.ids import add_id_column
from amazon_electra.beam_jobs.reading.lines import Tally
from tests.beam_jobs.dumps import look_at, rows_of, run_job, text_of, texts_in
from tests.refusals import refuses

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def write_workbook(path, **sheets):
    """Write sheets of rows: texts, numbers, ("date", days) and None."""

    def write_cell(value):
        if value is None:
            return "<c/>"
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        return (
            f'<c s="1"><v>{value[1]}</v></c>' if type(value) is tuple else f"<c><v>{value}</v></c>"
        )

    def write_sheet(rows):
        lines = "".join(f"<row>{''.join(map(write_cell, row))}</row>" for row in rows)
        return f'<worksheet xmlns="{MAIN}"><sheetData>{lines}</sheetData></worksheet>'

    names = [*enumerate(sheets, 1)]
    listed = "".join(f'<sheet name="{name}" sheetId="{i}" r:id="r{i}"/>' for i, name in names)
    links = "".join(
        f'<Relationship Id="r{i}" Type="{RELATIONS}/worksheet" Target="worksheets/{i}.xml"/>'
        for i, _ in names
    )
    styles = f'<Relationship Id="s" Type="{RELATIONS}/styles" Target="styles.xml"/>'
    start = f'<Relationship Id="m" Type="{RELATIONS}/officeDocument" Target="xl/workbook.xml"/>'
    relations = f'<Relationships xmlns="{PACKAGE}/relationships">{{}}</Relationships>'
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("[Content_Types].xml", f'<Types xmlns="{PACKAGE}/content-types"/>')
        file.writestr("_rels/.rels", relations.format(start))
        file.writestr("xl/_rels/workbook.xml.rels", relations.format(links + styles))
        book = (
            f'<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}"><sheets>{listed}</sheets></workbook>'
        )
        file.writestr("xl/workbook.xml", book)
        formats = '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
        file.writestr("xl/styles.xml", f'<styleSheet xmlns="{MAIN}">{formats}</styleSheet>')
        for i, name in names:
            file.writestr(f"xl/worksheets/{i}.xml", write_sheet(sheets[name]))
    return path


ROWS = [[100 + i, text_of(i), 1 + i % 5, ("date", 45_000 + i)] for i in range(30)]
HEADER = ["id", "Review text", "Stars", "date"]


@pytest.mark.parametrize(
    "above", [[], [["Reviews of spring"], []], [["Product", None, "Review", None], []]]
)
def test_a_sheet_is_read_by_the_types_of_its_cells(tmp_path, above):
    rows = [*above, HEADER, *ROWS[:10], [None] * 4, *ROWS[10:]]
    dump = write_workbook(tmp_path / "shop.xlsx", Spring=rows, Notes=[["note"], ["none"]])
    result = run_job(tmp_path / "corpus", "--input", dump)
    assert (result["read"], result["kept"], result["stars_scale"]) == (30, 30, "1-5")
    assert {row["month"] for row in rows_of(tmp_path / "corpus")} == {"2023-03", "2023-04"}
    file = add_id_column(look_at(dump), None)
    [unit] = work_units.cut_file(file, 1 << 20, str(tmp_path / "cuts"))
    records = [item[1] for item in work_units.read_records(unit, Tally())]
    assert [record["id"] for record in records] == [row[0] for row in ROWS]


def test_a_sheet_is_chosen_by_its_name(tmp_path):
    dump = write_workbook(tmp_path / "d.xlsx", Notes=[["a"], [1]], June=[["text"], ["It boils."]])
    run_job(tmp_path / "corpus", "--input", dump, "--sheet", "June")
    assert texts_in(tmp_path / "corpus") == ["It boils."]
    with refuses("Notes, June") as caught:
        run_job(tmp_path / "other", "--input", dump, "--sheet", "July")
    assert caught.value.field == "sheet"


@pytest.mark.parametrize("content", ["cut", "empty"])
def test_a_workbook_without_rows_or_end_is_refused(tmp_path, content):
    dump = write_workbook(tmp_path / "d.xlsx", Empty=[])
    if content == "cut":
        with zipfile.ZipFile(dump, "w") as file:
            file.writestr("xl/workbook.xml", "<workbook/>")
    with refuses("d.xlsx"):
        run_job(tmp_path / "corpus", "--input", dump)
