# Lets tests of rdma-core run between two hosts: a test makes both ends in one process, and every second
# end opens the NIC of the host that the variables PEER_VERBS and PEER_TREE name.
import os

import pyverbs.device
import tests.base
from pyverbs.addr import GID

OWN, PEER = os.environ["RDMALAB_VERBS"], os.environ["PEER_VERBS"]
TREES = [os.environ["SYSFS_PATH"], os.environ["PEER_TREE"]]
ends = 0  # of the test that runs
building = None  # the end that is being made, 0 or 1


def between_hosts():
    """Whether the test that has just run had an end on each host."""
    return ends > 1


def begin():
    global ends
    ends = 0
    os.environ["RDMALAB_VERBS"] = OWN


class Context(pyverbs.device.Context):
    def __init__(self, *args, **kwargs):
        self.end = building
        super().__init__(*args, **kwargs)

    def query_gid(self, port_num, index):
        """Tests ask for their own GID where they mean that of the other end."""
        if self.end is None:
            return super().query_gid(port_num, index)
        with open(f"{TREES[1 - self.end]}/class/infiniband/rxe0/ports/{port_num}/gids/{index}") as f:
            return GID(f.read().strip())


tests.base.Context = Context
make = tests.base.BaseResources.__init__


def make_end(self, *args, **kwargs):
    global ends, building
    building = ends % 2
    ends += 1
    os.environ["RDMALAB_VERBS"] = PEER if building else OWN
    try:
        make(self, *args, **kwargs)
    finally:
        building = None
        os.environ["RDMALAB_VERBS"] = OWN


tests.base.BaseResources.__init__ = make_end
