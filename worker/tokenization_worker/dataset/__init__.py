"""Reading a finished dataset: tokens by number, shards as arrays, and where a token comes from.

Imports `output`, `formats`, `tokenizers`, `storage` and below. Open `dataset` first.
"""

from tokenization_worker.dataset.dataset import Dataset, DocumentPlace, SplitUnknown, TokenIsPadding, open_dataset
from tokenization_worker.dataset.groups import GroupUnknown
from tokenization_worker.dataset.rows import Examples, Order, Rows
from tokenization_worker.dataset.split import Split

__all__ = [
    "Dataset",
    "DocumentPlace",
    "Examples",
    "GroupUnknown",
    "Order",
    "Rows",
    "Split",
    "SplitUnknown",
    "TokenIsPadding",
    "open_dataset",
]
