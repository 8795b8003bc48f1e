"""Pieces of a model are renamed; everything else in its file stays."""

from __future__ import annotations

import io

import pytest
import sentencepiece

from tokenization_worker.training.sentencepiece_models.model_file import rename_pieces

TEXTS = ["the quick brown fox", "jumps over the lazy dog"] * 30


@pytest.fixture(scope="module")
def model() -> bytes:
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=file, vocab_size=40, model_type="bpe", minloglevel=3
    )
    return file.getvalue()


def pieces_of(model: bytes) -> list[tuple[str, float, bool]]:
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(library.get_piece_size())
    return [(library.id_to_piece(each), library.get_score(each), library.is_control(each)) for each in ids]


def test_nothing_to_rename_changes_nothing(model: bytes) -> None:
    assert rename_pieces(model, {}) == rename_pieces(model, {b"\xf4\x8f\xbf\xbd": b"\t"}) == model


@pytest.mark.parametrize("name", ["\t", "\u2585", "x" * 300])
def test_a_letter_gets_a_name_of_any_length(name: str, model: bytes) -> None:
    renamed = rename_pieces(model, {b"o": name.encode()})
    expected = [(piece.replace("o", name), score, control) for piece, score, control in pieces_of(model)]
    assert pieces_of(renamed) == expected
    assert rename_pieces(renamed, {name.encode(): b"o"}) == model


@pytest.mark.parametrize("size", [1, 2, 5, 400])
def test_a_file_that_is_cut_is_refused(size: int, model: bytes) -> None:
    with pytest.raises(ValueError, match="a model ends within"):
        rename_pieces(model[:size], {b"o": b"0"})


def test_a_file_of_other_fields_is_refused() -> None:
    with pytest.raises(ValueError, match="wire type 0"):
        rename_pieces(b"\x08\x01", {b"o": b"0"})
    with pytest.raises(ValueError, match="does not begin with its text"):
        rename_pieces(b"\x0a\x03\x10\x6f\x01", {b"o": b"0"})
