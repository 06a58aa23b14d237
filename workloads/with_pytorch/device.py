"""The device of a PyTorch program and its arithmetic: checks, set-up, and software versions.

fp32 is IEEE single precision everywhere; tf32 allows matrix products and convolutions to round their inputs to TF32. The modules that a
program imports first take PyTorch as an argument and do not import it, since its thread pools read the affinity at import.
"""

import process
from arguments import check_capability, check_cpu_precision, refuse
from process import local_rank


def check(args, torch):
    """Refuse a precision that this device lacks, or a missing device."""
    check_cpu_precision(args)
    if args.device == "cpu":
        return
    if torch.cuda.device_count() < local_rank() + args.devices:
        refuse(
            f"--devices={args.devices} from local rank {local_rank()} on: PyTorch sees {torch.cuda.device_count()} GPUs"
        )
    check_capability(args, torch.cuda.get_device_name(local_rank()), torch.cuda.get_device_capability(local_rank()))


def set_up(args, torch):
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
    fields = {"framework": "pytorch", "framework_version": torch.__version__, "threads": torch.get_num_threads()}
    fields["device_names"] = []
    if device.type == "cuda":
        cudnn, nccl = torch.backends.cudnn.version(), torch.cuda.nccl.version()
        fields |= {"cuda": torch.version.cuda, "cudnn": str(cudnn) if cudnn else None, "nccl": ".".join(map(str, nccl))}
        fields["device_names"] = [torch.cuda.get_device_name(device.index + number) for number in range(args.devices)]
    return process.environment(args, **fields)
