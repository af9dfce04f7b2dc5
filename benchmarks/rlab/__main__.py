"""The studies of RLAB. `python benchmarks/rlab --study NAME --help` shows the options of one.

    python benchmarks/rlab --study NAME ...

    matters      each part alone: patches, actions, agents and rewards, distortions
    worth        what learning is worth, on networks seen and unseen
    closer       how close attacks come with so many queries
    photographs  how close they come to photographs, in the setting of RLAB's papers
    capped       the same within a limit on the distance, with surrogates and without
    priors       the shipped prior, or another that is fitted to several networks
    surrogates   other networks' gradients: what they save
    beats        the same on heartbeats, with networks that it trains
    filters      a board of distortions, random placement beside each

and those of `run.py`: probes, equal.
"""

import argparse
import importlib
import sys
from pathlib import Path

GROUP = "agents"
RUNS = {
    "--study matters": "--samples 1 --steps 128 --inputs 64 --parts patch agents",
    "--study probes": "--samples 2 --seeds 0",
    "--study equal": "--samples 2 --seeds 0",
    "--study worth": "--data unseen --samples 2 --seeds 0",
    "--study closer": "--samples 2",
    "--study photographs": "--networks mcunet_144 --samples 1 --budgets 10",
    "--study capped": "--samples 1 --queries 10",
    (
        "--study priors --networks resnet20 resnet32 resnet2b cnn_wide_kw --out "
        "runs/prior.safetensors"
    ): "--images 5 --fits 5",
    "--study surrogates": "--cases kind --samples 2",
    "--study beats": "--samples 2 --queries 20 --steps 20",
    "--study filters --kinds image": "--samples 2 --queries 10",
    "--study memory": "--images 40 --samples 2 --budgets 2 --share 0.02",
}
SCRIPTS = (
    "matters",
    "worth",
    "closer",
    "photographs",
    "capped",
    "priors",
    "surrogates",
    "beats",
    "memory",
    "filters",
)
"""Studies in a separate module each, with further options; `photographs.py` holds two."""


def main() -> int:
    """Run one study."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the other benchmarks
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=formatter, add_help="--study" not in sys.argv
    )
    parser.add_argument("--study", required=True)
    name = parser.parse_known_args()[0].study
    module = {"capped": "photographs"}.get(name, name) if name in SCRIPTS else "run"
    return int(importlib.import_module(f"rlab.{module}").main() or 0)


if __name__ == "__main__":
    sys.exit(main())
