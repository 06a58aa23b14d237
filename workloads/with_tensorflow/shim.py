"""Imports TensorFlow, and evens out what differs between 2.x and the vendor's 1.15: `from with_tensorflow.shim import tf`.

Only what the training program calls is here. What is said of 1.15 follows its documentation; it has not been run in that container.
1.15 refuses to assign to a mirrored variable inside a replica (https://github.com/tensorflow/tensorflow/issues/37834), which is where
the program updates its weights; it is offered with single and horovod.
"""

import os

# Read at import: errors only, and the one backend of Keras 3 that `tf.function` can hold.
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
    """Choose the arithmetic of networks that are built from here on; weights stay in fp32 unless they are to be rounded as well.

    fp32 is IEEE single precision everywhere; tf32 lets matrix products and convolutions round their inputs to TF32, in all networks;
    fp16 and bf16 are Keras' mixed precision, and with `weights` its plain one.
    """
    if V1:
        # A rewrite of the graph in place of Keras' policies, and a switch of the CUDA libraries in place of TensorFlow's.
        tf.config.optimizer.set_experimental_options({"auto_mixed_precision": precision == "fp16"})
        os.environ["NVIDIA_TF32_OVERRIDE"] = "1" if precision == "tf32" else "0"
        return
    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    kind = {"fp16": "float16", "bf16": "bfloat16"}.get(precision)
    policy = "float32" if kind is None else kind if weights else f"mixed_{kind}"
    tf.keras.mixed_precision.set_global_policy(policy)


def compiled(function, *, xla):
    """Make the part of a step that stays on one device, compiled by XLA if asked to."""
    if not xla:
        return function
    return tf.function(function, autograph=False, **{"experimental_compile" if V1 else "jit_compile": True})


def run(strategy, function, args):
    return (strategy.experimental_run_v2 if V1 else strategy.run)(function, args=args)


def values(strategy, value_of_replica):
    """Put a value on each device that this process drives: `value_of_replica(number of the replica among all)`."""
    devices = strategy.extended.worker_devices

    def value(context):
        replica = 0 if V1 else context.replica_id_in_sync_group
        with tf.device(devices[replica % len(devices)]):
            return value_of_replica(replica)

    return value(None) if V1 else strategy.experimental_distribute_values_from_function(value)


def without_errors(dataset):
    return dataset.apply(tf.data.experimental.ignore_errors()) if V1 else dataset.ignore_errors()


def with_threads(dataset, count):
    """Give a data set threads of its own; it would share those that run operators."""
    options = tf.data.Options()
    (options.experimental_threading if V1 else options.threading).private_threadpool_size = count
    return dataset.with_options(options)


def batches(strategy, dataset):
    """Iterate over a data set, each device taking the next batch, with batches on their devices before they are asked for."""
    distribute = "experimental_distribute_datasets_from_function" if V1 else "distribute_datasets_from_function"
    return iter(getattr(strategy, distribute)(lambda _: dataset))


def trained(net):
    """Give the trainable weights as TensorFlow's variables; Keras 3 wraps them in its own."""
    return [weight if V1 else weight.value for weight in net.trainable_variables]


def gathered(net):
    """Give what a network keeps beside its trainable weights: what its normalizations gathered."""
    return [weight if V1 else weight.value for weight in net.non_trainable_weights]


def synchronize():
    """Wait until all devices have done what was enqueued."""
    if V1:
        with tf.device("/gpu:0"):
            (tf.zeros([]) + 1).numpy()  # runs after all that the device's one compute stream was given
    else:
        tf.test.experimental.sync_devices()


def gpu_details(gpu):
    """Give the name of a GPU and its compute capability, None where TensorFlow can't tell."""
    details = {} if V1 else tf.config.experimental.get_device_details(gpu)
    return details.get("device_name", gpu.name), details.get("compute_capability")


def build_info():
    return {} if V1 else tf.sysconfig.get_build_info()
