"""Builds the Go program of this folder, which answers for the real River.

`build` needs the ``go`` command, and for a first build the network. Where one of them is missing it raises
`GoUnavailableError`, a reason to skip; a program that does not compile is `GoBuildError`, a reason to fail.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

SOURCE = Path(__file__).parent / "go"

DEADLINE_SECONDS = 600.0
"""For download and build together; a first one takes minutes on a slow network."""

# What the go command says when it could not ask, as opposed to: was told that there is no such thing.
_UNREACHABLE = (
    "bad gateway",
    "connection refused",
    "connection reset",
    "dial tcp",
    "disabled by goproxy",
    "gateway timeout",
    "no such host",
    "service unavailable",
    "timeout",
    "tls handshake",
    "toolchain not available",
    "unable to access",
    "unexpected eof",
)

Say = Callable[[str], None]


class GoUnavailableError(Exception):
    """The real River cannot be had here, and the message says why; nothing is wrong with the project."""


class GoBuildError(Exception):
    """The Go program, or its list of modules, is broken; the message is the go command's."""


def build(binary: Path, environment: Mapping[str, str], say: Say) -> None:
    """Build the program as *binary*.

    Args:
        environment: In which ``go`` is looked up and run.
        say: Is told what happens, a line at a time.
    """
    go = shutil.which("go", path=environment.get("PATH", os.defpath))
    if go is None:
        raise GoUnavailableError("Go is not installed: there is no 'go' command on the PATH")
    deadline = time.monotonic() + DEADLINE_SECONDS
    _download(go, environment, deadline, say)
    say(f"building {binary.name}; a first time takes a minute or two")
    unfinished = binary.with_suffix(".new")
    command = [go, "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-o", str(unfinished), "."]
    code, output = _run(command, environment, deadline, say)
    if code != 0:
        raise GoBuildError(output)
    # Last, so that a build which was broken off leaves nothing that looks like a program.
    unfinished.rename(binary)


def _download(go: str, environment: Mapping[str, str], deadline: float, say: Say) -> None:
    say(f"downloading the modules of the Go program, unless they are here already (at most {DEADLINE_SECONDS:g} s)")
    code, output = _run([go, "mod", "download"], environment, deadline, say)
    if code == 0:
        return
    said = output.lower()
    if "go.mod requires go >=" in said:
        raise GoUnavailableError(f"Go is too old: {_in_a_line(output)}")
    if time.monotonic() > deadline:
        raise GoUnavailableError(f"the Go modules were not downloaded within {DEADLINE_SECONDS:g} s")
    if any(phrase in said for phrase in _UNREACHABLE):
        raise GoUnavailableError(f"the Go modules cannot be downloaded: {_in_a_line(output)}")
    raise GoBuildError(output)


def _in_a_line(output: str) -> str:
    return " ".join(output.split())[:300]


def _run(command: list[str], environment: Mapping[str, str], deadline: float, say: Say) -> tuple[int, str]:
    """Run *command* in the program's folder until the deadline; its exit code and all that it wrote."""
    lines: list[str] = []
    with subprocess.Popen(
        command,
        cwd=SOURCE,
        # No C compiler, and no workspace of somebody who has this folder below one.
        env={**environment, "CGO_ENABLED": "0", "GOWORK": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        # The whole group: a compiler that outlives the go command would keep the pipe open.
        alarm = threading.Timer(max(0.0, deadline - time.monotonic()), os.killpg, [process.pid, signal.SIGKILL])
        alarm.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                say(line.rstrip())
            code = process.wait()
        finally:
            alarm.cancel()
    return code, "".join(lines)
