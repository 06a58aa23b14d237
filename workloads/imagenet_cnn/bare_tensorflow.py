"""A minimal TensorFlow training loop that uses only the suite's network: the reference for the suite's overhead.

    python3 bare_tensorflow.py --model=resnet18 --image-size=32 --batch=32 --iterations=40 --warmup=4 --seed=1 --threads=2

Prints images/sec, and the seconds from the start of the process to the end of the first step.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from events import process_start
from flags import bare_parser
from models_tensorflow import build
from with_tensorflow.shim import tf

args = bare_parser(__doc__.splitlines()[0]).parse_args()
tf.config.threading.set_intra_op_parallelism_threads(args.threads)
tf.keras.utils.set_random_seed(args.seed)
net = build(args.model, args.image_size, 1000)
optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=1e-4)
loss_function = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
images = tf.random.normal((args.batch, args.image_size, args.image_size, 3))
labels = tf.random.uniform((args.batch,), maxval=1000, dtype=tf.int64)


@tf.function
def step(iteration):
    with tf.GradientTape() as tape:
        loss = loss_function(labels, net([images, tf.stack([args.seed, iteration])]))
    optimizer.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables, strict=True))


for iteration in range(args.warmup + args.iterations):
    if iteration == args.warmup:
        start = time.perf_counter()
    step(tf.constant(iteration))
    if iteration == 0:
        first_step = time.monotonic() - process_start()

print(f"images/sec {args.iterations * args.batch / (time.perf_counter() - start):.3f}")
print(f"first step {first_step:.3f}")
