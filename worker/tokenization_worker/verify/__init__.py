"""Proof of a dataset from its bytes and its source: `tokenization_worker.verify.verify.verify`.

The public API has a function of this package's name. Which of the two `from tokenization_worker import verify`
finds depends on what was imported before, so the package can be called like the function.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, uri: str, **options: Any) -> Any:
        from tokenization_worker.verify.verify import verify

        return verify(uri, **options)


sys.modules[__name__].__class__ = _CallablePackage
