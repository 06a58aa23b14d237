"""Made-up records of one training on one device and on several of a node."""

from pathlib import Path

import examples
from records import events, record
from wires import DDP, on_nodes

from runner.analysis.grading.measure import measure


def ran(model, devices, rate, *, matrix="m", status="valid", **changes):
    """A run of `rate` images/s in steps of 32 images a device; the key is the model's."""
    shared = {"framework": "pytorch", "model": model, "key": model, **changes}
    trial = examples.trial(**shared)
    if devices > 1:
        trial = on_nodes(1, ranks=devices, wires=[None], **{**DDP, "interconnect": "shm", **shared})
    found = record(run_id=f"{matrix}-{model}-{devices}-{len(changes)}", trial=trial, status=status)
    figures = measure(events(trial, seconds=32 * devices / rate), started=0.0, unit="images/s")
    transport = found.transport.model_copy(update={"used": trial.interconnect if devices > 1 else "none"})
    changed = {"matrix_id": matrix, "measurement": figures, "transport": transport}
    return Path(found.run_id), found.model_copy(update=changed)
