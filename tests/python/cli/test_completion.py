# SPDX-License-Identifier: Apache-2.0
"""A shell completes commands and options."""

from __future__ import annotations

import subprocess

import programs

COMPLETED = """
eval "$({0} --show-completion bash)" || exit
COMP_WORDS=({0} {1})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_potl_completion {0}
echo "${{COMPREPLY[@]}}"
"""


def completed(words: str) -> list[str]:
    script = COMPLETED.format(programs.command(), words)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_commands_and_options() -> None:
    assert completed("attest") == ["attestation"]
    assert completed("verify --chec") == ["--check"]


def test_only_showing_a_completion_ends_with_0() -> None:
    for words, code in (("--show-completion bash", 0), ("verify --show-completion", 2)):
        done = subprocess.run(
            [programs.command(), *words.split()], capture_output=True, check=False
        )
        assert done.returncode == code, done.stderr
