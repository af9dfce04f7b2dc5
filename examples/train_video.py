"""Train the network of examples/models/video.py on clips in an .npz archive, on a CPU in some
minutes.

    python examples/train_video.py $D/video/asl_gesture_clips.npz --out runs/gestures
    python examples/train_video.py $D/video/davis_clips.npz --out runs/davis --hold-out 1 --mirror

The archive holds `clips` uint8 (N, T, H, W, 3), `labels` (N,), `classes`, and which clips belong
together: `signer` or `sequence` (N,) with `first_frame` (N,). Of each label and signer, or
sequence, the last clips are held out: the output folder gets train.npz and test.npz beside
weights.safetensors. `--validate` holds the last of the other clips out too and judges on those
alone. The settings below were chosen in this way, and the test clips had no part in any choice.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from brinell.core.user_files import import_file

BATCH = 16
PEAK_RATE = 4e-3
WEIGHT_DECAY = 0.02
SMOOTHING = 0.1
TURN, ZOOM, SHIFT, LIGHT = 0.25, 0.2, 0.15, 0.2
"""How far a clip is moved at random: radians, share of its size, share of its side, share of its
contrast and of the range."""
Arrays = dict[str, np.ndarray]


def split(arrays: Arrays, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the clips to train on, and of the last ones of each group and label, held out."""
    group = next(
        (arrays[name] for name in ("signer", "sequence") if name in arrays),
        np.zeros(len(arrays["labels"])),
    )
    held_rows: list[int] = []
    for key in sorted(set(zip(arrays["labels"].tolist(), group.tolist(), strict=True))):
        rows = np.flatnonzero((arrays["labels"] == key[0]) & (group == key[1]))
        held_rows += rows[np.argsort(arrays["first_frame"][rows], kind="stable")][-last:].tolist()
    out = np.array(sorted(held_rows))
    return np.setdiff1d(np.arange(len(group)), out), out


def select_rows(arrays: Arrays, rows: np.ndarray) -> Arrays:
    """Selected clips with all their arrays."""
    n = len(arrays["labels"])
    return {name: array[rows] if len(array) == n else array for name, array in arrays.items()}


def inputs(arrays: Arrays) -> tuple[Tensor, Tensor]:
    """(n, 3, T, H, W) in [0, 1] and (n,) labels."""
    x = (
        torch.from_numpy(np.ascontiguousarray(arrays["clips"].transpose(0, 4, 1, 2, 3)))
        .float()
        .div_(255)
    )
    return x, torch.from_numpy(arrays["labels"].astype(np.int64))


def augment(x: Tensor, rng: torch.Generator, mirror: bool) -> Tensor:
    """Turn, zoom, shift and brighten clips at random, all frames of one clip alike; half of the
    clips run backwards.
    """
    n, channels, frames, height, width = x.shape

    def draw(most: float) -> Tensor:
        return (2 * torch.rand(n, generator=rng) - 1) * most

    angle, zoom, sign = draw(TURN), torch.exp(draw(ZOOM)), torch.ones(n)
    if mirror:
        sign = torch.where(draw(1.0) < 0, -1.0, 1.0)
    turn = torch.stack([angle.cos() * zoom * sign, -angle.sin() * zoom, draw(2 * SHIFT)], 1)
    second_row = torch.stack([angle.sin() * zoom * sign, angle.cos() * zoom, draw(2 * SHIFT)], 1)
    grid = F.affine_grid(
        torch.stack([turn, second_row], 1), [n, 1, height, width], align_corners=False
    )
    # Time is folded into the channels, so that all frames of a clip share one grid.
    flat = F.grid_sample(x.flatten(1, 2), grid, padding_mode="border", align_corners=False)
    x = flat.reshape(n, channels, frames, height, width)
    x = torch.where((draw(1.0) < 0).reshape(-1, 1, 1, 1, 1), x.flip(2), x)
    contrast, light = 1 + draw(LIGHT), draw(LIGHT)
    return (
        (x - 0.5) * contrast.reshape(-1, 1, 1, 1, 1) + 0.5 + light.reshape(-1, 1, 1, 1, 1)
    ).clamp(0, 1)


def initialise(network: nn.Module, rng: torch.Generator) -> None:
    """Weights from a generator of the recipe's own."""
    for module in network.modules():
        if isinstance(module, nn.Conv3d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=rng)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


def train(network: nn.Module, x: Tensor, y: Tensor, epochs: int, seed: int, mirror: bool) -> None:
    """AdamW on the smoothed cross-entropy; the rate rises for a tenth of the steps and falls along
    a cosine.
    """
    rng = torch.Generator().manual_seed(seed)
    initialise(network, rng)
    optimizer = torch.optim.AdamW(network.parameters(), lr=PEAK_RATE, weight_decay=WEIGHT_DECAY)
    steps, step = epochs * math.ceil(len(x) / BATCH), 0
    network.train()
    for epoch in range(epochs):
        losses = []
        for rows in torch.randperm(len(x), generator=rng).split(BATCH):
            step += 1
            part = step / steps
            optimizer.param_groups[0]["lr"] = PEAK_RATE * min(
                10 * part, 0.5 + 0.5 * math.cos(math.pi * part)
            )
            loss = F.cross_entropy(
                network(augment(x[rows], rng, mirror)), y[rows], label_smoothing=SMOOTHING
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        if epoch % 10 == 9:
            print(
                f"epoch {epoch + 1}: loss {np.mean(losses):.3f}, "
                f"{time.process_time():.0f} s of processor time",
                flush=True,
            )
    network.eval()


def predict(network: nn.Module, x: Tensor) -> Tensor:
    """(n,) classes."""
    with torch.no_grad():
        return torch.cat([network(part).argmax(1) for part in x.split(BATCH)])


def main() -> None:
    """Train, judge on the clips held out, write weights and both parts of the data."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", type=Path)
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="folder for weights.safetensors, train.npz and test.npz",
    )
    parser.add_argument(
        "--hold-out", type=int, default=3, help="last clips of each label and signer, or sequence"
    )
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--mirror", action="store_true", help="left and right may change sides")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--validate",
        action="store_true",
        help="judge on clips taken from the training ones; writes nothing",
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with np.load(options.clips) as archive:
        arrays = {name: archive[name] for name in archive.files if name != "masks"}
    rows, held_rows = split(arrays, options.hold_out)
    parts = {"train": select_rows(arrays, rows), "test": select_rows(arrays, held_rows)}
    if options.validate:
        rows, held_rows = split(parts["train"], 2 if options.hold_out > 1 else 1)
        parts = {
            "train": select_rows(parts["train"], rows),
            "test": select_rows(parts["train"], held_rows),
        }
    (x, y), (x_held, y_held) = inputs(parts["train"]), inputs(parts["test"])
    classes = len(arrays["classes"])
    network = import_file(Path(__file__).parent / "models" / "video.py").r2plus1d(str(classes))
    began = time.process_time(), time.perf_counter()
    train(network, x, y, options.epochs, options.seed, options.mirror)
    seconds = time.process_time() - began[0], time.perf_counter() - began[1]
    accuracies = [
        float((predict(network, images) == truth).float().mean())
        for images, truth in ((x, y), (x_held, y_held))
    ]
    print(
        f"{len(x)} clips to train on, {len(x_held)} held out; trained in "
        f"{seconds[1]:.0f} s ({seconds[0]:.0f} of processor time)"
    )
    print(f"accuracy {accuracies[0]:.3f} on the former, {accuracies[1]:.3f} on the latter")
    right = predict(network, x_held) == y_held
    print(
        ", ".join(
            f"{name} {float(right[y_held == label].float().mean()):.2f}"
            for label, name in enumerate(arrays["classes"])
        )
    )
    if not options.validate:
        options.out.mkdir(parents=True, exist_ok=True)
        save_file(network.state_dict(), options.out / "weights.safetensors")
        for name, part in parts.items():
            np.savez_compressed(options.out / f"{name}.npz", **part)


if __name__ == "__main__":
    main()
