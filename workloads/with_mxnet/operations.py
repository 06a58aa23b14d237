"""The convolutions and dense layers of a Gluon network in the order in which they run, for `flop.per_sample`."""

import json
import math

from with_mxnet.shim import mx

MULTIPLIES = {"Convolution", "FullyConnected"}


def layers(net, image_size):
    """(weights, positions) of each, read off the graph of the network as built, its shapes inferred for one image."""
    graph = net(mx.sym.var("images"))
    inside = graph.get_internals()
    _, outputs, _ = inside.infer_shape(images=(1, 3, image_size, image_size))
    shapes = dict(zip(inside.list_outputs(), outputs, strict=True))
    nodes = json.loads(graph.tojson())["nodes"]
    found = []
    for node in nodes:
        if node["op"] in MULTIPLIES:
            weight = shapes[nodes[node["inputs"][1][0]]["name"]]
            found.append((math.prod(weight), math.prod(shapes[node["name"] + "_output"]) // weight[0]))
    return found
