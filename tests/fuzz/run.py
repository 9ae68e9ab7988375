"""Try changed files on every reader, by hand: python tests/fuzz/run.py --executions 1000000.

Readers that take milliseconds get a twentieth of the executions of the others. A crash is printed
with its traceback, and its bytes are kept in `crashes/` in the current folder. With `--atheris` the
changes are guided by the branches that they reach; each reader then has its own process.
"""

import argparse
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

with ExitStack() as watched:
    if "--atheris" in sys.argv:  # it sees the branches of what is imported here
        import atheris

        watched.enter_context(atheris.instrument_imports(include=["mdmt"]))
    import fuzz.changes as changes
    import fuzz.readers as readers

SECONDS = 20  # that one execution may take
MEMORY = 6 * 2**30  # bytes that the process may have
SLOW = 20  # times fewer executions


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readers", default=",".join(readers.READERS))
    parser.add_argument("--atheris", action="store_true")
    parser.add_argument("--apart", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    names = asked.readers.split(",")
    shares = shared_out(asked.executions, names)
    if asked.atheris and not asked.apart:
        return run_apart(shares)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, too_slow)
    if asked.atheris:
        return guided(names[0], asked.executions)
    crashes = 0
    for name in names:
        crashes += blind(name, shares[name], asked.seed)
    readers.clean()
    print(f"{sum(shares.values()):,} executions, {crashes} different crashes")
    return int(crashes > 0)


def shared_out(executions: int, names: list[str]) -> dict[str, int]:
    """How often each reader reads."""
    weights = {name: 1 / SLOW if readers.READERS[name].slow else 1.0 for name in names}
    total = sum(weights.values())
    return {name: max(1, round(executions * weight / total)) for name, weight in weights.items()}


def too_slow(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def blind(name: str, executions: int, seed: int) -> int:
    """Read randomly changed examples; the number of different crashes."""
    examples = readers.READERS[name].examples()
    draw = random.Random(f"{name} {seed}")
    found: Counter[str] = Counter()
    whole = 0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mdmt-fuzz-", dir=memory_disk()) as place:
        for number in range(executions):
            if number % 1000 == 0:
                folder = Path(place, str(number))
                folder.mkdir()
            data = changes.apply(draw.choice(examples), changes.draw(draw))
            crash = crash_of(name, data, folder)
            whole += crash is None
            if crash:
                found[crash] += 1
                if found[crash] == 1:
                    keep(name, data, crash)
    rate = executions / (time.monotonic() - begin)
    print(
        f"{name}: {executions:,} executions, {rate:,.0f} a second, {whole:,} read, {len(found)} crashes"
    )
    return len(found)


def crash_of(name: str, data: bytes, folder: Path) -> str | None:
    """Where a reader crashes: empty if it refuses the bytes, None if it reads them."""
    signal.alarm(SECONDS)
    try:
        return None if readers.attempt(name, data, folder) else ""
    except (Exception, RecursionError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "mdmt" in frame.filename] or frames
        return f"{type(error).__name__} in {Path(ours[-1].filename).name}:{ours[-1].name}"
    finally:
        signal.alarm(0)


def keep(name: str, data: bytes, crash: str) -> None:
    folder = Path("crashes")
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{abs(hash(crash)) % 10**8}"
    path.write_bytes(data)
    print(f"{name}: {crash}: {path}", flush=True)


def memory_disk() -> str | None:
    """A folder in memory, if there is one: most of the time is spent on writing files."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


# With atheris.


def run_apart(shares: dict[str, int]) -> int:
    """Give each reader a process, since libFuzzer ends the one that it runs in."""
    failed = 0
    for name, executions in shares.items():
        command = [sys.executable, __file__, "--atheris", "--apart", "--readers", name]
        command += ["--executions", str(executions)]
        with tempfile.TemporaryDirectory(prefix="mdmt-fuzz-", dir=memory_disk()) as place:
            environment = {**os.environ, "TMPDIR": place}
            failed += subprocess.run(command, env=environment, check=False).returncode != 0
    return int(failed > 0)


def guided(name: str, executions: int) -> int:
    """Read bytes that libFuzzer makes of the examples; it ends the process."""
    folder = Path(tempfile.mkdtemp())
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, example in enumerate(readers.READERS[name].examples()):
        (corpus / str(number)).write_bytes(example)
    work = folder / "work"
    work.mkdir()

    def one(data: bytes) -> None:
        crash = crash_of(name, data, work)
        if crash:
            keep(name, data, crash)
            raise RuntimeError(crash)

    options = [f"-runs={executions}", "-timeout=60", "-rss_limit_mb=6000", "-verbosity=0"]
    atheris.Setup([sys.argv[0], str(corpus), *options, "-print_final_stats=1"], one)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
