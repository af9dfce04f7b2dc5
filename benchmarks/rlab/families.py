"""Does the size of a patch matter differently to transformers? RLAB with patches of three sizes on networks of several families.

    python benchmarks/rlab --study families [--robust] [--weights FOLDER] [--samples 100] [--seeds 0 1 2]

CIFAR-10 test images that the network gets right, greedy, noise, L2 at most --eps, 500 queries. Without --robust plain networks:
two convolutional ones of the shared data, and a vision transformer, a mixer and a mobile network of examples/train_families.py,
whose weights (NAME.safetensors) lie in --weights. With it: two robust convolutional networks and two robust transformers.

A query is one image shown to the network, the check of the clean image included. An image counts with its mean over the seeds,
one that was not fooled with the whole budget. Ratios are paired by image, with 95 % bootstrap intervals over images.
"""

from pathlib import Path

import measure
from black_box import Bench
from safetensors.torch import load_file
from torch import nn

from rlab.common import capped, cells, fight, over

SIDES = (2, 4, 8)
MOST = 500
PLAIN = ("resnet20", "captum_cnn", "cifar10_mobile", "cifar10_vit", "cifar10_mixer")
ROBUST = ("resnet2b", "cnn_wide_kw", "vit_pgd_2_3_16", "vit_ibp_3_3_8")


def open_bench(name: str, weights: Path, samples: int) -> Bench:
    """A network of the shared data, of examples/train_families.py, or of an ONNX file, with its images."""
    if name in measure.NETWORKS:
        return Bench.of(name, samples)
    subject, families = measure.subject("resnet20"), measure.import_example("models/families.py")
    if name.startswith("vit_"):
        module: nn.Module = families.vit_onnx(str(measure.SHARED / "onnx" / f"{name}.onnx"))
    else:
        module = getattr(families, name)()
        module.load_state_dict(load_file(weights / f"{name}.safetensors"))
    module = module.eval().requires_grad_(False)
    return Bench(subject, module, *subject.samples(samples, module))


def main() -> None:
    """The table."""
    options = measure.arguments(
        __doc__, study=("families",), robust=False, networks=[], weights=Path, eps=1.0, samples=100, seeds=[0]
    )
    columns = ["network", *(column for side in SIDES for column in (f"{side} x {side}: fooled", "mean queries"))]
    title = f"Patch size and families: CIFAR-10, L2 {options.eps:g}, {options.samples} images, {MOST} queries"
    table = measure.Table(title, columns + [f"{side} over 2" for side in SIDES[1:]])
    for name in options.networks or (ROBUST if options.robust else PLAIN):
        bench = open_bench(name, options.weights or Path("runs/families"), options.samples)
        ends = [[fight(bench, f"rlab?patch={side}", options.eps, MOST, seed) for seed in options.seeds] for side in SIDES]
        figures = [
            cell for outcomes in ends for cell in (*cells(outcomes, "rate"), f"{float(capped(outcomes, MOST).mean()):.0f}")
        ]
        table.add(name, *figures, *(over(outcomes, ends[0], MOST) for outcomes in ends[1:]))
