"""Training that is watched to converge: epochs, and the whole validation set after each. Standard library and syntax of Python 3.6 only.

``--epoch-iterations=K`` cuts the measured iterations, a multiple of K, into epochs of K iterations; `loop.measure` runs them as ever.
Warm-up trains as well, before the first epoch, and is in no epoch. A window never goes beyond the end of an epoch, where all that comes
after it (validation, its events, meeting the other ranks) is in no window: the next one starts when all ranks have validated. What the
wires and the control groups count from start to stop does hold the validations.

A program that offers it hands over the object that `loop.py` describes, with one more method:

    validate()  {"samples", "loss_sum", "correct"} of this process' share of the validation set, all of its devices together, as numbers:
                how many samples, the sum of their losses (not their mean), how many were classified right (the largest score is the
                label's). The device has done all of it when this returns

For it holds that

    each sample of the validation set is in exactly one process' share, the last batch may be smaller, and none is repeated to fill one;
    the sums over all ranks are those of the whole set, to the last sample
    the network is as it is used: no dropout, normalizations with the statistics that they gathered in training, which are rank 0's on all
    ranks; nothing of it changes, and the random numbers of the training neither
    images are cut as `class_folders.central_square` says, without augmentation, resized bilinearly and normalized as in training

Images come from a folder of class folders; which are for validation `class_folders.split` says, for all frameworks. An image that does
not decode counts for nothing and is named in the event `data` at the end, as in training. `check` refuses what does not go.
"""

from arguments import refuse
from events import finite


def check(args):
    """Refuse iterations that are no whole number of epochs; do nothing for a training that is not watched."""
    if not args.epoch_iterations:
        return
    if args.profile:
        refuse("--epoch-iterations and --profile exclude each other; ask for one of them")
    if not args.iterations or args.iterations % args.epoch_iterations:
        refuse(
            f"--iterations={args.iterations} is no multiple of --epoch-iterations={args.epoch_iterations}; ask for whole epochs"
        )


class Epochs:
    """Where one epoch of a training ends and the next begins."""

    def __init__(self, training, events, *, iterations):
        """Cut a training into epochs of so many iterations."""
        self.training, self.events, self.iterations = training, events, iterations
        self.epoch, self.seconds, self.losses = 1, 0.0, []

    @property
    def left(self):
        """How many iterations of this epoch are left."""
        return self.iterations - len(self.losses)

    def ended(self, losses, seconds):
        """Take in a window's losses and seconds; whether the epoch ended with it, in which case all ranks have validated.

        Emits `epoch` then: seconds are those of its windows, train_loss is the mean of its losses on this rank.
        """
        self.losses += losses
        self.seconds += seconds
        if self.left:
            return False
        found = self.training.validate()
        self.events.emit(
            "epoch",
            epoch=self.epoch,
            iterations=self.iterations,
            seconds=self.seconds,
            train_loss=finite(sum(self.losses) / self.iterations),
            validation={
                "samples": found["samples"],
                "loss_sum": finite(found["loss_sum"]),
                "correct": found["correct"],
            },
        )
        self.epoch, self.seconds, self.losses = self.epoch + 1, 0.0, []
        self.training.batches.waited()  # what validation read is in no window
        self.training.barrier()
        return True
