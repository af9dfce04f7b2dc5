"""README.md of a benchmark set: the data card of the Hugging Face hub, from the report and the
columns.
"""

import json
from collections.abc import Mapping

from brinell.core.record import RecordColumn, columns_of
from brinell.reports.markdown import markdown, table_lines
from brinell.reports.values import Report, Table
from brinell.studies.benchmark.rows import COLUMNS, PATCH, BenchmarkRows, Form

CARD = "README.md"
CATEGORIES = {
    None: "image-classification",
    "segmentation": "image-segmentation",
    "detection": "object-detection",
}
"""Categories of the hub, by task."""


def card(report: Report, form: Form) -> str:
    """Text of README.md: YAML for the hub, the report, the method, the columns and the licence."""
    category = (
        f"task_categories:\n- {CATEGORIES[form.task]}\n" if form.domain.kind == "image" else ""
    )
    title = json.dumps(report.title).replace("<", "\\u003c")  # it cannot open an HTML tag
    flat = (
        ""
        if form.pictures
        else f"\n`input` and `mask` are flat, in C order; their shape is {form.domain.shape}."
    )
    return f"""---
license: unknown
pretty_name: {title}
{category}tags:
- adversarial
- robustness
- benchmark
configs:
- config_name: default
  data_files:
  - split: test
    path: data/test-*.parquet
  default: true
- config_name: samples
  data_files:
  - split: test
    path: rows.parquet
---

{markdown(report)}
## Method

The agent sees only scores. It distorts patches until the criterion is met, then removes unnecessary distortions and scales the
others down. The result is the adversarial example, level 1. A higher level is that multiple of its L2 distance: first the
distortions grow to full strength, then patches are added, most promising first, then all grow within the bounds of the data. If
the bounds do not allow a multiple, `reached` is false and the row has no input. Level 0 is the clean input. Pictures are rounded
to 8 bits before the model judges them, clean ones too.

## Usage

```python
from datasets import load_dataset

rows = load_dataset("PATH/TO/THIS/FOLDER", split="test")
adversarial = rows.filter(lambda row: row["level"] == 1)
```

`brinell audit --data "bench:PATH/TO/THIS/FOLDER?level=4" --model MODEL` audits a model at four times the distance.
`arrays/*.safetensors` contains the inputs (float32) and masks of the changed values under the names
"SAMPLE/LEVEL/input" and "SAMPLE/LEVEL/mask", and the truth of masks and boxes under "SAMPLE/truth". "SAMPLE/way" has a row for
each input that the agent kept: query, probability of the true class, L2, patches, and patches added and removed since.{flat}

{columns_text()}
## Licence

The inputs derive from the source data, whose licence applies to them.
"""


def columns_text() -> str:
    """The columns in Markdown."""
    patches = Table(
        title="",
        columns=("name", "type", "meaning"),
        rows=[(name, *entry) for name, entry in PATCH.items()],
    )

    return "\n".join(
        [
            "## Columns",
            "",
            "`data/` (the default configuration), a row for each sample and level:",
            "",
            *_columns(COLUMNS),
            "",
            "An entry of `patches`:",
            "",
            *table_lines(patches),
            "",
            "`rows.parquet` (the configuration `samples`), a row for each "
            "sample, also without an adversarial example:",
            "",
            *_columns(columns_of(BenchmarkRows)),
            "",
        ]
    )


def _columns(columns: Mapping[str, RecordColumn]) -> list[str]:
    rows = [(name, column.kind, column.doc) for name, column in columns.items()]
    return list(table_lines(Table(title="", columns=("column", "type", "meaning"), rows=rows)))
