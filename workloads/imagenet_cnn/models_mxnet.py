"""The networks of `networks.py` in MXNet Gluon: `build(name, image_size, num_classes, contexts)`.

ResNets come from Gluon's model zoo. Its deep ones (50, 101, 152) follow He et al.'s first code: the stride is in a block's
first 1x1 convolution instead of the 3x3 (5 % fewer FLOPs), and the 1x1 convolutions have biases (18,880 more parameters in ResNet-50),
which batch normalization cancels.
"""

import json
import math

from networks import UNCHANGED, layers
from with_mxnet.shim import mx

nn = mx.gluon.nn
zoo = mx.gluon.model_zoo.vision
AFTER_STEM = 4  # convolution, normalization, ReLU, pooling


def build(name, image_size, num_classes, contexts, *, auxiliary=True):
    """Build a network for (batch, 3, image_size, image_size) images, with its weights on each of `contexts`.

    With auxiliary classifiers, the network returns a tuple: its scores, and theirs.
    Weights are drawn from MXNet's global generator, by the same rules as in `models_torch`.
    """
    net = build_uninitialized(name, image_size, num_classes, auxiliary=auxiliary)
    net.apply(choose_initializers)
    net.initialize(ctx=contexts)
    # Gluon infers the shapes, and draws the weights, on the first image.
    for context in contexts:
        net(mx.nd.zeros((1, 3, image_size, image_size), ctx=context))
    return net


def build_uninitialized(name, image_size, num_classes, *, auxiliary=True):
    """Build the network before its shapes are known and its weights are drawn."""
    layer_list = layers(name, image_size, num_classes, auxiliary=auxiliary)
    plain = name.replace(UNCHANGED, "")
    if not plain.startswith("resnet"):
        return sequence(layer_list)
    net, published = getattr(zoo, f"{plain}_v1")(classes=num_classes), layer_list[1][0] == "max_pool"
    return net if published else block(sequence(layer_list[:1]), *net.features[AFTER_STEM:], net.output)


def graph_of(net):
    graph = net(mx.sym.var("images"))
    return mx.sym.Group(graph) if isinstance(graph, tuple) else graph


def nodes_of(graph, *, casts=False):
    """Operators of a graph, as in MXNet's JSON; `casts` includes the casts added by its mixed precision."""
    return json.loads(graph.tojson(remove_amp_cast=not casts))["nodes"]


def multiplied(net, image_size):
    """(weights, positions) of each convolution and dense layer of a network as built, as expected by `flop.per_sample`."""
    graph = graph_of(net)
    inside = graph.get_internals()
    _, outputs, _ = inside.infer_shape(images=(1, 3, image_size, image_size))
    shapes = dict(zip(inside.list_outputs(), outputs, strict=True))
    nodes = nodes_of(graph)
    found = []
    for node in nodes:
        if node["op"] in {"Convolution", "FullyConnected"}:
            weight = shapes[nodes[node["inputs"][1][0]]["name"]]
            found.append((math.prod(weight), math.prod(shapes[node["name"] + "_output"]) // weight[0]))
    return found


def choose_initializers(one):
    """Set the initializer of a block's weights; the zoo's choices differ from network to network."""
    if isinstance(one, nn.Conv2D):
        one.weight.init = mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2)
    elif isinstance(one, nn.Dense):
        one.weight.init = mx.init.Normal(0.01)
    elif isinstance(one, zoo.BasicBlockV1 | zoo.BottleneckV1):
        one.body[-1].gamma.init = mx.init.Zero()


class Auxiliary(nn.HybridSequential):
    pass


class Headed(nn.HybridSequential):
    """A chain with auxiliary classifiers, each of which reads a map that the chain also passes on."""

    def hybrid_forward(self, F, x):  # noqa: N803 - Gluon's own name
        del F
        heads = []
        for part in self._children.values():
            if isinstance(part, Auxiliary):
                heads.append(part(x))
            else:
                x = part(x)
        return (x, *heads)


def block(*made: mx.gluon.HybridBlock, kind=nn.HybridSequential):
    chain = kind()
    chain.add(*made)
    return chain


def sequence(layer_list):
    kind = Headed if any(layer[0] == "auxiliary" for layer in layer_list) else nn.HybridSequential
    return block(*[MAKERS[kind](*arguments) for kind, *arguments in layer_list], kind=kind)


def unit(channels, kernel, stride, padding, epsilon):
    convolution = nn.Conv2D(channels, kernel, stride, padding, use_bias=False)
    return block(convolution, nn.BatchNorm(epsilon=epsilon), nn.Activation("relu"))


class ByChannels(nn.HybridBlock):
    """A block that supports only channels-first maps; a `channels_last` input is transposed first."""

    channels_last = False

    def hybrid_forward(self, F, x):  # noqa: N803 - Gluon's own name
        return self.first(F, F.transpose(x, axes=(0, 3, 1, 2)) if self.channels_last else x)


class Flatten(ByChannels):
    def first(self, F, x):  # noqa: N803
        return F.flatten(x)


class LocalNorm(ByChannels):
    def first(self, F, x):  # noqa: N803
        normalized = F.LRN(x, nsize=5, alpha=1e-4, beta=0.75, knorm=1)
        return F.transpose(normalized, axes=(0, 2, 3, 1)) if self.channels_last else normalized


class ChannelsLast(nn.HybridBlock):
    """Transposes channels-first images of the data set for a channels-last network."""

    def hybrid_forward(self, F, x):  # noqa: N803
        return F.transpose(x, axes=(0, 2, 3, 1))


def branches(paths):
    joined = mx.gluon.contrib.nn.HybridConcurrent(axis=1)
    joined.add(*map(sequence, paths))
    return joined


MAKERS = {
    "convolution": nn.Conv2D,
    "unit": unit,
    "relu": lambda: nn.Activation("relu"),
    "max_pool": lambda kernel, stride, padding, up: nn.MaxPool2D(kernel, stride, padding, ceil_mode=up),
    "local_norm": LocalNorm,
    "average_pool": nn.AvgPool2D,
    "mean": nn.GlobalAvgPool2D,
    "flatten": Flatten,
    "dropout": nn.Dropout,
    "dense": nn.Dense,
    "branches": branches,
    "auxiliary": lambda layer_list: block(*sequence(layer_list), kind=Auxiliary),
}
