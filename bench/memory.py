"""Peak memory of a comparison of 2 and of 12 methods, with all its processes, and of one run."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

ALONE = ("van", "gem", "mdmt-r")
WORKERS = 2


def memory_of(pid: int) -> int:
    """Bytes of a process and its children; shared pages count once (PSS)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    own = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
    return own + sum(memory_of(int(child)) for child in children)


def peak(*arguments: str) -> int:
    """The peak memory of a command, sampled every 50 ms."""
    command = [sys.executable, "-m", "mdmt", *arguments, "--tasks", "2", "--quiet", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    highest = 0
    while process.poll() is None:
        highest = max(highest, memory_of(process.pid))
        time.sleep(0.05)
    assert process.returncode == 0
    return highest


def main() -> None:
    with tempfile.TemporaryDirectory() as out:
        alone = {m: peak("run", "--method", m, "--out", f"{out}/{m}") for m in ALONE}
        sweep = ("--seeds", "1", "--workers", str(WORKERS))
        few = peak("compare", "--methods", ",".join(ALONE[1:]), *sweep, "--out", f"{out}/few")
        whole = peak("compare", "--methods", "all", *sweep, "--out", f"{out}/all")
    dearest = max(alone, key=alone.__getitem__)
    print(
        f"one run alone, the dearest of {', '.join(ALONE)} ({dearest}):"
        f" {alone[dearest] / 2**20:.0f} MiB"
    )
    print(f"compare of 2 methods, {WORKERS} workers: {few / 2**20:.0f} MiB, all processes together")
    print(
        f"compare of 12 methods, {WORKERS} workers: {whole / 2**20:.0f} MiB, {whole / few:.2f}"
        " times as much"
    )


if __name__ == "__main__":
    main()
