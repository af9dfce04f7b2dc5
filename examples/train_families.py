"""Train a network of examples/models/families.py on CIFAR-10 or MNIST, on a CPU in some minutes,
and print its accuracy.

    python examples/train_families.py cifar10_vit $D/cifar10 --out vit.safetensors
    python examples/train_families.py mnist_mixer $D/mnist --minutes 2 --out mixer.safetensors

The folder holds NAME_train*.npz and NAME_test.npz with `images` uint8 (N, H, W) or (N, H, W, C) and
`labels`. The training takes `--minutes` of processor time: the rate rises for a tenth of it and
falls along a cosine. Images are shifted by up to an eighth of their side, those of CIFAR-10
mirrored and covered in one place too. The test images have no part in any choice.
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

BATCH = 128
RATES = {"vit": 2e-3, "mixer": 4e-3, "mobile": 1e-2}
WEIGHT_DECAY = 0.05
SMOOTHING = 0.1


def images(folder: Path, split: str) -> tuple[Tensor, Tensor]:
    """(n, C, H, W) uint8 and (n,) labels of all archives of a split."""
    files = sorted(folder.glob(f"*_{split}*.npz"))
    if not files:
        raise SystemExit(
            f"{folder} holds no *_{split}*.npz: name the folder cifar10 or mnist of the shared data"
        )
    archives = [np.load(file) for file in files]
    x = np.concatenate([archive["images"] for archive in archives])
    x = x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)
    y = np.concatenate([archive["labels"] for archive in archives])
    return torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(y.astype(np.int64))


def augment(x: Tensor, rng: torch.Generator, mirror: bool) -> Tensor:
    """(n, C, H, W) bytes to [0, 1], shifted; with `mirror` half of them turned, and a quarter of
    the side covered in grey.
    """
    x = x.float() / 255
    n, _, height, width = x.shape
    most = height // 8
    padded = F.pad(x, [most] * 4)
    down, right = (torch.randint(0, 2 * most + 1, (n, 1, 1), generator=rng) for _ in range(2))
    rows = down + torch.arange(height)[None, :, None]
    columns = right + torch.arange(width)[None, None, :]
    x = padded[torch.arange(n)[:, None, None], :, rows, columns].permute(0, 3, 1, 2)
    if mirror:
        x = torch.where(torch.rand(n, 1, 1, 1, generator=rng) < 0.5, x.flip(3), x)
        side = height // 4
        y_offset, x_offset = (
            torch.randint(0, height, (n, 1, 1, 1), generator=rng) for _ in range(2)
        )
        covered = ((torch.arange(height)[:, None] - y_offset).abs() < side // 2) & (
            (torch.arange(width) - x_offset).abs() < side // 2
        )
        x = x.masked_fill(covered, 0.5)
    return x


def train(network: nn.Module, x: Tensor, y: Tensor, minutes: float, rate: float, seed: int) -> int:
    """AdamW on the smoothed cross-entropy for so many minutes of processor time; returns the steps."""
    rng = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=WEIGHT_DECAY)
    began, step = time.process_time(), 0
    network.train()
    while True:
        for rows in torch.randperm(len(x), generator=rng).split(BATCH):
            part = (time.process_time() - began) / (60 * minutes)
            if part >= 1:
                network.eval()
                return step
            for group in optimizer.param_groups:
                group["lr"] = rate * min(10 * part + 0.01, 0.5 + 0.5 * math.cos(math.pi * part))
            loss = F.cross_entropy(
                network(augment(x[rows], rng, x.shape[1] == 3)), y[rows], label_smoothing=SMOOTHING
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1


def accuracy(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share that the network gets right."""
    with torch.no_grad():
        answers = torch.cat([network(part.float() / 255).argmax(1) for part in x.split(500)])
    return float((answers == y).float().mean())


def main() -> None:
    """Train, judge, write the weights."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "network", help="a function of examples/models/families.py, such as cifar10_vit"
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.default_generator.manual_seed(options.seed)
    network = getattr(
        import_file(Path(__file__).parent / "models" / "families.py"), options.network
    )()
    (x, y), (x_test, y_test) = images(options.folder, "train"), images(options.folder, "test")
    steps = train(
        network, x, y, options.minutes, RATES[options.network.rpartition("_")[2]], options.seed
    )
    save_file(network.state_dict(), options.out)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    print(
        f"{options.network}, {parameters:,} parameters: {steps} steps, "
        f"{steps * BATCH / len(x):.1f} epochs",
        end=", ",
    )
    print(f"accuracy {accuracy(network, x_test, y_test):.4f} on {len(x_test)} test images")


if __name__ == "__main__":
    main()
