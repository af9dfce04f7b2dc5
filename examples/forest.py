"""A scikit-learn forest on a real table: `python examples/forest.py FOLDER` writes train.csv,
test.csv and forest.skops.

The table is scikit-learn's copy of the Wisconsin breast cancer data: 569 tumours, 30 measurements
each. The command that it prints audits the forest on the rows that were not used for training. A
skops file is not a pickle file. skops does not check the numbers in its trees, so you must name
them as trusted.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import skops.io
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

TRAIN = 400
TREES = 20


def write(folder: Path) -> str:
    """Write tables and forest, and return the command that audits them."""
    folder.mkdir(parents=True, exist_ok=True)
    data = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(data.data))
    x, y = data.data[order], data.target_names[data.target[order]]
    header = [*(name.replace(" ", "_") for name in data.feature_names), "diagnosis"]
    for name, rows in (("train", slice(TRAIN)), ("test", slice(TRAIN, None))):
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(
                [*values, label] for values, label in zip(x[rows].tolist(), y[rows], strict=True)
            )
    forest = RandomForestClassifier(TREES, random_state=0).fit(x[:TRAIN], y[:TRAIN])
    skops.io.dump(forest, folder / "forest.skops")
    data_spec = f"table:{folder / 'test.csv'}?label=diagnosis&fixed=mean_radius+worst_radius"
    model_spec = f"sklearn:{folder / 'forest.skops'}?trusted=sklearn.tree._tree.Tree"
    return (
        f'brinell audit --data "{data_spec}" --model "{model_spec}" --eps 0:0.2:5 '
        '--attack "square?steps=300"'
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    print(write(parser.parse_args().folder))
