"""Surrogates: their coefficients are learned with the gradient, their passes are no queries, and
what misleads is dropped.
"""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from _environments import predicted
from _helpers import Recorder, batch_of, rows_of, threat_of
from _placing import Minus, Plus, linear
from brinell import open as open_folder
from brinell.cli import run as main
from brinell.core.criterion import MISCLASSIFIED, Probability, Targeted
from brinell.core.domain import Domain
from brinell.core.errors import ModelError, RequestError
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.engine.surrogates import check_gradients, mean_of, surrogate_notes
from brinell.rlab.distort import variants
from brinell.rlab.episodes import Placement, Rules
from brinell.rlab.policy import Greedy
from brinell.rlab.search import run_episodes
from brinell.rlab.sensitivity import GUIDED, TRUST, Posterior, Trust, class_weights
from brinell.store.run import Run

ROW = torch.tensor([0])


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def scaled(x):
    """A direction as the posterior is given it: of root mean square 1."""
    return x / x.square().mean().sqrt()


# The posterior


def test_gradient_and_coefficients_are_those_of_bayesian_linear_regression():
    """In closed form, with the unit that the answers give: a known prior mean, a covariance of two
    blocks, noise by answer.
    """
    trust = Trust(mean=0.3, deviation=0.2)
    posterior = Posterior(2, 2, 4, noise=0.3, surrogates=2, trust=trust)
    row = torch.tensor([1])
    posterior.forget(row, torch.tensor([[1.5, 0.5, 1.0, 1.0]]))
    prior = torch.block_diag(
        torch.kron(torch.eye(2), torch.diag(torch.tensor([1.5, 0.5, 1.0, 1.0]))),
        0.04 * torch.eye(2),
    )
    questions, effects, noise = [], normal(5, seed=1), []
    for step, effect in enumerate(effects):
        slopes, change = normal(1, 2, 2, 4, seed=10 + step), normal(1, 2, 4, seed=20 + step)
        posterior.follow(row, slopes)
        slopes = posterior.slopes[row]
        alignments = (slopes[0] * change).sum((1, 2))
        questions.append(torch.cat([change.flatten(), alignments]))
        variance, guided = (
            change.flatten() @ prior[:8, :8] @ change.flatten(),
            0.04 * alignments.square().sum() + (0.3 * alignments.sum()).square(),
        )
        noise.append(0.3 * (variance + GUIDED * guided))
        posterior.update(row, change, effect[None])
    a, start = (
        torch.stack(questions),
        torch.cat([torch.zeros(8), torch.full((2,), 0.3)]) * posterior.unit[1],
    )
    gain = prior @ a.T @ torch.linalg.inv(a @ prior @ a.T + torch.diag(torch.stack(noise)))
    expected = start + gain @ (effects - a @ start)
    assert torch.allclose(posterior.coefficients[1] * posterior.unit[1], expected[8:], atol=1e-4)
    mean = expected[:8].view(2, 4) + torch.einsum("s,scp->cp", expected[8:], posterior.slopes[1])
    assert torch.allclose(posterior.mean[1], mean, atol=1e-4)
    assert not posterior.mean[0].any(), "the other slot learned nothing"


def test_without_surrogates_nothing_of_them_remains():
    plain, trusting = (
        Posterior(1, 2, 3, trust=trust)
        for trust in (Trust(mean=0.0, deviation=0.0), Trust(mean=9.0, deviation=9.0))
    )
    for posterior in (plain, trusting):
        posterior.update(ROW, normal(1, 2, 3), torch.tensor([2.0]))
    assert torch.equal(plain.mean, trusting.mean) and plain.coefficients.shape == (1, 0)


def test_a_misleading_surrogate_loses_its_coefficient_and_a_right_one_keeps_it():
    """The search follows what it believes, as RLAB does; the gradient has a part along the
    surrogate, or none.
    """
    for seed in range(6):
        channels, places = 3, 256
        direction, remainder = (
            scaled(normal(channels, places, seed=10 * seed + part)) for part in (1, 3)
        )
        remainder = remainder - (remainder * direction).mean() * direction
        coefficients = []
        for part in (0.0, 0.5):
            gradient = part * direction + 0.9 * remainder
            posterior = Posterior(1, channels, places, surrogates=1, trust=TRUST)
            posterior.forget(ROW, torch.ones(1, places))
            posterior.follow(ROW, direction[None, None])
            assert posterior.coefficients.item() == pytest.approx(TRUST.mean)
            for step in range(40):
                change = 0.1 * scaled(posterior.mean[0]) + 0.1 * normal(
                    channels, places, seed=100 * seed + step
                )
                posterior.update(ROW, change[None], (gradient * change).sum()[None])
            coefficients.append(posterior.coefficients.item())
        assert abs(coefficients[0]) < 0.07 and coefficients[1] > 0.15, coefficients


def test_predictions_are_those_that_the_update_learns_from():
    """Without noise the answer that was learned is predicted, and nothing about it is open."""
    posterior = Posterior(1, 1, 6, noise=0, surrogates=1)
    posterior.forget(ROW, torch.ones(1, 6))
    posterior.follow(ROW, normal(1, 1, 1, 6, seed=3))
    change = normal(1, 1, 6)
    assert predicted(posterior, ROW, change)[1].item() > 0.1
    posterior.update(ROW, change, torch.tensor([2.5]))
    mean, variance = predicted(posterior, ROW, change)
    assert mean.item() == pytest.approx(2.5, abs=1e-4) and variance.item() == pytest.approx(
        0, abs=1e-4
    )


def test_predictions_have_the_unit_of_the_answers():
    """Answers three times as large make means three times and variances nine times as large."""
    change, question = normal(1, 1, 6), normal(1, 1, 6, seed=7)
    predictions = []
    for factor in (1.0, 3.0):
        posterior = Posterior(1, 1, 6)
        posterior.forget(ROW, torch.ones(1, 6))
        posterior.update(ROW, change, torch.tensor([2.5 * factor]))
        predictions.append(predicted(posterior, ROW, question))
    (mean, variance), (larger_mean, larger_variance) = predictions
    torch.testing.assert_close(larger_mean, 3 * mean)
    torch.testing.assert_close(larger_variance, 9 * variance)
    assert variance.item() > 0 and mean.item() != 0


# What the surrogates are asked about


def test_the_weights_of_classes_follow_the_criterion(subtests):
    for criterion, signs in [
        (MISCLASSIFIED, (-1, 1, 1)),
        (Targeted(torch.tensor([2])), (-1, -1, 1)),
        (Probability(true_below=0.2), (-1, 1, 1)),
        (Probability(wrong_class=1, wrong_above=0.5), (-1, 1, -1)),
    ]:
        with subtests.test(criterion=criterion, signs=signs):
            logits, x = torch.tensor([[2.0, 1.95, 1.7]]), torch.zeros(1, 1, 4)
            rng = Streams.of(0, torch.tensor([5]))
            weights = class_weights(
                lambda shifted, criterion=criterion, x=x: criterion.margin(
                    shifted, torch.tensor([0]), x
                ),
                logits,
                rng,
            )
            assert weights.sign().flatten().tolist() == list(signs), weights
            second_weights = class_weights(
                lambda shifted, criterion=criterion, x=x: criterion.margin(
                    shifted, torch.tensor([0]), x
                ),
                3 * logits + 7,
                rng,
            )
            if not isinstance(criterion, Probability):
                assert torch.allclose(weights, second_weights), (
                    "neither scale nor offset of the logits matters"
                )


# Episodes

PLACES = 128
WIDE = Domain(kind="signal", shape=(1, PLACES))
DIRECTION = normal(PLACES, seed=4)


def victim(seed=0):
    """A linear model whose gradient has as much in common with `DIRECTION` as networks of one kind
    have."""
    weight = DIRECTION + 1.5 * normal(PLACES, seed=50 + seed)
    return linear(
        20 * weight / weight.norm(), float(-20 * (weight / weight.norm()).sum() / 2 - 4), WIDE
    )


def search(surrogates=(), seed=0, queries=150, eps=0.45, model=None):
    """Queries of eight equal samples, and the ledger."""
    model = model or victim(seed)
    n = 8
    batch = batch_of(torch.full((n, 1, PLACES), 0.5), torch.zeros(n, dtype=torch.int64))
    threat = replace(threat_of(eps, "l2", model.domain, n=n), criterion=MISCLASSIFIED)
    ledger = Ledger(
        model, batch, threat, access=Access.SCORES, queries=queries, surrogates=surrogates
    )
    placement = Placement(
        grid=PatchGrid((1, PLACES), (2,)),
        variants=variants((Plus(), Minus()), model.domain, (1, 3), 1),
        rules=Rules(steps=queries),
    )
    policy = Greedy(choices=placement.choices)
    run_episodes(ledger.oracle(), batch, threat, placement, Streams.of(seed, batch.ids), policy)
    return torch.where(ledger.fooled, ledger.best.first_success, queries).float(), ledger


def guide(weight, name="guide"):
    weight = torch.as_tensor(weight)
    return Recorder(
        lambda x: torch.stack([-(x.flatten(1) @ weight), x.flatten(1) @ weight], 1), WIDE, name=name
    )


@pytest.mark.slow
def test_a_surrogate_of_its_kind_saves_queries_and_one_of_another_kind_costs_next_to_none():
    baseline, kind, stranger = [], [], []
    for seed in range(4):
        baseline.append(search(seed=seed)[0])
        kind.append(search((guide(DIRECTION),), seed)[0])
        stranger.append(search((guide(normal(PLACES, seed=99 + seed)),), seed)[0])
    baseline, kind, stranger = (
        float(torch.stack(part).mean()) for part in (baseline, kind, stranger)
    )
    assert kind < 0.8 * baseline, (kind, baseline)
    assert stranger < 1.15 * baseline, (stranger, baseline)


def test_passes_of_surrogates_count_apart_and_by_sample():
    surrogates = guide(DIRECTION), guide(-DIRECTION, "against")
    model = victim()
    _, ledger = search(surrogates, model=model)
    assert surrogates[0].queries == surrogates[1].queries > 0
    assert int(ledger.costs.surrogate_passes.sum()) == 2 * surrogates[0].queries
    assert int(ledger.costs.forwards.sum()) == model.queries and not ledger.costs.backwards.any()
    assert (ledger.costs.surrogate_passes >= 2).all(), "each sample asks about its clean input"


def test_a_search_with_surrogates_repeats_itself():
    (first, _), (second, _) = (search((guide(DIRECTION),)) for _ in range(2))
    assert torch.equal(first, second)


def test_a_surrogate_without_a_finite_gradient_is_refused():
    broken = Recorder(lambda x: (x.flatten(1)[:, :2] - 0.5).abs().sqrt(), WIDE, name="broken")
    with pytest.raises(
        ModelError, match="surrogate broken gives a gradient of NaN or infinity: leave it out"
    ):
        search((broken,))


# Settings


def test_who_cannot_be_a_surrogate():
    labels = Recorder(lambda x: x.flatten(1)[:, :2], WIDE, name="labels")
    labels.access = Access.SCORES
    with pytest.raises(
        RequestError, match="the surrogate labels gives scores only: name one that gives gradients"
    ):
        check_gradients(labels)
    flat = Recorder(lambda x: (x.flatten(1)[:, :2] * 0).detach() + 1, WIDE, name="flat")
    with pytest.raises(RequestError, match="the surrogate flat gives no gradients to follow"):
        check_gradients(flat)
    narrow = Recorder(lambda x: x.flatten(1) @ torch.zeros(3, 2), WIDE, name="narrow")
    with pytest.raises(
        RequestError, match="the surrogate narrow cannot be asked about inputs of 1x128"
    ):
        check_gradients(narrow)
    check_gradients(guide(DIRECTION))


def opened(name, digest, classes):
    return SimpleNamespace(name=name, facts={"digest": digest, "classes": classes})


def test_surrogates_beside_the_models_under_test():
    with pytest.raises(RequestError, match="the surrogate a tells 3 classes apart, and m 2"):
        surrogate_notes([opened("a", "1", 3)], [opened("m", "2", 2)])
    for doubles in (
        [opened("a", "1", 2), opened("a", "2", 2)],
        [opened("a", "1", 2), opened("b", "1", 2)],
    ):
        with pytest.raises(RequestError, match="is named twice"):
            surrogate_notes(doubles, [opened("m", "3", 2)])
    (note,) = surrogate_notes([opened("a", "1", 2), opened("b", "2", 2)], [opened("m", "2", 2)])
    assert "the surrogate b is the model under test itself" in note and "m are white-box" in note
    assert surrogate_notes([opened("a", "1", 2)], [opened("m", "2", 2)]) == []


def test_several_surrogates_of_a_gradient_stage_are_their_mean():
    first, second = guide(DIRECTION), guide(3 * DIRECTION)
    x = normal(2, 1, PLACES)
    assert torch.allclose(mean_of((first, second)).predict(x), 2 * first.predict(x), atol=1e-4)
    assert mean_of((first,)) is first


NETWORKS = """
import torch

class Net(torch.nn.Module):
    def __init__(self, seed, inputs=64, classes=10):
        super().__init__()
        weight = torch.randn(classes, inputs, generator=torch.Generator().manual_seed(seed))
        self.weight = torch.nn.Parameter(weight)

    def forward(self, x):
        return x.flatten(1) @ self.weight.T

def guide(): return Net(1)
def other(): return Net(2)
def fewer(): return Net(1, classes=4)
def wide(): return Net(1, inputs=100)
"""


@pytest.fixture
def networks(tmp_path):
    file = tmp_path / "networks.py"
    file.write_text(NETWORKS)
    return file


AUDIT = [
    "audit",
    "--samples",
    "6",
    "--norm",
    "l2",
    "--eps",
    "1.5",
    "--attack",
    "rlab?steps=40&refine=10",
    "--json",
]


@pytest.mark.slow
def test_bad_surrogates_are_refused_in_one_line(networks, tmp_path, capsys, subtests):
    for surrogates, message in (
        (["fewer"], "tells 4 classes apart, and digits-cnn 10"),
        (["wide"], "wide cannot take the data, images of shape (1, 8, 8)"),
        (["guide", "guide"], "is named twice"),
    ):
        with subtests.test(surrogates=surrogates):
            options = [
                text for name in surrogates for text in ("--surrogate", f"{networks}:{name}")
            ]
            assert main([*AUDIT, *options, "--out", str(tmp_path / "run")]) == 2
            error = capsys.readouterr().err.strip().splitlines()
            assert len(error) == 1 and message in error[0]
            assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_surrogate_that_nothing_follows_is_refused(networks, tmp_path, capsys):
    arguments = [
        "audit",
        "--samples",
        "6",
        "--surrogate",
        f"{networks}:guide",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main([*arguments, "--norm", "l2", "--attack", "square"]) == 2
    assert "no attack follows it" in capsys.readouterr().err


@pytest.mark.slow
def test_records_manifest_page_and_verification_name_the_surrogates(networks, tmp_path, capsys):
    folder, repetition, variant = (tmp_path / name for name in ("run", "again", "other"))
    options = ["--surrogate", f"{networks}:guide", "--surrogate", f"{networks}:other"]
    assert main([*AUDIT, *options, "--out", str(folder)]) == 0
    (audited,) = json.loads(capsys.readouterr().out)["models"]
    (stage,) = audited["stages"]
    run = Run.open(folder)
    records = run.rows
    attacked = records.forwards[records.attack != "clean"] > 0
    passes = records.surrogate_passes[records.attack != "clean"]
    assert (
        (passes[attacked] >= 2).all()
        and not passes[~attacked].any()
        and stage["surrogate_passes"] == passes.sum()
    )
    assert not records.backwards.any(), "the model under test gives scores alone"
    entries = run.manifest["surrogates"]
    assert [entry["name"] for entry in entries] == ["guide", "other"]
    page = (folder / "report.html").read_text()
    assert "guide" in page and "other" in page and "which are no queries" in page
    assert main(["--trust", str(tmp_path), "verify", str(folder)]) == 0
    assert "surrogate" in capsys.readouterr().out
    assert main([*AUDIT, *options, "--out", str(repetition)]) == 0
    assert rows_of(Run.open(repetition).rows) == rows_of(records), (
        "the same seed gives the same rows"
    )
    assert main([*AUDIT, *options[:2], "--out", str(variant)]) == 0
    assert rows_of(Run.open(variant).rows) != rows_of(records)
    assert main([*AUDIT, *options[:2], "--out", str(folder), "--resume"]) == 2, "another request"
    assert (
        open_folder(str(folder)).models[0].stages[0].surrogate_passes == stage["surrogate_passes"]
    )


@pytest.mark.slow
def test_the_model_under_test_as_its_own_surrogate_is_called_white_box(networks, tmp_path, capsys):
    folder = tmp_path / "run"
    arguments = [
        *AUDIT,
        "--model",
        f"{networks}:guide",
        "--surrogate",
        f"{networks}:guide",
        "--out",
        str(folder),
    ]
    assert main(arguments) == 0
    assert "white-box" in capsys.readouterr().err
    assert "white-box" in (folder / "report.html").read_text()
