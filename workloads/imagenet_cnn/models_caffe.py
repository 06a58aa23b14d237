"""The networks of `networks.py` for Caffe: writes its network definitions layer by layer, and tracks map sizes and parameters.

Standard library and syntax of Python 3.6 only. Each method of `Net` adds a layer (with its companions) on top of the given
blob and returns the name of its output; methods named after a kind of layer take the arguments listed in `networks`. Activations and
normalizations work in place, as in Caffe's own models. Initial distributions are those of `models_torch`.

The two Caffes use two dialects of one language:

                       Caffe 1.0                                       NVCaffe 0.17
batch normalization    BatchNorm, then Scale with a bias               one BatchNorm with scale_bias (cuDNN fuses it)
size of a pooled map   round_mode: FLOOR where PyTorch rounds down     always rounded up
half precision         none                                            default_forward_type, default_backward_type

Because NVCaffe rounds up, maps of AlexNet, LeNet and VGG can be one row and column larger than elsewhere, with more weights in the
next fully-connected layer; at 224 pixels none is. ResNet's 3x3 pooling with stride 2 and padding 1 yields PyTorch's size
in NVCaffe if an even map is not padded, as in Caffe's published ResNets; its windows then lie one pixel lower.
"""

from networks import AUXILIARY, add, layers

# The networks offered with Caffe.
MODELS = (
    "alexnet",
    "googlenet",
    "googlenet-bvlc",
    "googlenet-mxnet",
    "lenet",
    "resnet18",
    "resnet50",
    "resnet101",
    "resnet152",
    "vgg16",
    "vgg19",
)
# NVCaffe's published fp16 models multiply the loss by this, so that small gradients do not vanish in half precision.
GRADIENT_SCALE = 1000
HALF = f"default_forward_type: FLOAT16\ndefault_backward_type: FLOAT16\nglobal_grad_scale: {GRADIENT_SCALE}\n"

HE = 'weight_filler { type: "msra" }'  # https://arxiv.org/abs/1502.01852: deviation sqrt(2 / inputs of a unit)
FROZEN = "param { lr_mult: 0 decay_mult: 0 }"


def extend(net, name, image_size, num_classes, *, auxiliary=True):
    """Add a network's layers to `net`, from the blobs `data` (batch, 3, image_size, image_size) and `label` (batch,) to its loss.

    `data_caffe` provides those two blobs.
    """
    net.loss(scores(net, name, image_size, num_classes, auxiliary=auxiliary), "label")
    for head in net.heads:
        net.loss(head, "label", weight=AUXILIARY[name])


def scores(net, name, image_size, num_classes, *, auxiliary=True):
    """Add the layers from the blob `data` to the class scores. Returns the name of the scores' blob."""
    net.shapes["data"] = 3, image_size
    return add(net, "data", layers(name, image_size, num_classes, auxiliary=auxiliary))


class Net:
    """A network under construction.

    Attributes:
        parameters: trainable parameters so far.
        frozen: other numbers in a snapshot: statistics of normalizations, and untrained blobs.
        multiplied: (weights, positions) of each convolution and dense layer so far, as expected by `flop.per_sample`.
    """

    def __init__(self, name, *, nvidia, half=False):
        """Start a network for NVCaffe (`nvidia`) or Caffe 1.0; `half` selects half precision, which only NVCaffe has."""
        self.nvidia = nvidia
        self.parameters = self.frozen = 0
        self.multiplied = []
        self.lines = ['name: "{}"\n{}'.format(name, HALF if half else "")]
        self.shapes = {}  # of each blob: channels and height; a vector's height is 1
        self.heads = []  # score blobs of auxiliary classifiers
        self.numbers = {}  # layers of each kind so far
        self.kinds = {}  # kind of each layer, by name

    def text(self):
        return "".join(self.lines)

    def layer(self, kind, bottoms, tops, body=""):
        """Add a layer with the given body and return its name; without `tops`, its output has the same name."""
        self.numbers[kind] = self.numbers.get(kind, 0) + 1
        name = f"{kind.lower()}{self.numbers[kind]}"
        self.kinds[name] = kind
        ends = "".join(f'  bottom: "{bottom}"\n' for bottom in bottoms)
        ends += "".join(f'  top: "{top}"\n' for top in tops or (name,))
        body = "".join(f"  {line}\n" for line in body.splitlines())
        self.lines.append(f'layer {{\n  name: "{name}"\n  type: "{kind}"\n{ends}{body}}}\n')
        return name

    def convolution(self, bottom, channels, kernel, stride, padding, *, bias=True):
        channels_in, size = self.shapes[bottom]
        geometry = f"num_output: {channels} kernel_size: {kernel} stride: {stride} pad: {padding}"
        body = f"convolution_param {{ {geometry} bias_term: {str(bias).lower()} {HE} }}"
        top = self.layer("Convolution", [bottom], [], body)
        self.shapes[top] = channels, (size + 2 * padding - kernel) // stride + 1
        self.parameters += channels * (channels_in * kernel**2 + bias)
        self.multiplied.append((channels * channels_in * kernel**2, self.shapes[top][1] ** 2))
        return top

    def normalization(self, blob, *, eps, scale):
        """Batch normalization with a scale, initially `scale`, and a shift per channel; in place."""
        channels, _ = self.shapes[blob]
        filler = f'{{ type: "constant" value: {scale} }}'
        if self.nvidia:
            body = f"batch_norm_param {{ eps: {eps} scale_bias: true scale_filler {filler} }}"
            self.layer("BatchNorm", [blob], [blob], body)
        else:
            self.layer("BatchNorm", [blob], [blob], f"batch_norm_param {{ eps: {eps} }}")
            self.layer("Scale", [blob], [blob], f"scale_param {{ bias_term: true filler {filler} }}")
        self.parameters += 2 * channels
        self.frozen += 2 * channels + 1  # running mean and variance, and their common factor
        return blob

    def normalized(self, bottom, *shape: object, scale=1):
        """The part of a `unit` before its ReLU."""
        *convolution, eps = shape
        return self.normalization(self.convolution(bottom, *convolution, bias=False), eps=eps, scale=scale)

    def unit(self, bottom, *shape: object):
        return self.relu(self.normalized(bottom, *shape))

    def relu(self, blob):
        self.layer("ReLU", [blob], [blob])
        return blob

    def dropout(self, blob, share):
        self.layer("Dropout", [blob], [blob], f"dropout_param {{ dropout_ratio: {share} }}")
        return blob

    def local_norm(self, bottom):
        top = self.layer("LRN", [bottom], [], "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }")
        self.shapes[top] = self.shapes[bottom]
        return top

    def average_pool(self, bottom, kernel, stride, padding):
        return self.pool("AVE", bottom, kernel, stride, padding, up=False)

    def max_pool(self, bottom, kernel, stride, padding, up):
        return self.pool("MAX", bottom, kernel, stride, padding, up=up)

    def pool(self, kind, bottom, kernel, stride, padding, *, up):
        channels, size = self.shapes[bottom]
        wanted = pooled(size, kernel, stride, padding, up=up)
        rounding = ""
        if not up and self.nvidia:
            if padding and wanted == pooled(size, kernel, stride, 0, up=True):
                padding = 0
            wanted = pooled(size, kernel, stride, padding, up=True)
        elif not up:
            rounding = " round_mode: FLOOR"
        body = f"pooling_param {{ pool: {kind} kernel_size: {kernel} stride: {stride} pad: {padding}{rounding} }}"
        top = self.layer("Pooling", [bottom], [], body)
        self.shapes[top] = channels, wanted
        return top

    def mean(self, bottom):
        top = self.layer("Pooling", [bottom], [], "pooling_param { pool: AVE global_pooling: true }")
        self.shapes[top] = self.shapes[bottom][0], 1
        return top

    def flatten(self, blob):
        """Do nothing: the next layer reads a map as a vector."""
        return blob

    def dense(self, bottom, units):
        """A fully-connected layer; weights start with a deviation of 0.01, as in the AlexNet paper."""
        channels, size = self.shapes[bottom]
        filler = 'weight_filler { type: "gaussian" std: 0.01 }'
        top = self.layer("InnerProduct", [bottom], [], f"inner_product_param {{ num_output: {units} {filler} }}")
        self.shapes[top] = units, 1
        self.parameters += units * (channels * size**2 + 1)
        self.multiplied.append((units * channels * size**2, 1))
        return top

    def branches(self, bottom, paths):
        tops = [add(self, bottom, path) for path in paths]
        joined = self.layer("Concat", tops, [])
        self.shapes[joined] = sum(self.shapes[top][0] for top in tops), self.shapes[tops[0]][1]
        return joined

    def auxiliary(self, bottom, layer_list):
        self.heads.append(add(self, bottom, layer_list))
        return bottom

    def residual(self, bottom, units, stride):
        *first, (_, *last) = units
        channels = last[0]
        body = self.normalized(add(self, bottom, first), *last, scale=0)
        if stride != 1 or self.shapes[bottom][0] != channels:
            bottom = self.normalized(bottom, channels, 1, stride, 0, 1e-5)
        top = self.layer("Eltwise", [body, bottom], [], "eltwise_param { operation: SUM }")
        self.shapes[top] = self.shapes[body]
        return self.relu(top)

    def loss(self, bottom, labels, *, weight=None):
        """Mean cross-entropy of the batch in nats; `weight` is an auxiliary classifier's share in the loss."""
        tops, body = ([], f"loss_weight: {weight}") if weight else (["loss"], "")
        self.layer("SoftmaxWithLoss", [bottom, labels], tops, body)


def pooled(size, kernel, stride, padding, *, up):
    """Height of a pooled map by Caffe's formula, which rounds `up` or down and drops a window that starts outside the map."""
    excess = size + 2 * padding - kernel
    windows = (-(-excess // stride) if up else excess // stride) + 1
    return windows - (padding > 0 and (windows - 1) * stride >= size + padding)
