"""The command line: words in, one of the suite's stages called, an exit code out. No decision is taken here.

Exit codes: 0 ok · 1 bug · 2 the request can't be met · 3 a run failed · 4 a run is invalid, or slower than allowed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from runner import request as ask
from runner.compare.cli import compare
from runner.data import data_app
from runner.errors import DlscaleError
from runner.events import ProfileKind, Region
from runner.images.cli import images_app
from runner.query.cli import query
from runner.request import Request
from runner.rig.cli import rig
from runner.studies.cli import reproduce, studies

app = typer.Typer(
    help="Measures how fast deep-learning training runs and how well it scales, in a way somebody else can repeat.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(images_app, name="images")
app.add_typer(data_app, name="data")
app.command()(compare)
app.command()(query)
app.command()(rig)
app.command()(reproduce)
app.command()(studies)

Text = str | None


def _flag(*names: str, help: str, metavar: str = "TEXT") -> Any:  # noqa: A002 - typer's own name
    return typer.Option(*names, help=help, metavar=metavar, show_default=False)


@app.command()
def bench(
    *,
    framework: Annotated[
        Text, _flag("--framework", help="caffe, mxnet, pytorch or tensorflow (default: the smallest image)")
    ] = None,
    version: Annotated[Text, _flag("--version", help="image version (default: the newest that fits)")] = None,
    model: Annotated[Text, _flag("--model", help="network, e.g. resnet50")] = None,
    gpus: Annotated[Text, _flag("--gpus", help="GPUs in all; 1,2,4 is a sweep", metavar="N[,N]")] = None,
    nodes: Annotated[
        Text,
        _flag("--nodes", help="hosts to spread over; with --link-rate, nodes to emulate on this machine", metavar="N"),
    ] = None,
    hosts: Annotated[
        Text, _flag("--hosts", "-H", help="hosts.yaml, Open MPI hostfile, or a:4,b:4", metavar="FILE|LIST")
    ] = None,
    workers: Annotated[Text, _flag("--workers", help="CPU workers in all; 1,2 is a sweep", metavar="N[,N]")] = None,
    device: Annotated[Text, _flag("--device", help="cpu or gpu (default: GPUs where there are some)")] = None,
    batch: Annotated[
        Text, _flag("--batch", help="samples a device (weak scaling) or in all (strong)", metavar="N")
    ] = None,
    image_size: Annotated[Text, _flag("--image-size", help="height and width of the input", metavar="PIXELS")] = None,
    strategy: Annotated[
        Text,
        _flag(
            "--strategy",
            help="single, ddp, kvstore, horovod, mirrored, multiworker or caffe (default: what the framework's users expect)",
        ),
    ] = None,
    kvstore: Annotated[
        Text, _flag("--kvstore", help="MXNet's: device, nccl, dist_sync, dist_sync_device or dist_async")
    ] = None,
    controller: Annotated[Text, _flag("--controller", help="Horovod's: gloo (default) or mpi")] = None,
    operations: Annotated[Text, _flag("--operations", help="Horovod's: nccl, gloo or mpi")] = None,
    fusion_threshold: Annotated[
        Text, _flag("--fusion-threshold", help="Horovod's, in MiB (default: Horovod's own)", metavar="MIB")
    ] = None,
    cycle_time: Annotated[
        Text, _flag("--cycle-time", help="Horovod's, in ms (default: Horovod's own)", metavar="MS")
    ] = None,
    compression: Annotated[Text, _flag("--compression", help="Horovod's, of gradients: none (default) or fp16")] = None,
    xla: Annotated[bool, typer.Option("--xla", help="compile the step with XLA (TensorFlow)")] = False,
    oversubscribe: Annotated[
        bool, typer.Option("--oversubscribe", help="let more CPU workers run than there are cores; degrades the record")
    ] = False,
    interconnect: Annotated[
        Text,
        _flag("--interconnect", help="auto, nvlink, pcie, shm, ethernet, infiniband or roce; several are a sweep"),
    ] = None,
    iface: Annotated[Text, _flag("--iface", help="network interface between the nodes")] = None,
    hca: Annotated[Text, _flag("--hca", help="RDMA adapter between the nodes, e.g. mlx5_0 or mlx5_0:1")] = None,
    link_rate: Annotated[
        Text,
        _flag("--link-rate", help="hold what emulated nodes send to this, e.g. 1gbit; 100mbit,1gbit,none is a sweep"),
    ] = None,
    link_delay: Annotated[
        Text, _flag("--link-delay", help="add this to every packet between emulated nodes, e.g. 0.2ms")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="run over every wire that there is, or over emulated links, and compare")
    ] = False,
    precision: Annotated[
        Text, _flag("--precision", help="fp32 (default), tf32, fp16, bf16, or with MODE=infer int8")
    ] = None,
    mode: Annotated[
        Text, _flag("--mode", help="train (default), infer, or converge: train by epochs with validation")
    ] = None,
    data: Annotated[
        Text,
        _flag(
            "--data",
            help="folder of class folders with JPEGs, or a .rec, .lmdb or .tfrecord made of one (default: synthetic)",
            metavar="PATH",
        ),
    ] = None,
    iterations: Annotated[Text, _flag("--iterations", help="measured iterations on one device", metavar="N")] = None,
    epochs: Annotated[
        Text, _flag("--epochs", help="passes over the training samples instead of iterations", metavar="N")
    ] = None,
    warmup: Annotated[Text, _flag("--warmup", help="iterations before the measured ones", metavar="N")] = None,
    fit: Annotated[
        Text,
        _flag("--fit", help="with MODE=infer and DATA: iterations of training before it (default: 0)", metavar="N"),
    ] = None,
    concurrent: Annotated[
        Text, _flag("--concurrent", help="so many trainings at once, against one after the other", metavar="N")
    ] = None,
    repeat: Annotated[Text, _flag("--repeat", help="process-level repeats (default: 3)", metavar="N")] = None,
    scaling: Annotated[Text, _flag("--scaling", help="weak (default) or strong")] = None,
    engine: Annotated[Text, _flag("--engine", help="docker or venv (default: docker where it answers)")] = None,
    seed: Annotated[Text, _flag("--seed", help="seed of weights and data (default: 1)", metavar="N")] = None,
    out: Annotated[Text, _flag("--out", help="where records go (default: results/MACHINE)", metavar="DIR")] = None,
    timeout: Annotated[
        str, _flag("--timeout", help="wall-clock limit of one run (default: 1h)", metavar="TIME")
    ] = "1h",
    inactivity_timeout: Annotated[
        str, _flag("--inactivity-timeout", help="limit of a run's silence (default: 10m)", metavar="TIME")
    ] = "10m",
    telemetry_hz: Annotated[
        Text,
        _flag("--telemetry-hz", help="samples a second of utilisation, power, ... (default: 10; 0: none)", metavar="N"),
    ] = None,
    idle: Annotated[
        Text, _flag("--idle", help="seconds before a run in which idle power is measured (default: 3)", metavar="N")
    ] = None,
    profile: Annotated[
        Text,
        _flag("--profile", help="add passes under a profiler: kernels, metrics, memory or region; several with commas"),
    ] = None,
    profile_after: Annotated[
        Text, _flag("--profile-after", help="iterations before the profiler (default: until steady)", metavar="N")
    ] = None,
    profile_iterations: Annotated[
        Text, _flag("--profile-iterations", help="iterations under the profiler (default: 5; under ncu 1)", metavar="N")
    ] = None,
    profile_region: Annotated[
        Text, _flag("--profile-region", help="profile only forward, backward, optimizer or input")
    ] = None,
    profile_timeout: Annotated[
        Text, _flag("--profile-timeout", help="wall-clock limit of such a pass (default: 15m)", metavar="TIME")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the exact command lines and start nothing")] = False,
    image: Annotated[Text, _flag("--image", help="run a command of yours in this image instead")] = None,
    dialect: Annotated[
        Text,
        _flag(
            "--dialect",
            help="what its log is read in: caffe, mxnet, tf_cnn_benchmarks, horovod, nccl-tests or events (default: auto)",
        ),
    ] = None,
    command: Annotated[
        list[str] | None, typer.Argument(help="with --image: the command, after --", metavar="COMMAND")
    ] = None,
) -> None:
    """Train in a container, measure, and leave a record; with --image IMG -- COMMAND ..., do so with a program of yours."""
    asked = {
        "framework": framework or None,
        "version": version or None,
        "model": model or None,
        "gpus": ask.counts("GPUS", gpus),
        "nodes": ask.count("NODES", nodes),
        "hosts": hosts or None,
        "workers": ask.counts("WORKERS", workers),
        "device": ask.choice("DEVICE", device, ask.Device),
        "batch": ask.count("BATCH", batch),
        "image_size": ask.count("IMAGE_SIZE", image_size),
        "strategy": ask.choice("STRATEGY", strategy, ask.StrategyName),
        "kvstore": ask.choice("KVSTORE", kvstore, ask.KvStore),
        "controller": ask.choice("CONTROLLER", controller, ask.Controller),
        "operations": ask.choice("OPERATIONS", operations, ask.Operations),
        "fusion_threshold_mib": ask.whole("FUSION_THRESHOLD", fusion_threshold),
        "cycle_time_ms": ask.count("CYCLE_TIME", cycle_time),
        "compression": ask.choice("COMPRESSION", compression, ask.Compression),
        "xla": xla or None,
        "oversubscribe": oversubscribe or None,
        "interconnect": ask.choices("INTERCONNECT", interconnect, ask.Interconnect),
        "iface": iface or None,
        "hca": hca or None,
        "links": ask.links(link_rate, link_delay),
        "compare": compare or None,
        "precision": ask.choice("PRECISION", precision, ask.Precision),
        "mode": ask.choice("MODE", mode, ask.Mode),
        "data": Path(data) if data else None,
        "iterations": ask.count("ITERATIONS", iterations),
        "epochs": ask.count("EPOCHS", epochs),
        "warmup": ask.count("WARMUP", warmup),
        "fit": ask.count("FIT", fit),
        "concurrent": ask.count("CONCURRENT", concurrent),
        "repeat": ask.count("REPEAT", repeat),
        "scaling": ask.choice("SCALING", scaling, ask.Scaling),
        "engine": ask.choice("ENGINE", engine, ask.EngineName),
        "seed": ask.whole("SEED", seed),
        "out": Path(out) if out else None,
        "timeout_s": ask.seconds("TIMEOUT", timeout),
        "inactivity_timeout_s": ask.seconds("INACTIVITY_TIMEOUT", inactivity_timeout),
        "telemetry_hz": ask.whole("TELEMETRY_HZ", telemetry_hz),
        "idle_s": ask.whole("IDLE", idle),
        "profile": ask.choices("PROFILE", profile, ProfileKind),
        "profile_after": ask.count("PROFILE_AFTER", profile_after),
        "profile_iterations": ask.count("PROFILE_ITERATIONS", profile_iterations),
        "profile_region": ask.choice("PROFILE_REGION", profile_region, Region),
        "profile_timeout_s": ask.seconds("PROFILE_TIMEOUT", profile_timeout) if profile_timeout else None,
        "image": image or None,
        "dialect": ask.choice("DIALECT", dialect, ask.AskedDialect),
        "command": tuple(command) if command else None,
    }
    # What is not given is left to the defaults of `Request`, which so can tell what was given.
    request = Request.model_validate({name: value for name, value in asked.items() if value is not None})
    ask.refuse_contradictions(request)
    ask.refuse_mixture(request)
    from runner import bench as own  # noqa: PLC0415 - commands load what they need
    from runner.foreign import flow as foreign  # noqa: PLC0415

    flow = foreign if request.image else own
    raise typer.Exit(flow.dry_run(request) if dry_run else flow.bench(request, command=tuple(sys.argv)))


@app.command()
def doctor(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="print the findings as JSON")] = False,
    hosts: Annotated[Text, _flag("--hosts", "-H", help="look at these instead", metavar="FILE|LIST")] = None,
    iface: Annotated[
        Text, _flag("--iface", help="with --hosts: interface, or its role, on which pairs must meet")
    ] = None,
) -> None:
    """Tell what this machine has, and for each image whether it can run here; with --hosts, what other machines have."""
    if hosts:
        from runner.hosts.checkup import examine_hosts  # noqa: PLC0415 - commands load what they need

        raise typer.Exit(examine_hosts(hosts, wire=iface or None, as_json=as_json))
    from runner.checkup import examine  # noqa: PLC0415

    examine(as_json=as_json)


@app.command()
def regrade(
    directory: Annotated[Path, typer.Argument(help="run directory, or a directory of run directories")],
) -> None:
    """Compute a run's figures again from its raw files, and say whether they are the recorded ones."""
    from runner.regrade import regrade_all  # noqa: PLC0415 - commands load what they need

    raise typer.Exit(regrade_all(directory))


@app.command()
def profile(
    directory: Annotated[Path, typer.Argument(help="run directory, or a directory of them: its newest pass")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="print the profile as JSON")] = False,
) -> None:
    """Print what a pass under a profiler found: utilisation, kernels, copies, calls, memory."""
    from runner.passes.show import show_profile  # noqa: PLC0415 - commands load what they need

    show_profile(directory, as_json=as_json)


@app.command()
def report(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(help="a run directory, or directories of them (default: results)", metavar="[DIRECTORY...]"),
    ] = None,
    *,
    out: Annotated[Text, _flag("--out", help="where reports go (default: beside the runs)", metavar="DIR")] = None,
    form: Annotated[
        Text, _flag("--format", help="mllog: MLPerf's :::MLLOG lines of each training instead of reports")
    ] = None,
) -> None:
    """Draw records on file: tables and plots of each matrix, pass and sweep over the batch, and report.html with all of them and the studies."""
    if ask.choice("FORMAT", form, Literal["mllog"]):
        from runner.mllog import write_logs  # noqa: PLC0415 - commands load what they need

        write_logs(directories or [Path("results")], out=Path(out) if out else None)
        return
    from runner.reports import report as draw  # noqa: PLC0415 - commands load what they need

    draw(directories or [Path("results")], out=Path(out) if out else None)


@app.command()
def published(
    *,
    model: Annotated[Text, _flag("--model", help="figures of this network, e.g. resnet50")] = None,
    framework: Annotated[Text, _flag("--framework", help="figures of this framework, e.g. mxnet")] = None,
    source: Annotated[
        Text, _flag("--source", help="figures of this source, e.g. dell-emc-2016-p100", metavar="ID")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print them as JSON")] = False,
    plot: Annotated[Text, _flag("--plot", help="draw their scaling curves, too", metavar="FILE.png")] = None,
) -> None:
    """List what others published: each figure with its source, speedups computed again, and what a source contradicts itself in."""
    from runner.published.show import Asked, show_published  # noqa: PLC0415 - commands load what they need

    asked = Asked(model=model or None, framework=framework or None, source=source or None)
    show_published(asked, as_json=as_json, plot=Path(plot) if plot else None)


@app.command()
def clean(
    *,
    hosts: Annotated[Text, _flag("--hosts", "-H", help="clean these instead", metavar="FILE|LIST")] = None,
) -> None:
    """Remove every container, volume and network that a killed run left, here or with --hosts on other machines."""
    from runner import cleanup  # noqa: PLC0415 - commands load what they need

    cleanup.clean(hosts or None)


@app.command()
def overhead(
    *,
    framework: Annotated[Text, _flag("--framework", help="mxnet or pytorch (default: the smallest image)")] = None,
    model: Annotated[Text, _flag("--model", help="network, e.g. resnet18")] = None,
    engine: Annotated[Text, _flag("--engine", help="docker or venv")] = None,
    gpus: Annotated[
        Text, _flag("--gpus", help="1: on a GPU, what telemetry costs there (default: one CPU worker)")
    ] = None,
    repeat: Annotated[Text, _flag("--repeat", help="alternating rounds (default: 5)", metavar="N")] = None,
    telemetry_hz: Annotated[Text, _flag("--telemetry-hz", help="samples a second (default: 10)", metavar="N")] = None,
) -> None:
    """Measure what the suite itself costs: the same training with it, without telemetry and without it, in alternating rounds."""
    from runner.overhead import measure_overhead  # noqa: PLC0415 - commands load what they need

    request = Request.model_validate(
        {
            "framework": framework or None,
            "model": model or None,
            "engine": ask.choice("ENGINE", engine, ask.EngineName),
            **({"gpus": (1,)} if ask.counts("GPUS", gpus) else {"device": "cpu", "workers": (1,)}),
            "repeat": ask.count("REPEAT", repeat) or 5,
            "telemetry_hz": ask.count("TELEMETRY_HZ", telemetry_hz) or 10,
        }
    )
    measure_overhead(request)


@app.command()
def matrix(
    *,
    check: Annotated[bool, typer.Option("--check", help="fail if the README has another one")] = False,
) -> None:
    """Write the support matrix into the README, from the catalog and the records in results/."""
    from runner.support import export  # noqa: PLC0415 - commands load what they need

    export(check=check)


@app.command()
def schema(
    *,
    check: Annotated[bool, typer.Option("--check", help="fail if the committed schema differs")] = False,
) -> None:
    """Write the JSON Schemas of a run record and of a published source to results/schema/."""
    from runner.schema import export  # noqa: PLC0415 - commands load what they need

    export(check=check)


def main() -> None:
    """Run the command line; a user's mistake is one sentence and an exit code, a bug keeps its traceback."""
    try:
        app()
    except DlscaleError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"[bold red]dlscale:[/] {escape(str(error))}")
        sys.exit(error.exit_code)
