"""Columns of a benchmark set: a row of data/ for each sample and level, and a row of samples/ for each sample."""

from brinell.core.data import Task
from brinell.core.record import Column

PATCH = {
    "patch": ("int32", "index of the patch on the flattened grid, last axis fastest"),
    "distortion": ("string", "name of the distortion"),
    "severity": ("int32", "1 to 5"),
    "draw": ("int32", "number of the random version of the distortion"),
    "strength": ("float32", "share of the full distortion; above 1 if it was amplified"),
}
"""Fields of a distorted patch."""

COLUMNS = {
    "sample_id": Column("int64", "position in the source data"),
    "level": Column("float64", "multiple of the L2 distance of the adversarial example, which is 1; 0 is the clean input"),
    "reached": Column("bool", "true if the bounds of the data allow this multiple; otherwise the row has no input"),
    "input": Column("input", "the input; pictures in 8 bits, the exact floats are in arrays/", null=True),
    "mask": Column("mask", "the values that differ from the clean input; white pixels for a picture", null=True),
    "label": Column("label", "the true class"),
    "prediction": Column("int64", "predicted class of the exact input", null=True),
    "confidence": Column("float64", "its probability", null=True),
    "true_probability": Column("float64", "probability of the true class", null=True),
    "adversarial": Column("bool", "true if the input meets the criterion", null=True),
    "prediction_quantised": Column(
        "int64",
        "predicted class of the picture in 8 bits, for which the adversarial example is enlarged up to 1.5 times if necessary",
        null=True,
    ),
    "l2": Column("float64", "L2 distance from the clean input, in the units of the data", null=True),
    "linf": Column("float64", "largest change of a value", null=True),
    "l1": Column("float64", "sum of the changes", null=True),
    "l0": Column("int64", "number of changed values over all channels", null=True),
    "farthest": Column("float64", "the largest multiple that the bounds allow"),
    "patch_count": Column("int64", "number of distorted patches", null=True),
    "patches": Column("patches", "the distorted patches"),
    "queries": Column("int64", "forwards until the final adversarial example, with first check and clean-up"),
}
"""A row of data/."""

SAMPLES = {
    "sample_id": Column("int64", "position in the source data"),
    "label": Column("label", "the true class"),
    "outcome": Column("string", "reached, not_reached, misclassified, already, own_class"),
    "clean_prediction": Column("int64", "predicted class of the clean input"),
    "clean_confidence": Column("float64", "its probability"),
    "queries": Column("int64", "all forwards of the model for this sample: first check, search, clean-up, levels"),
    "queries_to_success": Column("int64", "forwards until the first adversarial example", null=True),
    "queries_to_refined": Column("int64", "forwards until the final adversarial example, with clean-up", null=True),
    "queries_levels": Column("int64", "forwards for the evaluation of the levels", null=True),
    "training_queries": Column("int64", "forwards of the policy's training, once for all samples; null if unknown", null=True),
    "l2": Column("float64", "L2 distance of the adversarial example", null=True),
    "patch_count": Column("int64", "number of distorted patches of the adversarial example", null=True),
}
"""A row of samples/."""

TRUTHS = {
    "segmentation": Column("truth", "the mask: the class of each pixel, 255 where it has none"),
    "detection": Column("string", "the objects as JSON: [x0, y0, x1, y1, class, 1 for a crowd] each, in pixels"),
}
"""The column of the truth about the parts of an input, by task."""
DENSE_COLUMNS = {
    "valid": Column("int64", "pixels or objects that have a true class"),
    "wrong": Column("int64", "pixels or objects among them that the model gets wrong", null=True),
    "answer": Column(
        "string",
        "the answer as JSON: for masks [true class, predicted class, pixels] of each pair that occurs, for boxes the final ones "
        "as [x0, y0, x1, y1, class, score]",
        null=True,
    ),
}
"""Columns of data/ in place of those about classes, where the truth is a mask or boxes."""
DENSE_QUANTISED = Column(
    "int64",
    "wrong pixels or objects of the picture in 8 bits, for which the adversarial example is enlarged up to 1.5 times if needed",
    null=True,
)
DENSE_SAMPLES = {
    "valid": Column("int64", "pixels or objects of the clean input that have a true class"),
    "clean_wrong": Column("int64", "pixels or objects among them that the model gets wrong without a distortion"),
}
"""Columns of samples/ in place of those about classes."""
OF_CLASSES = frozenset(
    {"label", "prediction", "confidence", "true_probability", "prediction_quantised", "clean_prediction", "clean_confidence"}
)
"""Columns about one class for each input."""


def columns_of_task(task: Task | None) -> dict[str, Column]:
    """The columns of data/ of a set."""
    if task is None:
        return COLUMNS
    columns: dict[str, Column] = {}
    for name, column in COLUMNS.items():
        if name == "label":
            columns["truth"] = TRUTHS[task]
        elif name == "prediction":
            columns |= DENSE_COLUMNS
        elif name == "prediction_quantised":
            columns["wrong_quantised"] = DENSE_QUANTISED
        elif name not in OF_CLASSES:
            columns[name] = column
    return columns


def samples_of_task(task: Task | None) -> dict[str, Column]:
    """The columns of samples/ of a set."""
    if task is None:
        return SAMPLES
    columns: dict[str, Column] = {}
    for name, column in SAMPLES.items():
        if name == "clean_prediction":
            columns |= DENSE_SAMPLES
        elif name not in OF_CLASSES:
            columns[name] = column
    return columns
