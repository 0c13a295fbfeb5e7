# SPDX-License-Identifier: Apache-2.0
"""Stands for `python` or `potl` in a folder of its own: has program_server.py run the program."""

import json
import os
import signal
import socket
import sys

folder, name = os.path.split(os.path.abspath(__file__))  # noqa: PTH100 - pathlib costs too much
arguments = sys.argv[1:]
if name != "python":
    arguments.insert(0, os.path.join(os.path.dirname(sys.executable), name))  # noqa: PTH118, PTH120
program = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}  # noqa: PTH109
# The standard streams, and what multiprocessing leaves open for a worker.
open_ = [int(one) for one in os.listdir("/proc/self/fd")]  # noqa: PTH208
files = [one for one in open_ if os.path.exists(f"/proc/self/fd/{one}")]  # noqa: PTH110
program["files"] = files
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
    server.connect(os.path.join(folder, "socket"))  # noqa: PTH118
    socket.send_fds(server, [b" "], files)
    server.sendall(json.dumps(program).encode() + b"\n")
    status = int(server.makefile().readline())
if os.WIFSIGNALED(status):
    if os.WTERMSIG(status) != signal.SIGKILL:
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
    os.kill(os.getpid(), os.WTERMSIG(status))
sys.exit(os.waitstatus_to_exitcode(status))
