"""Made-up records of one training on one device and on several devices of a node."""

from pathlib import Path

import examples
from records import record
from wires import DDP, on_nodes


def ran(model, devices, rate, *, matrix="m", status="valid", **changes):
    """A run of `rate` images/s in steps of 32 images per device; its key is the model."""
    shared = {"framework": "pytorch", "model": model, "key": model, **changes}
    trial = examples.trial(**shared)
    if devices > 1:
        trial = on_nodes(1, ranks=devices, wires=[None], **{**DDP, "interconnect": "shm", **shared})
    name = f"{matrix}-{model}-{devices}-{len(changes)}"
    found = record(run_id=name, trial=trial, status=status, seconds=32 * devices / rate)
    transport = found.transport.model_copy(update={"used": trial.interconnect if devices > 1 else "none"})
    return Path(name), found.model_copy(update={"matrix_id": matrix, "transport": transport})
