"""Detection end to end on digits: rows that add up, thresholds that hold, what is refused; areas under curves by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from _browser import check_everywhere, chromium
from _mutations import count_refused
from brinell.analysis.auc import auc
from brinell.cli import run as cli
from brinell.engine.sources import open_data
from brinell.store.rows import take
from brinell.studies.detection.analysis import curve, summarise
from brinell.studies.detection.page import render, summary_text
from brinell.studies.detection.records import CLEAN, EVADING, TABLE


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    work = tmp_path_factory.mktemp("work")
    code = cli(
        [
            "audit",
            "--samples",
            "60",
            "--eps",
            "0.1,0.3",
            "--attack",
            "fgsm",
            "--attack",
            "pgd?steps=5",
            "--out",
            str(work / "run"),
        ]
    )
    assert code == 0
    return work


def detect(work, out, *options):
    return cli(["detect", str(work / "run"), "--train", "digits?split=train", "--fit", "300", "--out", str(out), *options])


@pytest.fixture(scope="module")
def detection_folder(work):
    assert detect(work, work / "found", "--steps", "20", "--samples", "40") == 0
    return TABLE.read(work / "found")


def test_rows_add_up(detection_folder, work):
    scores, models = detection_folder.rows, detection_folder.manifest["models"]
    assert [guard["name"] for guard in models[0]["detectors"]] == ["background", "feature-squeezing", "mahalanobis"]
    for detector_result in summarise(detection_folder).detectors:
        rows = take(scores, scores.detector == detector_result.detector)
        clean = take(rows, rows.attack == CLEAN)
        assert len(clean) == detector_result.n == 40 and (~clean.fooled).sum() == models[0]["right"]
        # What holds without the detector is what no stage of the run has broken.
        broken = set(rows.sample_id[np.isin(rows.attack, ["fgsm", "pgd?steps=5"])].tolist())
        assert detector_result.robust.k == models[0]["right"] - len(broken)
        assert detector_result.robust.k <= detector_result.static.k and detector_result.adaptive.k <= detector_result.static.k
        assert {r.attack for r in detector_result.rocs} == {"fgsm", "pgd?steps=5", *EVADING}


def test_evading_inputs_are_what_the_rows_say(detection_folder):
    """Within eps and the bounds; the background untouched where it was to be kept."""
    stored = load_file(detection_folder.path / "evading.safetensors")
    data = open_data("digits")
    assert stored
    for key, x in stored.items():
        _, _, form, sample = key.split("/")
        clean = data.load([int(sample)])[0].numpy()
        assert np.abs(x - clean).max() <= 0.3 + 1e-5 and x.min() >= 0 and x.max() <= 1
        if form == EVADING[1]:
            assert (x[clean == 0] == 0).all()
    fooled = take(detection_folder.rows, np.isin(detection_folder.rows.attack, EVADING) & detection_folder.rows.fooled)
    assert len(stored) == len(fooled)


def test_thresholds_keep_the_rate_of_false_alarms(work):
    assert detect(work, work / "ten", "--steps", "0", "--fpr", "0.2", "--samples", "60", "--detector", "mahalanobis") == 0
    (detector_result,) = summarise(TABLE.read(work / "ten")).detectors
    assert detector_result.false_alarms.low < 0.2 < detector_result.false_alarms.high
    assert (
        detector_result.adaptive is None
        and "No adaptive attack ran" in summary_text(summarise(TABLE.read(work / "ten")))
        or detector_result.static.k == detector_result.robust.k
    )


@pytest.mark.browser
@pytest.mark.slow
def test_the_page_in_a_browser(detection_folder):
    with chromium() as browser:
        check_everywhere(browser, detection_folder.path / "report.html")


BAD_REQUESTS = [
    (["--train", "digits"], "detectors need other inputs"),
    (["--detector", "nosuch"], "there is no detector"),
    (["--fpr", "0.7"], "fpr is 0.7"),
]


def test_bad_requests(work, tmp_path, capsys, subtests):
    for number, (options, message) in enumerate(BAD_REQUESTS):
        with subtests.test(str(message)):
            folder = tmp_path / str(number)
            folder.mkdir()
            assert detect(work, folder / "out", *options) == 2
            assert message in capsys.readouterr().err
            assert not (folder / "out").exists()


# Figures


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_the_area_is_that_under_the_curve(clean, adversarial):
    clean, adversarial = np.array(clean, float), np.array(adversarial, float)
    false, true = curve(clean, adversarial)
    assert false[0] == true[0] == 0 and false[-1] == true[-1] == 1
    assert np.trapezoid(true, false) == pytest.approx(auc(clean, adversarial))


def test_a_manifest_of_another_form(detection_folder):
    assert count_refused(40, detection_folder.path / "manifest.json", lambda: render(TABLE.read(detection_folder.path))) > 20
