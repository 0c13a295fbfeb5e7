# SPDX-License-Identifier: Apache-2.0
"""New names survive a power cut: the directory that holds each is synced after it came."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import HELPERS

SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int logged(const char* name, int descriptor) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length > 0) {
    path[length] = '\\n';
    const int out = open(getenv("SYNCED"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (write(out, path, length + 1) < 0) abort();
    close(out);
  }
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  return real(descriptor);
}
int fsync(int descriptor) { return logged("fsync", descriptor); }
int fdatasync(int descriptor) { return logged("fdatasync", descriptor); }
"""

PROGRAM = """
import driver_tasks, potl
from potl._record import _keygen
from potl._seal import _seal
from potl._verify import _ledger
job = potl.Job.create(driver_tasks.build, seed=3, checkpoint_every=12)
job.write("agreed/job.json")
run = potl.record(driver_tasks.build, "new/runs/1", job=job)
run.commit().write("agreed/note.txt")
_ledger.remember(_ledger.Path("memory/a/b.json"), job_id=job.id, commitment=None,
                 challenge=_ledger.new_challenge(bytes(32), []))
_keygen.write_pair(_ledger.Path("box"), encryption=True)
_seal.require_enough = lambda *_: None
potl.seal("driver_tasks:build", job, "sealed/job.sealed", reader="box.pub")
potl.unseal("sealed/job.sealed", "opened/order", key="box.pem")
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler for the shim")
def test_every_new_name_is_synced_in_its_directory(tmp_path: Path) -> None:
    (tmp_path / "shim.c").write_text(SHIM)
    shim, log = tmp_path / "shim.so", tmp_path / "log"
    build = ["cc", "-shared", "-fPIC", "-o", str(shim), str(tmp_path / "shim.c"), "-ldl"]
    subprocess.run(build, check=True)
    here = tmp_path / "here"
    for name in ("agreed", "sealed", "opened"):
        (here / name).mkdir(parents=True)
    subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=here,
        env={
            **os.environ,
            "LD_PRELOAD": str(shim),
            "SYNCED": str(log),
            "PYTHONPATH": str(HELPERS),
        },
        check=True,
    )
    synced = {Path(line) for line in log.read_text().splitlines()}
    expected = ["", "new", "new/runs", "new/runs/1", "new/runs/1/checkpoints", "agreed", "memory"]
    expected += ["memory/a", "sealed", "opened"]
    assert {here / name for name in expected} <= synced
    contents = {path.parent for path in synced if ".tmp" in path.name or path.suffix == ".log"}
    assert {here / "agreed", here / "new/runs/1", here / "sealed"} <= contents
    made = [path for path in synced if path.parent == here / "opened"]  # before its last name
    assert len(made) == 1
    files = [path for path in synced if path.parent == made[0]]
    assert len(files) == len(list((here / "opened/order").iterdir()))
