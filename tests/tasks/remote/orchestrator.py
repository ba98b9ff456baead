"""A run that can be killed: `orchestrator.py STATE RUN_ID LEASE_S` takes the host and renews until it dies."""

import signal
import sys

from tasks.deadline import Deadline
from tasks.lease import Lease
from tasks.local_host import LocalHost
from tasks.supervisor import Acquired, Supervisor


def connect() -> Supervisor:
    state, run_id, lease_s = sys.argv[1:4]
    return Supervisor(
        LocalHost(), state_dir=state, python=sys.executable, run_id=run_id, owner="me@here", lease_s=float(lease_s)
    )


assert isinstance(connect().acquire(deadline=Deadline.after(20)), Acquired)
with Lease(connect, lease_s=float(sys.argv[3])):
    print("acquired", flush=True)
    signal.pause()
