"""The distorted inputs of each sample: every variant is made when it is first asked for, and kept.

A variant of a sample is always made in the same call of its distortion, together with all variants of that distortion for that
sample. So a variant that was dropped for want of memory comes back bit by bit as it was. On a device, where nothing has to be
dropped, that call distorts many samples at once.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.model import Access
from brinell.core.oracle import Batch, Oracle
from brinell.core.streams import Streams
from brinell.rlab.variants import Variant, distorted, vet

CLEAN = -1
"""The variant that is the clean input itself."""
TOGETHER = 2**26
"""Values of distorted inputs that a device makes in one call."""

Gradient = Callable[[Tensor], Tensor]
"""Rows (m,) of the cache to the gradients (m, *shape) of the loss at their clean inputs; its queries are counted where it is
computed."""


class DistortionCache:
    """Distorted inputs of a batch, made lazily and held within a bound of memory.

    Args:
        x: (n, *shape) clean inputs, within the bounds of `domain`. They are copied.
        domain: where inputs live.
        variants: what may be placed, from `rlab.variants.variants`.
        rng: a stream for each sample. Variants of one distortion and draw share their randomness over all severities.
        gradient: where distortions that declare access GRADIENTS get theirs from.
        memory: bytes that distorted inputs may take. There is room for all variants of one sample at least.

    Raises:
        RequestError: no variants, or one that needs gradients and none are given.
        ContractError: a distortion broke its contract on the first sample.
    """

    def __init__(
        self,
        x: Tensor,
        domain: Domain,
        variants: Sequence[Variant],
        rng: Streams,
        *,
        gradient: Gradient | None = None,
        memory: int = 2**30,
    ) -> None:
        if not variants:
            raise RequestError("no distortion is left to place: name at least one that fits the data")
        self.variants, self.domain, self._ask = tuple(variants), domain, gradient
        self._groups = [
            [number for number, candidate in enumerate(self.variants) if candidate.distortion is distortion]
            for distortion in {id(variant.distortion): variant.distortion for variant in self.variants}.values()
        ]
        self._group_of = torch.zeros(len(self.variants), dtype=torch.int64)
        for group, members in enumerate(self._groups):
            self._group_of[members] = group
        n, device = len(x), x.device
        self._rng, self._gradients = rng, dict[int, Tensor]()
        first = torch.zeros(1, dtype=torch.int64, device=device)
        looks = any(variant.distortion.access == Access.GRADIENTS for variant in self.variants)
        vet(self.variants, x[:1], rng.select(first), domain=domain, gradient=self._gradient_at(0) if looks else None)
        total = n * len(self.variants)
        self.capacity = min(total, max(len(self.variants), memory // (x[0].numel() * x.element_size())))
        """Distorted inputs that are held at once."""
        # The clean inputs come first and are never dropped, so a value is read from one place,
        # distorted or not.
        self._values = torch.empty(n + self.capacity, x[0].numel(), dtype=x.dtype, device=device)
        self._values[:n] = x.flatten(1)
        self._slot = torch.full((n, len(self.variants) + 1), -1, device=device)
        self._slot[:, CLEAN] = torch.arange(n, device=device)
        self._used = torch.zeros(n, len(self.variants), dtype=torch.int64, device=device)
        self._clock, self._crowded = 0, self.capacity < total
        self._free = list(range(n, n + self.capacity))
        self.made = 0
        """Distorted inputs made so far, again after they were dropped included."""

    def __len__(self) -> int:
        return len(self._slot)

    @property
    def x(self) -> Tensor:
        """(n, *shape): the clean inputs. A view; never write into it."""
        return self._values[: len(self)].view(len(self), *self.domain.shape)

    def values(self, rows: Tensor, variants: Tensor, places: Tensor, channels: int) -> Tensor:
        """Values of distorted inputs at chosen places.

        Args:
            rows: (m,) int64 samples.
            variants: (m, k) int64 variant at each place, CLEAN for none.
            places: (m, ..., k) int64 positions behind the channels, counted flat; (m, ..., 1) for the same in all k variants.
            channels: number of values at each place.

        Returns:
            (m, channels, ..., k).
        """
        slots = self._ready(rows, variants)
        if slots is None:
            halves = torch.arange(len(rows), device=rows.device).tensor_split(2)
            return torch.cat([self.values(rows[half], variants[half], places[half], channels) for half in halves])
        size = self._values.shape[1]
        offsets = torch.arange(channels, device=places.device) * (size // channels)
        index = places.contiguous()[:, None] + offsets.view(-1, *[1] * (places.ndim - 1))
        index = (slots * size).view(len(rows), *[1] * (index.ndim - 2), variants.shape[1]) + index
        # Several times as fast as by an index.
        return self._values.view(-1).index_select(0, index.reshape(-1)).view(index.shape)

    def inputs(self, rows: Tensor, variants: Tensor) -> Tensor:
        """(m, *shape): whole distorted inputs of rows (m,) and variants (m,)."""
        everywhere = torch.arange(self._values.shape[1], device=rows.device).expand(len(rows), -1)
        return self.values(rows, variants[:, None], everywhere, 1).view(len(rows), *self.domain.shape)

    def replace(self, rows: Tensor, x: Tensor, rng: Streams) -> None:
        """Other samples in the rows (m,): what was made for those before is dropped."""
        self._drop(self._slot[rows][:, :-1])
        self._slot[rows[:, None], torch.arange(len(self.variants), device=rows.device)] = -1
        self._values[self._slot[rows, CLEAN]] = x.flatten(1)
        for row in rows.tolist() if self._gradients else ():
            self._gradients.pop(row, None)
        keys = self._rng.keys.clone()
        keys[rows] = rng.keys
        self._rng = Streams(keys)

    def _drop(self, slots: Tensor) -> None:
        """Free some slots."""
        self._free += slots[slots >= 0].tolist()

    def _ready(self, rows: Tensor, variants: Tensor) -> Tensor | None:
        """(m, k): where the distorted inputs of (m,) and (m, k) are held; what is missing is made. None for too many at once."""
        rows = rows[:, None].expand_as(variants)
        slots = self._slot[rows, variants]
        if not self._crowded and not self._free:  # everything is held: nothing to look for
            return slots
        if self._crowded:
            standing = variants != CLEAN
            self._clock += 1
            self._used[rows[standing], variants[standing]] = self._clock
        absent = slots < 0
        if not bool(absent.any()):
            return slots
        if not self._crowded and self._values.device.type != "cpu":
            self._make_together(rows[absent], variants[absent])
            return self._slot[rows, variants]
        count = len(self.variants)
        missing = torch.unique(rows[absent] * count + variants[absent])
        if not self._make_room(len(missing)):
            return None
        requests: dict[tuple[int, int], list[int]] = {}
        for row, variant in (divmod(number, count) for number in missing.tolist()):
            requests.setdefault((row, int(self._group_of[variant])), []).append(variant)
        # Further results of the same calls are stored as far as there is room, but nothing is dropped
        # for it.
        spare = len(self._free) - len(missing)
        for (row, group), numbers in requests.items():
            spare = self._make(row, group, numbers, spare)
        return self._slot[rows, variants]

    def _make_room(self, count: int) -> bool:
        """Drop what was not used for longest and is not used now, until `count` fit; False where they cannot."""
        short = count - len(self._free)
        if short <= 0:
            return True
        row, variant = ((self._slot[:, :-1] >= 0) & (self._used < self._clock)).nonzero(as_tuple=True)
        if len(row) < short:
            return False
        oldest = self._used[row, variant].argsort(stable=True)[:short]
        row, variant = row[oldest], variant[oldest]
        self._drop(self._slot[row, variant])
        self._slot[row, variant] = -1
        return True

    def _make_together(self, rows: Tensor, variants: Tensor) -> None:
        """Make the groups of the variants (m,) that the `rows` (m,) asked for, in every row where they are absent.

        Those that need gradients are made in the rows that asked for them alone.
        """
        groups = dict.fromkeys(self._group_of[torch.unique(variants).cpu()].tolist())
        for members in [self._groups[group] for group in groups]:
            absent = (self._slot[:, members] < 0).all(1)
            if self.variants[members[0]].distortion.access == Access.GRADIENTS:
                matches = torch.isin(variants, torch.tensor(members, device=rows.device))
                absent &= torch.zeros_like(absent, dtype=torch.int64).index_add_(0, rows, matches.long()) > 0
            absent_rows = absent.nonzero()[:, 0]
            size = len(members) * self._values.shape[1]
            for part in torch.split(absent_rows, max(1, TOGETHER // size)):
                slots = torch.tensor([self._free.pop() for _ in range(len(part) * len(members))], device=rows.device)
                self._values[slots] = self._distortion(part, members).flatten(1)
                self._slot[part[:, None], torch.tensor(members, device=rows.device)] = slots.view(len(part), len(members))
                self.made += len(slots)

    def _make(self, row: int, group: int, numbers: list[int], spare: int) -> int:
        """Make distorted inputs of a group; returns the slot of one of them."""
        members = self._groups[group]
        inputs = self._distortion(torch.tensor([row], device=self._values.device), members)
        absent = [slot < 0 for slot in self._slot[row, members].tolist()]
        positions: list[int] = []
        for position, variant in enumerate(members):
            if not absent[position]:
                continue
            if variant not in numbers:
                if spare <= 0:
                    continue
                spare -= 1
            positions.append(position)
        slots = torch.tensor([self._free.pop() for _ in positions], device=self._values.device)
        self._values[slots] = inputs.flatten(1)[positions]
        self._slot[row, [members[position] for position in positions]] = slots
        self.made += len(positions)
        return spare

    def _distortion(self, rows: Tensor, members: list[int]) -> Tensor:
        """(m * variants of the distortion, *shape): all that one distortion makes of some samples (m,), sample by sample."""
        distortion, device, k = self.variants[members[0]].distortion, self._values.device, len(members)
        looks = distortion.access == Access.GRADIENTS
        return distorted(
            distortion,
            self.x[rows].repeat_interleave(k, 0),
            torch.tensor([self.variants[number].severity for number in members], device=device).repeat(len(rows)),
            Streams(self._rng.keys[rows].repeat_interleave(k)).fold(type(distortion).__name__),
            domain=self.domain,
            draw=torch.tensor([self.variants[number].draw for number in members], device=device).repeat(len(rows)),
            gradient=torch.cat([self._gradient_at(row).expand(k, *self.domain.shape) for row in rows.tolist()])
            if looks
            else None,
        )

    def _gradient_at(self, row: int) -> Tensor:
        """(1, *shape): asked for once."""
        if self._ask is None:
            raise RequestError("a distortion needs gradients, which this model does not give: leave it out")
        if row not in self._gradients:
            self._gradients[row] = self._ask(torch.tensor([row], device=self._rng.keys.device))
        return self._gradients[row]


class Gradients:
    """Gradients of the criterion's margin at the samples of a batch. Each costs its sample one forward and one backward."""

    def __init__(self, oracle: Oracle, batch: Batch) -> None:
        self._oracle, self._batch = oracle, batch
        self._known = torch.zeros(len(batch), dtype=torch.bool, device=batch.x.device)
        self._held = torch.zeros(0)

    def __call__(self, sample: Tensor) -> Tensor:
        """(m, *shape): of the samples at these positions (m,) in the batch."""
        if not len(self._held):
            self._held = torch.zeros_like(self._batch.x)
        new = torch.unique(sample[~self._known[sample]])
        if len(new):
            batch = self._batch.select(new)
            self._held[new] = self._oracle.gradient(batch.ids, batch.x, None).grad
            self._known[new] = True
        return self._held[sample]
