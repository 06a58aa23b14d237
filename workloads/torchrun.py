"""torchrun, `python3 -m torch.distributed.run`, with its options and exit codes, less what only lengthens its start and its end.

    python3 torchrun.py --standalone --nproc-per-node=2 PROGRAM ARGS...

No rank starts before torchrun has imported PyTorch, and no run is over before it has ended. It computes nothing itself, so it leaves unloaded
what only computes, and the interpreter as it is at the end: that saves one of the two seconds of a core that it takes with PyTorch 2.13.
"""

import gc
import importlib.util
import sys
from importlib.machinery import PathFinder

from process import leave

# Shapes of results, and kernels in Python: a third of the import. Loaded when somebody asks for anything in there.
COMPUTING = {"torch._meta_registrations", "torch._native"}


class Later:
    """Finds those modules and has them loaded later."""

    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target) if name in COMPUTING else None
        if spec:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


def main():
    sys.meta_path.insert(0, Later())
    gc.disable()  # an import makes little garbage, and what looks for it takes a tenth of its time
    from torch.distributed import run

    gc.freeze()
    gc.enable()
    run.main()
    leave()


if __name__ == "__main__":
    main()
