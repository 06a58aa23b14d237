"""Request × framework × device → the strategy of a plan and its settings. Pure; incompatible combinations are refused here."""

from __future__ import annotations

from dataclasses import dataclass

from runner.core.errors import RequestError
from runner.core.request import Device, KvStore, Operations, Request, StrategyName
from runner.core.strategies import DEFAULT_ON_NODES, DEFAULT_STRATEGY, STRATEGIES
from runner.core.trial import Horovod
from runner.core.workload import SHARED_BY, Model, Workload
from runner.images.custom_image import AnyImage, CustomImage
from runner.images.spec import ImageSpec


@dataclass(frozen=True)
class Chosen:
    """A strategy with its settings, for the trials on several devices; one device is always `single`."""

    name: StrategyName
    kvstore: KvStore | None = None
    horovod: Horovod | None = None
    worker_per_node: bool = False  # one parameter-server worker per node, not per device

    def processes(self, scale: int, nodes: int) -> int:
        """The number of processes that drive `scale` devices on `nodes` nodes.

        In a plan on one node, MXNet's parameter servers have one worker per device. Otherwise, as with MXNet's own launcher, one per node, which
        sums the gradients of its devices before they cross the wire.
        """
        if self.kvstore:
            if not self.kvstore.startswith("dist"):
                return 1
            return nodes if self.worker_per_node else scale
        return 1 if STRATEGIES[self.name].one_process else scale

    def ip_only(self, device: Device) -> bool:
        """Whether the library that carries the gradients is limited to IP, as all are except NCCL and MPI."""
        if self.kvstore or STRATEGIES[self.name].parameter_servers:
            return True
        return device == "cpu" and not (self.horovod and self.horovod.operations == "mpi")


def choose(request: Request, *, image: AnyImage, workload: Workload, scales: tuple[int, ...], nodes: int = 1) -> Chosen:
    """Return the requested strategy, or the one that the framework's users expect, with its settings.

    `scales` are numbers of devices, ascending; `nodes` is the largest number of nodes of any trial. Raises RequestError if framework and
    strategy are incompatible, or a setting belongs to another strategy.
    """
    # `single` if the image lacks its framework's default.
    default = (DEFAULT_STRATEGY if nodes == 1 else DEFAULT_ON_NODES)[image.framework]
    default = default if default in offered(image) else "single"
    name = request.strategy or default
    able = [other for other in offered(image) if workload.offers(other, image.framework)]
    _refuse_pair(name, image)
    if name not in able:
        raise RequestError(f"STRATEGY={name} is not offered by {workload.name}; ask for STRATEGY={' or '.join(able)}")
    if name == "single" and scales[-1] > 1 and (request.gpus or request.workers):
        step = "ask for one" if default == "single" else f"ask for STRATEGY={default}"
        raise RequestError(f"STRATEGY=single drives one device, {scales[-1]} asked; {step}")
    _refuse_settings_of_others(request, name, image)
    if STRATEGIES[name].parameter_servers and request.precision == "fp16":
        raise RequestError(
            f"STRATEGY={name} updates weights in servers without the loss scale that PRECISION=fp16 needs; ask for PRECISION=fp32, tf32 or bf16"
        )
    if request.precision == "fp8" and STRATEGIES[name].splits_layers:
        raise RequestError(
            f"PRECISION=fp8 needs whole layers, which STRATEGY={name} splits; ask for STRATEGY=fsdp, or for PRECISION=bf16"
        )
    if nodes > 1 and not STRATEGIES[name].several_nodes:
        able = [other for other in able if STRATEGIES[other].several_nodes]
        step = f"ask for STRATEGY={' or '.join(able)}, or for one node" if able else "ask for one node"
        raise RequestError(f"STRATEGY={name} does not go beyond one node, {nodes} asked; {step}")
    if (
        nodes > 1
        and name == "horovod"
        and (isinstance(image, CustomImage) or (isinstance(image, ImageSpec) and image.kind == "container"))
    ):
        raise RequestError(
            f"STRATEGY=horovod reaches other nodes by the SSH server in the suite's own images, and {image.name} is not one of these; "
            f"ask for STRATEGY={default}, or for one node"
        )
    return Chosen(
        name=name,
        kvstore=_kvstore(request, image.device, nodes) if name == "kvstore" else None,
        horovod=_horovod(request, image.device) if name == "horovod" else None,
        worker_per_node=nodes > 1,
    )


def offered(image: AnyImage) -> tuple[StrategyName, ...]:
    """The strategies of an image's framework and device; whether it has Horovod is checked when its version is chosen."""
    return tuple(
        name
        for name, strategy in STRATEGIES.items()
        if image.framework in strategy.frameworks
        and image.device in strategy.devices
        and (image.strategies is None or name in image.strategies)
    )


def check_shares(name: StrategyName, model: Model, shared_by: int, *, scale: int, nodes: int) -> None:
    """Raise RequestError if layers cannot be split among `scale` devices on `nodes` nodes: all of them, or `shared_by` neighbours."""
    split = STRATEGIES[name].splits_layers
    if not split:
        return
    sharing = scale if split == "all" else shared_by
    if scale // nodes % sharing:
        raise RequestError(
            f"STRATEGY={name} splits each layer among {sharing} devices of a node, {scale // nodes} per node asked; "
            f"ask for a multiple of {sharing}, or for SETTINGS={SHARED_BY}=N"
        )
    if model.parts % sharing:
        raise RequestError(
            f"STRATEGY={name} splits each layer among {sharing} devices, which MODEL={model.name} does not allow; "
            + (f"ask for a divisor of {model.parts}" if model.parts > 1 else "ask for STRATEGY=fsdp")
        )


def _refuse_pair(name: StrategyName, image: AnyImage) -> None:
    if name in offered(image):
        return
    of_framework = [other for other, strategy in STRATEGIES.items() if image.framework in strategy.frameworks]
    if name not in of_framework:
        raise RequestError(
            f"STRATEGY={name} is not offered by FRAMEWORK={image.framework}; {image.framework} offers {', '.join(of_framework)}, "
            f"{name} is offered by {', '.join(STRATEGIES[name].frameworks)}"
        )
    raise RequestError(
        f"STRATEGY={name} is not offered by {image.name} on DEVICE={image.device}; ask for STRATEGY={' or '.join(offered(image))}"
    )


def _refuse_settings_of_others(request: Request, name: StrategyName, image: AnyImage) -> None:
    """Raise RequestError for a setting that would be ignored."""
    for setting in ("controller", "operations", "fusion_threshold_mib", "cycle_time_ms", "compression"):
        if name != "horovod" and getattr(request, setting) is not None:
            variable = setting.removesuffix("_mib").removesuffix("_ms").upper()
            raise RequestError(
                f"{variable} is a setting of STRATEGY=horovod, not of {name}; add STRATEGY=horovod or leave it out"
            )
    if request.kvstore and name != "kvstore":
        raise RequestError(f"KVSTORE={request.kvstore} is a setting of STRATEGY=kvstore, not of {name}; leave it out")
    if request.xla and image.framework != "tensorflow":
        raise RequestError(
            f"XLA compiles TensorFlow's step, not {image.framework}'s; leave it out or ask for FRAMEWORK=tensorflow"
        )
    if request.gpu_memory == "all" and image.framework != "tensorflow":
        raise RequestError(
            f"GPU_MEMORY=all is an option of TensorFlow, not of FRAMEWORK={image.framework}; leave it out or ask for FRAMEWORK=tensorflow"
        )
    if request.gpu_memory == "all" and image.device == "cpu":
        raise RequestError("GPU_MEMORY=all applies to GPUs, and this runs on DEVICE=cpu; leave it out")


def _kvstore(request: Request, device: Device, nodes: int) -> KvStore:
    """Return MXNet's store; by default inside one process for the GPUs of one node, at parameter servers for CPU workers and several nodes."""
    if request.kvstore == "nccl" and device == "cpu":
        raise RequestError(
            "KVSTORE=nccl connects GPUs, DEVICE=cpu asked; ask for KVSTORE=device, dist_sync, dist_sync_device or dist_async"
        )
    if nodes > 1 and request.kvstore in ("device", "nccl"):
        raise RequestError(
            f"KVSTORE={request.kvstore} connects the devices of one node, {nodes} nodes asked; "
            "ask for KVSTORE=dist_sync_device, dist_sync or dist_async"
        )
    default: KvStore = "dist_sync" if device == "cpu" else "device" if nodes == 1 else "dist_sync_device"
    return request.kvstore or default


def _horovod(request: Request, device: Device) -> Horovod:
    controller = request.controller or "gloo"
    # On CPUs the controller carries gradients too (Horovod user guide, "Installation Guide"). The guide also allows Gloo's operations under
    # MPI, but Horovod 0.28.1 segfaults in their first exchange, with all three frameworks.
    offered: Operations = "nccl" if device == "gpu" else controller
    if request.operations not in (None, offered):
        raise RequestError(
            f"OPERATIONS={request.operations} does not go with CONTROLLER={controller} on DEVICE={device}; ask for OPERATIONS={offered}"
        )
    return Horovod(
        controller=controller,
        operations=offered,
        fusion_threshold_mib=request.fusion_threshold_mib,
        cycle_time_ms=request.cycle_time_ms,
        compression=request.compression or "none",
    )
