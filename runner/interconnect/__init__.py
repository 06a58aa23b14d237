"""The wires of a job, as pure functions: request → environment, and evidence → the transport really used.

`environment` binds every library that carries gradients to the wire that was chosen, `used` reads from counters and NCCL's lines which
one carried them, `mismatch` holds the two against each other. Nothing here looks at a machine.
"""

from runner.interconnect.carrier import Carrier, carrier
from runner.interconnect.causes import mismatch
from runner.interconnect.counted import Counted
from runner.interconnect.environment import environment
from runner.interconnect.evidence import Evidence, InterfaceTraffic, PcieTraffic, PeerTraffic, PortTraffic
from runner.interconnect.model import Transport, Used
from runner.interconnect.transport import used
from runner.interconnect.volume import gradient_bytes, gradient_factor

__all__ = [
    "Carrier",
    "Counted",
    "Evidence",
    "InterfaceTraffic",
    "PcieTraffic",
    "PeerTraffic",
    "PortTraffic",
    "Transport",
    "Used",
    "carrier",
    "environment",
    "gradient_bytes",
    "gradient_factor",
    "mismatch",
    "used",
]
