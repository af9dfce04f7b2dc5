"""What is shown to whoever types `brinell` alone, and the examples under the help of each verb."""

GREETING = """\
Brinell, the hardness test for classifiers: how large must a change be until a model errs?

  brinell audit                                           the built-in model on real digits, in half a minute
  brinell audit --data FILE.npz --model model.py:factory  your data, and the function that returns your network
  brinell epsilon FILE.npz                                which eps is sound for your data, and why
  brinell plugins                                         the attacks, cascades, norms, data sets and models by name

`brinell --help` lists every command, and `brinell audit --help` the options with examples."""

EXAMPLES = {
    "": ("brinell audit", "brinell audit --data cifar10:DIR --model model.py:factory --eps 8/255 --attack standard"),
    "audit": (
        "brinell audit --samples 100",
        "brinell audit --data FILE.npz --model model.py:factory --eps 8/255",
        "brinell audit --data FILE.npz --model model.onnx --eps 0:0.3:4 --attack black-box",
        "brinell audit --data DIR --model 'timm:resnet18.a1_in1k?weights=FILE.safetensors' --dry-run",
        "brinell audit --data FILE.csv --model forest.skops --eps 0:0.2:5 --attack 'square?steps=300'",
        "brinell audit --resume --out RUN",
    ),
    "epsilon": ("brinell epsilon FILE.npz --train TRAIN.npz", "brinell epsilon FILE.npz --review"),
    "train-agent": ("brinell train-agent --data FILE.npz --model model.py:factory --out policy.safetensors",),
    "train-metric": ("brinell train-metric --data FILE.npz --out distance.safetensors",),
    "benchmark": ("brinell benchmark --data FILE.npz --model model.py:factory --out SET",),
    "detect": ("brinell detect RUN --train TRAIN.npz",),
    "explain": (
        "brinell explain --samples 20",
        "brinell explain --data FILE.npz --model model.py:factory --truth masks:DIR --only right",
        "brinell explain --data DIR --model model.onnx --method rlab --method rise --method occlusion",
    ),
    "train-generator": ("brinell train-generator --data TRAIN.npz --out generator.safetensors",),
    "unrestricted": ("brinell unrestricted --data TRAIN.npz --generator generator.safetensors --model model.py:factory",),
    "harden": (
        "brinell harden --data digits",
        "brinell harden --data TEST.npz --train TRAIN.npz --model model.py:factory --eps 8/255 --recipe trades+awp",
    ),
    "progress": ("brinell progress RUN", "brinell progress s3://BUCKET/RUN --json"),
    "report": ("brinell report RUN",),
    "compare": ("brinell compare RUN_A RUN_B", "brinell compare RUN --model-a plain --model-b robust"),
    "study": (
        "brinell study",
        "brinell study RUN_A RUN_B --at 4/255",
        "brinell study --data FILE.npz --model model.py:small --model model.py:large --attack slides",
    ),
    "transfer": (
        "brinell transfer",
        "brinell transfer --data FILE.npz --model model.py:plain --model model.py:robust --eps 8/255",
        "brinell transfer SET RUN plain plain+robust --data FILE.npz --model model.py:plain --model model.py:robust",
    ),
    "corrupt": (
        "brinell corrupt --samples 200",
        "brinell corrupt --data FILE.npz --model model.py:plain --model model.py:hardened --reference plain",
        "brinell corrupt --data FILE.npz --model model.py:plain --kind published-gaussian-noise --severity 3 --placed 100",
    ),
    "gate": (
        "brinell gate RUN --robust 0.4 --worst-class 0.2 --eps 8/255",
        "brinell gate RUN --baseline EARLIER --junit gate.xml",
    ),
    "export": (
        "brinell export RUN --to csv --out figures",
        "brinell export RUN --to mlflow --out mlruns",
        "brinell export RUN --to huggingface --about dataset=OWNER/NAME",
        "brinell export RUN --to robustbench --eps 8/255 --about venue='arXiv, Nov 2026' --about additional_data=false",
    ),
    "verify": ("brinell verify RUN", "brinell verify RUN --signed-by signers"),
    "sign": ("brinell sign RUN --key ~/.ssh/id_ed25519",),
    "plugins": ("brinell plugins attack", "brinell plugins cascade"),
}
"""Verb to commands as one types them; the empty name is the whole command line."""


def epilog(verb: str) -> str:
    """The examples of a verb as its help shows them, one a line."""
    # \b keeps the lines of a paragraph as they are.
    return "\b\n" + "\n".join(["Examples:", *(f"  {one}" for one in EXAMPLES[verb])])
