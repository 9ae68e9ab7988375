"""Children of a process, and requests to stop that come while they end."""

import subprocess
import sys

STOP_AFTER_THE_CHILD = """
import os
import signal
from mdmt.system.processes import run_in_child

def wait_then_stop(child, options, wait=os.waitpid):
    end = wait(child, options)
    os.kill(os.getpid(), signal.SIGTERM)
    return end

os.waitpid = wait_then_stop
print(run_in_child(lambda: 3))
"""


def test_a_request_to_stop_that_comes_just_after_the_child_ended():
    """Python calls the handler when the child's number may be nobody's any more."""
    done = subprocess.run(
        [sys.executable, "-c", STOP_AFTER_THE_CHILD], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout == "ChildEnd(code=3, stop_requested=True)\n"
