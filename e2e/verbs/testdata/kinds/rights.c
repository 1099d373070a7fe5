// Memory that a request may touch: exactly that of its region, its rights, its protection domain.
#include "kind.h"

static struct ibv_mr *small; // the second page of the far half

// tried is the status of one request of a new connection.
static int tried(enum ibv_wr_opcode op, uint64_t va, uint32_t n, uint32_t rkey)
{
	struct pair p = two(IBV_QPT_RC);
	struct ibv_sge s = piece(buf, n);
	int st = op == IBV_WR_ATOMIC_FETCH_AND_ADD ? atomic(p.qp, op, buf, va, rkey, 1, 0) : post(p.qp, op, &s, 1, va, rkey);
	OK(!st);
	st = status(p.cq);
	end(p);
	return st;
}
static int written(uint64_t va, uint32_t n, uint32_t rkey) { return tried(IBV_WR_RDMA_WRITE, va, n, rkey); }
static int was_read(uint64_t va, uint32_t n, uint32_t rkey) { return tried(IBV_WR_RDMA_READ, va, n, rkey); }
static uint64_t at(long off) { return (uintptr_t)far + 4096 + (uint64_t)off; }

static void make_small(int rights)
{
	OK(small = ibv_reg_mr(pd, far + 4096, 4096, rights));
}
static void end_small(void) { OK(!ibv_dereg_mr(small)); }

static void ends(void)
{
	make_small(ANY);
	WANT(written(at(0), 4096, small->rkey) == IBV_WC_SUCCESS);
	WANT(was_read(at(4095), 1, small->rkey) == IBV_WC_SUCCESS);
	WANT(written(at(4095), 2, small->rkey) == IBV_WC_REM_ACCESS_ERR);
	WANT(was_read(at(1), 4096, small->rkey) == IBV_WC_REM_ACCESS_ERR);
	WANT(written(at(-1), 1, small->rkey) == IBV_WC_REM_ACCESS_ERR);
	WANT(tried(IBV_WR_ATOMIC_FETCH_AND_ADD, at(4088), 8, small->rkey) == IBV_WC_SUCCESS);
	WANT(tried(IBV_WR_ATOMIC_FETCH_AND_ADD, at(4096), 8, small->rkey) == IBV_WC_REM_ACCESS_ERR);
	end_small();
}

static void wraps(void)
{
	const uint64_t top = 0xfffffffffffffc00;
	make_small(ANY);
	WANT(written(top, 0x400, small->rkey) == IBV_WC_REM_ACCESS_ERR);
	WANT(was_read(top, 0x400, small->rkey) == IBV_WC_REM_ACCESS_ERR);
	WANT(written(top, 0x800, small->rkey) == IBV_WC_REM_ACCESS_ERR);
	WANT(tried(IBV_WR_ATOMIC_FETCH_AND_ADD, 0xfffffffffffffff8, 8, small->rkey) == IBV_WC_REM_ACCESS_ERR);
	end_small();
}

static void rights(void)
{
	make_small(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	WANT(was_read(at(0), 8, small->rkey) == IBV_WC_SUCCESS);
	WANT(written(at(0), 8, small->rkey) == IBV_WC_REM_ACCESS_ERR);
	WANT(tried(IBV_WR_ATOMIC_FETCH_AND_ADD, at(0), 8, small->rkey) == IBV_WC_REM_ACCESS_ERR);
	end_small();
	make_small(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	WANT(written(at(0), 8, small->rkey) == IBV_WC_SUCCESS);
	WANT(was_read(at(0), 8, small->rkey) == IBV_WC_REM_ACCESS_ERR);
	end_small();
	make_small(IBV_ACCESS_LOCAL_WRITE);
	WANT(was_read(at(0), 8, small->rkey) == IBV_WC_REM_ACCESS_ERR);
	end_small();
}

static void keys(void)
{
	make_small(ANY);
	uint32_t key = small->rkey;
	WANT(written(at(0), 8, key ^ 1) == IBV_WC_REM_ACCESS_ERR);
	WANT(written(at(0), 8, 0) == IBV_WC_REM_ACCESS_ERR);
	end_small();
	WANT(written(at(0), 8, key) == IBV_WC_REM_ACCESS_ERR, "the region is gone");
}

static void domains(void)
{
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	OK(other);
	struct ibv_mr *theirs = ibv_reg_mr(other, far + 4096, 4096, ANY);
	OK(theirs);
	WANT(written(at(0), 8, theirs->rkey) == IBV_WC_REM_ACCESS_ERR);
	struct pair p = two(IBV_QPT_RC);
	struct ibv_sge s = { (uintptr_t)far + 4096, 8, theirs->lkey };
	OK(!post(p.qp, IBV_WR_RDMA_WRITE, &s, 1, (uintptr_t)far, mr->rkey));
	WANT(status(p.cq) == IBV_WC_LOC_PROT_ERR);
	end(p);
	OK(!ibv_dereg_mr(theirs) && !ibv_dealloc_pd(other));
}

// Local memory: a READ writes to it, so it needs the right; a WRITE does not.
static void local(void)
{
	make_small(IBV_ACCESS_REMOTE_READ);
	for (int reads = 0; reads < 2; reads++) {
		struct pair p = two(IBV_QPT_RC);
		struct ibv_sge s = { at(0), 8, small->lkey };
		OK(!post(p.qp, reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &s, 1, (uintptr_t)far, mr->rkey));
		WANT(status(p.cq) == (reads ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS));
		end(p);
	}
	end_small();
}

// An address is in the numbers of the region, not of the process.
static void chosen_address(void)
{
	const uint64_t iova = 0x7000;
	struct ibv_mr *m = ibv_reg_mr_iova(pd, far + 4096, 4096, iova, ANY);
	OK(m);
	WANT(written(iova + 100, 50, m->rkey) == IBV_WC_SUCCESS && !memcmp(far + 4196, buf, 50));
	WANT(written(at(0), 8, m->rkey) == IBV_WC_REM_ACCESS_ERR);
	OK(!ibv_dereg_mr(m));
}

static void misaligned(void)
{
	struct pair p = two(IBV_QPT_RC);
	// A NIC refuses it on the wire, a provider when it is posted.
	int rc = atomic(p.qp, IBV_WR_ATOMIC_FETCH_AND_ADD, buf, (uintptr_t)far + 4, mr->rkey, 1, 0);
	WANT(rc == EINVAL || status(p.cq) == IBV_WC_REM_INV_REQ_ERR);
	end(p);
}

// A message that is longer than the receive: an error at both ends.
static void too_long(void)
{
	struct pair p = two(IBV_QPT_RC);
	struct ibv_sge s = piece(buf, 100);
	OK(!receive(p.far_qp, 1, far, 99) && !post(p.qp, IBV_WR_SEND, &s, 1, 0, 0));
	WANT(status(p.far_cq) == IBV_WC_LOC_LEN_ERR);
	WANT(status(p.cq) == IBV_WC_REM_INV_REQ_ERR);
	end(p);
}

// A receive whose memory may not be written: local protection error there, remote operation error here.
static void receive_without_right(void)
{
	make_small(IBV_ACCESS_REMOTE_READ);
	struct pair p = two(IBV_QPT_RC);
	struct ibv_sge from = piece(buf, 8), to = { at(0), 8, small->lkey };
	struct ibv_recv_wr w = { .wr_id = 1, .sg_list = &to, .num_sge = 1 }, *bad;
	OK(!ibv_post_recv(p.far_qp, &w, &bad) && !post(p.qp, IBV_WR_SEND, &from, 1, 0, 0));
	WANT(status(p.far_cq) == IBV_WC_LOC_PROT_ERR);
	WANT(status(p.cq) == IBV_WC_REM_OP_ERR);
	end(p);
	end_small();
}

CASES(
	{ "the first and the last byte of a region", "IBTA 9.7.4.1.3, C9-90", ends },
	{ "an address and length that wrap", "IBTA 9.7.4.1.3", wraps },
	{ "a region's rights", "ibv_reg_mr(3), IBTA 10.6.3", rights },
	{ "keys that are none, and of a region that is gone", "ibv_dereg_mr(3), IBTA 10.6.3", keys },
	{ "another protection domain", "IBTA 10.2.3", domains },
	{ "local memory without the right to write", "ibv_reg_mr(3)", local },
	{ "an address of ibv_reg_mr_iova", "ibv_reg_mr(3)", chosen_address },
	{ "an atomic that is not aligned", "IBTA 9.7.4.1.4", misaligned },
	{ "a message longer than its receive", "IBTA 9.7.4.1.6, 11.6.2", too_long },
	{ "a receive that may not be written", "IBTA 11.6.2", receive_without_right },
)
