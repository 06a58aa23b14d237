"""Command line of the programs: options common to all workloads and frameworks. Standard library only, parsed before a framework's import.

A value that this device or framework can't serve ends the program with one line on standard error and exit code 2 (`refuse`).
"""

import argparse
import sys

PROFILES = ("kernels", "metrics", "memory", "region", "calls")
REGIONS = ("input", "forward", "backward", "optimizer", "update")
# Minimum compute capability of a precision.
CAPABILITIES = {"fp32": (0, 0), "tf32": (8, 0), "fp16": (5, 3), "bf16": (8, 0), "fp8": (8, 9)}
# Precisions that compute in bf16; with fp8, everything but the products of dense layers.
IN_BF16 = ("bf16", "fp8")
KVSTORES = ("local", "device", "nccl", "dist_sync", "dist_async", "dist_sync_device")


def refuse(sentence):
    """Exit with code 2: the request is not possible here."""
    print(sentence, file=sys.stderr)
    raise SystemExit(2)


def check_model(args, framework, offered):
    """Refuse a model that a framework lacks."""
    if args.model not in offered:
        refuse(f"--model={args.model} is not offered with {framework}; ask for one of {', '.join(offered)}")


def check_strategy(args, framework, offered):
    """Refuse a strategy that a framework lacks, `horovod` without --compression, and --compression without `horovod`."""
    if args.strategy not in offered:
        refuse(f"--strategy={args.strategy} is not {framework}'s; it has {', '.join(offered)}")
    if (args.strategy == "horovod") != (args.compression is not None):
        refuse("--strategy=horovod and --compression=none|fp16 go together; give both or neither")


def check_cpu_precision(args):
    """Refuse a precision that PyTorch and TensorFlow lack on CPUs."""
    if args.device == "cpu" and args.precision in {"tf32", "fp16"}:
        refuse(f"--precision={args.precision} needs a GPU; on the CPU ask for fp32 or bf16")


def check_capability(args, name, capability):
    """Refuse a precision that the GPU `name`, of a compute capability (major, minor), lacks."""
    needed = CAPABILITIES[args.precision]
    if tuple(capability) < needed:
        has, needs = ".".join(map(str, capability)), ".".join(map(str, needed))
        refuse(f"--precision={args.precision} needs compute capability {needs}, the {name} has {has}; ask for fp32")


def check_epochs(args):
    """With --epoch-iterations, refuse --profile, and --iterations that are not a multiple of it."""
    if not args.epoch_iterations:
        return
    if args.profile:
        refuse("--epoch-iterations and --profile exclude each other; ask for one of them")
    if not args.iterations or args.iterations % args.epoch_iterations:
        refuse(
            f"--iterations={args.iterations} is not a multiple of --epoch-iterations={args.epoch_iterations}; ask for whole epochs"
        )


def at_least(minimum):
    """Make an argparse type: an integer of at least `minimum`."""

    def number(text):
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{value} is less than {minimum}")
        return value

    return number


def byte_sizes(text):
    """Parse ``BYTES,BYTES,...``, multiples of 4 (fp32 elements), to a sorted tuple without duplicates; an empty text to an empty tuple."""
    sizes = sorted({int(word) for word in text.split(",")}) if text else []
    if any(size < 4 or size % 4 for size in sizes):
        raise argparse.ArgumentTypeError(text + " contains a size that is not a multiple of 4")
    return tuple(sizes)


def words(text):
    """Parse ``WORD,WORD,...`` to a tuple; an empty text to an empty tuple."""
    return tuple(text.split(",")) if text else ()


def common_parser(description, *, models, precisions):
    """Build a parser of the options that all programs share: what runs, on which samples, for how long."""
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--model", required=True, choices=models)
    parser.add_argument("--batch", required=True, type=at_least(1), help="samples per device and iteration")
    parser.add_argument("--iterations", required=True, type=at_least(0), help="to measure; 0: use --measure-seconds")
    parser.add_argument("--measure-seconds", type=float, default=0.0, help="seconds to measure, with --iterations=0")
    parser.add_argument("--warmup", required=True, type=at_least(1), help="iterations before that; the first allocates")
    parser.add_argument("--window", required=True, type=at_least(0), help="iterations per window; 0: chosen by seconds")
    parser.add_argument("--precision", required=True, choices=precisions)
    parser.add_argument("--device", required=True, choices=("cpu", "gpu"))
    parser.add_argument("--devices", required=True, type=at_least(1), help="devices that this one process drives")
    parser.add_argument(
        "--gpu-memory",
        choices=("as-needed", "all"),
        default="as-needed",
        help="TensorFlow: allocate as needed, or all of a GPU's memory at the start",
    )
    parser.add_argument("--data", required=True, help="synthetic, or the path of the samples")
    parser.add_argument("--seed", required=True, type=at_least(0))
    parser.add_argument("--threads", required=True, type=at_least(1), help="threads inside an operator")
    parser.add_argument("--cpus-per-worker", required=True, type=at_least(0), help="cores per device; 0: no pinning")
    parser.add_argument(
        "--loader-workers", required=True, type=at_least(0), help="threads or processes that prepare samples"
    )
    return parser


def training_parser(description, *, models, precisions=("fp32", "tf32", "fp16", "bf16")):
    """Build the parser of a training program; options that every program needs are required, so that a record's command line is complete.

    A workload adds the options of its own programs.
    """
    parser = common_parser(description, models=models, precisions=precisions)
    parser.add_argument("--strategy", required=True, help="how the devices train together; each framework has its own")
    parser.add_argument("--kvstore", choices=KVSTORES, help="MXNet's store, with --strategy kvstore")
    parser.add_argument("--compression", choices=("none", "fp16"), help="of gradients, with --strategy horovod")
    parser.add_argument(
        "--probe", type=byte_sizes, default=(), help="BYTES,...: time exchanges of these sizes, and passes without one"
    )
    parser.add_argument("--profile", choices=PROFILES, help="instead of measuring: a short pass under a profiler")
    parser.add_argument(
        "--profile-after", type=at_least(1), help="iterations before it; default: until the rate is steady"
    )
    parser.add_argument("--profile-iterations", type=at_least(1), default=5, help="iterations under the profiler")
    parser.add_argument("--profile-region", choices=REGIONS, help="profile only this part of each iteration")
    parser.add_argument(
        "--epoch-iterations", type=at_least(1), help="convergence run: measured iterations between validations"
    )
    add_techniques(parser)
    parser.add_argument("--xla", action="store_true", help="TensorFlow: compile the step with XLA")
    parser.add_argument("--learning-rate", required=True, type=float)
    return parser


def add_techniques(parser):
    parser.add_argument("--techniques", type=words, default=(), help="WORD,...: optimizations of the plain program")
    parser.add_argument(
        "--compiled", help="PyTorch, with --techniques=compile: directory that caches compiled code between runs"
    )


def inference_parser(description, *, models):
    parser = common_parser(description, models=models, precisions=("fp32", "tf32", "fp16", "bf16", "int8"))
    parser.add_argument(
        "--fit", type=at_least(0), default=0, help="training iterations on --data first; 0: random weights"
    )
    return parser
