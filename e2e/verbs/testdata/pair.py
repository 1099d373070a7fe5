# Lets tests of rdma-core run between two hosts: a test makes both ends in one process, and every second
# end opens the NIC of the host that the variables PEER_VERBS and PEER_TREE name.
import functools
import os

import tests.base
import tests.utils
from pyverbs.addr import GID, GlobalRoute

OWN, PEER = os.environ["RDMALAB_VERBS"], os.environ["PEER_VERBS"]
TREES = [os.environ["SYSFS_PATH"], os.environ["PEER_TREE"]]
ends = 0  # of the test that runs
routing = None  # the end that makes routes, 0 or 1


def between_hosts():
    """Whether the test that has just run had an end on each host."""
    return ends > 1


def begin():
    global ends
    ends = 0
    os.environ["RDMALAB_VERBS"] = OWN


make = tests.base.BaseResources.__init__


def make_end(self, *args, **kwargs):
    global ends
    self.end = ends % 2
    ends += 1
    os.environ["RDMALAB_VERBS"] = PEER if self.end else OWN
    try:
        make(self, *args, **kwargs)
    finally:
        os.environ["RDMALAB_VERBS"] = OWN


def routed(f):
    """f makes routes for the end that is its first argument."""

    @functools.wraps(f)
    def call(end, *args, **kwargs):
        global routing
        routing = end.end
        try:
            return f(end, *args, **kwargs)
        finally:
            routing = None

    return call


def route(dgid, sgid_index):
    """Tests give a route their own GID where they mean that of the other end."""
    if routing is not None:
        with open(f"{TREES[1 - routing]}/class/infiniband/rxe0/ports/1/gids/{sgid_index}") as f:
            dgid = GID(f.read().strip())
    return GlobalRoute(dgid=dgid, sgid_index=sgid_index)


tests.base.BaseResources.__init__ = make_end
for connected in tests.base.RCResources, tests.base.XRCResources:
    connected.to_rts = routed(connected.to_rts)
tests.utils.get_global_ah = routed(tests.utils.get_global_ah)
tests.base.GlobalRoute = tests.utils.GlobalRoute = route
