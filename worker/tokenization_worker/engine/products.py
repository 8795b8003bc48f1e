"""Tracks scratch products: which exist, which tasks need them, which must be made again. Pure; for any pipeline.

An **item** is a unit of work, known by a key that its pipeline chooses. Its product may be scratch, which other items
need and which is deleted afterwards, or durable, which is not kept track of here. Items form levels: a result may need
a merged object, which needs its parts. A product that is lost is made again, and so is what that needs, through any
number of levels; until then nothing of it is deleted.

An item may be added before its needs have been made, where the items that make them are added, too: it waits for them.
In which order items are done is left to the pipeline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from tokenization_worker.errors import TemporaryError
from tokenization_worker.storage.reserved import OWN

MAX_LOSSES = 3
"""A product that is lost so often before it is used is not lost by chance.

Each use starts the count anew, because a concurrent run may delete a product after each use of its own. A run still
ends: it uses each product a limited number of times for each durable item.
"""

K = TypeVar("K", bound=Hashable)


class Products(Generic[K]):
    """The products of a run.

    `there`: products that exist. `needs_of`: the products that an item reads, each once. `is_final`: whether every item
    that needs a product has been added. `lost_reason`: of the error of a run that loses one product time and again.
    `words_of`: a product in a message.
    """

    def __init__(
        self,
        there: Iterable[K],
        *,
        needs_of: Callable[[K], Iterable[K]],
        is_final: Callable[[K], bool],
        lost_reason: str,
        words_of: Callable[[K], str] = str,
    ) -> None:
        self._there = set(there)
        self._needs_of = needs_of
        self._is_final = is_final
        self._lost_reason = lost_reason
        self._words_of = words_of
        self._needs: dict[K, tuple[K, ...]] = {}  # of items that are added, or made again, and not done
        self._uses: dict[K, int] = {}  # by product: items that are not done and need it
        self._waiting: dict[K, list[K]] = {}  # items by a product that they wait for
        self._remade: set[K] = set()
        self._again: deque[K] = deque()  # those of them that nobody has begun
        self._releasable: deque[K] = deque()
        self._losses: dict[K, int] = {}  # by product: how often it was lost since something was last made of it
        self._lost_at: dict[K, int] = {}  # by product: which of all losses its last one was
        self._n_losses = 0
        self._begun_at: dict[K, int] = {}  # by begun item: all losses until then

    @property
    def there(self) -> frozenset[K]:
        """The products that exist."""
        return frozenset(self._there)

    def add(self, item: K) -> None:
        """Take note of an item that is to be done: its needs stay until then."""
        needs = self._needs[item] = tuple(self._needs_of(item))
        for product in needs:
            self._uses[product] = self._uses.get(product, 0) + 1

    def begin(self, item: K) -> bool:
        """Whether an item can begin now.

        If not, it waits: what is missing is made again, or for the first time where it is yet to be. Then `done` names
        the item, or `next_again` does if it is made again itself.
        """
        missing = self._make_missing_again(item)
        if missing:
            self._waiting.setdefault(missing[0], []).append(item)
            return False
        self._begun_at[item] = self._n_losses
        return True

    def make_again(self, item: K) -> None:
        """Have an item done once more, with all that it needs; one that is yet to be done is so anyway."""
        if item not in self._needs:
            self._remade.add(item)
            self.add(item)
            self._again.append(item)
            self._make_missing_again(item)

    def _make_missing_again(self, item: K) -> list[K]:
        """Have all made again that an item needs and that is gone: now, so that nothing of what they need in turn is
        deleted first. Returns it."""
        missing = [product for product in self._needs.get(item, ()) if product not in self._there]
        for product in missing:
            self.make_again(product)
        return missing

    def next_again(self) -> K | None:
        """An item that must be done again and can begin now; it has begun then."""
        while self._again:
            item = self._again.popleft()
            if self.begin(item):
                return item
        return None

    def is_made_again(self, item: K) -> bool:
        return item in self._remade

    @property
    def is_any_made_again(self) -> bool:
        return bool(self._remade)

    def put_back(self, item: K) -> None:
        """An item that was made again did not come to its end: it is the next one to be made again."""
        self._again.appendleft(item)

    def done(self, item: K, *, is_scratch: bool, is_use: bool = True) -> list[K]:
        """An item is done; returns the items that waited for its product and may try to begin. `is_use`: the item has
        read what it needs; otherwise it stands for these products, and `used` says when they were read.
        """
        if is_scratch:
            self._there.add(item)
        self._begun_at.pop(item, None)
        for product in self._needs.pop(item, ()):
            if is_use:
                self._losses.pop(product, None)
            self._uses[product] -= 1
            if not self._uses[product]:
                del self._uses[product]
                self._release(product)
        self._remade.discard(item)
        if is_scratch:  # nobody may need it: it was made again for the sake of what belongs to it, say
            self._release(item)
        waiting = self._waiting.pop(item, [])
        self._again.extendleft(other for other in reversed(waiting) if other in self._remade)
        return [other for other in waiting if other not in self._remade]

    def lost(self, product: K, item: K, detail: str) -> bool:
        """A begun item has found a product missing or torn; the item is not done. Whether that is news.

        Several items that were under way may find the same loss. Raises `TemporaryError` when one product is
        lost time and again.
        """
        if self._lost_at.get(product, 0) > self._begun_at[item]:
            return False
        self._n_losses += 1
        self._lost_at[product] = self._n_losses
        self._losses[product] = self._losses.get(product, 0) + 1
        if self._losses[product] >= MAX_LOSSES:
            raise TemporaryError(
                self._lost_reason,
                f"{self._words_of(product)} was lost {MAX_LOSSES} times: {detail}",
                next_step=f"check the disk, and check whether another program deletes files below {OWN}",
            )
        self._there.discard(product)
        self.make_again(product)
        return True

    def release(self, products: Iterable[K]) -> None:
        """Everything that needs these has been added: those that nobody needs may go."""
        for product in products:
            self._release(product)

    def _release(self, product: K) -> None:
        if product not in self._uses and self._is_final(product):
            self._releasable.append(product)

    def take_releasable(self, most: int | None = None) -> tuple[K, ...]:
        """Products that are there and nobody needs, each once: the caller deletes them. At most `most`."""
        taken: list[K] = []
        while self._releasable and (most is None or len(taken) < most):
            product = self._releasable.popleft()
            if product in self._there and product not in self._uses:
                self._there.discard(product)
                taken.append(product)
        return tuple(taken)

    def used(self, is_used: Callable[[K], bool]) -> None:
        """Products for which `is_used` holds were read."""
        for product in [product for product in self._losses if is_used(product)]:
            del self._losses[product]

    def gone(self, product: K) -> None:
        """A product is not there any more; what needs it finds out when it begins."""
        self._there.discard(product)

    def give_back(self, products: Iterable[K]) -> None:
        """Nobody knows whether these were deleted. They are taken again: deleting twice does no harm."""
        for product in products:
            self._there.add(product)
            self._releasable.append(product)
