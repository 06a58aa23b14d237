"""Runs programs to completion; if importing the framework dominates, in forks of a process that has imported it. A library, not a script."""

import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

# By the suffix of a program's name. PyTorch's first optimizer imports torch._dynamo. Not MXNet, which reads variables set by its programs.
LOADED = {"pytorch": ["torch", "torch._dynamo"], "tensorflow": ["tensorflow"]}
SUITE = Path(__file__).parents[3]
# ps-lite's variables for a job of two workers and a server.
MEETING = {
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_NODE_HOST": "127.0.0.1",
    "DMLC_INTERFACE": "lo",
    "DMLC_NUM_SERVER": "1",
    "DMLC_NUM_WORKER": "2",
}
LIMIT_S = 500
FORKS = multiprocessing.get_context("forkserver")


def torchrun(count):
    """torchrun's variables for each of `count` ranks of one host."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(count))
    return [{**job, **sizes, **dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))} for rank in range(count)]


def run(program, *words, ranks=({},)):
    """Run a Python program to completion, once for each of `ranks`, its additional environment variables. Returns the combined output."""
    framework = Path(program).stem.rpartition("_")[2]
    if framework in LOADED:
        FORKS.set_forkserver_preload(LOADED[framework])
        return forked([program, *words], ranks)
    done = subprocess.run([sys.executable, program, *words], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def forked(argv, ranks):
    """Fork once per rank; separate outputs keep lines of different ranks apart."""
    with tempfile.TemporaryDirectory() as folder:
        said = [[Path(folder) / f"{rank}.{name}" for name in ("out", "err")] for rank in range(len(ranks))]
        processes = [FORKS.Process(target=run_in_fork, args=(argv, *both)) for both in zip(ranks, said, strict=True)]
        # Otherwise, a fork would run this process' main script to define its names.
        with mock.patch.object(sys.modules["__main__"], "__file__", None):
            for process in processes:
                process.start()
        for process in processes:
            process.join(LIMIT_S)
        for process in processes:
            process.kill()
            process.join()
        outputs, errors = ("".join(path.read_text() for path in paths) for paths in zip(*said, strict=True))
    codes = [process.exitcode for process in processes]
    assert not any(codes), (codes, outputs[-3000:] + errors[-3000:])
    return outputs


def run_in_fork(argv, environment, said):
    """Turn a fork into a program: its arguments, its folder first on the path, its output in two files."""
    multiprocessing.set_start_method(None, force=True)  # the program's own forks use the default
    os.environ.update(environment)
    for number, path in enumerate(said, 1):
        with path.open("w") as file:
            os.dup2(file.fileno(), number)
    sys.argv = argv
    sys.path[:] = [str(Path(argv[0]).parent), *(path for path in sys.path if not Path(path).is_relative_to(SUITE))]
    runpy.run_path(argv[0], run_name="__main__")


def parameter_server(worker, *, port=20001, **how):
    """Run MXNet's scheduler, a server and two workers, with the argv `worker`, to completion. Returns their output if `how` has a pipe for it."""
    shim = (sys.executable, str(SUITE / "workloads/with_mxnet/shim.py"))
    roles = (("scheduler", shim), ("server", shim), ("worker", worker), ("worker", worker))
    meeting = {**os.environ, **MEETING, "DMLC_PS_ROOT_PORT": str(port)}
    started = [subprocess.Popen(argv, env={**meeting, "DMLC_ROLE": role}, text=True, **how) for role, argv in roles]
    said = [process.communicate(timeout=LIMIT_S)[0] for process in started]
    assert [process.returncode for process in started] == [0] * 4
    return said
