"""A board is arranged as sets of figures say, written out anew here: tasks, the entries of each, their order, and pairs."""

import itertools

import numpy as np
import pytest

from brinell.analysis.robust_accuracy import RIGHT, WRONG, rate
from brinell.studies.board import analysis
from brinell.studies.board.analysis import ClassFigures, Figures, arrange, compare_entries, pack, slug, task_notes


def make_figures(number, rng, **changes):
    """One model in one folder, at two of three budgets, with figures drawn at random; some folders hold proofs alone."""
    eps = sorted(rng.choice([0.1, 0.2, 0.3], 2, replace=False).tolist())
    n = int(rng.choice([8, 10]))
    rates = [[rate(int(rng.integers(n + 1)), n, eps=value) for value in eps] for _ in range(4)]
    has_attacks = bool(rng.random() < 0.8)
    ids = np.sort(rng.choice(12, n, replace=False)).astype(np.int64)
    values = {
        "run": f"run-{number:02d}",
        "verb": "audit",
        "key": str(number),
        "model": str(rng.choice(["a", "b", "c"])),
        "digest": str(rng.choice(["0" * 32, "1" * 32])),
        "data": "data",
        "data_digest": str(rng.choice(["x", "y"])),
        "distance": str(rng.choice(["linf", "l2"])),
        "criterion": "misclassified",
        "unit": "",
        "eps": eps,
        "eps_text": [f"{value:g}" for value in eps],
        "clean": None,
        "robust": rates[0] if has_attacks else [],
        "certified": rates[1] if not has_attacks or rng.random() < 0.5 else [],
        "per_class": [ClassFigures(class_=i, name="pq"[i], n=n, clean=rates[2 + i][0], robust=rates[2 + i]) for i in (0, 1)],
        "attacks": str(rng.choice(["fast", "fgsm"])),
        "weak": False,
        "checks": "",
        "failed": 0,
        "forwards": 0,
        "backwards": 0,
        "seconds": None,
        "date": "",
        "brinell": "",
        "level": "",
        "ids": pack(ids) if has_attacks else "",
        "states": pack(rng.choice([0, 1, 2], (n, 3)).astype(np.int8)) if has_attacks else "",
    }
    return Figures.model_validate(values | changes)


def key_of(figures, position):
    return figures.data_digest, figures.distance, figures.eps[position]


def best(members, rates, sign):
    """The member with the most samples; of those, with the lowest figure, or the highest for -1; then by the name of the run."""
    members = [(figures, i) for figures, i in members if getattr(figures, rates)]
    chosen = sorted(members, key=lambda m: (-getattr(m[0], rates)[m[1]].n, sign * getattr(m[0], rates)[m[1]].value, m[0].run))
    return chosen[0] if chosen else (None, None)


def test_tasks_entries_and_pairs():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        figures = [make_figures(number, rng) for number in range(14)]
        site = arrange(figures)
        cells = [(key_of(f, i), f.identity, f, i) for f in figures for i in range(2)]
        assert {(task.data_digest, task.distance, task.eps) for task in site.tasks} == {cell[0] for cell in cells}
        assert len(site.tasks) == len({cell[0] for cell in cells}) == len({task.slug for task in site.tasks})
        assert [(t.distance, t.eps) for t in site.tasks] == sorted((t.distance, t.eps) for t in site.tasks)
        expected_pairs = set()
        for task in site.tasks:
            members = {}
            for key, identity, entry, position in cells:
                if key == (task.data_digest, task.distance, task.eps):
                    members.setdefault(identity, []).append((entry, position))
            assert {entry.figures.identity for entry in task.entries} == set(members) and task.eps_text == f"{task.eps:g}"
            order = []
            for entry in task.entries:
                group = members[entry.figures.identity]
                attacked, position = best(group, "robust", 1)
                certified, certified_position = best(group, "certified", -1)
                assert (entry.attacked, entry.certified, entry.runs) == (attacked, certified, len(group))
                assert entry.robust == (attacked and attacked.robust[position])
                assert entry.proven == (certified and certified.certified[certified_position])
                if attacked:
                    rates = {c.name: c.robust[position] for c in attacked.per_class}
                    assert entry.worst[1] == rates[entry.worst[0]] and entry.worst[1].value == min(
                        r.value for r in rates.values()
                    )
                else:
                    assert entry.worst is None
                value, proven = (-1 if r is None else r.value for r in (entry.robust, entry.proven))
                order.append((-value, -proven, *entry.figures.identity))
            assert order == sorted(order)
            with_rows = sorted(entry.figures.identity for entry in task.entries if entry.attacked)
            expected_pairs |= {(pair, task.slug) for pair in itertools.combinations(with_rows, 2)}
            notes, attacks = list(task_notes(task)), {entry.attacked.attacks for entry in task.entries if entry.attacked}
            sizes = {entry.robust.n for entry in task.entries if entry.attacked}
            assert any("attacked differently" in note for note in notes) == (len(attacks) > 1)
            assert any("(8 to 10)" in note for note in notes) == (sizes == {8, 10})
        pairs = {((p.a.name, p.a.digest), (p.b.name, p.b.digest)): p for p in site.pairs}
        assert {(pair, task.slug) for pair, page in pairs.items() for task, *_ in page.tasks} == expected_pairs
        for pair, page in pairs.items():
            assert all((a.figures.identity, b.figures.identity) == pair for _, a, b in page.tasks)
        for model in site.models:
            own = [f for f in figures if f.identity == (model.name, model.digest)]
            assert model.figures == sorted(own, key=lambda f: f.run) and model.slug == slug(model.name, model.digest[:8])
            assert {task.slug for task, _ in model.tasks} == {
                task.slug for task in site.tasks if any(e.figures.identity == (model.name, model.digest) for e in task.entries)
            }


def test_pairs_are_counted_sample_by_sample():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        common = {"data_digest": "x", "distance": "linf", "eps": [0.1, 0.2], "eps_text": ["0.1", "0.2"]}
        two = [make_figures(number, rng, model=name, **common) for number, name in enumerate("ab")]
        two = [f if f.ids else make_figures(9, np.random.default_rng(2), model=f.model, **common) for f in two]
        if not all(f.ids and f.robust for f in two):
            continue
        for index, task in enumerate(arrange(two).tasks):
            a, b = sorted(task.entries, key=lambda entry: entry.figures.model)
            tables = [dict(zip(ids.tolist(), states.tolist(), strict=True)) for ids, states in map(analysis.unpack, two)]
            both = [(tables[0][i][1 + index], tables[1][i][1 + index]) for i in tables[0].keys() & tables[1].keys()]
            judged = [pair for pair in both if set(pair) <= {RIGHT, WRONG}]
            pair = compare_entries(task, a, b)
            counts = [judged.count(states) for states in itertools.product((RIGHT, WRONG), repeat=2)]
            assert [pair.both_robust, pair.only_a, pair.only_b, pair.neither] == counts and pair.missing == len(both) - len(
                judged
            )


@pytest.mark.parametrize("models", [20, 21])
def test_of_many_models_each_is_paired_with_the_next_and_with_the_first(models):
    rng = np.random.default_rng(0)
    common = {"data_digest": "x", "distance": "linf", "eps": [0.1], "eps_text": ["0.1"]}
    figures = []
    for number in range(models):
        robust = [rate(models - number, 30, eps=0.1)]
        figures.append(
            make_figures(number, rng, model=f"m{number:02d}", robust=robust, ids=pack(np.zeros(1, np.int64)), **common)
        )
    names = {tuple(sorted((int(p.a.name[1:]), int(p.b.name[1:])))) for p in arrange(figures).pairs}
    every = set(itertools.combinations(range(models), 2))
    assert names == (every if models <= 20 else {(i, j) for i, j in every if j == i + 1 or i == 0})


def test_a_slug_is_plain_and_short():
    assert slug("Net (v2)/é!", "ab-c1") == "net-v2-abc1" and slug("***", "--") == "x-x" and len(slug("a" * 99, "1")) == 62
