"""`brinell train-generator`: what draws inputs of a class, for `brinell unrestricted`."""

from pathlib import Path
from typing import Annotated

import typer

from brinell.cli.options import Json, show, show_json
from brinell.core.errors import RequestError


def train_generator(
    out: Annotated[Path, typer.Option(help="File to write; name it in brinell unrestricted as --generator FILE.")],
    data: Annotated[str, typer.Option(help="Images to learn from: the training data of the models.")] = "digits?split=train",
    samples: Annotated[int | None, typer.Option(help="Inputs at most, from the first. Default: all.")] = None,
    minutes: Annotated[float, typer.Option(help="Wall time: one does for the digits, ten for MNIST.")] = 10.0,
    steps: Annotated[int | None, typer.Option(help="Updates, in place of minutes: repeatable.")] = None,
    latent: Annotated[int, typer.Option(help="Length of the latent vector.")] = 32,
    width: Annotated[int, typer.Option(help="Channels of the thinner layers: 16 for 8 x 8 pixels, 32 for 28 x 28.")] = 32,
    rate: Annotated[float, typer.Option(help="Learning rate.")] = 1e-3,
    seed: Annotated[int, typer.Option(help="Seed of every random number.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")] = "auto",
    json: Json = False,
) -> int:
    """Train a conditional generator (AC-GAN) on labelled images and write it as one file, with its auxiliary classifier.

    The sides of the images must be multiples of 4.
    """
    from brinell.cli.options import say
    from brinell.cli.schemas import GeneratorAnswer
    from brinell.studies.unrestricted.train_generator import Schooling, school
    from brinell.studies.unrestricted.training import Lessons, Report

    if not out.name.endswith(".safetensors"):
        raise RequestError(f"{out} is no name for a generator: end it with .safetensors")
    try:
        lessons = Lessons(seconds=60 * minutes, steps=steps, latent=latent, width=width, rate=rate, seed=seed)
    except ValueError as error:
        raise RequestError(str(error)) from None

    def tell(report: Report) -> None:
        say(
            f"step {report.step}, {report.seconds:.0f} s: critic's loss {report.critic:.2f}, classes named "
            f"{100 * report.real_classes:.0f} % of real and {100 * report.drawn_classes:.0f} % of drawn inputs"
        )

    kept = school(Schooling(data=data, samples=samples, lessons=lessons, device=device), out, tell)
    answer = GeneratorAnswer(
        generator=str(out),
        bytes=out.stat().st_size,
        steps=kept.about["steps"],
        samples=kept.about["samples"],
        digest=kept.digest(),
    )
    if json:
        show_json(answer.model_dump(mode="json"))
    else:
        show(f"{answer.samples} inputs, {answer.steps} steps, {answer.bytes:,} bytes")
        show(f"generator: {out} (brinell unrestricted --data {data!r} --generator {out})")
    return 0
