"""The devices of this machine, as `--device` names them."""

import torch


def device_names() -> list[str]:
    """The processor, then the GPUs that torch can use."""
    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)]
    return ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]
