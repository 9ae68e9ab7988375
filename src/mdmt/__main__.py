"""The command `mdmt`, also as `python -m mdmt`.

Until the command line is loaded, a request to stop ends the process with a line. Nothing has begun
then, and an error raised inside an import would show a traceback.
"""

import os
import signal
import sys

LINE = b"mdmt: interrupted; the same command begins again\n"
INTERRUPTED = 130  # the exit code that shells use after Ctrl-C


def _end(*_: object) -> None:
    os.write(2, LINE)
    os._exit(INTERRUPTED)


def _open_closed_streams() -> None:
    """Put /dev/null in the place of a closed input or output, or the next file would take it."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            setattr(sys, name, os.fdopen(number, mode))


def main() -> int:
    """Run the command line, and heed requests to stop from the first moment to the last."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    _open_closed_streams()
    from mdmt.cli.app import main as run_command
    from mdmt.system.processes import ignore_requests, interruptible

    code = INTERRUPTED
    try:
        with interruptible():
            code = run_command()
    except KeyboardInterrupt:  # a moment before or after the command
        os.write(2, LINE)
    finally:  # also in a child process, which leaves by SystemExit
        ignore_requests()
    return code


if __name__ == "__main__":
    sys.exit(main())
