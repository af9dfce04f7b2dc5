"""`--targeted`: from the request to the records, and what verification says of them."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

import brinell
from _helpers import Recorder, plan_of, run_audit
from _refusals import refused
from brinell.core.criterion import WrittenProbability
from brinell.core.errors import RequestError
from brinell.core.record import CLEAN, Outcome
from brinell.core.streams import Streams
from brinell.datasets._memory import from_arrays
from brinell.engine.criteria import attackable_samples, parse_targeting
from brinell.studies.register import write_page

X = np.array([[0.50, 0.5], [0.45, 0.5], [0.55, 0.5], [0.1, 0.5]], dtype=np.float32)
Y = np.array([1, 1, 1, 0])


def bands(x):
    """Class 0 below 0.3, class 1 from there to 0.7, class 2 above: Linf distances can be read off
    the first value.
    """
    x0 = x.flatten(1)[:, 0]
    return 20 * torch.stack([0.3 - x0, torch.minimum(x0 - 0.3, 0.7 - x0), x0 - 0.7], 1)


def net():
    return Recorder(bands, classes=3)


def outcomes(run, eps):
    records = run.rows
    rows = np.isclose(np.ma.filled(records.attacked, 0), eps)
    return dict(zip(records.sample_id[rows].tolist(), records.outcome[rows].tolist(), strict=True))


SLOW = ["pgd?steps=20&random_start=false", "fab?steps=20", "square?steps=200"]


@pytest.mark.parametrize(
    "attacks", [["apgd-ce?steps=20"], pytest.param(SLOW, marks=pytest.mark.slow)], ids=len
)
def test_only_the_target_class_counts(attacks, tmp_path):
    """From 0.5 both neighbours are 0.2 away: at 0.21 class 2 is reached, from 0.45 class 0 alone
    is.
    """
    for attack in attacks:
        run = run_audit(tmp_path / attack, net(), X, Y, attack=(attack,), eps="0.21", targeted="2")
        assert outcomes(run, 0.21) == {0: "broken", 1: "survived", 2: "broken", 3: "survived"}
        records = run.rows
        fooled = records.outcome == Outcome.BROKEN
        assert (
            (records.adv_pred[fooled] == 2).all()
            and (records.target == 2).all()
            and (records.adv_margin[fooled] > 0).all()
        )
        assert run.manifest["criterion"] == {"name": "targeted", "towards": "2"}
    untargeted = run_audit(tmp_path / "untargeted", net(), X, Y, attack=attacks[:1], eps="0.21")
    assert outcomes(untargeted, 0.21)[1] == "broken", (
        "untargeted, the nearer class 0 counts as well"
    )


def test_samples_of_the_target_class_are_left_out(tmp_path):
    run = run_audit(tmp_path / "run", net(), X, Y, attack=("pgd",), eps="0.21", targeted="0")
    records = run.rows
    assert set(records.sample_id.tolist()) == {0, 1, 2} and (records.target == 0).all()


def test_each_sample_has_its_least_likely_class(tmp_path):
    run = run_audit(
        tmp_path / "run", net(), X, Y, attack=("pgd",), eps="0.21", targeted="least-likely"
    )
    records = run.rows
    clean = records.attack == CLEAN
    assert records.target[clean].tolist() == bands(torch.as_tensor(X)).argmin(1).tolist()


def test_a_random_class_is_never_the_true_one_and_the_same_again(tmp_path):
    x, y = np.repeat(X[:1], 40, axis=0), np.ones(40, dtype=np.int64)
    run = run_audit(tmp_path / "run", net(), x, y, attack=("fgsm",), eps="0.1", targeted="random")
    clean = run.rows.target[run.rows.attack == CLEAN]
    assert set(clean.tolist()) == {0, 2}
    repeat = run_audit(
        tmp_path / "again",
        net(),
        x,
        y,
        attack=("fgsm",),
        eps="0.1",
        targeted="random",
        batch_size=7,
    )
    assert repeat.rows.target[repeat.rows.attack == CLEAN].tolist() == clean.tolist()


def test_verification_judges_by_the_target_class(tmp_path_factory, subtests):
    for targeted in ["random"]:
        with subtests.test(str((targeted,))):
            tmp_path = tmp_path_factory.mktemp("row")
            run_audit(tmp_path / "run", net(), X, Y, attack=("pgd",), eps="0.25", targeted=targeted)
            write_page(tmp_path / "run")
            data = from_arrays(X, Y, domain=net().domain)
            assert brinell.verify(tmp_path / "run", net(), data).passed
            inverted = Recorder(lambda x: bands(x)[:, [2, 1, 0]], classes=3)
            inverted.digest = net().digest
            assert not brinell.verify(tmp_path / "run", inverted, data).passed


def test_an_attack_that_cannot_be_led_is_named(tmp_path):
    plan = plan_of(net(), X, Y, attack=("hop-skip-jump", "pgd"), eps="0.2", targeted="2")
    assert plan.models[0].skipped == {"hop-skip-jump": "it cannot be led to a target class"}


def test_rules_for_classes_by_hand():
    """A name goes before a number, least-likely is the smallest answer, and of others each is drawn
    as often."""
    names = ("b", "0", "a", "c")
    assert [
        parse_targeting(text, names).class_index for text in ("a", "0", "1", "7", "random")
    ] == [2, 1, 1, 7, None]
    assert parse_targeting(None, names) is None
    logits, y = torch.tensor([[3.0, 1.0, 2.0, 4.0]]).repeat(3000, 1), torch.arange(3000) % 4
    streams = Streams.of(0, torch.arange(3000))
    assert parse_targeting("a", names).classes(logits, y, streams).tolist() == [2] * 3000
    assert parse_targeting("least-likely", names).classes(logits, y, streams).tolist() == [1] * 3000
    drawn = parse_targeting("random", names).classes(logits, y, streams)
    counts = torch.zeros(4, 4, dtype=int).index_put(
        (y, drawn), torch.ones(3000, dtype=int), accumulate=True
    )
    assert (
        counts.diagonal().tolist() == [0] * 4
        and counts[~torch.eye(4, dtype=bool)].min() > 200
        and counts.sum() == 3000
    )
    for classes, misfits in ((3, True), (2, True), (8, False)):
        with (
            pytest.raises(RequestError, match="has the classes 0 to") if misfits else nullcontext()
        ):
            parse_targeting("7" if classes != 2 else "a", names).check("m", classes)
    labels = np.array([2, 0, 2, 1])
    assert attackable_samples(labels, parse_targeting("a", names)).tolist() == [1, 3]
    assert attackable_samples(labels, parse_targeting("random", names)).tolist() == [0, 1, 2, 3]
    assert attackable_samples(
        labels, None, WrittenProbability(wrong_class=0, wrong_above=0.5)
    ).tolist() == [
        0,
        2,
        3,
    ]
    with pytest.raises(RequestError, check=refused("engine.criteria.attackable_samples")):
        attackable_samples(np.array([2, 2]), parse_targeting("a", names))
