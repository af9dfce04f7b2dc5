"""How reports name the figures of a task, and how they draw its inputs before and after
an attack.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from brinell.analysis.pictures import BoxPictures, Pictures
from brinell.analysis.robust_accuracy import class_name
from brinell.core.boxes import ERRORS, FALSE
from brinell.core.record import Array
from brinell.reports.values import Cell, Measure, Percent, Picture
from brinell.reports.views import colours_of, css, draw_boxes, draw_map, draw_pixels, legend_of

Drawings = tuple[list[list[Picture]], list[tuple[str, str]]]
"""The pictures of each chosen sample, and the legend of all: colours and what they mean."""
View = Callable[[int, str], Array]
"""What a folder keeps of the sample at a place, by the names of `engine.tasks.Task.views`."""


class TaskReport:
    """The words of a task and its drawings. A subclass says what differs."""

    sample: ClassVar[str] = "picture"
    """An input, in the singular."""
    unit: ClassVar[str]
    """What of a sample is right or wrong, in the singular."""
    remain: ClassVar[str] = "stay right"
    """What those do that an attack does not turn."""
    uncounted: ClassVar[str] = "no figure counts them"
    """What is said of samples without a unit."""
    errors: ClassVar[Mapping[str, str]] = {}
    """Titles of the kinds of errors that are attacked each by itself."""
    counts: ClassVar[tuple[str, ...]] = ()
    """Figures that are numbers of each sample, and no shares."""
    about: ClassVar[str] = ""
    """What is said of the figures by budget."""
    about_errors: ClassVar[str] = ""
    """What is said of the kinds of errors."""

    def quantity(self, figures: Pictures) -> str:
        """What robust accuracy counts."""
        return figures.accuracy

    def cell(self, quantity: str, value: Any) -> Cell:
        """A figure with its interval as a cell."""
        kind = Measure if quantity in self.counts else Percent
        return kind(value.value, value.low, value.high)

    def draw(
        self,
        chosen: Sequence[int],
        view: View,
        figures: Pictures,
        classes: Sequence[str],
        aims: Sequence[str],
    ) -> Drawings:
        """The samples at some places, drawn before and after an attack: here none."""
        return [], []


class MapReport(TaskReport):
    """The class of each pixel."""

    unit = "pixel"

    def draw(
        self,
        chosen: Sequence[int],
        view: View,
        figures: Pictures,
        classes: Sequence[str],
        aims: Sequence[str],
    ) -> Drawings:
        """The picture, its mask, and the predicted classes before and after."""
        titles = {"mask": "mask", "before": "without an attack", "after": "attacked"}
        maps = [[view(number, name) for name in titles] for number in chosen]
        colours = colours_of((array for arrays in maps for array in arrays), len(classes))

        drawings = []
        for number, arrays in zip(chosen, maps, strict=True):
            pairs = zip(arrays, titles.values(), strict=True)
            drawn = [draw_map(array, colours, title) for array, title in pairs]
            drawings.append([draw_pixels(view(number, "picture"), "picture"), *drawn])
        legend = [(css(colour), class_name(classes, label)) for label, colour in colours.items()]
        return drawings, legend


class BoxReport(TaskReport):
    """The boxes of objects."""

    unit = "object"
    remain = "are still found"
    uncounted = "only false boxes are counted in them"
    errors = {**{name: name for name in ERRORS}, FALSE: "false boxes a picture"}
    counts = (FALSE,)
    about = " AP depends on the ranks of boxes alone, recall on their scores."
    about_errors = (
        "Each kind was attacked by itself. An object is found if a shown box of its class overlaps "
        "it by 0.5, mislabelled if a box of another class does, misplaced if one of its class "
        "overlaps it by 0.1 to 0.5, and missed otherwise; all other boxes are false."
    )

    def quantity(self, figures: Pictures) -> str:
        """Recall, which depends on the score of shown boxes."""
        return f"recall at {figures.least_score:g}"

    def draw(
        self,
        chosen: Sequence[int],
        view: View,
        figures: Pictures,
        classes: Sequence[str],
        aims: Sequence[str],
    ) -> Drawings:
        """The picture with the boxes that are found without an attack, and by the worst input of
        each kind of error.
        """
        assert isinstance(figures, BoxPictures)
        last = int(figures.level.max())
        worst = {self.errors[aim]: figures.worst(aim, last) for aim in aims}
        sets = {"without an attack": figures.clean} | worst

        drawings = []
        for number in chosen:
            pixels = view(number, "picture")
            rows = {title: int(index[number]) for title, index in sets.items()}
            outcomes = {title: figures.outcome(row) for title, row in rows.items()}
            drawings.append(
                [draw_boxes(pixels, *found, title) for title, found in outcomes.items()]
            )
        return drawings, legend_of()
