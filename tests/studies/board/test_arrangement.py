"""A board is arranged as sets of figures say, written out anew here: tasks, the entries of each, their order, and pairs."""

import itertools
import re

import numpy as np

import brinell
from approval import MASKS, approve, page_text
from brinell.analysis.robust_accuracy import RIGHT, WRONG, rate
from brinell.studies.board import analysis
from brinell.studies.board.analysis import ClassFigures, Figures, Refusal, arrange, compare_entries, pack, slug, task_notes
from brinell.studies.board.page import write
from brinell.studies.board.terminal import lines as board_lines


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
    ranking = sorted(members, key=lambda m: (-getattr(m[0], rates)[m[1]].n, sign * getattr(m[0], rates)[m[1]].value, m[0].run))
    return ranking[0] if ranking else (None, None)


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
        assert {(pair, task.slug) for pair, page in pairs.items() for task, *_ in page.tasks} <= expected_pairs
        for pair, page in pairs.items():
            assert all((a.figures.identity, b.figures.identity) == pair for _, a, b in page.tasks)
        for model in site.models:
            expected = [f for f in figures if f.identity == (model.name, model.digest)]
            assert model.figures == sorted(expected, key=lambda f: f.run) and model.slug == slug(model.name, model.digest[:8])
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
            pairs = [(tables[0][i][1 + index], tables[1][i][1 + index]) for i in tables[0].keys() & tables[1].keys()]
            verdicts = [pair for pair in pairs if set(pair) <= {RIGHT, WRONG}]
            pair = compare_entries(task, a, b)
            counts = [verdicts.count(states) for states in itertools.product((RIGHT, WRONG), repeat=2)]
            assert [pair.both_robust, pair.only_a, pair.only_b, pair.neither] == counts


def test_a_slug_is_plain_and_short():
    assert slug("Net (v2)/é!", "ab-c1") == "net-v2-abc1" and slug("***", "--") == "x-x" and len(slug("a" * 99, "1")) == 62


def test_what_is_shown(tmp_path):
    """The pages and tables of two models with figures that all differ, one of them proven, one with a failed check."""
    rng, common = (
        np.random.default_rng(4),
        {"data_digest": "x", "distance": "linf", "eps": [0.1, 0.2], "eps_text": ["1/10", "2/10"]},
    )
    facts = [
        {"model": "a", "weak": True, "checks": "1 of 9 checks failed", "failed": 1, "forwards": 1013, "backwards": 503},
        {"model": "b", "seconds": 7.5, "date": "2026-01-02", "brinell": "1.2.3", "level": "all rows", "forwards": 17},
    ]
    figures = []
    for number, changes in enumerate(facts):
        rates = [
            [rate(int(k), 40, eps=eps) for k, eps in zip(row, (0.1, 0.2), strict=True)]
            for row in rng.permutation(40)[:8].reshape(4, 2)
        ]
        classes = [ClassFigures(class_=i, name="pq"[i], n=20, clean=rates[i][0], robust=rates[i]) for i in (0, 1)]
        changes |= {"clean": rate(35 + number, 40), "robust": rates[2], "certified": rates[3], "per_class": classes}
        changes |= {"ids": pack(np.arange(40)), "states": pack(rng.choice([0, 1], (40, 3)).astype(np.int8))}
        figures.append(make_figures(number, rng, **common, **changes))
    refusals = [Refusal(run="bad", why="it is damaged"), Refusal(run="worse", why="it is forged")]
    result = write(tmp_path, figures, refusals, "A title", "brinell board")
    texts = [f"{file.relative_to(tmp_path)}\n{page_text(file.read_text())}" for file in sorted(tmp_path.rglob("*.html"))]
    texts += [f"{file.relative_to(tmp_path)}\n{file.read_text()}" for file in sorted(tmp_path.rglob("*.csv"))]
    paths = dict(itertools.islice(MASKS.items(), 1)) | {re.escape(brinell.__version__): "VERSION"}
    approve("board-varied", "\n\n".join(["\n".join(board_lines(result)), *texts]), paths)
