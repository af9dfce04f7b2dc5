"""Figures of reviews against a count of random answers."""

import numpy as np

from brinell.store import rows
from brinell.store.table import Folder
from brinell.studies.review import ReviewRequest
from brinell.studies.review.choices import ReviewFacts
from brinell.studies.review.psychometric import fit
from brinell.studies.review.result import ANSWERS, PAIRS, Answer, AnswerFile, Trials, summarise


def test_figures_are_counts_of_answers(tmp_path, monkeypatch):
    monkeypatch.setattr("brinell.studies.review.psychometric.POINTS", 9)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        sizes, labels = rng.choice([0.0, 0.1, 0.11, 0.2, 0.5], 40), rng.integers(3, size=40)
        trials = rows.build(
            Trials, 40, sample_id=np.arange(40), label=labels, eps=sizes, changed_left=False
        )
        answers = [
            Answer(
                trial=i,
                reviewer=str(rng.choice(["ann", "bob"])),
                differs=bool(rng.random() < 0.3 + eps),
                named=int(rng.integers(3)) if rng.random() < 0.8 else None,
            )
            for i, eps in enumerate(sizes)
            if rng.random() < 0.9
        ]
        (tmp_path / ANSWERS).write_text(AnswerFile(review="d", answers=answers).model_dump_json())
        manifest = {
            "data": {"name": "d", "classes": ["x", "y", "z", "never"]},
            "models": [],
            "seconds": 1,
            "files": {PAIRS: "d"},
        }
        request = ReviewRequest(data="d")
        result = summarise(
            Folder(
                path=tmp_path,
                manifest=manifest,
                request=request,
                facts=ReviewFacts(methods={}),
                rows=trials,
            )
        )
        judged = [(sizes[answer.trial], labels[answer.trial], answer) for answer in answers]
        equal = [answer.differs for eps, _, answer in judged if eps == 0]
        assert (result.answers, result.trials) == (len(answers), 40)
        assert (result.false_alarms.k, result.false_alarms.n) == (sum(equal), len(equal))
        assert result.reviewers == sorted({answer.reviewer for answer in answers})
        groups = [(0.0, 0.0), (0.1, 0.11), (0.2, 0.2), (0.5, 0.5)]
        for group, (low, high) in zip(result.by_size, groups, strict=True):
            members = [entry for entry in judged if low <= entry[0] <= high]
            assert group.eps == np.mean([eps for eps, _, _ in members])
            assert (group.right.k, group.right.n) == (
                sum(a.named == label for _, label, a in members),
                len(members),
            )
            assert (group.noticed.k, group.noticed.n) == (
                sum(a.differs for *_, a in members),
                len(members),
            )
        assert [(group.class_, group.name) for group in result.per_class] == list(enumerate("xyz"))
        for group, label in [(result.overall, None), *zip(result.per_class, range(3), strict=True)]:
            members = [
                (eps, a.differs) for eps, own, a in judged if eps == 0 or label in (None, own)
            ]
            curve = fit(*zip(*members, strict=True))
            assert dict(curve) == {
                name: value for name, value in group if name not in ("class_", "name")
            }
