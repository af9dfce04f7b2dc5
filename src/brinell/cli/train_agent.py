"""`brinell train-agent`: an RLAB agent that has learned on inputs and a model of one's own."""

from pathlib import Path
from typing import Annotated

import typer

from brinell.cli.options import Json, show, show_json
from brinell.core.errors import RequestError


def train_agent(
    out: Annotated[Path, typer.Option(help="Policy file to write; name it in audit as rlab?policy=FILE.")],
    data: Annotated[str, typer.Option(help="Inputs to learn on: not those that are audited.")] = "digits?split=train",
    model: Annotated[str, typer.Option(help="Model, as for audit.")] = "digits-cnn",
    attack: Annotated[str, typer.Option(help="What it is for: rlab?distortions=gaussian-noise+fog&patch=4.")] = "rlab",
    norm: Annotated[str, typer.Option(help="Distance in which eps is measured: l2 or linf.")] = "l2",
    eps: Annotated[str, typer.Option(help="Budget of the episodes, such as 1 or 8/255.")] = "1",
    samples: Annotated[int, typer.Option(help="Inputs at most, from the first.")] = 1000,
    algorithm: Annotated[str, typer.Option(help="dqn, ppo, a2c; none learns what is sensitive and not how to act.")] = "ppo",
    reward: Annotated[str, typer.Option(help="What a step pays: margin, dilution or projected.")] = "margin",
    minutes: Annotated[float, typer.Option(help="Wall time for the algorithm, after the probes.")] = 10.0,
    steps: Annotated[int | None, typer.Option(help="Steps, in place of minutes: repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random number.")] = 0,
    batch_size: Annotated[int, typer.Option(help="The most inputs shown to the model at once.")] = 128,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the policy in --out, if there is one.")] = False,
    json: Json = False,
) -> int:
    """Train an agent for the attack rlab and write it as one file.

    First random distortions teach which patches of an input are sensitive, then the agent plays. The file is written at every
    report, so that an interruption loses little: with --resume the same command learns on. Every query is counted.
    """
    from brinell.cli.options import say
    from brinell.cli.schemas import AgentAnswer
    from brinell.engine.eps_grid import parse_eps
    from brinell.rlab.train import Lessons, Report
    from brinell.studies.agent.run import Coaching, coach

    budgets = parse_eps(eps).values
    if len(budgets) != 1:
        raise RequestError(f"eps {eps!r} names {len(budgets)} budgets: an agent is trained at one")
    if not out.name.endswith(".safetensors"):
        raise RequestError(f"{out} is no name for a policy: end it with .safetensors")
    try:
        lessons = Lessons(algorithm=algorithm, seconds=60 * minutes if steps is None else 1e9, steps=steps, seed=seed)  # type: ignore[arg-type]
    except ValueError as error:
        raise RequestError(str(error)) from None
    coaching = Coaching(
        data=data,
        model=model,
        attack=attack,
        norm=norm,
        eps=float(budgets[0]),
        samples=samples,
        lessons=lessons,
        reward=reward,
        batch_size=batch_size,
        device=device,
    )

    def tell(report: Report) -> None:
        said = {name: value for name, value in report.values.items() if isinstance(value, int | float)}
        say(f"{report.stage}: " + ", ".join(f"{name} {value:.4g}" for name, value in said.items()))

    agent = coach(coaching, out, tell, resume=resume)
    about = agent.about or {}
    queries = about["training_queries"]
    if json:
        show_json(AgentAnswer(policy=str(out), inputs=about["inputs"], training_queries=queries).model_dump(mode="json"))
    else:
        show(f"{about['inputs']} inputs, {sum(queries.values()):,} training queries")
        show(f"policy: {out} (brinell audit --attack 'rlab?policy={out}')")
    return 0
