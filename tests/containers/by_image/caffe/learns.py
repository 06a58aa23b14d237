"""Inside the image: a few steps on one batch lower a network's loss, and every weight gets a gradient.

Prevents a branch that is built but not connected, a weight without a gradient, a gradient of the wrong sign, residual blocks
that do not start as identities, synthetic images that change from step to step or are not standard normal noise.
"""

import tempfile
from pathlib import Path

import caffe
import data_caffe
import numpy as np
from modelled import check_learning
from models_caffe import Net, extend

SOLVER = 'net: "{}"\nbase_lr: {}\nlr_policy: "fixed"\nmomentum: 0.9\nsolver_mode: CPU\nrandom_seed: 1\nsnapshot_after_train: false\n'

for name, image_size, rate in (("lenet", 32, 0.003), ("resnet18", 32, 0.03), ("googlenet", 32, 0.03)):
    net = Net(name, nvidia=False)
    data_caffe.synthetic(net, batch=8, image_size=image_size, num_classes=10, seed=1)
    extend(net, name, image_size, 10)
    with tempfile.TemporaryDirectory() as folder:
        definition, solver_file = Path(folder) / "net.prototxt", Path(folder) / "solver.prototxt"
        definition.write_text(net.text())
        solver_file.write_text(SOLVER.format(definition, rate))
        solver = caffe.SGDSolver(str(solver_file))
    images, labels, losses = [], [], []
    for _ in range(6):
        solver.step(1)
        images.append(solver.net.blobs["data"].data.copy())
        labels.append(solver.net.blobs["label"].data.copy())
        losses.append(float(solver.net.blobs["loss"].data))
    assert all(np.array_equal(images[0], other) for other in images[1:]), f"{name} trains on another batch in each step"
    assert all(np.array_equal(labels[0], other) for other in labels[1:]), f"{name} trains on other labels in each step"
    assert images[0].shape == (8, 3, image_size, image_size)
    # 24,576 draws: their mean has a deviation of 0.0064, their deviation one of 0.0045; limits are five times that.
    assert abs(images[0].mean()) < 0.032
    assert abs(images[0].std() - 1) < 0.023
    assert not np.array_equal(images[0][0], images[0][1]), "two images of a batch are the same"
    assert set(labels[0]) <= set(range(10))
    assert len(set(labels[0])) > 1

    untouched = [
        solver.net._layer_names[number]
        for number, layer in enumerate(solver.net.layers)
        for blob in layer.blobs
        if layer.type not in {"BatchNorm", "Bias"} and not blob.diff.any()
    ]
    check_learning(name, losses, untouched)
