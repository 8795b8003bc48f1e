"""The texts on which two engines must agree before the faster one may be used.

Chosen so that a wrong decision becomes visible in the tokens: where a character's class (letter, digit,
blank, other) is taken differently, a piece boundary moves, and that shows only if tokens span the boundary.
So each code point stands where its class decides about its neighbours: after two blanks and before digits,
and between letters and before "'ms", which is one contraction and a letter after a letter, else a word.
Deterministic; about 20 million characters; generated, never held.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import chain, product

from tokenization_worker.tokenizers.delimiter import special_contexts

_BLANKS = (" ", "\n", "\r", "\t", "\u00a0", "\u3000", "\u2028", "\x0b", "\x85", "\x1c")
_SUFFIXES = (
    *("s", "t", "re", "ve", "m", "ll", "d", "S", "T", "RE", "Ve", "M", "lL", "D", "x", "1", "'s"),
    # letters and ligatures that fold to s, k, ss, st, t
    *("\u017f", "\u017fe", "\u212a", "\u00df", "\ufb05", "\ufb06", "\u1e97"),
)
_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz ABCDE'",
    "aA1 \n\t\r'’.,!/-\u017f\u212a",
    "".join(map(chr, range(0x20, 0x250))),
    "".join(map(chr, range(0x250, 0x2000))),
    "".join(map(chr, chain(range(0x2000, 0x2C00), range(0x3000, 0x3400)))),
    "".join(map(chr, chain(range(0x4E00, 0x9FFF, 7), range(0xAC00, 0xD7A0, 11)))),
    "".join(map(chr, chain(range(0x1F300, 0x1FB00), (0x200D, 0xFE0F, 0x20, 0x41)))),
    "".join(map(chr, chain(range(0x300, 0x370), range(0x41, 0x7B), (0x20, 0x27, 0x0A)))),
)
_SEED = 20261121


def make_texts(special_tokens: Iterable[str], vocabulary: Iterable[str]) -> Iterator[str]:
    """All texts of the check; `vocabulary` is the text of every token."""
    yield ""
    yield from special_texts(special_tokens)
    yield from contraction_texts()
    yield from mixed_blank_texts()
    yield from _long_runs()
    yield from random_texts()
    yield from vocabulary_texts(vocabulary)
    yield from code_point_texts()


def code_point_texts() -> Iterator[str]:
    """Every code point that a text can hold, in both contexts, 128 to a text."""
    for start in range(0, 0x110000, 128):
        if not 0xD800 <= start < 0xE000:
            yield "".join(map(show_code_point, map(chr, range(start, start + 128))))


def show_code_point(c: str) -> str:
    """One character in both contexts."""
    return f"  {c}1234 A{c}a{c}'ms"


def special_texts(special_tokens: Iterable[str]) -> Iterator[str]:
    """The text of each special token in its places."""
    for token in special_tokens:
        yield from special_contexts(token)


def contraction_texts() -> Iterator[str]:
    """Apostrophes, what follows them, and what stands beside."""
    befores = ("", "a", "A", " I", " ", "1", "\n", "!", "é", "漢")
    afters = ("", "a", "Z", " b", "1", "\n", "'s", "'So", "'ms")
    for before, quote, suffix, after in product(befores, "'’ʼ", _SUFFIXES, afters):
        yield f"{before}{quote}{suffix}{after}"


def mixed_blank_texts() -> Iterator[str]:
    """Up to three blanks of every kind."""
    for length in (1, 2, 3):
        for blanks in map("".join, product(_BLANKS, repeat=length)):
            yield f"a{blanks}b{blanks}1{blanks}.{blanks}"


def _long_runs() -> Iterator[str]:
    for unit in (" ", "\n", "\t", "\r\n", "\u00a0", "a", "A", "é", "1", "!", "=", "漢", " \n", "ab ", "'s", "\u0301"):
        yield "".join([f"x{unit * n}" for n in range(1, 130)])
        yield f"x{unit * (20_000 // len(unit))}y"
    for unit in " \na1漢":
        yield f"x{unit * 120_001}y"


def random_texts() -> Iterator[str]:
    """Short texts drawn with a fixed seed, each of one alphabet or of all."""
    rng = random.Random(_SEED)
    for _ in range(300):
        for alphabet in _ALPHABETS:
            yield "".join(rng.choices(alphabet, k=rng.randrange(1, 200)))
        yield "".join(rng.choice(rng.choice(_ALPHABETS)) for _ in range(100))


def vocabulary_texts(vocabulary: Iterable[str]) -> Iterator[str]:
    """Every token beside its neighbours by id, and beside others drawn with a fixed seed."""
    tokens = list(vocabulary)
    shuffled = tokens.copy()
    random.Random(_SEED).shuffle(shuffled)
    for order, joiner in ((tokens, " "), (shuffled, "")):
        for start in range(0, len(order), 1000):
            yield joiner.join(order[start : start + 1000])
