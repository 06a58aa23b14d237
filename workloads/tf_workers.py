"""Starts the workers of TensorFlow's MultiWorkerMirroredStrategy on this host, since TensorFlow brings no launcher of its own.

    python3 tf_workers.py --cluster=127.0.0.1:20001,127.0.0.1:20002 --host=0 --count=2 PROGRAM ARGS...

Starts the `count` processes of host number `host`; every host has as many, and workers are numbered over all hosts, from 0. Each gets TF_CONFIG
(https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable) and LOCAL_RANK, its number
on this host. They write directly to standard output; each line of their standard error is tagged with the worker, as by horovodrun.

The exit code is 0 if all exit with 0. Otherwise the first to fail is named, the rest are terminated (SIGTERM, three seconds,
SIGKILL), and the exit code is 1. SIGTERM and SIGINT end all (128 + signal number); so does the death of this process, however it dies.
Standard library and syntax of Python 3.6 only.
"""

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time

GRACE_S = 3.0
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def addresses(text):
    """Split ``host:port,host:port``."""
    found = text.split(",")
    if not all(address.rpartition(":")[0] and address.rpartition(":")[2].isdigit() for address in found):
        raise argparse.ArgumentTypeError(text + " is not HOST:PORT,HOST:PORT,...")
    return found


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument(
        "--cluster", required=True, type=addresses, help="HOST:PORT of every worker, all hosts in order"
    )
    parser.add_argument("--host", required=True, type=int, help="number of this host")
    parser.add_argument("--count", required=True, type=int, help="workers on each host")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="program and arguments of each worker")
    args = parser.parse_args(argv)
    args.first = args.host * args.count
    if args.count < 1 or args.host < 0 or args.first + args.count > len(args.cluster):
        last = args.first + args.count - 1
        parser.error(f"workers {args.first} to {last} requested, --cluster lists 0 to {len(args.cluster) - 1}")
    if not args.program:
        parser.error("no program given")
    return args


def environment(cluster, rank, local_rank):
    """Environment of one worker: its number, and the addresses of all."""
    config = {"cluster": {"worker": cluster}, "task": {"type": "worker", "index": rank}}
    return dict(os.environ, TF_CONFIG=json.dumps(config), LOCAL_RANK=str(local_rank))


def die_with_parent():
    """Run in the child: start its own session, so that a signal to its group reaches its children too; die when the parent dies."""
    os.setsid()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(args):
    return {
        args.first + local_rank: subprocess.Popen(
            args.program,
            env=environment(args.cluster, args.first + local_rank, local_rank),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - there are no threads yet
        )
        for local_rank in range(args.count)
    }


def write_line(text):
    """Write one line to standard error in a single call, so that lines of several threads stay whole."""
    os.write(2, (text + "\n").encode("utf-8", "replace"))


def tag_lines(rank, stream):
    for line in stream:
        write_line("[{}]<stderr>:{}".format(rank, line.decode("utf-8", "replace").rstrip("\n")))


def first_failure(workers):
    """Wait until all have exited with 0, or one with another code: (rank, code) of that one, else None."""
    ranks = {worker.pid: rank for rank, worker in workers.items()}
    while ranks:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT).si_pid  # not reaped: `wait` does that
        if ended not in ranks:  # a worker's orphan, reparented to this process if it is process 1
            os.waitpid(ended, 0)
            continue
        rank = ranks.pop(ended)
        code = workers[rank].wait()
        if code:
            return rank, code
    return None


def signal_groups(workers, number):
    """Signal the process groups of the workers, which include their children; ignore groups that are gone."""
    for worker in workers.values():
        try:
            os.killpg(worker.pid, number)
        except ProcessLookupError:
            continue


def end_all(workers):
    """Terminate what still runs, wait up to the grace time, then kill the rest."""
    signal_groups(workers, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and any(worker.poll() is None for worker in workers.values()):
        time.sleep(0.02)
    signal_groups(workers, signal.SIGKILL)
    for worker in workers.values():
        worker.wait()


def main(argv):
    args = parse(argv)

    def stop(number, _frame):
        for other in (signal.SIGTERM, signal.SIGINT):
            signal.signal(other, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    workers, readers = {}, []
    try:
        workers = start(args)
        readers = [
            threading.Thread(target=tag_lines, args=(rank, worker.stderr), daemon=True)
            for rank, worker in workers.items()
        ]
        for reader in readers:
            reader.start()
        failure = first_failure(workers)
        if failure:
            write_line("tf_workers: worker {} ended with exit code {}".format(*failure))
    except OSError as error:
        write_line(f"tf_workers: {args.program[0]}: {error.strerror}")
        return 127
    finally:
        end_all(workers)
        for reader in readers:
            reader.join(GRACE_S)
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
