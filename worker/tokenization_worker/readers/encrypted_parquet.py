"""Says of a Parquet file that it is encrypted. tokjob has no keys; files whose text is not encrypted are read."""

from __future__ import annotations

from tokenization_worker.readers.document_batch import WHAT_TO_DO, CorruptFileError, FileOutcome

ENCRYPTED_MAGIC = b"PARE"
"""Of a file whose footer is encrypted, too."""


def encrypted_file(what: str) -> CorruptFileError:
    """The error of a file of which `what` is encrypted."""
    step = "write the file again without encryption, with a program that has its keys"
    return CorruptFileError(FileOutcome.CORRUPT_FILE, None, f"Parquet: {what} is encrypted{WHAT_TO_DO}{step}")


def is_about_keys(error: Exception) -> bool:
    """Whether pyarrow's error is that of a missing key."""
    return "decrypt" in str(error)
