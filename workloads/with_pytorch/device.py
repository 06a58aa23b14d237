"""The device of a PyTorch program and its arithmetic: what it can't do, how it is set up, and what software it runs.

fp32 is IEEE single precision everywhere; tf32 lets matrix products and convolutions round their inputs to TF32. PyTorch is handed in and
imported by none of the modules that a program reads first, since its thread pools take their place when it is imported.
"""

import placement
from arguments import refuse
from placement import local_rank

# Compute capability from which on a GPU has it.
NEEDED = {"fp32": (0, 0), "tf32": (8, 0), "fp16": (5, 3), "bf16": (8, 0)}


def check(args, torch):
    """Refuse a precision that this device lacks, or a device that is not there."""
    if args.device == "cpu":
        if args.precision in {"tf32", "fp16"}:
            refuse(f"--precision={args.precision} needs a GPU; on the CPU ask for fp32 or bf16")
        return
    if args.precision not in NEEDED:
        refuse(f"--precision={args.precision} is not offered with PyTorch on a GPU; ask for {', '.join(NEEDED)}")
    if torch.cuda.device_count() <= local_rank():
        refuse(f"--device=gpu for local rank {local_rank()}, PyTorch sees {torch.cuda.device_count()} GPUs")
    capability, needed = torch.cuda.get_device_capability(local_rank()), NEEDED[args.precision]
    if capability < needed:
        has, needs = ".".join(map(str, capability)), ".".join(map(str, needed))
        name = torch.cuda.get_device_name(local_rank())
        refuse(f"--precision={args.precision} needs compute capability {needs}, the {name} has {has}; ask for fp32")


def set_up(args, torch):
    """Choose the device and its arithmetic."""
    torch.set_num_threads(args.threads)
    torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    if args.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", local_rank())
    torch.cuda.set_device(device)
    return device


def environment(args, torch, device):
    """Software and device as PyTorch names them."""
    told = {"framework": "pytorch", "framework_version": torch.__version__, "threads": torch.get_num_threads()}
    told["device_names"] = []
    if device.type == "cuda":
        cudnn, nccl = torch.backends.cudnn.version(), torch.cuda.nccl.version()
        told |= {"cuda": torch.version.cuda, "cudnn": str(cudnn) if cudnn else None, "nccl": ".".join(map(str, nccl))}
        told["device_names"] = [torch.cuda.get_device_name(device)]
    return placement.environment(args, **told)
