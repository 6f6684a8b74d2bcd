"""Python loads a file of this name before all else; test_sweep_engines.py puts its folder on the PYTHONPATH of a sweep.

The sweep is killed by whichever of its processes is about to give the file of MOMENT its name, at the time that is
counted there: nobody has to look at the right instant, however busy the machine is. A worker goes no further then; it
is to end by itself.
"""

import os
import signal
import sys
import time

NAME, TIMES = os.environ["SPLITVEIL_TEST_MOMENT"].split()
LONGER_THAN_A_SWEEP_WAITS = 300.0  # for a worker that holds its cell
seen = 0


def watch(event: str, arguments: tuple[object, ...]) -> None:
    global seen
    if event != "os.rename" or os.path.basename(os.fspath(arguments[1])) != NAME:  # type: ignore[call-overload]
        return
    seen += 1
    if seen == int(TIMES):
        os.kill(os.getsid(0), signal.SIGKILL)
        time.sleep(LONGER_THAN_A_SWEEP_WAITS)
        os._exit(1)


sys.addaudithook(watch)
