# A program that goes on when the daemon of its host begins again. argv: how to run rdmalab.
import os
import subprocess
import sys

import pyverbs.device as device
from pyverbs.cmid import CMEventChannel
from pyverbs.pd import PD

FATAL, PORT_ACTIVE, PORT_ERR = 8, 9, 10  # enum ibv_event_type
plain = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "SYSFS_PATH")}


def rack(*args):
    subprocess.run(sys.argv[1:] + list(args), env=plain, check=True, stdout=subprocess.DEVNULL)


old = device.Context(name="rxe0")
channel = CMEventChannel()
subprocess.run(["true"], close_fds=True)  # a child that closes what it has
kept = PD(old)
rack("crash", "cn0")
event = PORT_ERR
while event in (PORT_ACTIVE, PORT_ERR):  # the daemon may see that the link of its host goes, before it ends itself
    event = old.get_async_event().event_type
print("event", "fatal" if event == FATAL else "other")
try:
    PD(old)
    print("the old device works")
except Exception:
    print("the old device has failed")
rack("restart", "cn0")
new = device.Context(name="rxe0")
PD(new).close()
CMEventChannel()
print("a new device works", flush=True)
os._exit(0)  # nothing of the old device can be ended
