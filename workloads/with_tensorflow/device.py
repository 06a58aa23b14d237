"""The devices of a TensorFlow program, for training and inference: checks, set-up, and names."""

import process
from arguments import check_capability, refuse
from process import local_rank


def set_up(args, tf):
    """Choose devices and threads; call before TensorFlow initializes a device. Returns the GPUs of this process."""
    from with_tensorflow import shim

    tf.config.threading.set_intra_op_parallelism_threads(args.threads * args.devices)
    if args.device == "cpu":
        # Replicas block in operators until the others arrive: one thread each, and one that exchanges their gradients.
        tf.config.threading.set_inter_op_parallelism_threads(args.devices + 1)
        tf.config.experimental.set_visible_devices([], "GPU")
        if args.devices > 1:
            (cpu,) = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * args.devices)
        return []
    seen = tf.config.experimental.list_physical_devices("GPU")
    used = seen[local_rank() : local_rank() + args.devices]
    if len(used) < args.devices:
        refuse(f"--devices={args.devices} from local rank {local_rank()} on: TensorFlow sees {len(seen)} GPUs")
    for gpu in used:
        name, capability = shim.gpu_details(gpu)
        if capability:
            check_capability(args, name, capability)
        tf.config.experimental.set_memory_growth(gpu, args.gpu_memory != "all")
    tf.config.experimental.set_visible_devices(used, "GPU")
    return used


def environment(args, tf, gpus):
    from with_tensorflow import shim

    built = shim.build_info() if gpus else {}
    # TensorFlow does not report its NCCL version; NCCL's own log does if it is used.
    return process.environment(
        args,
        framework="tensorflow",
        framework_version=tf.__version__,
        device_names=[shim.gpu_details(gpu)[0] for gpu in gpus],
        threads=tf.config.threading.get_intra_op_parallelism_threads(),
        cuda=built.get("cuda_version"),
        cudnn=built.get("cudnn_version"),
    )
