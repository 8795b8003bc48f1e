"""The report of a training as a table: tokenizers side by side, then the text of each group and each script.

All lines fit `WIDTH` columns: tokenizers that do not fit beside each other come in a table below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tokenization_worker.cli.escapes import printable
from tokenization_worker.cli.numbers import counted, short_bytes, short_count, short_share
from tokenization_worker.output.training_report import WIDTHS, TokenizerFacts, TrainingReport
from tokenization_worker.training.fertility import SELDOM, Cell

WIDTH = 100

_HARD = Fraction(3, 2)
"""So many times the tokens a word of all text: a row of such text is marked."""

_FILE = re.compile(r"/tokenizer\.(json|model)$")
_LONGEST_HEADING = 17
_LONGEST_LABEL = 22
_NUMBER = 9  # the width of a column of a group or script, with the gap before it
_SHARE = 10
_MARK = len("  <- 10.0 x")
_GAP = 2

_ALL_TEXT = "all text"
_LEGEND = (
    "embedding: parameters of one matrix, the vocabulary times the width of the model",
    "ids: those that text can become; special tokens are left out",
)
_MARK_LEGEND = "<- N x: N times the tokens a word of all text; of several tokenizers side by side the highest"


@dataclass(frozen=True, slots=True)
class Row:
    """The text of one group, one script, or all of it. `tokens`: of each tokenizer. `words` and `word_tokens`: of the
    text with spaces between words alone.
    """

    label: str
    bytes: int
    tokens: tuple[int, ...]
    words: int
    word_tokens: tuple[int, ...]

    def tokens_a_word(self, tokenizer: int) -> Fraction | None:
        """None where no word is known."""
        return Fraction(self.word_tokens[tokenizer], self.words) if self.words else None


def report_lines(report: TrainingReport) -> list[str]:
    """The table, in ASCII but for names."""
    facts, total = report.tokenizers, _sum_up(report, _ALL_TEXT, range(len(report.cells)))
    headings = [_shorten_name(_FILE.sub("", printable(each.name))) for each in facts]
    held_out = counted(report.holdout.documents, "document")
    lines = [f"holdout    {held_out}, {short_bytes(report.holdout.bytes)} of text, held out of the training", ""]
    lines += [*_overview(headings, facts, total), *_LEGEND]
    is_marked = False
    for title, rows in _tables(report):
        lines += ["", *_breakdown(title, headings, rows, total)]
        is_marked = is_marked or any(_mark(row, total, range(len(facts))) for row in rows)
    return [*lines, "", _MARK_LEGEND] if is_marked else lines


def _tables(report: TrainingReport) -> Iterator[tuple[str, list[Row]]]:
    if any(cell.group for cell in report.cells):
        yield "by group", _rows(report, lambda cell: printable(cell.group or "no group"))
    yield "by script", _rows(report, lambda cell: cell.script.replace("_", " "))


def _rows(report: TrainingReport, label_of: Callable[[Cell], str]) -> list[Row]:
    """A row for each label, those of the most text first."""
    members: dict[str, list[int]] = {}
    for number, cell in enumerate(report.cells):
        members.setdefault(label_of(cell), []).append(number)
    rows = [_sum_up(report, label, numbers) for label, numbers in members.items()]
    return sorted(rows, key=lambda row: (-row.bytes, row.label))


def _sum_up(report: TrainingReport, label: str, numbers: Sequence[int]) -> Row:
    """The row of the cells with these numbers."""
    spaced = [number for number in numbers if report.cells[number].words is not None]
    return Row(
        label=label,
        bytes=sum(report.cells[number].bytes for number in numbers),
        tokens=tuple(sum(each.tokens[number] for number in numbers) for each in report.tokenizers),
        words=sum(report.cells[number].words or 0 for number in spaced),
        word_tokens=tuple(sum(each.tokens[number] for number in spaced) for each in report.tokenizers),
    )


def _overview(headings: Sequence[str], facts: Sequence[TokenizerFacts], total: Row) -> list[str]:
    labels = [
        "",
        "tokens in the vocabulary",
        "bytes a token",
        "tokens a word",
        "tokens of the whole source",
        "ids never used",
        f"ids used under {SELDOM} times",
        *(f"embedding at width {width:,}" for width in WIDTHS),
    ]
    columns = [
        [
            heading,
            f"{each.vocabulary_size:,}",
            _ratio(total.bytes, total.tokens[number]),
            _ratio(total.word_tokens[number], total.words),
            f"~{short_count(each.source_tokens)}",
            f"{each.never_used:,}",
            f"{each.under_100:,}",
            *(short_count(each.embedding[str(width)]) for width in WIDTHS),
        ]
        for number, (heading, each) in enumerate(zip(headings, facts, strict=True))
    ]
    return list(
        _side_by_side(_pad(labels), [_align(column) for column in columns], lambda _: [""] * len(labels), WIDTH)
    )


def _breakdown(title: str, headings: Sequence[str], rows: Sequence[Row], total: Row) -> Iterator[str]:
    rows = [*rows, total]
    labels = _pad(["", title, "", *(_shorten_label(row.label) for row in rows)])
    shares = ["", "share of", "bytes", *(short_share(row.bytes / total.bytes) if total.bytes else "-" for row in rows)]
    left = [f"{label}{share:>{_SHARE}}" for label, share in zip(labels, shares, strict=True)]
    columns = [
        [
            f"{heading:>{2 * _NUMBER}}",
            *(f"{one:>{_NUMBER}}{two:>{_NUMBER}}" for one, two in (("bytes", "tokens"), ("a token", "a word"))),
            *(
                f"{_ratio(row.bytes, row.tokens[number]):>{_NUMBER}}"
                f"{_ratio(row.word_tokens[number], row.words):>{_NUMBER}}"
                for row in rows
            ),
        ]
        for number, heading in enumerate(headings)
    ]

    def marks(shown: range) -> list[str]:
        return ["", "", "", *(_mark(row, total, shown) for row in rows)]

    return _side_by_side(left, columns, marks, WIDTH - _MARK)


def _mark(row: Row, total: Row, shown: Iterable[int]) -> str:
    """How much more tokens a word a row takes than all text, where that is much, with the worst of these tokenizers."""
    times = [
        mine / all_text
        for number in shown
        if (mine := row.tokens_a_word(number)) is not None and (all_text := total.tokens_a_word(number))
    ]
    worst = max(times, default=Fraction(0))
    return f"  <- {float(worst):.1f} x" if worst >= _HARD else ""


def _side_by_side(
    left: Sequence[str], columns: Sequence[Sequence[str]], right: Callable[[range], Sequence[str]], room: int
) -> Iterator[str]:
    """Lines of `left`, as many columns as fit `room`, and `right` of these; the other columns below, likewise."""
    for shown in _fitting([len(column[0]) for column in columns], room - len(left[0])):
        if shown.start:
            yield ""
        for number, (start, end) in enumerate(zip(left, right(shown), strict=True)):
            yield f"{start}{''.join(columns[each][number] for each in shown)}{end}".rstrip()


def _fitting(widths: Sequence[int], room: int) -> Iterator[range]:
    """The numbers of neighbouring columns that fit `room` together; one of them at least."""
    first = used = 0
    for number, width in enumerate(widths):
        if number > first and used + width > room:
            yield range(first, number)
            first, used = number, 0
        used += width
    yield range(first, len(widths))


def _pad(texts: Sequence[str]) -> list[str]:
    width = max(map(len, texts))
    return [text.ljust(width) for text in texts]


def _align(texts: Sequence[str]) -> list[str]:
    width = max(map(len, texts)) + _GAP
    return [text.rjust(width) for text in texts]


def _ratio(number: int, of: int) -> str:
    return f"{number / of:.2f}" if of else "-"


def _shorten_name(text: str) -> str:
    """The end of a long name of a tokenizer, which tells files with one beginning apart."""
    return text if len(text) <= _LONGEST_HEADING else f"...{text[3 - _LONGEST_HEADING :]}"


def _shorten_label(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 3]}..."
