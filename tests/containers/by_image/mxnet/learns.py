"""Inside the image: a few steps on one batch lower the loss of a network, and every weight gets a gradient.

Prevents a branch that is built and not connected, a weight that gets no gradient, a gradient of the wrong sign.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "workloads"))
sys.path.insert(0, str(Path(__file__).parents[4] / "workloads/imagenet_cnn"))
from models_mxnet import build
from with_mxnet.shim import mx

for name in ("resnet18", "googlenet", "inception-bn"):
    mx.random.seed(1)
    net = build(name, 32, 10, [mx.cpu()])
    images, labels = mx.nd.random.normal(shape=(8, 3, 32, 32)), mx.nd.arange(8)
    loss_function = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.03, "momentum": 0.9}, kvstore=None)
    trained = [p for p in net.collect_params().values() if p.grad_req != "null"]
    losses = []
    for _ in range(6):
        with mx.autograd.record():
            loss = loss_function(net(images), labels)
        loss.backward()
        trainer.step(8)
        losses.append(float(loss.mean().asscalar()))
    assert losses[-1] < 0.8 * losses[0], f"{name}: {losses}"
    untouched = [p.name for p in trained if not p.grad().asnumpy().any()]
    assert not untouched, f"{name}: {untouched} get no gradient"
