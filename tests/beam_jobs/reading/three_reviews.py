"""Write three reviews as the McAuley releases do, and as CSV."""

REVIEWS = [
    ("It broke. Never again!", "Sad", 1),
    ('He said "wow", twice; then left.', "A, b", 5),
    ("Three lines\nof text\nhere. Café.", "", 3),
]
SENTENCES = {
    "Sad. It broke. Never again!",
    'A, b. He said "wow", twice; then left.',
    "Three lines of text here. Café.",
}


def mcauley(rows: list[tuple[str, str, int]]) -> list[dict]:
    return [
        {"reviewText": text, "summary": title, "overall": float(stars)}
        for text, title, stars in rows
    ]


def lines(records: list[str]) -> str:
    return "".join(record + "\n" for record in records)


def csv_text(delimiter: str) -> str:
    rows = [["review_id", "star_rating", "review_headline", "review_body"]]
    rows += [["R1", str(stars), title, text] for text, title, stars in REVIEWS]
    return lines(
        [delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    )
