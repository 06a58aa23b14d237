"""Classifies images with a convolutional network in PyTorch, on one device, and reports events.

    python3 infer_pytorch.py --model=resnet18 --image-size=32 --num-classes=1000 --batch=32 --iterations=40 --warmup=4 \
        --window=4 --precision=fp32 --device=cpu --devices=1 --data=synthetic --seed=1 --threads=2 --cpus-per-worker=0 \
        --loader-workers=1
    python3 infer_pytorch.py ... --data=FOLDER --fit=200 --precision=int8
    python3 infer_pytorch.py ... --device=gpu --techniques=folded-norm,compile,kernel-search,cuda-graphs

`workloads/inference.py` has the loop and defines the measurements. Networks run as built, in evaluation mode and eager, without fusion or
compilation unless `--techniques` requests it (`with_pytorch/techniques.py`). fp16 and bf16 convert all weights and images (`model.half()`);
tf32 lets matrix products and convolutions round. On a GPU, all but fp32 are channels-last. int8 is `quantized`, on CPUs only: PyTorch has no
int8 convolutions for GPUs.

On a GPU, samples lie in pinned host memory in the network's layout (real ones as bytes, synthetic ones in its precision) and are copied
on a separate stream. Bytes are normalized on the GPU; classes return to pinned memory, 8 bytes a sample. A CUDA event recorded after the
classes gives the time of the answer, so that the host waits for the device only when it needs an answer.
"""

import copy
import math
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import inference
from arguments import add_techniques, refuse
from classifier import Classifier, check
from flags import infer_parser
from flop import per_sample
from process import leave, pin
from with_pytorch import device as devices
from with_pytorch import techniques

ENGINE = "x86"  # PyTorch picks FBGEMM or oneDNN, whichever it knows to be faster
HALF = {"fp16": "float16", "bf16": "bfloat16"}


class Predictor(Classifier):
    def __init__(self, args, torch, device):
        from models_torch import build
        from with_pytorch.operations import layers

        super().__init__(args)
        self.torch, self.device, self.effects = torch, device, {}
        torch.manual_seed(args.seed)
        self.net = build(args.model, args.image_size, args.num_classes, auxiliary=False).to(device).eval()
        self.parameters = sum(p.numel() for p in self.net.parameters())
        self.flop_per_sample = per_sample(layers(self.net, args.image_size))
        self.set_layout(torch.contiguous_format, torch.float32)
        self.set_tf32(tf32=False)  # the fp32 reference, until `convert`

    def set_layout(self, layout, dtype):
        """From here on, pass images to the network in this layout and type."""
        from data_torch import Normalize

        self.layout, self.dtype = layout, dtype
        self.normalize = Normalize(device=self.device, layout=layout)

    def set_tf32(self, *, tf32):
        self.torch.backends.cuda.matmul.allow_tf32 = tf32
        self.torch.backends.cudnn.allow_tf32 = tf32

    def decode(self, images):
        from data_torch import Central
        from torch.utils.data import DataLoader
        from with_pytorch.loading import collate

        # After the library, few images remain and this process decodes them: it may have trained, and should not fork (`data_torch.Validation`).
        workers = 0 if self.decoded else self.args.loader_workers
        dataset = Central(self.args.data, images, image_size=self.args.image_size)
        parts = list(DataLoader(dataset, batch_size=inference.CHUNK, num_workers=workers, collate_fn=collate))
        whole = [part for part in parts if len(part[1])]
        pixels, labels = (self.torch.cat([part[place] for part in whole]).numpy() if whole else () for place in (0, 1))
        return pixels, labels, [name for *_, names in parts for name in names]

    def fit(self, iterations):
        from data_torch import ClassFolders, Images
        from torch.utils.data import DistributedSampler
        from with_pytorch.loading import open_folder

        torch, args = self.torch, self.args
        dataset = open_folder(args, ClassFolders, part=0)
        sampler = DistributedSampler(dataset, 1, 0, shuffle=True, seed=args.seed)
        place = {"device": self.device, "layout": self.layout}
        batches = Images(dataset, sampler, batch=inference.FIT_BATCH, workers=args.loader_workers, **place)
        optimizer = torch.optim.Adam(self.net.parameters(), lr=inference.FIT_RATE)
        self.net.train()
        for _ in range(iterations):
            images, labels = next(batches)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.net(images), labels).backward()
            optimizer.step()
        self.net.zero_grad()
        self.net.eval()
        self.decoded += batches.decoded
        self.skipped |= batches.skipped

    def convert(self):
        torch, precision = self.torch, self.args.precision
        squares = [p.detach().double().square().sum() for p in self.net.parameters()]
        self.norm = math.sqrt(torch.stack(squares).sum().item())
        if "folded-norm" in self.args.techniques:
            self.net, self.effects = techniques.folded(torch, self.net)
        if precision == "int8":
            images, chunk = self.calibration(), inference.CHUNK
            parts = [images[first : first + chunk] for first in range(0, len(images), chunk)]
            self.net = quantized(torch, self.net, [self.prepare(part) for part in parts])
            return
        self.set_tf32(tf32=precision == "tf32")
        channels_last = self.device.type == "cuda" and precision != "fp32"
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self.set_layout(layout, getattr(torch, HALF.get(precision, "float32")))
        self.net = self.net.to(dtype=self.dtype, memory_format=layout)

    def prepare(self, samples):
        images = self.torch.from_numpy(samples)
        if images.dtype == self.torch.uint8:
            images = self.normalize(images)
        return images.to(self.device, self.dtype, memory_format=self.layout)

    def predict(self, samples):
        with self.torch.inference_mode():
            return self.net(self.prepare(samples)).argmax(1).numpy()

    def parameter_norm(self):
        return self.norm

    def emit_extra(self, events, samples):
        del samples
        if self.effects:
            events.emit("techniques", effects=self.effects)
        if "compile" in self.args.techniques:
            events.emit("compiled", **techniques.graph_counts())


class OnGpu(Predictor):
    """A predictor on a GPU, with several batches in flight."""

    in_flight = inference.IN_FLIGHT

    def __init__(self, args, torch, device):
        if "cuda-graphs" in args.techniques:
            from with_pytorch import captured

            captured.stream()
        super().__init__(args, torch, device)
        self.answer = self.classes
        self.transfers = torch.cuda.Stream(device)
        self.start_clock()

    def start_clock(self):
        """Record a moment on the clocks of both the host and the GPU."""
        self.zero = self.torch.cuda.Event(enable_timing=True)
        self.torch.cuda.synchronize(self.device)
        self.zero.record()
        self.zero.synchronize()
        self.zero_at = time.monotonic()

    def lay_out(self, samples):
        """Apply the compiling techniques only now: every batch size tried before would have been compiled and recorded too."""
        names = self.args.techniques
        if "compile" in names:
            techniques.use_cache(self.args.compiled)
            options = techniques.search_options() if "kernel-search" in names else None
            self.answer = self.torch.compile(self.classes, dynamic=False, options=options)
        if "cuda-graphs" in names:
            self.torch.cuda.empty_cache()  # a graph has its own memory pool
            self.answer = self.with_cuda_graphs(self.answer)
        self.start_clock()
        return self.as_transferred(samples).pin_memory()

    def as_transferred(self, samples):
        """Samples in host memory, in the form in which they travel to the GPU."""
        if isinstance(samples, self.torch.Tensor):
            return samples
        images = self.torch.from_numpy(samples)
        dtype = images.dtype if images.dtype == self.torch.uint8 else self.dtype
        return images.to(dtype=dtype, memory_format=self.layout)

    def classes(self, images):
        if images.dtype == self.torch.uint8:
            images = self.normalize(images).to(self.dtype)
        return self.net(images).argmax(1)

    def with_cuda_graphs(self, answer):
        """Answer batches from CUDA graphs, one per batch length; the second batch of a length records its graph."""
        from with_pytorch.captured import Captured

        graphs = {}

        def answer_by_graph(images):
            if len(images) not in graphs:
                graphs[len(images)] = Captured(lambda batch: answer(*batch), eager_steps=1)
            return graphs[len(images)]((images,))

        return answer_by_graph

    def submit(self, samples):
        torch = self.torch
        try:
            with torch.inference_mode():
                with torch.cuda.stream(self.transfers):
                    images = self.as_transferred(samples).to(self.device, non_blocking=True)
                torch.cuda.current_stream(self.device).wait_stream(self.transfers)
                classes = self.answer(images).to("cpu", non_blocking=True)  # into pinned memory
                answered = torch.cuda.Event(enable_timing=True)
                answered.record()
                # The ticket keeps the images' memory alive until then. `record_stream` would make every later allocation query an event.
                return images, classes, answered
        except torch.cuda.OutOfMemoryError:
            pass  # releasing the exception releases the frames that hold the allocations
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()
        raise inference.OutOfMemoryError

    def collect(self, ticket):
        _, classes, answered = ticket
        answered.synchronize()
        return classes.numpy(), self.zero_at + self.zero.elapsed_time(answered) / 1e3

    def place(self, samples):
        images = self.as_transferred(samples).to(self.device)
        self.torch.cuda.synchronize(self.device)
        return images

    def run(self, placed):
        with self.torch.inference_mode():
            self.answer(placed)
        self.torch.cuda.synchronize(self.device)

    def free_bytes(self):
        return self.torch.cuda.mem_get_info(self.device)[0]


def quantized(torch, net, batches):
    """Make an int8 copy, for x86 CPUs, of a network in evaluation mode; value ranges come from the given batches of images.

    PyTorch 2.13 itself offers `torch.ao.quantization` in FX graph mode. It is deprecated in favour of the package torchao,
    whose quantized graphs need torch.compile and hence a C++ compiler, which a read-only image without one can't offer. Weights are quantized
    per output channel; activations per tensor, with ranges from histograms, in 7 of 8 bits if a processor without VNNI could overflow
    (https://docs.pytorch.org/docs/stable/quantization.html).
    """
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    engines = torch.backends.quantized
    if ENGINE not in engines.supported_engines:
        known = ", ".join(engines.supported_engines)
        refuse(f"--precision=int8 needs an x86 CPU: this PyTorch quantizes for {known}; ask for fp32 or bf16")
    engines.engine = ENGINE
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # it is deprecated, and so are some of its own default observers
        prepared = prepare_fx(copy.deepcopy(net), get_default_qconfig_mapping(ENGINE), (batches[0],))
        for images in batches:
            prepared(images)
        return convert_fx(prepared)


def command_line():
    argparser = infer_parser(__doc__.splitlines()[0])
    add_techniques(argparser)
    return argparser


def main():
    args = command_line().parse_args()
    pin(args.cpus_per_worker)

    import torch

    check(args, int8="PyTorch has no int8 convolutions for GPUs; ask for fp16 or bf16")
    devices.check(args, torch)
    techniques.check_offered(args, techniques.OF_INFERENCE)
    imported = time.monotonic()
    device = devices.set_up(args, torch)
    kind = OnGpu if device.type == "cuda" else Predictor
    inference.report(
        lambda: kind(args, torch, device), args, environment=devices.environment(args, torch, device), imported=imported
    )


if __name__ == "__main__":
    main()
    leave()
