"""Splits texts into the sentences of NLTK's Punkt, trained on the dump, at many times its speed.

Punkt asks of every `.`, `?` or `!` before a space or a closing mark whether the word before and
the word after it are a break. Nearly always the word before decides alone: "it." breaks whatever
follows, unless "it" is an abbreviation, an initial, a number or the first of a collocation. So the
answer is remembered by that word, of which some ten thousand cover nearly all that ends a sentence,
and only the rest goes through NLTK. How candidates are found, which of them are skipped and how
closing quotes move to the sentence before are NLTK's rules, step by step (nltk/tokenize/punkt.py:
_match_potential_end_contexts, _slices_from_text, _realign_boundaries).
"""

import json
import re
from collections.abc import Iterable

from beam_jobs.job import storage
from beam_jobs.job.errors import UserError
from beam_jobs.text.punkt import PunktParameters, PunktSentenceTokenizer, PunktToken, PunktTrainer
from beam_jobs.text.punkt_rules import LanguageVars, PunktRules, normalize_token

CLOSING = "\"')]}\u2018\u2019\u201c\u201d\xab\xbb"
FOLLOWING = "]\"');:}*@({[?!\u2018\u2019\u201c\u201d\xab\xbb"
CANDIDATE = re.compile(f"[.?!](?=[{re.escape(FOLLOWING)}]| +[^ ])")
REALIGNED = re.compile(f"[{re.escape(CLOSING)}]+?(?: +|(?=--)|$)")
MARKS = frozenset(CLOSING)
PLAIN_WORD = re.compile(r"[A-Za-z]{2,}([.!?])")
MAX_REMEMBERED = 1 << 16


class Token(PunktToken):
    """NLTK's token with cached answers, with which Punkt trains in half the time."""

    def __init__(
        self, tok: str, parastart: bool | None = None, linestart: bool | None = None
    ) -> None:
        self.tok = tok
        self.type = normalize_token(tok)
        self.period_final = tok[-1:] == "."
        self.parastart, self.linestart = parastart, linestart
        self.sentbreak = self.abbr = self.ellipsis = None

    @property
    def is_ellipsis(self):
        return self.tok[:2] == ".." and PunktToken.is_ellipsis.fget(self)

    @property
    def is_initial(self):
        return self.tok[1:] == "." and PunktToken.is_initial.fget(self)


def train_punkt(texts: Iterable[str]) -> PunktParameters:
    """Train Punkt on texts, whose order decides which rare words count as abbreviations."""
    trainer = PunktTrainer(lang_vars=LanguageVars(), token_cls=Token)
    trainer.train("\n".join(texts), finalize=True)
    return trainer.get_params()


def encode_punkt(parameters: PunktParameters) -> str:
    """Encode parameters as JSON; the same parameters give the same bytes."""
    return json.dumps(
        {
            "abbrev_types": sorted(parameters.abbrev_types),
            "collocations": sorted(parameters.collocations),
            "sent_starters": sorted(parameters.sent_starters),
            "ortho_context": dict(sorted(parameters.ortho_context.items())),
        },
        ensure_ascii=False,
    )


def decode_punkt(text: str) -> PunktParameters:
    stored = json.loads(text)
    parameters = PunktParameters()
    parameters.abbrev_types = set(stored["abbrev_types"])
    parameters.collocations = {tuple(pair) for pair in stored["collocations"]}
    parameters.sent_starters = set(stored["sent_starters"])
    parameters.ortho_context.update(stored["ortho_context"])
    return parameters


def read_punkt(path: str) -> PunktParameters:
    """Read what `--punkt` names: punkt.json, the corpus it is in, or NLTK's published folder."""
    inside = storage.join_path(path, "punkt.json")
    if path.endswith(".json") or storage.exists(inside):
        file = path if path.endswith(".json") else inside
        try:
            return decode_punkt(storage.read_bytes(file).decode())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"--punkt {file}: not the punkt.json of a corpus ({error!r})") from None
    return read_punkt_tab(path)


def read_punkt_tab(folder: str) -> PunktParameters:
    """Read NLTK's published parameters from a folder such as …/tokenizers/punkt_tab/english.

    NLTK itself refuses symbolic links and folders outside its own data path.
    """
    names = ("abbrev_types.txt", "collocations.tab", "sent_starters.txt", "ortho_context.tab")
    if missing := [name for name in names if not storage.exists(storage.join_path(folder, name))]:
        raise UserError(f"--punkt {folder}: has no {', '.join(missing)}")
    texts = [storage.read_bytes(storage.join_path(folder, n)).decode().split("\n") for n in names]
    rows = [[line.split("\t") for line in lines if line] for lines in texts]
    parameters = PunktParameters()
    parameters.abbrev_types = {word for (word,) in rows[0]}
    parameters.collocations = {(first, second) for first, second in rows[1]}
    parameters.sent_starters = {word for (word,) in rows[2]}
    parameters.ortho_context.update({word: int(flags) for word, flags in rows[3]})
    return parameters


class SentenceSplitter:
    """Splits as `PunktSentenceTokenizer(parameters).tokenize(text)` does."""

    def __init__(self, parameters: PunktParameters) -> None:
        self._punkt = PunktSentenceTokenizer(parameters, lang_vars=LanguageVars(), token_cls=Token)
        self._rules = PunktRules(parameters)
        self._breaks_alone: dict[str, bool] = {}
        self._breaks: dict[str, bool] = {}

    def split(self, text: str) -> list[str]:
        if (
            not text.isprintable()
        ):  # white space other than " ", and characters that regular expressions disagree on
            return self._punkt.tokenize(text)
        starts, stops = self._find_slices(text)
        if stops[-1] <= starts[-1] or not MARKS.isdisjoint(map(text.__getitem__, starts[1:])):
            return realign_closing_marks(text, starts, stops)
        return [text[start:stop] for start, stop in zip(starts, stops, strict=True)]

    def _find_slices(self, text: str) -> tuple[list[int], list[int]]:
        """Find the sentences before closing marks are moved, as NLTK's _slices_from_text does."""
        starts, stops = [0], []
        start, stop = (
            0,
            -1,
        )  # of the word before the candidate that waits for its decision; stop is the candidate
        breaks_alone = self._breaks_alone.get
        for here in [match.start() for match in CANDIDATE.finditer(text)]:
            space = text.rfind(" ", stop + 1, here) if stop >= 0 else text.rfind(" ", 1, here)
            word = space + 1 if space >= 0 else start
            if 0 <= stop <= word and (
                (text[stop + 1] == " " and breaks_alone(text[start : stop + 1]))
                or self._is_break(text, start, stop)
            ):
                stops.append(stop + 1)
                starts.append(find_sentence_start(text, stop))
            start, stop = word, here
        if stop >= 0 and self._is_break(text, start, stop):
            stops.append(stop + 1)
            starts.append(find_sentence_start(text, stop))
        stops.append(len(text.rstrip(" ")))
        return starts, stops

    def _is_break(self, text: str, start: int, stop: int) -> bool:
        word = text[start : stop + 1]
        if text[stop + 1] != " ":
            return self.is_break_in(word + text[stop + 1])
        return self.is_break_alone(word) or self.is_break_in(
            word + text[stop + 1 : find_next_word_end(text, stop + 1)]
        )

    def is_break_alone(self, word: str) -> bool:
        """Return whether Punkt surely breaks after `word` and a space, whatever follows."""
        answer = self._breaks_alone.get(word)
        if answer is None:
            answer = self._remember_answer(self._breaks_alone, word, self._decide_alone(word))
        return answer

    def is_break_in(self, context: str) -> bool:
        """Return whether Punkt breaks within a word and what follows it."""
        answer = self._breaks.get(context)
        if answer is None:
            answer = self._remember_answer(self._breaks, context, self._rules.has_break(context))
        return answer

    def _remember_answer(self, memory: dict[str, bool], key: str, answer: bool) -> bool:
        if len(memory) >= MAX_REMEMBERED:
            memory.clear()
        memory[key] = answer
        return answer

    def _decide_alone(self, word: str) -> bool:
        plain = PLAIN_WORD.fullmatch(word)
        if plain:
            return plain[1] != "." or self._rules.is_plain_end(word[:-1].lower())
        return self._rules.breaks_alone(word)


def find_sentence_start(text: str, stop: int) -> int:
    """Return where the next sentence begins: after the spaces, or at the mark that follows."""
    begin = stop + 1
    if text[begin] == " ":
        begin += 1
        while text[begin] == " ":
            begin += 1
    return begin


def find_next_word_end(text: str, spaces: int) -> int:
    """Return where the word after the spaces that begin at `spaces` ends."""
    begin = spaces
    while text[begin] == " ":
        begin += 1
    end = text.find(" ", begin)
    return len(text) if end < 0 else end


def realign_closing_marks(text: str, starts: list[int], stops: list[int]) -> list[str]:
    """Move closing marks at the beginning of a sentence to the one before.

    This is NLTK's _realign_boundaries.
    """
    sentences, moved = [], 0
    for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        start += moved
        moved = 0
        if i + 1 < len(starts):
            next_start, next_stop = starts[i + 1], stops[i + 1]
            if text[next_start : next_start + 1] in CLOSING:
                match = REALIGNED.match(text[next_start:next_stop])
                if match:  # an empty slice is "in" every string, and does not match
                    sentences.append(text[start : next_start + len(match[0].rstrip(" "))])
                    moved = match.end()
                    continue
        if stop > start:
            sentences.append(text[start:stop])
    return sentences
