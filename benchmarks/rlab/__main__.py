"""The studies of RLAB. `python benchmarks/rlab --study NAME --help` shows the options of one.

    python benchmarks/rlab --study NAME ...

    worth     what learning is worth, on networks seen and unseen
    closer    how close attacks come with so many queries
    photographs  how close they come to photographs, in the setting of RLAB's papers
    capped    the same within a limit on the distance, with surrogates and without
    first-order  the smallest L2 of distortions on photographs, if the gradient were known
    families  patch sizes on networks of several families
    priors    the shipped prior, or another that is fitted to several networks
    surrogates  other networks' gradients: what they save, and the trust in them
    beats     the same on heartbeats, with networks that it trains
    peers     our DQN, PPO and A2C beside those of Stable-Baselines3

and those of `run.py`: patch, dual, agents, distortions, map, probes, fill, free, equal, spend, reach.
"""

import argparse
import importlib
import sys
from pathlib import Path

SCRIPTS = ("worth", "closer", "photographs", "capped", "first-order", "families", "priors", "surrogates", "beats", "peers")
"""Studies in a separate module each, with further options."""


def main() -> int:
    """Run one study."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the other benchmarks
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, add_help="--study" not in sys.argv
    )
    parser.add_argument("--study", required=True)
    study, arguments = parser.parse_known_args()
    name = study.study
    if name in SCRIPTS:
        sys.argv[:] = [f"rlab --study {name}", *arguments]
    return int(importlib.import_module(f"rlab.{name.replace('-', '_') if name in SCRIPTS else 'run'}").main() or 0)


if __name__ == "__main__":
    sys.exit(main())
