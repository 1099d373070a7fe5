#!/usr/bin/python3
"""The rxe end of the matrix: obeys one JSON object a line and answers with one, over a TCP port or a character device.

    verbs.py PORT | DEVICE

"do" is open, connect, fill, recv, run, wait, check, word or close; package doc of e2e/interop says what each means.
The answer is {"error": text} or an object of results. Memory is an array of slots, one a message, filled with 0xee."""
import json
import os
import socket
import sys
import time
import traceback

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import RecvWR, SGE, SendWR

PATH_MTU = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
QP_TYPE = {"rc": e.IBV_QPT_RC, "uc": e.IBV_QPT_UC, "ud": e.IBV_QPT_UD}
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
OPCODE = {
    "send": e.IBV_WR_SEND, "send_imm": e.IBV_WR_SEND_WITH_IMM, "write": e.IBV_WR_RDMA_WRITE,
    "write_imm": e.IBV_WR_RDMA_WRITE_WITH_IMM, "read": e.IBV_WR_RDMA_READ,
    "cas": e.IBV_WR_ATOMIC_CMP_AND_SWP, "faa": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
QKEY = 0x11111111
EMPTY = 0xEE
GRH = 40

# Byte i of message m is (i*7 + (i>>8)*13 + m*31 + seed) mod 256; BASE has m*31 + seed = 0, SHIFT adds the rest.
BASE = bytes((i * 7 + (i >> 8) * 13) & 255 for i in range(1 << 16)) * 2
SHIFT = [bytes((b + k) & 255 for b in range(256)) for k in range(256)]


def pattern(m, n, seed):
    return BASE[:n].translate(SHIFT[(m * 31 + seed) & 255])


class End:
    """One queue pair with its memory."""

    def __init__(self, q):
        self.type = q.get("type", "rc")
        self.slot, self.slots, self.port_gid = q["slot"], q["slots"], q["gid"]
        self.ctx = Context(name="rxe0")
        self.pd = PD(self.ctx)
        # Behind the slots: a header area of UD a slot.
        size = self.slot * self.slots
        self.mr = MR(self.pd, size + GRH * self.slots, ACCESS)
        self.mr.write(bytes([EMPTY]) * size, size)
        self.size = size
        self.cq = CQ(self.ctx, 1024)
        cap = QPCap(max_send_wr=128, max_recv_wr=512, max_send_sge=4, max_recv_sge=4, max_inline_data=0)
        init = QPInitAttr(qp_type=QP_TYPE[self.type], scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1)
        self.qp = QP(self.pd, init)
        self.qp.to_init(self.attr())
        self.gid = str(self.ctx.query_gid(1, self.port_gid).gid)
        self.early = []  # receives that completed while sends were polled, and the other way round

    def attr(self):
        at = QPAttr(port_num=1)
        if self.type == "ud":
            at.qkey = QKEY
        else:
            at.qp_access_flags = ACCESS
        return at

    def opened(self):
        return {"qpn": self.qp.qp_num, "gid": self.gid, "addr": self.mr.buf, "rkey": self.mr.rkey}

    def share(self, q):
        """One more queue pair with the same memory, for the switch."""
        cap = QPCap(max_send_wr=1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1, max_inline_data=0)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap)
        mine, self.qp = self.qp, QP(self.pd, init)
        try:
            self.qp.to_init(self.attr())
            self.connect(q)
        finally:
            self.extra, self.qp = self.qp, mine
        return {"qpn": self.extra.qp_num}

    def connect(self, q):
        gr = GlobalRoute(dgid=GID(q["gid"]), sgid_index=self.port_gid, hop_limit=64, traffic_class=q.get("tc", 0))
        to = AHAttr(gr=gr, is_global=1, port_num=1)
        at = self.attr()
        if self.type == "ud":
            self.qp.to_rtr(at)
            at.sq_psn = q["sq_psn"]
            self.qp.to_rts(at)
            self.peer_qpn, self.ah = q["qpn"], AH(self.pd, attr=to)
            return {}
        at.path_mtu, at.dest_qp_num, at.rq_psn, at.ah_attr = PATH_MTU[q["mtu"]], q["qpn"], q["rq_psn"], to
        at.max_dest_rd_atomic, at.min_rnr_timer = q["rd_atomic"], q["min_rnr"]
        self.qp.to_rtr(at)
        at.sq_psn, at.max_rd_atomic = q["sq_psn"], q["rd_atomic"]
        at.timeout, at.retry_cnt, at.rnr_retry = q["timeout"], q["retry"], q["rnr_retry"]
        self.qp.to_rts(at)
        return {}

    def fill(self, q):
        for m, n in enumerate(q["sizes"]):
            if n:
                self.mr.write(pattern(m, n, q["seed"]), n, self.slot * m)
        return {}

    def sge(self, m, n):
        return SGE(self.mr.buf + self.slot * m, n, self.mr.lkey)

    def recv(self, q):
        for m in range(q["first"], q["first"] + q["count"]):
            sg = [self.sge(m, q["size"])]
            if self.type == "ud":
                sg.insert(0, SGE(self.mr.buf + self.size + GRH * m, GRH, self.mr.lkey))
            self.qp.post_recv(RecvWR(wr_id=m, num_sge=len(sg), sg=sg))
        return {}

    def work(self, q, m):
        op, n = q["op"], q["sizes"][m]
        pieces = q.get("pieces", 1)
        at = [n * k // pieces for k in range(pieces + 1)]
        sg = [SGE(self.mr.buf + self.slot * m + at[k], at[k + 1] - at[k], self.mr.lkey) for k in range(pieces)]
        wr = SendWR(wr_id=m, num_sge=len(sg), sg=sg, opcode=OPCODE[op], send_flags=e.IBV_SEND_SIGNALED,
                    imm_data=socket.htonl((q["imm"] + m) & 0xFFFFFFFF))
        if op in ("cas", "faa"):
            wr.set_wr_atomic(q["rkey"], q["addr"], q["first"] + m if op == "cas" else q["add"], q["first"] + m + 1)
        elif op in ("write", "write_imm", "read"):
            wr.set_wr_rdma(q["rkey"], q["addr"] + q["stride"] * m)
        if self.type == "ud":
            wr.set_wr_ud(self.ah, self.peer_qpn, QKEY)
        self.qp.post_send(wr)

    def poll(self, receives, until):
        """Completions of one direction; none when the time is over."""
        while True:
            mine = [w for w in self.early if w["recv"] == receives]
            if mine:
                self.early = [w for w in self.early if w["recv"] != receives]
                return mine
            n, wcs = self.cq.poll(32)
            for w in wcs:
                # Only success says by its opcode what completed; every failure here is of the direction that is waited for.
                got = bool(w.opcode & 128) if w.status == 0 else receives
                self.early.append({"recv": got, "id": w.wr_id, "status": w.status, "len": w.byte_len,
                                   "imm": socket.ntohl(w.imm_data) if w.wc_flags & 2 else 0, "src": w.src_qp})
            if not n:
                if time.monotonic() > until:
                    return []
                time.sleep(0.0005)

    def run(self, q):
        posted, out, total = 0, [], len(q["sizes"])
        until = time.monotonic() + q["limit"]
        while len(out) < total:
            while posted < total and posted - len(out) < q["depth"]:
                self.work(q, posted)
                posted += 1
            wcs = self.poll(False, until)
            if not wcs:
                break
            out += wcs
            if any(w["status"] for w in wcs):
                total = posted
        return {"wc": out}

    def wait(self, q):
        out = []
        until = time.monotonic() + q["limit"]
        while len(out) < q["count"]:
            wcs = self.poll(True, until)
            if not wcs:
                break
            out += wcs
        return {"wc": out}

    def check(self, q):
        """Which slots hold something else than their message, and 0xee behind it."""
        bad = []
        for m, n in enumerate(q["sizes"]):
            want = pattern(q["from"] + m, n, q["seed"]) + bytes([EMPTY]) * (self.slot - n)
            if self.mr.read(self.slot, self.slot * m) != want:
                bad.append(m)
        return {"bad": bad}

    def word(self, q):
        """Reads the first words of slots, after storing one if asked to."""
        if "store" in q:
            self.mr.write(q["store"].to_bytes(8, "little"), 8, 0)
        return {"words": [int.from_bytes(self.mr.read(8, self.slot * m), "little") for m in range(q["count"])]}

    def close(self, _=None):
        for o in (getattr(self, "ah", None), getattr(self, "extra", None), self.qp, self.cq, self.mr, self.pd, self.ctx):
            if o is not None:
                o.close()
        return {}


def serve(f):
    end = None
    for line in f:
        number = None
        try:
            q = json.loads(line)
            number = q.get("id")
            if q["do"] == "open":
                if end is not None:
                    end.close()
                end = End(q)
                a = end.opened()
            elif q["do"] == "close":
                if end is not None:
                    end.close()
                end, a = None, {}
            else:
                a = getattr(end, q["do"])(q)
        except Exception as x:
            a = {"error": f"{x!r} at {traceback.format_exc(limit=-1)}"}
        f.write(json.dumps(a | {"id": number}).encode() + b"\n")
        f.flush()


def main():
    where = sys.argv[1]
    if not where.isdigit():
        fd = os.open(where, os.O_RDWR)
        while True:
            with open(fd, "rb", closefd=False) as r, open(fd, "wb", buffering=0, closefd=False) as w:
                serve(Both(r, w))
            time.sleep(0.1)  # nobody is at the other end
    l = socket.socket()
    l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    l.bind(("", int(where)))
    l.listen(1)
    while True:
        c, _ = l.accept()
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        serve(c.makefile("rwb"))


class Both:
    """A reader and a writer as one."""

    def __init__(self, r, w):
        self.r, self.w = r, w

    def __iter__(self):
        return iter(self.r.readline, b"")

    def write(self, b):
        while b:
            b = b[self.w.write(b):]

    def flush(self):
        pass


main()
