"""Starts N processes of one command, with the environment that torchrun gives them.

python3 ranks.py [--gpus] N command...    with --gpus: exits with 77 if there are fewer than N GPUs
"""

import os
import socket
import subprocess
import sys


def count_gpus():
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.count("GPU ")
    except OSError:
        return 0


def start(ranks, command, **popen):
    """Starts the ranks, and returns their processes in order."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Leaves out the variables that tell a rank that mpirun started it.
    clean = {name: value for name, value in (popen.pop("env", None) or os.environ).items()
             if not name.startswith(("OMPI_", "PMIX_", "PMI_"))}
    return [
        subprocess.Popen(command, env=dict(clean, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks),
                                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)), **popen)
        for rank in range(ranks)
    ]


def main(arguments):
    if arguments[0] == "--gpus":
        arguments = arguments[1:]
        if count_gpus() < int(arguments[0]):
            return 77
    processes = start(int(arguments[0]), arguments[1:])
    return max(abs(process.wait()) for process in processes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
