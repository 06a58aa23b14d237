"""Values of `--techniques`: optimizations of the same training on the same device. Without any, a program is a paper's plain one.

They are in the order of an ablation's rows. None changes the result, except by rounding (XLA draws different numbers from the same seed, so
that dropout drops different elements). The first two affect operators that XLA does not compile: by default TensorFlow
lays out images channels-first for its convolutions unless at least half of them are in fp16
(tensorflow/core/grappler/optimizers/generic_layout_optimizer.cc), and its normalizations transpose channels-last maps and back
(`fast_nhwc_batch_norm` in tensorflow/core/kernels/fused_batch_norm_op.cc).
"""

import os

from arguments import refuse

TECHNIQUES = (
    "channels-last",  # Grappler leaves images channels-last, as tensor cores read them
    "persistent-norm",  # training uses cuDNN's persistent normalization kernel, which takes channels-last images in fp16 and bf16
    "space-to-depth",  # the first convolution runs over blocks of pixels (`stems.py`)
    "xla",  # XLA compiles the forward and backward pass, as with --xla
    "pooling-index",  # 3x3 max pooling with stride 2 keeps the index of each maximum, so that XLA fuses its backward pass (`stems.py`)
    "step-loop",  # the steps of a window are a loop inside one graph, which is called once (Keras' steps_per_execution)
)
ON_GPUS = frozenset({"channels-last", "persistent-norm", "space-to-depth", "pooling-index"})


def check(args, *, offered):
    for name in args.techniques:
        if name not in offered:
            known = f"it has {', '.join(word for word in TECHNIQUES if word in offered)}" if offered else "leave it out"
            refuse(f"--techniques={name} is not offered by this program; {known}")
        if name in ON_GPUS and args.device != "gpu":
            refuse(f"--techniques={name} is for GPUs; leave it out with --device={args.device}")
    if "persistent-norm" in args.techniques and "channels-last" not in args.techniques:
        refuse("--techniques=persistent-norm reads images channels-last; add channels-last")
    if "persistent-norm" in args.techniques and args.precision not in {"fp16", "bf16"}:
        refuse(f"--techniques=persistent-norm has no kernel for --precision={args.precision}; ask for bf16 or fp16")
    if "pooling-index" in args.techniques and not (args.xla or "xla" in args.techniques):
        refuse("--techniques=pooling-index makes many small operators, which XLA fuses; add xla")
    if "step-loop" in args.techniques and args.data != "synthetic":
        refuse("--techniques=step-loop repeats one batch inside a graph; leave it out, or ask for --data=synthetic")
    if "xla" in args.techniques and args.xla:
        refuse("--xla and --techniques=xla mean the same; leave one of them out")


def set_up(args, tf):
    """Set TensorFlow's options; call before it builds its first graph."""
    if "channels-last" in args.techniques:
        tf.config.optimizer.set_experimental_options({"layout_optimizer": False})
    if "persistent-norm" in args.techniques:
        os.environ["TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT"] = "1"
