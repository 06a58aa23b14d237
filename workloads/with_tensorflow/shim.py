"""Imports TensorFlow, and hides the differences between 2.x and the vendor's 1.15: `from with_tensorflow.shim import tf`.

It has only what the programs call. Statements about 1.15 follow its documentation; it has not been run in that container.
1.15 refuses to assign to a mirrored variable inside a replica (https://github.com/tensorflow/tensorflow/issues/37834), which is where
the program updates its weights; so it is offered with single and horovod only.
"""

import os

# Read at import: log errors only, and use the one Keras 3 backend that works with `tf.function`.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"

import tensorflow as tf

V1 = tf.__version__.startswith("1.")
if V1:
    tf.compat.v1.enable_v2_behavior()


def set_seed(seed):
    if V1:
        tf.compat.v1.set_random_seed(seed)
    else:
        tf.keras.utils.set_random_seed(seed)


def set_precision(precision, *, weights=False):
    """Choose the arithmetic of networks that are built from here on; weights stay in fp32 unless `weights` is set.

    fp32 is IEEE single precision everywhere; tf32 allows matrix products and convolutions to round their inputs to TF32, in all networks;
    fp16 and bf16 are Keras' mixed precision, or with `weights` its pure half precision.
    """
    if V1:
        # A graph rewrite replaces Keras' policies, and a switch of the CUDA libraries replaces TensorFlow's.
        tf.config.optimizer.set_experimental_options({"auto_mixed_precision": precision == "fp16"})
        os.environ["NVIDIA_TF32_OVERRIDE"] = "1" if precision == "tf32" else "0"
        return
    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    kind = {"fp16": "float16", "bf16": "bfloat16"}.get(precision)
    policy = "float32" if kind is None else kind if weights else f"mixed_{kind}"
    tf.keras.mixed_precision.set_global_policy(policy)


def compiled(function, *, xla):
    """The part of a step that stays on one device, compiled by XLA if requested."""
    if not xla:
        return function
    return tf.function(function, autograph=False, **{"experimental_compile" if V1 else "jit_compile": True})


def run(strategy, function, args):
    return (strategy.experimental_run_v2 if V1 else strategy.run)(function, args=args)


def values(strategy, value_of_replica):
    """Put a value on each device that this process drives: `value_of_replica(global replica number)`."""
    devices = strategy.extended.worker_devices

    def value(context):
        replica = 0 if V1 else context.replica_id_in_sync_group
        with tf.device(devices[replica % len(devices)]):
            return value_of_replica(replica)

    return value(None) if V1 else strategy.experimental_distribute_values_from_function(value)


def without_errors(dataset):
    return dataset.apply(tf.data.experimental.ignore_errors()) if V1 else dataset.ignore_errors()


def with_threads(dataset, count):
    """Give a data set its own threads; by default it shares those that run operators."""
    options = tf.data.Options()
    (options.experimental_threading if V1 else options.threading).private_threadpool_size = count
    return dataset.with_options(options)


def batches(strategy, dataset):
    """Iterate over a data set, each device taking the next batch, prefetched to the devices."""
    distribute = "experimental_distribute_datasets_from_function" if V1 else "distribute_datasets_from_function"
    return iter(getattr(strategy, distribute)(lambda _: dataset))


def trained(net):
    """The trainable weights as TensorFlow variables; Keras 3 wraps them in its own."""
    return [weight if V1 else weight.value for weight in net.trainable_variables]


def gathered(net):
    """The non-trainable weights of a network: running statistics of its normalizations."""
    return [weight if V1 else weight.value for weight in net.non_trainable_weights]


def synchronize():
    """Wait until all devices have done what was enqueued."""
    if V1:
        with tf.device("/gpu:0"):
            (tf.zeros([]) + 1).numpy()  # runs after everything enqueued on the device's one compute stream
    else:
        tf.test.experimental.sync_devices()


def gpu_details(gpu):
    """Name and compute capability of a GPU; the latter is None if TensorFlow can't tell."""
    details = {} if V1 else tf.config.experimental.get_device_details(gpu)
    return details.get("device_name", gpu.name), details.get("compute_capability")


def build_info():
    return {} if V1 else tf.sysconfig.get_build_info()
