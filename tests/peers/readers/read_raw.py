"""`np.memmap` of a file without header."""

from __future__ import annotations

import numpy as np
from report import DTYPE, files, print_split

print_split(np.memmap(path, dtype=DTYPE, mode="r") for path in files(".bin"))
