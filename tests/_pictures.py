"""Small pictures with masks, and a network that gets them right, for tests of dense outputs."""

import numpy as np
from PIL import Image

NETWORK = """import torch
class Threshold(torch.nn.Module):
    def forward(self, x):
        lead = x[:, :1] - 0.5
        return torch.cat([-lead, lead], 1)

def network():
    return Threshold()
"""


def make_pictures(n=5, side=12):
    """(n, side, side, 3) bytes, and masks: whether the first channel is above a half."""
    x = np.random.default_rng(0).integers(0, 256, (n, side, side, 3)).astype(np.uint8)
    return x, (x[..., 0] > 127).astype(np.uint8)


def write_pictures(folder, n=5, side=12):
    """Write pictures, masks.npz and the network into a folder; returns the specs of data and model."""
    x, masks = make_pictures(n, side)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for number, picture in enumerate(x):
        Image.fromarray(picture).save(folder / "images" / f"{number:0{len(str(n - 1))}d}.png")
    np.savez(folder / "masks.npz", masks=masks, classes=np.array(["dark", "bright"]))
    (folder / "network.py").write_text(NETWORK)
    return f"masks:{folder}", f"torch:{folder}/network.py:network"
