"""Optimizers of the TensorFlow programs, with the arithmetic of PyTorch's and MXNet's.

Every replica calls `apply` with gradients already averaged over all, and does the same; a parameter server does, with each worker's.
"""

from with_tensorflow.shim import tf

# The schedule of PyTorch's GradScaler.
FIRST_SCALE, GROWTH_INTERVAL = 2.0**16, 2000
# RMSprop's decay of the mean of squares, and the term added outside the root.
RHO, EPSILON = 0.99, 1e-8


class Sgd:
    """SGD with momentum and weight decay: v = m v + (g + d w), w -= r v.

    Keras' own optimizers decouple the decay from the gradient (Loshchilov and Hutter, https://arxiv.org/abs/1711.05101), which trains
    differently, and aggregate gradients in their own way under a distribution strategy.

    With `scaled`, the loss is multiplied before differentiation so that gradients fit fp16. A step whose gradients overflow is
    skipped and halves the scale; the decision stays on the device, as waiting for it would stall the pipeline at each step.
    """

    def __init__(self, variables, *, learning_rate, momentum, weight_decay, scaled):
        self.variables, self.learning_rate = variables, learning_rate
        self.momentum, self.weight_decay = momentum, weight_decay
        self.velocities = [tf.Variable(tf.zeros(variable.shape), trainable=False) for variable in variables]
        self.scale = tf.Variable(FIRST_SCALE, trainable=False) if scaled else None
        self.steps = tf.Variable(0.0, trainable=False) if scaled else None  # since the scale last changed

    def scaled(self, loss):
        return loss if self.scale is None else loss * self.scale

    def apply(self, gradients):
        """Do one step; call it in each replica."""
        if self.scale is None:
            self.update(gradients, self.learning_rate, self.momentum)
            return
        gradients = [gradient / self.scale for gradient in gradients]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
        # A skipped step has a rate of 0 and leaves the velocities unchanged.
        step = tf.cast(finite, tf.float32)
        self.update(gradients, self.learning_rate * step, self.momentum * step + (1 - step), finite)
        steps = (self.steps + 1) * step
        grown = tf.cast(steps >= GROWTH_INTERVAL, tf.float32)
        self.scale.assign(self.scale * (1 + grown) * (0.5 + 0.5 * step))
        self.steps.assign(steps * (1 - grown))

    def update(self, gradients, learning_rate, momentum, finite=None):
        for number, variable in enumerate(self.variables):
            gradient = gradients[number] + self.weight_decay * variable
            if finite is not None:
                gradient = tf.where(finite, gradient, tf.zeros_like(gradient))
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle,
                accum=self.velocities[number].handle,
                lr=learning_rate,
                grad=gradient,
                momentum=momentum,
            )


class RmsPropMomentum(Sgd):
    """RMSprop with momentum and weight decay: g += d w, v = p v + (1 - p) g², u = m u + r g / sqrt(v + e), w -= u, with v = 1 at first.

    TensorFlow's fused operator, and its initial value of v. `averaging` is the decay of the moving averages of all weights, which are
    updated in every step although nothing here reads them.
    """

    def __init__(self, variables, *, rho, epsilon, averaging, **rates: float):
        super().__init__(variables, **rates, scaled=False)
        self.rho, self.epsilon, self.averaging = rho, epsilon, averaging
        self.squares = [tf.Variable(tf.ones(variable.shape), trainable=False) for variable in variables]
        self.averages = [tf.Variable(tf.convert_to_tensor(variable), trainable=False) for variable in variables]

    def update(self, gradients, learning_rate, momentum, finite=None):
        del finite  # no loss is scaled
        for number, variable in enumerate(self.variables):
            tf.raw_ops.ResourceApplyRMSProp(
                var=variable.handle,
                ms=self.squares[number].handle,
                mom=self.velocities[number].handle,
                lr=learning_rate,
                rho=self.rho,
                momentum=momentum,
                epsilon=self.epsilon,
                grad=gradients[number] + self.weight_decay * variable,
            )
            average = self.averages[number]
            put(average, average + (1 - self.averaging) * (variable - average))


class RmsProp:
    """RMSprop: v = 0.99 v + 0.01 g², w -= r g / (sqrt(v) + 1e-8).

    Tieleman and Hinton, lecture 6.5 (https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf). Keras' and
    TensorFlow's fused operator add their constant inside the root, which is a different step if gradients are as small as a WGAN's.
    """

    def __init__(self, variables, *, learning_rate):
        self.variables, self.learning_rate = variables, learning_rate
        self.squares = [tf.Variable(tf.zeros(variable.shape), trainable=False) for variable in variables]

    def apply(self, gradients):
        """Do one step; call it in each replica."""
        for number, variable in enumerate(self.variables):
            gradient, square = gradients[number], self.squares[number]
            mean = RHO * square + (1 - RHO) * gradient**2
            put(square, mean)
            put(variable, variable - self.learning_rate * gradient / (tf.sqrt(mean) + EPSILON))

    def clip(self, limit):
        """Clip the variables to between -limit and limit; call it in each replica."""
        for variable in self.variables:
            put(variable, tf.clip_by_value(variable, -limit, limit))


class Adam:
    """Adam (Kingma and Ba, https://arxiv.org/abs/1412.6980), by TensorFlow's fused operator."""

    def __init__(self, variables, *, learning_rate, betas=(0.9, 0.999), epsilon=1e-8):
        self.variables, self.learning_rate, self.betas, self.epsilon = variables, learning_rate, betas, epsilon
        self.means, self.squares = (
            [tf.Variable(tf.zeros(variable.shape), trainable=False) for variable in variables] for _ in betas
        )
        self.powers = [tf.Variable(beta, trainable=False) for beta in betas]

    def apply(self, gradients):
        """Do one step; call it in each replica."""
        powers = {f"beta{number + 1}_power": power for number, power in enumerate(self.powers)}
        rates = {"lr": self.learning_rate, "beta1": self.betas[0], "beta2": self.betas[1], "epsilon": self.epsilon}
        for number, variable in enumerate(self.variables):
            moments = {"m": self.means[number].handle, "v": self.squares[number].handle}
            tf.raw_ops.ResourceApplyAdam(var=variable.handle, **moments, **powers, **rates, grad=gradients[number])
        for power, beta in zip(self.powers, self.betas):  # noqa: B905 - Python 3.8
            put(power, power * beta)


class AdamW(Adam):
    """Adam with weight decay of matrices only, before each step: w -= r d w (https://arxiv.org/abs/1711.05101)."""

    def __init__(self, variables, *, weight_decay, **rates: float):
        super().__init__(variables, **rates)
        self.decay = 1 - self.learning_rate * weight_decay  # share of a matrix that a step keeps

    def scaled(self, loss):
        return loss

    def apply(self, gradients):
        for variable in self.variables:
            if len(variable.shape) > 1:
                put(variable, self.decay * variable)
        super().apply(gradients)


def put(variable, value):
    """Assign to the replica's own copy; `assign` would need an aggregation, of which there is none."""
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
