"""RMSprop for TensorFlow programs, the same arithmetic as PyTorch's: v = 0.99 v + 0.01 g², w -= r g / (sqrt(v) + 1e-8).

Tieleman and Hinton, lecture 6.5 (https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf). Keras' own and
TensorFlow's fused operator add their number below the root, which is another step where gradients are as small as a WGAN's.
"""

from with_tensorflow.shim import tf

RHO, EPSILON = 0.99, 1e-8


class RmsProp:
    """Updates variables from gradients that are already averaged over all replicas, so that each replica does the same."""

    def __init__(self, variables, *, learning_rate):
        self.variables, self.learning_rate = variables, learning_rate
        self.squares = [tf.Variable(tf.zeros(variable.shape), trainable=False) for variable in variables]

    def apply(self, gradients):
        """Do one step; to be called in each replica."""
        for number, variable in enumerate(self.variables):
            gradient, square = gradients[number], self.squares[number]
            mean = RHO * square + (1 - RHO) * gradient**2
            put(square, mean)
            put(variable, variable - self.learning_rate * gradient / (tf.sqrt(mean) + EPSILON))

    def clip(self, limit):
        """Bring the variables to between -limit and limit; to be called in each replica."""
        for variable in self.variables:
            put(variable, tf.clip_by_value(variable, -limit, limit))


def put(variable, value):
    """Assign to the replica's own copy; `assign` asks for an aggregation, of which there is none."""
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
