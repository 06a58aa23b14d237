"""The devices of a TensorFlow program, in training and inference alike: what they can't do, their set-up, and how they are named."""

import placement
from arguments import refuse
from placement import local_rank

# Compute capability from which on a GPU has it.
NEEDED = {"fp32": (0, 0), "tf32": (8, 0), "fp16": (5, 3), "bf16": (8, 0)}


def check(args):
    """Refuse a precision that TensorFlow does not have on this kind of device; before it is imported, as nothing here needs it."""
    if args.device == "cpu" and args.precision in {"tf32", "fp16"}:
        refuse(f"--precision={args.precision} needs a GPU; on the CPU ask for fp32 or bf16")


def set_up(args, tf):
    """Choose devices and threads, before TensorFlow looks at a device. Gives the GPUs of this process."""
    from with_tensorflow import shim

    tf.config.threading.set_intra_op_parallelism_threads(args.threads * args.devices)
    if args.device == "cpu":
        # Replicas wait for each other inside operators: one thread for each, and one that carries their gradients.
        tf.config.threading.set_inter_op_parallelism_threads(args.devices + 1)
        tf.config.experimental.set_visible_devices([], "GPU")
        if args.devices > 1:
            (cpu,) = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * args.devices)
        return []
    seen = tf.config.experimental.list_physical_devices("GPU")
    used = seen[local_rank() : local_rank() + args.devices]
    if len(used) < args.devices:
        refuse(f"--device=gpu --devices={args.devices} for local rank {local_rank()}, TensorFlow sees {len(seen)} GPUs")
    for gpu in used:
        name, capability = shim.gpu_details(gpu)
        needed = NEEDED[args.precision]
        if capability and tuple(capability) < needed:
            has, needs = ".".join(map(str, capability)), ".".join(map(str, needed))
            refuse(f"--precision={args.precision} needs compute capability {needs}, the {name} has {has}; ask for fp32")
        tf.config.experimental.set_memory_growth(gpu, True)  # noqa: FBT003 - takes no keyword in 1.15
    tf.config.experimental.set_visible_devices(used, "GPU")
    return used


def environment(args, tf, gpus):
    """Software and devices as TensorFlow names them."""
    from with_tensorflow import shim

    built = shim.build_info() if gpus else {}
    # TensorFlow does not tell its NCCL; where that is used its own log does.
    return placement.environment(
        args,
        framework="tensorflow",
        framework_version=tf.__version__,
        device_names=[shim.gpu_details(gpu)[0] for gpu in gpus],
        threads=tf.config.threading.get_intra_op_parallelism_threads(),
        cuda=built.get("cuda_version"),
        cudnn=built.get("cudnn_version"),
    )
