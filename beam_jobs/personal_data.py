"""E-mail addresses and telephone numbers in texts become marks; names and ids of reviewers are never written at all.

Numbers are masked if they have the form of a telephone number, or if the text says that they are one: ten bare digits
may be the ISBN that a book review is about.
"""

import re

EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,4}\.[A-Za-z]{2,24}\b")
PHONE = re.compile(
    r"""(?<![\w$.,/-])(?:
        (?:\+?1[-. ]?)?(?:\([0-9]{3}\)[ ]?|[0-9]{3}[-. ])[0-9]{3}[-. ][0-9]{4}  # (555) 123-4567, 1-800-555-1234
        |\+[0-9]{1,3}(?:[-. ]?\(?[0-9]{2,4}\)?){2,5}                            # +44 20 7946 0958
        )(?![\w-])
    |(?i:(?<=\bcall)|(?<=\bphone)|(?<=\btel)|(?<=\bfax)|(?<=\bcell)|(?<=\bnumber))
        [ :.#]{1,3}(?:(?:is|us|at|me)[ :]{1,2}){0,2}(?:[0-9]{3}[-. ]?)?[0-9]{3}[-. ]?[0-9]{4}(?![\w-])""",
    re.VERBOSE,
)
COUNTRY_CODE = re.compile(r"\+[0-9]")
DIGITS = b"0123456789"
# In nearly all of them; digits one by one, for the engine skips to the first only if no repetition begins the pattern.
MAYBE_PHONE = re.compile("[0-9][0-9][0-9][-. ]?[0-9][0-9][0-9][0-9]")
FEWEST_DIGITS = 7  # of a telephone number: most texts have fewer, and to count them costs a tenth of a search


def mask(text: str) -> tuple[str, int, int]:
    """The text with marks, the number of addresses and of telephone numbers masked."""
    emails = phones = 0
    if "@" in text:
        text, emails = EMAIL.subn("[email]", text)
    raw = text.encode()
    if len(raw) - len(raw.translate(None, DIGITS)) >= FEWEST_DIGITS and (
        MAYBE_PHONE.search(text) or ("+" in text and COUNTRY_CODE.search(text))
    ):
        text, phones = PHONE.subn(_phone, text)
    return text, emails, phones


def _phone(match: re.Match[str]) -> str:
    return " [phone]" if match[0][0] in " :.#" else "[phone]"
