"""Detectors in front of the model of an audit: rows that add up, thresholds that hold, and what is
refused.
"""

import numpy as np
import pytest
from safetensors.numpy import load_file

import brinell
from brinell.core.errors import BrinellError
from brinell.engine.progress import SilentProgress
from brinell.engine.sources import open_data
from brinell.store import rows
from brinell.store.table import Folder
from brinell.studies.audit_detectors import STUDY, DetectorsRequest, run
from brinell.studies.audit_detectors.result import EVADING, DetectorsFacts, summarise
from brinell.studies.kit import Call

NAMES = ["background", "mahalanobis"]
SETTINGS = {
    "samples": 12,
    "eps": "0.1,0.3",
    "attack": ["fgsm", "pgd?steps=5"],
    "detector_data": "digits?split=train",
}


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    out = tmp_path_factory.mktemp("audit") / "run"
    return brinell.audit("digits-cnn", "digits", **SETTINGS, detector=NAMES, out=out)


def folder_of(audit):
    """The rows of the detectors beside an audit."""
    return STUDY.table().read(f"{audit.folder}/detectors")


def test_rows_add_up(audit):
    scores, model = folder_of(audit).rows, audit.models[0]
    assert [entry.detector for entry in model.detectors] == NAMES
    assert (
        brinell.open(audit.folder).models == audit.models
        and "detectors" in audit.payload()["models"][0]
    )
    for entry in model.detectors:
        of_detector = rows.take(scores, scores.detector == entry.detector)
        assert entry.robust.n == 12 and entry.robust.k == model.robust_accuracy[-1].k
        assert entry.robust.k <= entry.static.k and entry.adaptive.k <= entry.static.k
        alarms = of_detector.score > entry.threshold
        unnoticed = of_detector.fooled & ~alarms & (of_detector.attack != "clean")
        assert entry.adaptive.k == model.clean_accuracy.k - len(
            set(of_detector.sample_id[unnoticed].tolist())
        )
        assert {attack.attack for attack in entry.attacks} <= {"fgsm", "pgd?steps=5", *EVADING}


def test_evading_inputs_are_what_the_rows_say(audit):
    """Within eps and the bounds; the background untouched where it was to be kept."""
    data, folder, stored = open_data("digits"), folder_of(audit), 0
    for file in sorted(folder.path.glob("evading-*.safetensors")):
        for key, x in load_file(file).items():
            attack, _, sample = key.partition("/")
            clean = data.load([int(sample)])[0].numpy()
            stored += 1
            assert np.abs(x - clean).max() <= 0.3 + 1e-5 and x.min() >= 0 and x.max() <= 1
            assert attack == EVADING[0] or (x[clean == 0] == 0).all()
    assert stored == (np.isin(folder.rows.attack, EVADING) & folder.rows.fooled).sum() > 0


def test_thresholds_keep_the_rate_of_false_alarms(audit, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "FIT", 200)
    settings = {
        "run": audit.folder,
        "data": "digits",
        "model": "digits-cnn",
        "train": "digits?split=train",
        "samples": 12,
    }
    request = DetectorsRequest(**settings, detector="mahalanobis", fpr=0.2)
    plan = run.make_plan(
        Call(
            study=STUDY, request=request, command="", progress=SilentProgress(), out=tmp_path / "a"
        )
    )
    suspicion, threshold = run._fit(plan, 0, 0.2, "digits-cnn", "mahalanobis")
    others = plan.train.load(range(500, 900))
    assert 0.12 < float((suspicion(others) > threshold).double().mean()) < 0.28


def test_rates_follow_from_rows_of_two_models():
    """Random scores, whose rates are counted sample by sample."""
    rng = np.random.default_rng(0)
    parts = [
        rows.build(
            STUDY.resolve(STUDY.rows),
            20,
            model=model,
            detector="d",
            attack=attack,
            sample_id=np.arange(20),
            score=rng.normal(size=20),
            threshold=0.3,
            fooled=rng.random(20) < (0.1 if attack == "clean" else 0.6),
        )
        for model in "ab"
        for attack in ("clean", "fgsm", EVADING[0])
    ]
    manifest = {"data": {"name": "x", "classes": []}, "models": [], "seconds": 0.0}
    request = DetectorsRequest(run="r", data="x", model="m", train="t", detector="d")
    facts = DetectorsFacts(eps=0.1, eps_text="0.1", distance="linf")
    table = rows.concatenate(parts)
    result = summarise(
        Folder(path="r", manifest=manifest, request=request, facts=facts, rows=table)
    )
    for number, entry in enumerate(result.detectors):
        clean, static, adaptive = parts[3 * number : 3 * number + 3]
        right = [not fooled for fooled in clean.fooled]
        missed = [bool(f and s <= 0.3) for f, s in zip(static.fooled, static.score, strict=True)]
        evaded = [
            bool(f and s <= 0.3) for f, s in zip(adaptive.fooled, adaptive.score, strict=True)
        ]
        assert entry.robust.k == sum(r and not f for r, f in zip(right, static.fooled, strict=True))
        assert entry.static.k == sum(r and not m for r, m in zip(right, missed, strict=True))
        assert entry.adaptive.k == sum(
            r and not m and not e for r, m, e in zip(right, missed, evaded, strict=True)
        )
    tables = {table.name: table for table in result.report().blocks}
    assert [row[:2] for row in tables["detectors"].rows] == [("a", "d"), ("b", "d")]


@pytest.mark.slow
def test_an_honest_folder_verifies_and_a_finished_run_gets_detectors(audit, tmp_path):
    out = tmp_path / "run"
    brinell.audit("digits-cnn", "digits", samples=5, eps="0.3", attack="fgsm", out=out)
    repetition = {
        "samples": 5,
        "eps": "0.3",
        "attack": "fgsm",
        "detector_data": "digits?split=train",
        "detector": "background",
    }
    brinell.audit("digits-cnn", "digits", **repetition, out=out, resume=True)
    assert brinell.verify(out).passed
    moved = out.rename(tmp_path / "moved")
    assert brinell.verify(moved, trust=moved).passed


REFUSALS = [
    ({"detector_data": "digits"}, "detectors need other inputs"),
    ({"detector": "nosuch"}, "there is no detector"),
    ({"fpr": 0.7}, "fpr is 0.7"),
    ({"detector_data": None}, "needs clean data"),
    ({"targeted": "3"}, "does not go with"),
]


def test_bad_requests(tmp_path, subtests):
    for number, (settings, message) in enumerate(REFUSALS):
        with subtests.test(message), pytest.raises(BrinellError, match=message):
            brinell.audit(
                "digits-cnn",
                "digits",
                **SETTINGS | {"detector": "background"} | settings,
                out=tmp_path / str(number),
            )
