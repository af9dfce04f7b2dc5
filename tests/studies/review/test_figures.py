"""Figures of reviews against a count of random answers."""

import numpy as np

from brinell.studies.review.analysis import summarise
from brinell.studies.review.psychometric import fit
from brinell.studies.review.records import Answer, Review, Trial


class Judged(Review):
    """A review with answers in memory."""

    def answers(self):
        return self.request["answers"]


def test_figures_are_counts_of_answers(tmp_path, monkeypatch):
    monkeypatch.setattr("brinell.studies.review.psychometric.POINTS", 9)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        sizes = rng.choice([0.0, 0.1, 0.11, 0.2, 0.5], 40).tolist()
        trials = tuple(
            Trial(number=i, sample_id=i, label=int(rng.integers(3)), eps=eps, changed_left=False) for i, eps in enumerate(sizes)
        )
        answers = [
            Answer(trial=i, reviewer=str(rng.choice(["ann", "bob"])), differs=bool(rng.random() < 0.3 + eps),
                   named=int(rng.integers(3)) if rng.random() < 0.8 else None, seconds=1.0)
            for i, eps in enumerate(sizes) if rng.random() < 0.9
        ]  # fmt: skip
        request = {"data": "d", "norm": "linf", "change": "noise", "answers": answers}
        review = Judged(path=tmp_path, request=request, classes=("x", "y", "z", "never"), trials=trials)
        result = summarise(review)
        judged = [(trials[answer.trial], answer) for answer in answers]
        equal = [answer.differs for trial, answer in judged if trial.eps == 0]
        assert (result.answers, result.trials, result.catch, result.false_alarms) == (
            len(answers), 40, len(equal), sum(equal),
        )  # fmt: skip
        assert result.reviewers == sorted({answer.reviewer for answer in answers})
        groups = [(0.0, 0.0), (0.1, 0.11), (0.2, 0.2), (0.5, 0.5)]
        for group, (low, high) in zip(result.by_size, groups, strict=True):
            members = [(trial, answer) for trial, answer in judged if low <= trial.eps <= high]
            assert group.eps == np.mean([trial.eps for trial, _ in members])
            assert (group.right.k, group.right.n) == (sum(a.named == t.label for t, a in members), len(members))
            assert (group.noticed.k, group.noticed.n) == (sum(a.differs for _, a in members), len(members))
        assert [group.name for group in result.per_class] == ["x", "y", "z"]
        for group, label in [(result.overall, None), *zip(result.per_class, range(3), strict=True)]:
            members = [(t.eps, a.differs) for t, a in judged if t.eps == 0 or label in (None, t.label)]
            curve = fit(*zip(*members, strict=True))
            assert (group.threshold, group.low, group.high, group.n, group.noticed) == (
                curve.threshold, curve.low, curve.high, curve.n, curve.noticed,
            )  # fmt: skip
