"""torchrun (`python3 -m torch.distributed.run`) for a fixed number of nodes: the same options and exit codes, a shorter start and end.

    python3 torchrun.py --nnodes=1 --node-rank=0 --master-addr=127.0.0.1 --master-port=29500 --nproc-per-node=2 PROGRAM ARGS...

No rank starts before torchrun has imported PyTorch, and no run ends before torchrun has exited. It computes nothing itself: this program
defers compute-only modules and skips interpreter shutdown, which saves one of torchrun's two core-seconds with PyTorch 2.13.

At the end, nodes wait for each other in a store on the first node. If that node exits before another has seen that all are there, the
other retries the store for two seconds and logs a traceback, in 3 of 21 runs on busy cores; here the first node exits last.
"""

import contextlib
import gc
import importlib.util
import sys
from datetime import timedelta
from importlib.machinery import PathFinder

from process import leave

# Shape functions, and kernels in Python: a third of the import. Loaded on first use.
DEFERRED = {"torch._meta_registrations", "torch._native"}
# Seconds that the first node waits for others to sign off, and that they try to.
SIGN_OFF_S = 5


class DeferredImports:
    """Import hook that defers loading these modules until first use."""

    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target) if name in DEFERRED else None
        if spec:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


class SignOff:
    """Keeps the store of the first node (`rank` 0 of `nodes`) until all others have signed off."""

    def __init__(self, store, address, nodes, rank):
        self.store, self.address, self.nodes, self.rank = store, address, nodes, rank
        if rank == 0 and nodes > 1:  # shares the server of torchrun's own store
            self.server = self.connect(is_master=True)

    def connect(self, *, is_master):
        patience = timedelta(seconds=SIGN_OFF_S)
        return self.store(
            *self.address, is_master=is_master, timeout=patience, wait_for_workers=False, multi_tenant=is_master
        )

    def complete(self):
        """Sign off at the first node, or wait there until all others have."""
        with contextlib.suppress(RuntimeError):
            if self.rank:
                self.connect(is_master=False).set(f"gone/{self.rank}", "")
            elif self.nodes > 1:
                self.server.wait([f"gone/{number}" for number in range(1, self.nodes)])


def main():
    sys.meta_path.insert(0, DeferredImports())
    gc.disable()  # an import makes little garbage, and collecting it takes a tenth of its time
    from torch.distributed import TCPStore, run

    gc.freeze()
    gc.enable()
    args = run.parse_args(None)
    sign_off = SignOff(TCPStore, (args.master_addr, args.master_port), int(args.nnodes), args.node_rank)
    run.main()
    sign_off.complete()
    leave()


if __name__ == "__main__":
    main()
