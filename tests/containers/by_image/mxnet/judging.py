"""Inside the image: validation after epochs and inference count correct answers, with every strategy and in every precision of a CPU.

Prevents validation images that are trained on, counted twice or skipped by the ranks, validation with each rank's own statistics,
strategies that validate different networks, an int8 network that computes in fp32, an int8 network whose answers depend on the batch.
"""

import json
import sys

import judged
from colours import JPEGS
from flags import infer_parser
from probed import named
from programs import parameter_server

# Runs in each of two workers: rank 1 starts with other statistics than rank 0.
SHARING = """
from with_mxnet.ranks import Distributed
from with_mxnet.shim import mx
ranks = Distributed("dist_sync")
net = mx.gluon.nn.BatchNorm(in_channels=3)
net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
trainer = ranks.trainer(net.collect_params(), dict(learning_rate=0.1), in_process=True)
# Two workers of Deep Speech 2 once held different weights: one was late to ask for its first ones, and was given gradients.
assert not trainer._params_to_init, "the first step would fetch weights from a store that gradients are sent to"
net.running_mean.set_data(mx.nd.full(3, 5 + ranks.rank))
for _ in range(2):
    ranks.share([net.running_mean])
    assert [part.asnumpy().tolist() for part in net.running_mean.list_data()] == [[5, 5, 5]] * 2, net.running_mean.list_data()
"""


def all_strategies_validate_the_same_network(data):
    """With the same images in the same global batches, cropped alike and without normalization, all strategies train the same network."""
    found = {
        "one": judged.converge("mxnet", data),
        "device": judged.converge("mxnet", data, "--batch=2", "--devices=2", "--strategy=kvstore", "--kvstore=device"),
        "dist_sync": judged.converge(
            *("mxnet", data, "--batch=2", "--strategy=kvstore", "--kvstore=dist_sync"),
            launcher=(__file__, "job", sys.executable),
            processes=2,
        ),
    }
    sums = {
        name: [
            sum(event["validation"]["loss_sum"] for event in named(events, "epoch") if event["epoch"] == number)
            for number in (1, 2, 3)
        ]
        for name, events in found.items()
    }
    for losses in sums.values():
        for one, other in zip(losses, sums["one"], strict=True):
            assert abs(one - other) < 1e-3 * max(1, other), sums


def int8_computes_in_int8():
    """Everything from the first convolution to the last dense layer is in int8; an image's answer does not depend on its batch."""
    from infer_mxnet import Predictor
    from with_mxnet.shim import mx

    words = [*judged.COMMON, "--batch=3", "--iterations=1", "--window=1", "--data=synthetic", "--precision=int8"]
    for model in ("resnet18", "googlenet"):
        predictor = Predictor(infer_parser("").parse_args([*words, f"--model={model}"]), mx)
        samples, labels = predictor.library(9)
        assert labels is None
        before = predictor.predict(samples)
        predictor.convert()
        nodes = json.loads(predictor.net(mx.sym.var("data")).tojson())["nodes"]
        layers = [node for node in nodes if node["op"] in {"_sg_mkldnn_conv", "_sg_mkldnn_fully_connected"}]
        assert layers
        assert not [node for node in nodes if node["op"] in {"Convolution", "FullyConnected", "BatchNorm"}]
        assert {node["attrs"]["quantized"].lower() for node in layers} == {"true"}
        answers = predictor.predict(samples)
        assert (answers == before).mean() > 0.8, (model, answers, before)
        assert [int(predictor.predict(samples[row : row + 1])[0]) for row in range(9)] == answers.tolist()


def several_batches_are_answered_in_order():
    """As on a GPU, but without pinned memory, which a host without a GPU lacks."""
    from infer_mxnet import OnGpu
    from with_mxnet.shim import mx

    words = [*judged.COMMON, "--batch=3", "--iterations=1", "--window=1", "--data=synthetic", "--precision=fp32"]
    predictor = OnGpu(infer_parser("").parse_args([*words, "--model=lenet", "--num-classes=100"]), mx)
    predictor.lay_out = lambda samples: mx.nd.array(samples, dtype=samples.dtype)
    samples, _ = predictor.library(18)
    expected = [int(predictor.predict(samples[row : row + 1])[0]) for row in range(18)]
    judged.check_order_of_answers(predictor, samples, expected)


if sys.argv[1:2] == ["job"]:
    parameter_server(tuple(sys.argv[2:]))
else:
    folder = judged.folder(lambda colour, _: JPEGS[colour])
    int8_computes_in_int8()
    several_batches_are_answered_in_order()
    parameter_server((sys.executable, "-c", SHARING))
    all_strategies_validate_the_same_network(folder)
    judged.infer("mxnet", folder, "int8")
    judged.infer_for_a_time("mxnet")
