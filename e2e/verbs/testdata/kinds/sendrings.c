// Send rings in memory of the program (rdmalabdv.h): work requests that wait for completions, enable others, and change others.
#include "kind.h"
#include "../../../../softrnic/uverbs/provider/rdmalabdv.h"

enum { BLOCKS = 16, SPACE = BLOCKS * RDMALABDV_BLOCK };

// ringed is a queue pair that is connected to itself and has a ring in buf.
struct ringed { struct ibv_cq *cq; struct ibv_qp *qp; unsigned char *at; int n; };

static struct ringed new_ring(int place, uint32_t flags)
{
	struct ringed r = { .cq = new_cq(NULL), .at = buf + place * SPACE };
	struct ibv_qp_init_attr a = init_of(IBV_QPT_RC, r.cq, NULL);
	a.sq_sig_all = 0;
	OK(r.qp = ibv_create_qp(pd, &a));
	OK(!(errno = rdmalabdv_use_ring(r.qp, &(struct rdmalabdv_ring){ .addr = (uintptr_t)r.at, .lkey = mr->lkey, .blocks = BLOCKS, .flags = flags, .prefetch = 1 })));
	to_init(r.qp);
	connect_qp(r.qp, r.qp->qp_num);
	return r;
}

static void end_ring(struct ringed *r) { WANT(!ibv_destroy_qp(r->qp) && !ibv_destroy_cq(r->cq)); }

static unsigned char *put(struct ringed *r, struct rdmalabdv_entry e)
{
	unsigned char *at = r->at + r->n * RDMALABDV_BLOCK;
	int blocks = rdmalabdv_put(at, &e);
	OK(blocks > 0);
	r->n += blocks;
	return at;
}

static struct rdmalabdv_entry moves(uint8_t op, void *to, struct ibv_sge *from)
{
	return (struct rdmalabdv_entry){ .opcode = op, .remote_addr = (uintptr_t)to, .rkey = mr->rkey, .sg_list = from, .num_sge = 1 };
}

// wait_then_enable makes ring a wait until cq has counted `count` completions, and then enable what ring b has.
static void wait_then_enable(struct ringed *a, struct ibv_cq *cq, uint32_t count, struct ringed *b)
{
	uint32_t number;
	OK(!rdmalabdv_cq_number(cq, &number));
	put(a, (struct rdmalabdv_entry){ .opcode = RDMALABDV_WAIT, .count = count, .object = number });
	put(a, (struct rdmalabdv_entry){ .opcode = RDMALABDV_ENABLE, .count = (uint32_t)b->n, .object = b->qp->qp_num });
}

static void go(struct ringed *r) { OK(!(errno = rdmalabdv_doorbell(r->qp, (uint32_t)r->n))); }

// enabled_by_receive: a client's SEND makes the server's NIC write, without the server.
static void enabled_by_receive(void)
{
	memset(buf, 0, sizeof buf);
	struct pair client = two(IBV_QPT_RC);
	struct ringed first = new_ring(0, 0), second = new_ring(1, RDMALABDV_RING_MANAGED);
	unsigned char *data = buf + 8 * SPACE;
	memcpy(data, "answered", 8);
	struct ibv_sge s = piece(data, 8), question = piece(data + 64, 8);
	struct rdmalabdv_entry write = moves(RDMALABDV_WRITE, far, &s);
	write.flags = RDMALABDV_SIGNALLED;
	put(&second, write);
	wait_then_enable(&first, client.far_cq, 2, &second);
	go(&first);
	struct ibv_wc wc;
	for (int i = 0; i < 2; i++) {
		WANT(!within(second.cq, &wc, SHORT) && far[0] == 0, "it waits for receive %d", i + 1);
		OK(!receive(client.far_qp, 7, data + 128, 8));
		OK(!post(client.qp, IBV_WR_SEND, &question, 1, 0, 0));
		WANT(status(client.cq) == IBV_WC_SUCCESS);
	}
	wc = next(second.cq);
	WANT(wc.status == IBV_WC_SUCCESS && wc.wr_id == 0 && wc.opcode == IBV_WC_RDMA_WRITE && wc.qp_num == second.qp->qp_num);
	WANT(!memcmp(far, "answered", 8));
	WANT(status(client.far_cq) == IBV_WC_SUCCESS && status(client.far_cq) == IBV_WC_SUCCESS, "a WAIT takes no completion");
	end_ring(&first), end_ring(&second), end(client);
}

// conditional: a request that is a NOP becomes a WRITE if x is 5: the NIC reads x into the request, and compares and swaps its
// beginning.
static int executed_if(unsigned char x)
{
	memset(buf, 0, sizeof buf);
	struct ringed first = new_ring(0, 0), second = new_ring(1, RDMALABDV_RING_MANAGED);
	unsigned char *data = buf + 8 * SPACE;
	memcpy(data, "equal", 5);
	data[64] = x;
	struct ibv_sge s = piece(data, 5), from = piece(data + 64, 1), old = piece(data + 128, 8);
	struct rdmalabdv_entry no = moves(RDMALABDV_NOP, far, &s);
	no.becomes = RDMALABDV_WRITE, no.flags = RDMALABDV_SIGNALLED;
	unsigned char *at = put(&second, no);
	uint64_t compare, swap;
	at[0] = 5; // the operand has the place of opmod
	memcpy(&compare, at, 8);
	at[0] = 0, at[RDMALABDV_OFF_OPCODE] = RDMALABDV_WRITE;
	memcpy(&swap, at, 8);
	at[RDMALABDV_OFF_OPCODE] = RDMALABDV_NOP;
	put(&first, moves(RDMALABDV_WRITE, at, &from));
	struct rdmalabdv_entry cas = moves(RDMALABDV_CAS, at, &old);
	cas.compare = compare, cas.swap_add = swap, cas.flags = RDMALABDV_SIGNALLED;
	put(&first, cas);
	wait_then_enable(&first, first.cq, 1, &second);
	go(&first);
	struct ibv_wc wc = next(second.cq);
	WANT(wc.status == IBV_WC_SUCCESS);
	WANT(status(first.cq) == IBV_WC_SUCCESS);
	end_ring(&first), end_ring(&second);
	return !memcmp(far, "equal", 5);
}

static void conditional(void)
{
	WANT(executed_if(5));
	WANT(!executed_if(4));
}

static void wraps(void)
{
	memset(buf, 0, sizeof buf);
	struct ringed r = new_ring(0, 0);
	struct ibv_sge s = piece(buf + 8 * SPACE, 8);
	struct rdmalabdv_entry add = moves(RDMALABDV_ADD, far, &s);
	add.swap_add = 1, add.flags = RDMALABDV_SIGNALLED;
	for (int i = 0; i < BLOCKS; i++) put(&r, add);
	for (int i = 0; i < 3 * BLOCKS; i++) {
		OK(!rdmalabdv_doorbell(r.qp, (uint32_t)i + 1));
		struct ibv_wc wc = next(r.cq);
		WANT(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)i && wc.opcode == IBV_WC_FETCH_ADD);
	}
	uint64_t sum;
	memcpy(&sum, far, 8);
	WANT(sum == 3 * BLOCKS);
	end_ring(&r);
}

static void refused(void)
{
	struct ibv_cq *cq = new_cq(NULL);
	struct ibv_qp_init_attr a = init_of(IBV_QPT_RC, cq, NULL), u = init_of(IBV_QPT_UC, cq, NULL);
	struct ibv_qp *rc = ibv_create_qp(pd, &a), *uc = ibv_create_qp(pd, &u);
	OK(rc && uc);
	struct rdmalabdv_ring good = { .addr = (uintptr_t)buf, .lkey = mr->lkey, .blocks = BLOCKS, .flags = RDMALABDV_RING_MANAGED }, r;
	WANT(rdmalabdv_doorbell(rc, 1) == EINVAL, "without a ring");
	WANT(rdmalabdv_use_ring(uc, &good) == EOPNOTSUPP, "of UC");
	r = good, r.lkey = mr->lkey ^ 0x100;
	WANT(rdmalabdv_use_ring(rc, &r) == EACCES, "in no region");
	r = good, r.addr = (uintptr_t)buf + sizeof buf - 64;
	WANT(rdmalabdv_use_ring(rc, &r) == EACCES, "behind the end of the region");
	r = good, r.flags = 1 << 9;
	WANT(rdmalabdv_use_ring(rc, &r) == EINVAL, "with other flags");
	r = good, r.blocks = 3;
	WANT(rdmalabdv_use_ring(rc, &r) == EINVAL, "of 3 blocks");
	r = good, r.blocks = 1u << 31;
	WANT(rdmalabdv_use_ring(rc, &r) == EINVAL, "of 2^31 blocks");
	WANT(!rdmalabdv_use_ring(rc, &good) && rdmalabdv_use_ring(rc, &good) == EBUSY, "twice");
	WANT(rdmalabdv_doorbell(rc, 1) == EINVAL, "of a managed ring");
	WANT(!ibv_destroy_qp(rc) && !ibv_destroy_qp(uc) && !ibv_destroy_cq(cq));
	struct pair p = two(IBV_QPT_RC);
	WANT(rdmalabdv_use_ring(p.qp, &good) == EINVAL, "in RTS");
	end(p);
}

// failing: entries that cannot be executed fail the queue pair, as posts that cannot.
static void failing(void)
{
	memset(buf, 0, sizeof buf);
	struct ringed r = new_ring(0, 0);
	r.at[RDMALABDV_OFF_OPCODE] = 0x3f, r.at[7] = 1;
	r.n = 1;
	go(&r);
	WANT(status(r.cq) == IBV_WC_LOC_QP_OP_ERR, "no opcode");
	end_ring(&r);
	r = new_ring(0, 0);
	struct ibv_sge s = { 8, 8, mr->lkey };
	put(&r, moves(RDMALABDV_WRITE, far, &s));
	go(&r);
	WANT(status(r.cq) == IBV_WC_LOC_PROT_ERR, "memory that is not the region's");
	end_ring(&r);
	r = new_ring(0, 0);
	s = piece(buf, 8);
	OK(!post(r.qp, IBV_WR_RDMA_WRITE, &s, 1, (uintptr_t)far, mr->rkey));
	WANT(status(r.cq) == IBV_WC_LOC_QP_OP_ERR, "ibv_post_send on a ring");
	end_ring(&r);
}

CASES(
	{ "a WRITE that receives enable", "RedN 3.1", enabled_by_receive },
	{ "a request that others make effective", "RedN 3.2", conditional },
	{ "a ring that wraps", "rdmalabdv.h", wraps },
	{ "rings that are refused", "rdmalabdv.h", refused },
	{ "entries that cannot be executed", "rdmalabdv.h", failing },
)
