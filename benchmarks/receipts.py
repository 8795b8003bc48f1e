"""What a driver pays for its receipts: 100,000 of them to bytes and back, half of ranges and half of shards.

    python benchmarks/receipts.py [COUNT]

CPU seconds of this process; bytes that a receipt takes in memory, by tracemalloc, in a second pass. Run it with
`PYTHONPATH=OTHER/worker` to measure the code of another checkout, which must have the same fields.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc

from tokenization_worker.output.ledger.receipts import RangeReceipt, ShardReceipt, SliceResult, Span
from tokenization_worker.output.record import dump_record, load_record

COUNT = 100_000
VERSIONS = "orjson 3.13.0, tiktoken 0.14.0"


def range_receipt(number: int) -> RangeReceipt:
    digest = f"{number:032x}"
    slices = tuple(
        SliceResult(2 * number + part, "Read", "", (1000,), (7,), 8, {"InvalidJson": 1}, digest, (), 900, 10)
        for part in range(2)
    )
    sums = (99, digest, 1, 2, 10, 0)
    return RangeReceipt("plan" * 8, 0, number, slices, digest, *sums, "reference", "node", 1, 0.5, VERSIONS)


def shard_receipt(number: int) -> ShardReceipt:
    digest = f"{number:064x}"
    spans = tuple(Span(number + part, 0, 0, 5) for part in range(3))
    path, version = f"train/train_{number:06d}.npy", f"1528-{number}"
    place = (number, -1, path, 700, 7, 1528, number)
    return ShardReceipt("plan" * 8, 0, "train", *place, digest, digest, version, spans, "node", 1, 0.5)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    receipts = [make(number) for number in range(count // 2) for make in (range_receipt, shard_receipt)]
    kinds = [type(receipt) for receipt in receipts]
    gc.disable()  # as while a ledger is read
    start_s = time.process_time()
    records = [dump_record(receipt.to_dict()) for receipt in receipts]
    encoded_s = time.process_time() - start_s
    del receipts
    start_s = time.process_time()
    found = [kind.from_dict(load_record(data)) for kind, data in zip(kinds, records, strict=True)]
    decoded_s = time.process_time() - start_s
    del found
    tracemalloc.start()
    found = [kind.from_dict(load_record(data)) for kind, data in zip(kinds, records, strict=True)]
    size, _ = tracemalloc.get_traced_memory()
    print(f"to bytes {encoded_s:.2f} s, back {decoded_s:.2f} s, {size / len(found):,.0f} bytes a receipt")


if __name__ == "__main__":
    main()
