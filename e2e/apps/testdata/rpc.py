"""Calls a function of another worker by PyTorch RPC: rpc.py RANK ADDRESS-OF-RANK-0 CHANNEL.

Rank 0 sends tensors and compares what comes back. TensorPipe finds the device of libibverbs by itself. CHANNEL is its channel for tensors; empty: it chooses.
"""
import os
import sys

import torch
from torch.distributed import rpc

rank, address, channel = int(sys.argv[1]), sys.argv[2], sys.argv[3]


def doubled(tensor):
    return tensor + tensor


def main():
    # The workers meet by TCP at rank 0, and then tell each other their addresses on the rack's interface.
    os.environ.update(MASTER_ADDR=address, MASTER_PORT="29511", TP_SOCKET_IFNAME="rack0", GLOO_SOCKET_IFNAME="rack0")
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=2, rpc_timeout=120, **({"_channels": [channel]} if channel else {}))
    rpc.init_rpc("worker%d" % rank, rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        for count in (1000, 100000, 4000000):
            tensor = torch.arange(count, dtype=torch.float32)
            answer = rpc.rpc_sync("worker1", doubled, args=(tensor,))
            if not torch.equal(answer, tensor * 2):
                sys.exit("%d bytes came back wrong" % (4 * count))
            print(4 * count, "bytes are right", flush=True)
    rpc.shutdown()


main()
