"""A board is arranged as sets of figures say, written out anew: tasks, entries, ranks of what was
verified, claims apart.
"""

import itertools
import re

import numpy as np

import brinell
from approval import MASKS, approve, page_text
from brinell.analysis.results import ClassResult
from brinell.analysis.robust_accuracy import RIGHT, WRONG, rate
from brinell.analysis.standing import order_models
from brinell.studies.board.arrangement import BoardFigures, arrange, slug, told_apart
from brinell.studies.board.result import BoardResult, Refusal
from brinell.studies.board.run import write_site


def make_class(index, n, rates):
    return ClassResult(
        class_=index,
        name="pq"[index],
        n=n,
        clean=rates[0],
        robust=rates,
        drop=[0.0, 0.0],
        total_drop=0.0,
    )


def make_figures(number, rng, **changes):
    """One model in one folder, at two of three budgets; some folders hold proofs alone, and some
    were not verified.
    """
    eps = sorted(rng.choice([0.1, 0.2, 0.3], 2, replace=False).tolist())
    n = int(rng.choice([8, 10]))
    states = np.where(rng.random((n, 3)) < 0.5, RIGHT, WRONG).astype(np.int8)
    has_attacks = bool(rng.random() < 0.8)
    proofs = [rate(int(rng.integers(n + 1)), n, eps=value) for value in eps]
    robust = [
        rate(int((states[:, 1 + i] == RIGHT).sum()), n, eps=value) for i, value in enumerate(eps)
    ]
    values = {
        "run": f"run-{number:02d}",
        "verb": "audit",
        "repeated": 8,
        "attacked": n,
        "verified": bool(rng.random() < 0.6),
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
        "robust": robust if has_attacks else [],
        "certified": proofs if not has_attacks or rng.random() < 0.5 else [],
        "per_class": [make_class(i, n, robust) for i in (0, 1)],
        "attacks": str(rng.choice(["fast", "fgsm"])),
        "checks": "",
        "date": "",
        "ids": np.sort(rng.choice(12, n, replace=False)).tolist() if has_attacks else [],
        "states": states.tolist() if has_attacks else [],
    }
    return BoardFigures.model_validate(values | changes)


def best(members, rates, sign):
    """The member with the most samples; of those, with the lowest figure, or the highest for -1."""
    key = [
        (-getattr(f, rates)[i].n, sign * getattr(f, rates)[i].value)
        for f, i in members
        if getattr(f, rates)
    ]
    return min(key, default=None)


def test_only_what_was_verified_is_combined_and_ranked():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        figures = [make_figures(number, rng) for number in range(14)]
        tasks = arrange(figures)
        cells = [((f.data_digest, f.distance, f.eps[i]), f, i) for f in figures for i in range(2)]
        assert len(tasks) == len({key for key, _, _ in cells}) == len({task.slug for task in tasks})
        for task in tasks:
            first = task.entries[0].figures
            groups = {}
            for key, f, i in cells:
                if key == (first.data_digest, first.distance, task.eps):
                    groups.setdefault((f.model, f.digest, "" if f.verified else f.run), []).append(
                        (f, i)
                    )
            assert len(task.entries) == len(groups)
            for entry in task.entries:
                f = entry.figures
                group = groups[f.model, f.digest, "" if f.verified else f.run]
                for share, name, sign in (
                    (entry.robust, "robust", 1),
                    (entry.proven, "certified", -1),
                ):
                    assert (None if share is None else (-share.n, sign * share.value)) == best(
                        group, name, sign
                    )
                assert (entry.rank is not None) == (f.verified and entry.attacked is not None)
            ranked = [entry for entry in task.entries if entry.rank is not None]
            assert task.entries[: len(ranked)] == ranked and (task.standing is None) == (not ranked)
            values = [entry.robust.value for entry in ranked]
            assert values == sorted(values, reverse=True) and sum(
                entry.rank.value for entry in ranked
            ) == sum(range(len(ranked) + 1))
            claims = sum(not entry.figures.verified for entry in task.entries)
            words = {0: "", 1: "1 row is a claim"}.get(claims, f"{claims} rows are claims")
            assert any(note.startswith(words) and "claim" in note for note in task.notes) == bool(
                claims
            )


def test_ranks_use_the_samples_that_both_have():
    rng = np.random.default_rng(3)
    common = {
        "data_digest": "x",
        "distance": "linf",
        "eps": [0.1, 0.2],
        "eps_text": ["0.1", "0.2"],
        "repeated": 0,
        "verified": True,
    }
    two = []
    for name, ids in (("a", np.arange(60)), ("b", np.arange(30, 90))):
        states = np.where(rng.random((60, 3)) < (0.9 if name == "a" else 0.2), RIGHT, WRONG).astype(
            np.int8
        )
        robust = [
            rate(int((states[:, 1 + i] == RIGHT).sum()), 60, eps=eps)
            for i, eps in enumerate((0.1, 0.2))
        ]
        two.append(
            make_figures(
                len(two),
                rng,
                model=name,
                ids=ids.tolist(),
                states=states.tolist(),
                robust=robust,
                certified=[],
                **common,
            )
        )
    shared = np.stack([np.array(f.states)[:, 1] for f in two])
    p = order_models(np.stack([shared[0, 30:], shared[1, :30]])).p[0, 1]
    (task, _) = arrange(two)
    assert task.standing.orders[0].p[0, 1] == p < 0.05 and [e.rank.value for e in task.entries] == [
        1,
        2,
    ]


def test_a_slug_is_plain_and_short():
    assert (
        slug("Net (v2)/é!", "ab-c1") == "net-v2-abc1"
        and slug("***", "--") == "x-x"
        and len(slug("a" * 99, "1")) == 62
    )


def test_counts_agree_in_number():
    for folders, verified, refused in itertools.product((0, 1, 12), repeat=3):
        refusals = [Refusal(run="r", why="w")] * refused
        counts = {
            "model_count": folders,
            "task_count": folders,
            "folder_count": folders + verified,
            "verified": verified,
        }
        report = BoardResult(folder="f", title="t", refused=refusals, **counts).report()
        text = f"{report.subject} {report.sentences[0]}"
        assert not re.search(
            r"\b1 (folders|models|tasks|folder were)|\b(0|\d\d+) (folder|model|task|folders was)\b",
            text,
        ), text


def test_what_is_shown(tmp_path, monkeypatch):
    """The pages and tables of three models with figures that all differ: two verified, one of them
    proven, and a claim. Their folders, from which a dossier is made, are none.
    """
    monkeypatch.setattr("brinell.studies.board.run._with_dossier", lambda report, folders: report)
    rng = np.random.default_rng(4)
    common = {
        "data_digest": "x",
        "distance": "linf",
        "eps": [0.1, 0.2],
        "eps_text": ["1/10", "2/10"],
        "date": "2026-01-02",
    }
    figures = []
    for number, name in enumerate("abc"):
        rates = [
            [rate(int(k), 40, eps=eps) for k, eps in zip(row, (0.1, 0.2), strict=True)]
            for row in rng.permutation(40)[:8].reshape(4, 2)
        ]
        changes = {
            "clean": rate(35 + number, 40),
            "robust": rates[2],
            "certified": rates[3] if name == "a" else [],
        }
        changes |= {
            "per_class": [make_class(i, 20, rates[i]) for i in (0, 1)],
            "checks": f"{20 + number} / 0 / 2",
        }
        changes |= {"ids": list(range(40)), "states": rng.choice([0, 1], (40, 3)).tolist()}
        figures.append(
            make_figures(number, rng, model=name, verified=name != "c", **common, **changes)
        )
    refusals = [Refusal(run="bad", why="it is damaged"), Refusal(run="worse", why="it is forged")]
    result = write_site(tmp_path, "A title", figures, refusals)
    texts = [
        f"{file.relative_to(tmp_path)}\n{page_text(file.read_text())}"
        for file in sorted(tmp_path.rglob("*.html"))
    ]
    texts += [
        f"{file.relative_to(tmp_path)}\n{file.read_text()}"
        for file in sorted(tmp_path.rglob("*.csv"))
    ]
    paths = dict(list(MASKS.items())[:1]) | {re.escape(brinell.__version__): "VERSION"}
    approve("board-varied", "\n\n".join(["\n".join(result.lines()), *texts]), paths)


TWINS = (
    lambda rng, name: f"{name}{rng.choice(list(chr(32) + chr(0x200B) + chr(0xA0) + chr(0x2003)))}",
    lambda rng, name: f" {name}",
    lambda rng, name: name.replace("a", chr(0x430), 1),
    lambda rng, name: name.replace("o", chr(0x3BF), 1),
    lambda rng, name: name.replace("l", rng.choice(["1", "I", "|"]), 1),
    lambda rng, name: name.swapcase(),
    lambda rng, name: name.replace("o", "0", 1),
    lambda rng, name: name.replace("a", chr(0xFF41), 1),
)
"""Names that look like another one."""


def test_names_that_look_alike_have_digests():
    rng = np.random.default_rng(75)
    for number in range(40):
        letters = [*"aol", *rng.choice(list("aolbcdegnrst"), int(rng.integers(2, 9)))]
        name = "".join(rng.permutation(letters))
        twin = TWINS[number % len(TWINS)](rng, name)
        figures = [
            make_figures(index, rng, model=model, digest=str(index) * 32)
            for index, model in enumerate((name, twin, "zzz"))
        ]
        first, second, third = told_apart(figures)
        assert third.model == "zzz", "nothing looks like it"
        assert twin == name or second.model == f"{twin} (11111111)", (name, twin)
        is_foreign = not twin.isascii() and not twin.strip() == name
        assert is_foreign or twin == name or first.model == f"{name} (00000000)", (name, twin)
        assert told_apart(figures[:1])[0].model == name
