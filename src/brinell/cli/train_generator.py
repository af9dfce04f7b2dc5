"""`brinell train-generator`: what draws inputs of a class, for `brinell unrestricted`."""

from typing import TYPE_CHECKING

from brinell.cli.options import show, tell
from brinell.cli.verb import Asked, verb
from brinell.studies.unrestricted.request import TrainGeneratorRequest

if TYPE_CHECKING:
    from brinell.studies.unrestricted.training import Report


@verb(TrainGeneratorRequest, file="The file to write; name it in brinell unrestricted as --generator FILE.")
def train_generator(asked: Asked) -> int:
    """Train a conditional generator (AC-GAN) on labelled images and write it as one file, with its auxiliary classifier.

    The sides of the images must be multiples of 4.
    """
    from brinell.cli.schemas import GeneratorAnswer
    from brinell.studies.unrestricted.train_generator import train_generator as train

    request, out = asked.request(TrainGeneratorRequest), asked.path
    kept = train(request, out, _tell)
    answer = GeneratorAnswer(
        generator=str(out),
        bytes=out.stat().st_size,
        steps=kept.about["steps"],
        samples=kept.about["samples"],
        digest=kept.digest(),
    )

    def in_words() -> None:
        show(f"{answer.samples} inputs, {answer.steps} steps, {answer.bytes:,} bytes")
        show(f"generator: {out} (brinell unrestricted --data {request.data!r} --generator {out})")

    return asked.answer(answer, in_words)


def _tell(report: "Report") -> None:
    tell(
        f"step {report.step}, {report.seconds:.0f} s: critic's loss {report.critic:.2f}, classes named "
        f"{100 * report.real_classes:.0f} % of real and {100 * report.drawn_classes:.0f} % of drawn inputs"
    )
