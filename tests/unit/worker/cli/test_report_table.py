"""The table of a training's report: its lines, marks and widths."""

from __future__ import annotations

import pytest

from tokenization_worker.cli.training_report import WIDTH, report_lines
from tokenization_worker.output.training_report import TrainingReport, make_report
from tokenization_worker.training.fertility import Cell, Fertility, MeasuredHoldout, measure_holdout

NOTHING = measure_holdout([]).numbers


def report(cells: list[Cell], *tokenizers: Fertility) -> TrainingReport:
    return make_report(MeasuredHoldout(tuple(cells), (), NOTHING), 100_000_000, tokenizers)


def fertility(name: str, size: int, *tokens: int) -> Fertility:
    return Fertility(name, size, "f" * 64, tokens, size // 9, size // 3)


CELLS = [
    Cell("code", "Latin", 90, 8_000_000, 1_000_000),
    Cell("web", "Cyrillic", 5, 1_000_000, 100_000),
    Cell("web", "Han", 5, 1_000_000, None),
]


LEGEND = "<- N x: N times the tokens a word of all text; of several tokenizers side by side the highest"

TABLE = """\
holdout    100 documents, 10 MB of text, held out of the training

                             32000  o200k_base
tokens in the vocabulary    32,000     200,019
bytes a token                 3.70        3.92
tokens a word                 2.09        2.09
tokens of the whole source  ~27.0M      ~25.5M
ids never used               3,555      22,224
ids used under 100 times    10,666      66,673
embedding at width 2,048     65.5M        410M
embedding at width 4,096      131M        819M
embedding at width 8,192      262M        1.6B
embedding: parameters of one matrix, the vocabulary times the width of the model
ids: those that text can become; special tokens are left out

                               32000        o200k_base
by group  share of    bytes   tokens    bytes   tokens
             bytes  a token   a word  a token   a word
code          80 %     4.00     2.00     4.00     2.00
web           20 %     2.86     3.00     3.64     2.99
all text     100 %     3.70     2.09     3.92     2.09

                                32000        o200k_base
by script  share of    bytes   tokens    bytes   tokens
              bytes  a token   a word  a token   a word
Latin          80 %     4.00     2.00     4.00     2.00
Cyrillic       10 %     3.33     3.00     3.34     2.99
Han            10 %     2.50        -     4.00        -
all text      100 %     3.70     2.09     3.92     2.09"""


def test_all_lines_of_two_tokenizers() -> None:
    found = report(
        CELLS,
        fertility("32000/tokenizer.json", 32_000, 2_000_000, 300_000, 400_000),
        fertility("o200k_base", 200_019, 2_000_000, 299_000, 250_000),
    )
    assert report_lines(found) == TABLE.split("\n")


def test_a_row_is_marked_from_one_and_a_half_times_on_with_the_highest_of_the_tokenizers() -> None:
    """All text has 2 tokens a word with each: 3 of a row are marked, 2.99 are not."""
    cells = [Cell("", "Latin", 1, 4_000, 1_000), Cell("", "Greek", 1, 400, 100)]
    mild, hard = fertility("mild", 300, 1_901, 299), fertility("hard", 300, 1_900, 300)
    harder = fertility("harder", 300, 1_400, 800)

    def marked(*tokenizers: Fertility) -> list[str]:
        return [
            line.split()[0] + line.partition("<-")[2]
            for line in report_lines(report(cells, *tokenizers))
            if "<-" in line
        ]

    assert marked(mild) == []
    assert marked(hard) == [
        "Greek 1.5 x",
        "<- N x: N times the tokens a word of all text; of several tokenizers side by side the highest",
    ]
    assert marked(mild, harder, hard)[0] == "Greek 4.0 x"


@pytest.mark.parametrize("count", [1, 3, 8])
def test_lines_fit_the_width_and_each_tokenizer_stands_once_in_each_table(count: int) -> None:
    cells = [
        Cell("a_very_long_name_of_a_group", "Canadian_Aboriginal", 1, 1_000, 10),
        Cell("web", "Latin", 9, 9_000, 2_000),
    ]
    names = [f"hf:organisation/model-{number}" for number in range(count)]
    lines = report_lines(report(cells, *(fertility(name, 1_048_576, 9_000, 3_000) for name in names)))
    assert max(map(len, lines)) <= WIDTH
    headings = [word for line in lines for word in line.split() if word.startswith("...")]
    assert sorted(headings) == sorted(f"...sation/model-{number}" for number in range(count) for _ in range(3))
    assert any(line.startswith("a_very_long_name_of...") and "<- 1" in line for line in lines)
    assert any(line.startswith("Canadian Aboriginal ") for line in lines)


@pytest.mark.parametrize("suffix", ["json", "model"])
def test_eight_sizes_of_a_training_stand_side_by_side(suffix: str) -> None:
    sizes = [4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000]
    lines = report_lines(
        report(CELLS, *(fertility(f"{size}/tokenizer.{suffix}", size, 2_000_000, 300_000, 1) for size in sizes))
    )
    assert lines[2].split() == [str(size) for size in sizes]


def test_text_of_nothing_is_shown_without_numbers() -> None:
    lines = report_lines(report([Cell("", "Other", 1, 0, None)], fertility("t", 300, 0)))
    assert lines[-2].split() == ["Other", "-", "-", "-"]
