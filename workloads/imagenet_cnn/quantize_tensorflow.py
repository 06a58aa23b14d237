"""A network in int8 by post-training static quantization with TensorFlow Lite, which TensorFlow brings with it and which runs it on CPUs.

`TFLiteConverter` writes convolutions and dense layers with int8 weights, a scale a channel, and int8 maps, a scale a map, chosen from samples;
the interpreter runs them by XNNPACK's int8 kernels (https://ai.google.dev/edge/litert/models/post_training_quantization). Full-integer only:
an operator that has no int8 version ends the conversion, so that no part of the network is in fp32 unseen.
"""

from with_tensorflow.shim import tf


class Quantized:
    """Scores (batch, classes) of images, of which the numbers that it is made and called with are normalized: fp32, NHWC."""

    def __init__(self, scores, samples, *, threads):
        """Convert `scores`, a function of a batch; the ranges of the maps are those on `samples`, (count, size, size, 3)."""
        frozen = tf.function(scores, input_signature=[tf.TensorSpec((None, *samples.shape[1:]), tf.float32)])
        converter = tf.lite.TFLiteConverter.from_concrete_functions([frozen.get_concrete_function()], tf.Module())
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([sample[None]] for sample in samples)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        self.interpreter = tf.lite.Interpreter(model_content=converter.convert(), num_threads=threads)
        (self.into,), (self.out,) = self.interpreter.get_input_details(), self.interpreter.get_output_details()
        self.shape = None

    def __call__(self, images):
        if images.shape != self.shape:
            self.interpreter.resize_tensor_input(self.into["index"], images.shape)
            self.interpreter.allocate_tensors()
            self.shape = images.shape
        self.interpreter.set_tensor(self.into["index"], images)
        self.interpreter.invoke()
        return self.interpreter.get_tensor(self.out["index"])
