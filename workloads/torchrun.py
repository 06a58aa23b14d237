"""torchrun, `python3 -m torch.distributed.run`, of so many nodes, with its options and exit codes, less what only lengthens its start and its end.

    python3 torchrun.py --nnodes=1 --node-rank=0 --master-addr=127.0.0.1 --master-port=29500 --nproc-per-node=2 PROGRAM ARGS...

No rank starts before torchrun has imported PyTorch, and no run is over before it has ended. It computes nothing itself, so it leaves unloaded
what only computes, and the interpreter as it is at the end: that saves one of the two seconds of a core that it takes with PyTorch 2.13.

Nodes wait for each other at the end in a store that the first of them has. Where that node leaves before another has heard that all are there,
the other looks for the store for two seconds and logs a traceback, in 3 of 21 runs on busy cores; here the first node leaves last.
"""

import contextlib
import gc
import importlib.util
import sys
from datetime import timedelta
from importlib.machinery import PathFinder

from process import leave

# Shapes of results, and kernels in Python: a third of the import. Loaded when somebody asks for anything in there.
COMPUTING = {"torch._meta_registrations", "torch._native"}
# Seconds that the first node waits for one that does not say goodbye.
PATIENCE_S = 5


class Later:
    """Finds those modules and has them loaded later."""

    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target) if name in COMPUTING else None
        if spec:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


class Farewell:
    """Keeps the store of the first node (`rank` 0 of `nodes`) until all others have said goodbye."""

    def __init__(self, store, place, nodes, rank):
        self.store, self.place, self.nodes, self.rank = store, place, nodes, rank
        if rank == 0 and nodes > 1:  # torchrun's own has the same server
            self.kept = self.join(is_master=True)

    def join(self, *, is_master):
        patience = timedelta(seconds=PATIENCE_S)
        return self.store(
            *self.place, is_master=is_master, timeout=patience, wait_for_workers=False, multi_tenant=is_master
        )

    def take(self):
        """Say goodbye to the first node, or hear all others do so."""
        with contextlib.suppress(RuntimeError):
            if self.rank:
                self.join(is_master=False).set(f"gone/{self.rank}", "")
            elif self.nodes > 1:
                self.kept.wait([f"gone/{number}" for number in range(1, self.nodes)])


def main():
    sys.meta_path.insert(0, Later())
    gc.disable()  # an import makes little garbage, and what looks for it takes a tenth of its time
    from torch.distributed import TCPStore, run

    gc.freeze()
    gc.enable()
    args = run.parse_args(None)
    farewell = Farewell(TCPStore, (args.master_addr, args.master_port), int(args.nnodes), args.node_rank)
    run.main()
    farewell.take()
    leave()


if __name__ == "__main__":
    main()
