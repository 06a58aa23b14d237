"""Reads the weights in a Caffe snapshot. Standard library and syntax of Python 3.6 only.

A .caffemodel is a NetParameter in protocol buffers' wire format (https://protobuf.dev/programming-guides/encoding), with these fields
of caffe.proto: NetParameter.layer = 100, LayerParameter.type = 2, LayerParameter.blobs = 7, BlobProto.data = 5, packed floats. They
are read in place: protobuf's Python library would make an object of each of AlexNet's 61 million.
"""

import math
import mmap
import operator

LAYER, TYPE, BLOBS, DATA = 100, 2, 7, 5
STATISTICS = {"BatchNorm": 3}  # the first blobs are not weights: running mean, running variance, their common factor
UNTRAINED = {"Bias"}  # the noise of synthetic images
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(buffer, position):
    """Decode a number of 7 bits a byte, lowest first. Returns the number and the position after it."""
    number = shift = 0
    while True:
        byte = buffer[position]
        number |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return number, position


def fields(message, wanted):
    """Yield the values of a message's length-delimited fields with number `wanted`, as slices of the message."""
    position = 0
    while position < len(message):
        key, position = varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            _, position = varint(message, position)
        elif kind == BYTES:
            length, position = varint(message, position)
            if number == wanted:
                yield message[position : position + length]
            position += length
        else:
            position += {FIXED64: 8, FIXED32: 4}[kind]


def squares(model):
    """Sum of the squares of all weights in the bytes of a .caffemodel."""
    sums = []
    for layer in fields(model, LAYER):
        kind = next(fields(layer, TYPE)).tobytes().decode()
        blobs = list(fields(layer, BLOBS))[STATISTICS.get(kind, 0) :]
        for blob in [] if kind in UNTRAINED else blobs:
            for values in fields(blob, DATA):
                numbers = values.cast("f")
                sums.append(math.fsum(map(operator.mul, numbers, numbers)))
    return math.fsum(sums)


def parameter_norm(path):
    """Euclidean norm of the trained parameters in a .caffemodel, without normalization statistics and synthetic images."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as model:
        return math.sqrt(squares(memoryview(model)))
