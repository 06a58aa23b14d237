"""Post-training quantization of a Gluon network on the CPU, with what MXNet 1.9.1 itself brings: oneDNN's int8 convolutions.

MXNet fuses each convolution with the normalization, activation and addition behind it, runs the network on samples in fp32 and takes the
largest and smallest value that each layer put out as its range (calibration "naive"; weights have a range for each output channel). From the
first convolution to the last dense layer nothing goes back to fp32: concatenations and poolings are int8 as well. On a processor with
VNNI instructions that is several times as fast; one without them gains less.
"""

import warnings

from with_mxnet.shim import mx


def quantized(net, samples, *, batch):
    """Make of `net` in fp32 a network in int8, calibrated on `samples`, (samples, 3, height, width) in fp32 and normalized."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that labels have no type, of which there are none
        return mx.contrib.quantization.quantize_net_v2(
            net,
            quantized_dtype="auto",  # unsigned behind a ReLU
            quantize_mode="full",
            quantize_granularity="channel-wise",
            calib_data=mx.io.NDArrayIter(samples, batch_size=batch, last_batch_handle="discard"),
            calib_mode="naive",
            ctx=mx.cpu(),
        )
