"""The result of a training of a generator."""

import shlex

from brinell.reports.numbers import counted
from brinell.reports.values import Report, Step
from brinell.studies.result import ReportedResult


class GeneratorResult(ReportedResult):
    """What `brinell train generator --json` prints."""

    generator: str
    """The file."""
    data: str
    """The data, as they were named."""
    bytes: int
    """Its size."""
    steps: int
    """Updates of both networks."""
    samples: int
    """Inputs that it learned from."""
    digest: str
    """Hash of all that its drawings depend on."""

    def report(self) -> Report:
        """The lines of the terminal."""
        words = ("brinell", "unrestricted", "--data", self.data, "--generator", self.generator)
        return Report(
            verb="train generator",
            title="Generator",
            subject=f"{counted(self.bytes, 'byte')}, digest {self.digest}",
            sentences=[
                f"{self.generator} draws inputs of the classes of {self.data}, "
                f"after {counted(self.steps, 'step')} on "
                f"{counted(self.samples, 'input')}."
            ],
            steps=[
                Step(
                    "Search its latent space for inputs that a model misclassifies.",
                    shlex.join(words),
                )
            ],
        )
