"""Trains a convolutional network with Caffe's own `caffe train`, on a CPU or on GPUs of one host, and reports events.

    python3 train_caffe.py --model=lenet --image-size=32 --num-classes=1000 --batch=64 --iterations=40 --warmup=4 \
        --window=4 --precision=fp32 --device=cpu --devices=1 --strategy=single --data=synthetic --learning-rate=0.001 \
        --momentum=0.9 --weight-decay=0.0001 --seed=1 --threads=2 --cpus-per-worker=0 --loader-workers=0
    python3 train_caffe.py ... --profile=kernels --profile-iterations=5

Standard library and syntax of Python 3.6 only: it runs in Debian's image of Caffe 1.0 and in NVIDIA's of NVCaffe 0.17. It writes a
solver and a net to a new directory, starts the binary (with --strategy=caffe on `-gpu 0,1,...`), and passes its log on, unmodified, on
standard error. Events say what the run is; its speed and its losses are read from the log, in lines like

    Iteration 12 (22.9885 iter/s, 0.087s/2 iters), loss = 2.31559                           Caffe 1.0
    [0.0] Iteration 12 (22.9885 iter/s, 0.087s/2 iter), 0.1/10.7ep, loss = 2.31559         NVCaffe 0.17

Caffe writes the line of iteration n when iteration n's loss and gradients are complete, before its update. The line's time counts from the
previous line, so after W iterations of warm-up the measured iterations are W + 1 to W + I. `display` is the
largest interval that hits every edge of a window: with W = 4, windows of 4 and I = 10 it is 2, a window is two lines, and the last window one
line. Caffe waits for every iteration's loss anyway, because it adds losses up on the host.

Ignore the line of iteration 0, and on NVCaffe those of 1 and 2: they include the set-up. Iterations after W + I are there only
because Caffe 1.0 prints no rate at the end, and NVCaffe numbers its last iteration one too high, so neither line can be an edge. On a
CPU, Caffe truncates the seconds to whole milliseconds; the time stamps before the lines have microseconds.
"""

import math
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import data_caffe
import models_caffe
import profile_caffe
from arguments import check_model, refuse
from class_folders import check_fit, read_index
from events import Events, finite, process_start
from flags import parser
from flop import per_sample
from models_caffe import Net
from process import pin
from process_caffe import ITERATION, READY, caffe_version, environment, is_nvidia, lines, start
from snapshot_caffe import parameter_norm

# Iterations after the last edge, so that the edge is an ordinary line in both Caffes.
AFTER = 2


def check(args):
    if args.strategy not in {"single", "caffe"}:
        refuse(f"--strategy={args.strategy} is not Caffe's; it has single, and caffe for several GPUs")
    if args.device == "cpu" and (args.devices > 1 or args.strategy == "caffe"):
        refuse(
            "Caffe trains on one CPU worker, and on several devices only if they are GPUs; ask for --strategy=single"
        )
    if args.devices > 1 and args.strategy == "single":
        refuse(f"--devices={args.devices} needs --strategy=caffe")
    check_model(args, "Caffe", models_caffe.MODELS)
    if args.precision != "fp32" and (args.device, args.precision) != ("gpu", "fp16"):
        refuse(f"--precision={args.precision} is not offered with Caffe; ask for fp32, or on a GPU for fp16")
    if shutil.which("caffe") is None:
        refuse("`caffe` is not on PATH; run this in a Caffe image")


def check_version(args, version):
    """Refuse options that the installed Caffe (1.0 or NVCaffe) lacks."""
    nvidia = is_nvidia(version)
    if args.precision == "fp16" and not nvidia:
        refuse(f"--precision=fp16 needs NVCaffe, this is Caffe {version}; ask for fp32")
    if nvidia and args.warmup < 2:
        refuse("--warmup=1: NVCaffe reports no rate before iteration 3; ask for 2 or more")


def open_data(args):
    """Return the index of an LMDB; None for synthetic images."""
    if args.data == "synthetic":
        return None
    if not (Path(args.data) / "data.mdb").is_file() or not Path(args.data).with_suffix(".json").is_file():
        refuse(f"--data={args.data} is not an LMDB with its .json next to it; make one with pack_lmdb.py")
    index = read_index(args.data)
    if index["size"] < args.image_size:
        small = f"{args.data} holds images of {index['size']} pixels, --image-size={args.image_size} is more"
        refuse(f"{small}; repack it for that size")
    check_fit(args, classes=len(index["classes"]), images=index["images"], devices=args.devices)
    return index


def build(args, *, nvidia):
    net = Net(args.model, nvidia=nvidia, half=args.precision == "fp16")
    if args.data == "synthetic":
        shape = {"batch": args.batch, "image_size": args.image_size, "num_classes": args.num_classes}
        data_caffe.synthetic(net, seed=args.seed, **shape)
    else:
        data_caffe.lmdb(net, args.data, batch=args.batch, devices=args.devices, image_size=args.image_size)
    models_caffe.extend(net, args.model, args.image_size, args.num_classes)
    return net


def solver(args, directory, *, nvidia, snapshot):
    """SGD with momentum and L2 weight decay, at a fixed learning rate; `snapshot` saves the weights at the end."""
    settings = [
        f'net: "{directory}/net.prototxt"',
        f"base_lr: {args.learning_rate}",
        'lr_policy: "fixed"',
        f"momentum: {args.momentum}",
        f"weight_decay: {args.weight_decay}",
        f"display: {math.gcd(math.gcd(args.warmup, args.window), args.iterations)}",
        f"max_iter: {args.warmup + args.iterations + AFTER}",
        f"snapshot_after_train: {str(snapshot).lower()}",
        f'snapshot_prefix: "{directory}/weights"',
        f"solver_mode: {args.device.upper()}",
        f"random_seed: {args.seed}",
    ]
    if nvidia:
        settings.append("store_blobs_in_old_format: true")  # as numbers instead of typed bytes
    return "\n".join(settings) + "\n"


def watch(process, args, events):
    """Pass the log on and emit an event at each of its milestones. Returns an exit code."""
    launched, last = time.monotonic(), args.warmup + args.iterations
    ready = stepped = measured = False
    for line in lines(process):
        if not ready and READY in line:
            ready = True
            events.phase("model", launched)
        found = ITERATION.search(line)
        if not found:
            continue
        iteration = int(found.group(1))
        if not stepped:
            stepped = True
            events.emit("first_step")
        if iteration == args.warmup:
            events.emit("warmup_end", iterations=args.warmup)
            events.net("start")
            events.usage("start")
        elif iteration == last:
            measured = True
            events.net("stop")
            events.usage("stop")
    code = process.wait()
    if code == 0 and not measured:
        print(f"Caffe stopped before iteration {last}, the last one to be measured; its log is above", file=sys.stderr)
        return 1
    return code if code >= 0 else 128 - code  # a shell's exit code for a signal


def has_room(net, directory):
    """Whether a snapshot fits on the disk: the weights, the solver's state of the same size, and as much again to spare."""
    return shutil.disk_usage(str(directory)).free > 3 * 4 * (net.parameters + net.frozen)


def train(args, events, directory, *, version, index):
    """Write the definitions, run Caffe on them and emit the results. Returns its exit code."""
    nvidia = is_nvidia(version)
    net = build(args, nvidia=nvidia)
    snapshot = has_room(net, directory)
    (directory / "net.prototxt").write_text(net.text(), encoding="utf-8")
    run_args = profile_caffe.trained(args) if args.profile else args
    definition = solver(run_args, directory, nvidia=nvidia, snapshot=snapshot and not args.profile)
    (directory / "solver.prototxt").write_text(definition, encoding="utf-8")
    flop = per_sample(net.multiplied)
    events.run_start(args, world_size=args.devices, parameters=net.parameters, flop_per_sample=flop)
    if args.profile:
        return profile(args, events, directory, kinds=net.kinds)
    code = watch(start(args, ["train", f"-solver={directory}/solver.prototxt"]), args, events)
    if code:
        return code
    total = args.warmup + args.iterations + AFTER
    if index:
        events.emit("data", decoded=total * args.batch * args.devices, skipped=index["skipped"])
    events.nccl()
    result = {"iterations": args.iterations, "samples": args.iterations * args.batch * args.devices}
    if snapshot:
        result["parameter_norm"] = finite(parameter_norm(directory / f"weights_iter_{total}.caffemodel"))
    events.emit("run_stop", **result)
    return 0


def profile(args, events, directory, *, kinds):
    """Run Caffe for the requested pass instead of the training. Returns its exit code."""
    if args.profile == "kernels":
        process = start(args, ["time", f"-model={directory}/net.prototxt", f"-iterations={args.profile_iterations}"])
        code, iterations = profile_caffe.time_layers(process, args, events, kinds=kinds)
    else:
        process = start(args, ["train", f"-solver={directory}/solver.prototxt"])
        code, iterations = profile_caffe.watch_memory(process, args, events)
    if code == 0:
        events.emit("run_stop", iterations=iterations, samples=iterations * args.batch)
    return code


def main():
    args = parser(__doc__.splitlines()[0]).parse_args()
    pin(args.cpus_per_worker * args.devices)
    check(args)
    profile_caffe.check(args)
    version = caffe_version()
    check_version(args, version)
    index = open_data(args)
    events = Events(rank=0)
    events.phase("import", process_start())
    events.emit("env", **environment(args, version))
    directory = Path(tempfile.mkdtemp(prefix="dlscale-caffe-"))
    try:
        raise SystemExit(train(args, events, directory, version=version, index=index))
    finally:
        shutil.rmtree(str(directory), ignore_errors=True)


if __name__ == "__main__":
    main()
