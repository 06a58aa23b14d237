"""Flags that the programs of all new workloads take, and such a program's training as an object on this CPU. No script by itself."""

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


def training(program, parser, *words, ranks=None):
    """Make what a PyTorch program trains; of a flag that comes twice, the last counts."""
    import torch
    from with_pytorch.ranks import Alone

    return program(parser("").parse_args([*ONE, *words]), torch, torch.device("cpu"), ranks or Alone())
