"""Counters and best inputs of a ledger against a reference that takes the rows one after another."""

import torch

from brinell.core.costs import Best, Costs, earlier_rows, running_totals

N, CLASSES = 4, 3


def test_running_totals_are_those_of_a_loop():
    rng = torch.Generator().manual_seed(0)
    for length in (1, 2, 30):
        ids, values = (
            torch.randint(5, (length,), generator=rng),
            torch.randint(9, (length,), generator=rng),
        )
        sums, counts, expected = [0] * 5, [0] * 5, []
        for row, value in zip(ids.tolist(), values.tolist(), strict=True):
            sums[row] += value
            expected.append((sums[row], counts[row]))
            counts[row] += 1
        assert (
            list(zip(running_totals(ids, values).tolist(), earlier_rows(ids).tolist(), strict=True))
            == expected
        )


def test_costs_are_those_of_a_loop():
    rng, costs = torch.Generator().manual_seed(1), Costs(N, torch.device("cpu"))
    forwards, backwards = [0] * N, [0] * N
    for number in range(12):
        repeats = number % 2 == 1
        ids = (
            torch.randint(N, (6,), generator=rng)
            if repeats
            else torch.randperm(N, generator=rng)[:3]
        )
        times = torch.randint(1, 4, (len(ids),), generator=rng)
        costs.add(ids, times, number % 3)
        for row, count in zip(ids.tolist(), times.tolist(), strict=True):
            forwards[row] += count
            backwards[row] += count * (number % 3)
        assert costs.forwards.tolist() == forwards and costs.backwards.tolist() == backwards


class Reference:
    """What `Best` keeps, row by row."""

    def __init__(self, keeps):
        self.keeps, self.asked, self.first, self.most = keeps, [0] * N, [0] * N, [-float("inf")] * N
        self.nearest, self.strongest = [float("inf")] * N, torch.zeros(N, 2)
        self.closest, self.answer = torch.zeros(N, 2), torch.zeros(N, CLASSES)

    def answered(self, ids, x, margin):
        """A query; returns what it is the how-manieth of its sample."""
        robust, totals = [not each for each in self.first], []
        for k, row in enumerate(ids.tolist()):
            self.asked[row] += 1
            totals.append(self.asked[row])
            if margin[k] > self.most[row]:
                self.most[row] = float(margin[k])
                if self.keeps and robust[row]:
                    self.strongest[row] = x[k]
        return totals

    def succeeded(self, ids, x, logits, distance, totals):
        """Its successes."""
        for k, row in enumerate(ids.tolist()):
            self.first[row] = self.first[row] or int(totals[k])
            if distance[k] < self.nearest[row]:
                self.nearest[row], self.closest[row], self.answer[row] = (
                    float(distance[k]),
                    x[k],
                    logits[k],
                )


def test_the_best_is_that_of_a_loop():
    rng, clean = torch.Generator().manual_seed(2), torch.zeros(N, 2)
    for keeps in (True, False):
        best, reference = Best(clean, CLASSES, keeps_strongest=keeps), Reference(keeps)
        for number in range(25):
            repeats = number % 2 == 0
            ids = (
                torch.randint(N, (5,), generator=rng)
                if repeats
                else torch.randperm(N, generator=rng)[:3]
            )
            x, logits = (
                torch.rand(len(ids), 2, generator=rng),
                torch.rand(len(ids), CLASSES, generator=rng),
            )
            margin, distance = torch.rand(2, len(ids), generator=rng)
            margin -= 0.93
            totals = torch.tensor(reference.answered(ids, x, margin))
            best.raise_margins(ids, x, margin, repeats)
            rows = (margin > 0).nonzero()[:, 0]
            if len(rows):
                success = ids[rows], x[rows], logits[rows], distance[rows], totals[rows]
                best.note_successes(*success)
                reference.succeeded(*success)
            assert (
                best.first_success.tolist() == reference.first
                and best.margin.tolist() == reference.most
            )
            assert best.distance.tolist() == reference.nearest and torch.equal(
                best.closest, reference.closest
            )
            assert torch.equal(best.strongest, reference.strongest) and torch.equal(
                best.answer, reference.answer
            )
        assert sum(map(bool, reference.first)) > 1 and not clean.any()
