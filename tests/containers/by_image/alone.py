"""Flags of the programs of all newer workloads, and a program's training as an object on this CPU. A library, not a script."""

SHARED = (
    *("--precision=fp32", "--device=cpu", "--devices=1", "--data=synthetic", "--seed=1", "--threads=1"),
    *("--cpus-per-worker=0", "--loader-workers=0"),
)
ONE = (*SHARED, "--strategy=single", "--batch=2", "--iterations=1", "--warmup=1", "--window=1")
SGD = ("--momentum=0.9", "--weight-decay=0")
WGAN = ("--image-size=16", "--learning-rate=0.00005", "--n-critic=2", "--clip=0.01")
PENALIZED = (*WGAN[:-1], "--penalty=10")
SPEECH = ("--model=deepspeech2-small", "--learning-rate=0.001", "--longest=1.2", "--clip-norm=400", *SGD)
DENSE = ("--model=mlp-512-reuters", "--num-classes=46", "--learning-rate=0.001", "--dropout=0.5")
LANGUAGE = (
    *(
        "--learning-rate=0.01",
        "--weight-decay=0.1",
        "--sequence-length=32",
        "--gradient-accumulation=1",
        "--checkpointing=none",
    ),
    *("--weights=fp32", "--reshard=forward", "--tensor-parallel=2"),
)


def training(program, parser, *words, ranks=None):
    """Build the training of a PyTorch program; the last of duplicate flags wins."""
    import torch
    from with_pytorch.ranks import Alone

    return program(parser("").parse_args([*ONE, *words]), torch, torch.device("cpu"), ranks or Alone())
