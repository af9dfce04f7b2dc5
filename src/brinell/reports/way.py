"""The agent's way to one adversarial example, as a figure and a table."""

from collections.abc import Iterator

import numpy as np

from brinell.analysis.robust_accuracy import class_name, class_names
from brinell.core.record import WAY, Array, Records, has_broken
from brinell.reports.numbers import short, whole
from brinell.reports.values import Curve, Percent, Series, Table
from brinell.store.rows import take
from brinell.store.run import Run

Points = list[tuple[float, Percent]]


def run_way(run: Run, records: Records) -> Iterator[Curve | Table]:
    """The way of an agent to the first sample that it fooled, of the first model; none of a run
    without an agent.
    """
    broken = take(records, has_broken(records))
    models = [entry["name"] for entry in run.manifest["models"]]
    for model in models:
        for attack in run.manifest.get("extras", {}).get(model, {}):
            samples = take(broken, (broken.model == model) & (broken.attack == attack))
            if not len(samples):
                continue

            first = int(samples.sample_id.argmin())
            sample = int(samples.sample_id[first])
            arrays = run.extras(model, attack, [sample]).get(sample, {})
            if "way" in arrays:
                true = class_name(class_names(run.manifest), int(samples.label[first]))
                prefix = f"{model}, " if len(models) > 1 else ""
                yield from way_blocks(arrays["way"], f"{prefix}sample {sample}, true class {true}")
                return


def way_blocks(way: Array, sample: str) -> tuple[Curve, Table]:
    """The figure and the table of a way.

    Args:
        way: (rows, 6) with the columns `core.record.WAY`; rows that begin with NaN are none.
        sample: what it is of, such as «sample 7, true class cat».
    """
    way = way[~np.isnan(way[:, 0])]
    queries, probability, sizes, patches, added, removed = way.T.tolist()
    longest = max(sizes)
    most = max(patches)

    def points(values: list[float], largest: float = 1.0) -> Points:
        return [
            (query, Percent(value / (largest or 1.0)))
            for query, value in zip(queries, values, strict=True)
        ]

    additions = [
        point for point, count in zip(points(patches, most), added, strict=True) if count > 0
    ]
    removals = [
        (query, Percent(0.0)) for query, count in zip(queries, removed, strict=True) if count > 0
    ]

    curve = Curve(
        title=f"The agent's way: {sample}",
        series=[
            Series(name="probability of the true class", points=points(probability)),
            Series(name=f"L2, 100 % = {short(longest)}", points=points(sizes, longest)),
            Series(
                name=f"distorted patches, 100 % = {whole(int(most))}", points=points(patches, most)
            ),
            Series(name="patches added", points=additions, line=False),
            Series(name="patches removed, on the axis", points=removals, line=False),
        ],
        ticks=[(query, whole(int(query))) for query in queries],
        axis="queries",
        logarithmic=True,
    )
    table = Table(
        title="The agent's way",
        columns=WAY,
        rows=[
            (int(row[0]), Percent(row[1]), row[2], *(int(count) for count in row[3:]))
            for row in way.tolist()
        ],
        text=f"Of {sample}: the inputs that the agent kept, one after another; where there are "
        "many, fewer of the later ones. Patches were added and removed since the row before; one that gets "
        "another distortion counts as added.",
        name="way",
        folded=True,
        terminal=True,
    )
    return curve, table
