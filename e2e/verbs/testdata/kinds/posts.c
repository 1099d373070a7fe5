// Posting: lists, full queues, unsignaled requests, fences, and what a completion says.
#include "kind.h"

// A list whose third request is wrong: the first two are executed, and the third is named.
static void list(void)
{
	struct pair p = two(IBV_QPT_RC);
	struct ibv_sge s = piece(buf, 8), many[100]; // rxe's provider reads all pieces before it counts them
	struct ibv_send_wr w[4], *bad = NULL;
	for (int i = 0; i < 100; i++) many[i] = s;
	for (int i = 0; i < 4; i++) {
		w[i] = (struct ibv_send_wr){ .wr_id = 10 + i, .next = i < 3 ? &w[i + 1] : NULL, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { (uintptr_t)far, mr->rkey } };
	}
	w[2].sg_list = many, w[2].num_sge = 100;
	WANT(ibv_post_send(p.qp, w, &bad) && bad == &w[2]);
	struct ibv_wc wc;
	for (int i = 0; i < 2; i++) WANT(next(p.cq).wr_id == (uint64_t)(10 + i));
	WANT(!within(p.cq, &wc, SHORT));
	end(p);
}

// A full send queue is ENOMEM, and has room again when completions were taken.
static void full(void)
{
	struct ibv_cq *cq = new_cq(NULL), *far_cq = new_cq(NULL);
	struct ibv_qp_init_attr a = init_of(IBV_QPT_RC, cq, NULL);
	struct pair p = joined(a, init_of(IBV_QPT_RC, far_cq, NULL));
	struct ibv_sge s = piece(buf, 8);
	int n = 0, rc = 0;
	while (n < 4096 && !(rc = post(p.qp, IBV_WR_SEND, &s, 1, 0, 0))) n++; // no receive is there: they wait
	WANT(rc == ENOMEM && n >= DEPTH, "after %d: %s", n, strerror(rc));
	for (int i = 0; i < n; i++) {
		OK(!receive(p.far_qp, i, far, 8));
		WANT(status(p.far_cq) == IBV_WC_SUCCESS && status(p.cq) == IBV_WC_SUCCESS);
	}
	WANT(!post(p.qp, IBV_WR_RDMA_WRITE, &s, 1, (uintptr_t)far, mr->rkey) && status(p.cq) == IBV_WC_SUCCESS);
	end(p);
}

static void full_receives(void)
{
	struct pair p = two(IBV_QPT_RC);
	int n = 0, rc = 0;
	while (n < 4096 && !(rc = receive(p.far_qp, n, far, 8))) n++;
	WANT(rc == ENOMEM && n >= DEPTH, "after %d: %s", n, strerror(rc));
	struct ibv_sge s = piece(buf, 8);
	OK(!post(p.qp, IBV_WR_SEND, &s, 1, 0, 0));
	WANT(next(p.far_cq).wr_id == 0);
	WANT(!receive(p.far_qp, n, far, 8), "a slot is free again");
	end(p);
}

static struct pair quiet(void)
{
	struct ibv_qp_init_attr a = init_of(IBV_QPT_RC, new_cq(NULL), NULL);
	a.sq_sig_all = 0;
	return joined(a, init_of(IBV_QPT_RC, new_cq(NULL), NULL));
}

static int post_flags(struct ibv_qp *q, uint64_t id, enum ibv_wr_opcode op, struct ibv_sge *s, uint64_t va, int flags)
{
	struct ibv_send_wr w = { .wr_id = id, .sg_list = s, .num_sge = 1, .opcode = op, .send_flags = flags, .wr.rdma = { va, mr->rkey } }, *bad;
	return ibv_post_send(q, &w, &bad);
}

// Only signaled requests complete; their completion frees the slots of those before.
static void unsignaled(void)
{
	struct pair p = quiet();
	struct ibv_sge s = piece(buf, 8);
	struct ibv_wc wc;
	for (int round = 0; round < 20; round++) {
		for (int i = 1; i <= DEPTH; i++) OK(!post_flags(p.qp, 100 * round + i, IBV_WR_RDMA_WRITE, &s, (uintptr_t)far, i == DEPTH ? IBV_SEND_SIGNALED : 0));
		wc = next(p.cq);
		WANT(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)(100 * round + DEPTH));
	}
	WANT(!within(p.cq, &wc, SHORT));
	end(p);
}

// A request that fails completes, signaled or not.
static void failed_unsignaled(void)
{
	struct pair p = quiet();
	struct ibv_sge s = piece(buf, 8);
	struct ibv_send_wr w = { .wr_id = 77, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { 64, 0 } }, *bad;
	OK(!ibv_post_send(p.qp, &w, &bad));
	struct ibv_wc wc = next(p.cq);
	WANT(wc.wr_id == 77 && wc.status == IBV_WC_REM_ACCESS_ERR && wc.qp_num == p.qp->qp_num);
	end(p);
}

// A fenced SEND waits for the READ before it, whose data it sends.
static void fenced(void)
{
	struct pair p = two(IBV_QPT_RC);
	for (int i = 0; i < 20; i++) {
		unsigned char *middle = buf + 20000;
		memset(middle, 0, 2000);
		memset(far + 10000, i + 1, 2000);
		struct ibv_sge r = piece(middle, 2000);
		OK(!receive(p.far_qp, i, far, 2000));
		OK(!post_flags(p.qp, 1, IBV_WR_RDMA_READ, &r, (uintptr_t)far + 10000, IBV_SEND_SIGNALED));
		OK(!post_flags(p.qp, 2, IBV_WR_SEND, &r, 0, IBV_SEND_SIGNALED | IBV_SEND_FENCE));
		WANT(next(p.cq).wr_id == 1 && next(p.cq).wr_id == 2 && status(p.far_cq) == IBV_WC_SUCCESS);
		WANT(far[0] == i + 1 && far[1999] == i + 1);
	}
	end(p);
}

// What was sent inline may be overwritten at once.
static void inlined(void)
{
	struct pair p = two(IBV_QPT_RC);
	unsigned char stack[INLINE];
	for (int i = 0; i < 20; i++) {
		memset(stack, i + 1, sizeof stack);
		struct ibv_sge s = { (uintptr_t)stack, sizeof stack, 0 };
		OK(!post_flags(p.qp, 1, IBV_WR_RDMA_WRITE, &s, (uintptr_t)far, IBV_SEND_INLINE | IBV_SEND_SIGNALED));
		memset(stack, 0, sizeof stack);
		WANT(status(p.cq) == IBV_WC_SUCCESS && far[0] == i + 1 && far[INLINE - 1] == i + 1);
	}
	end(p);
}

static void says(void)
{
	static const struct { enum ibv_wr_opcode op; enum ibv_wc_opcode wc; } all[] = {
		{ IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE }, { IBV_WR_RDMA_READ, IBV_WC_RDMA_READ }, { IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD },
		{ IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP }, { IBV_WR_SEND, IBV_WC_SEND }, { IBV_WR_SEND_WITH_IMM, IBV_WC_SEND },
	};
	struct pair p = two(IBV_QPT_RC);
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		struct ibv_sge s = piece(buf, 8);
		int sends = all[i].op == IBV_WR_SEND || all[i].op == IBV_WR_SEND_WITH_IMM;
		if (sends) OK(!receive(p.far_qp, 40, far + 64, 8));
		if (all[i].wc == IBV_WC_FETCH_ADD || all[i].wc == IBV_WC_COMP_SWAP) OK(!atomic(p.qp, all[i].op, buf, (uintptr_t)far, mr->rkey, 1, 2));
		else OK(!post(p.qp, all[i].op, &s, 1, sends ? 0 : (uintptr_t)far, sends ? 0 : mr->rkey));
		struct ibv_wc wc = next(p.cq);
		WANT(wc.status == IBV_WC_SUCCESS && wc.opcode == all[i].wc && wc.qp_num == p.qp->qp_num, "opcode %d, not %d", wc.opcode, all[i].wc);
		if (!sends) continue;
		wc = next(p.far_cq);
		WANT(wc.opcode == IBV_WC_RECV && wc.byte_len == 8 && wc.qp_num == p.far_qp->qp_num && !!(wc.wc_flags & IBV_WC_WITH_IMM) == (all[i].op == IBV_WR_SEND_WITH_IMM));
	}
	end(p);
}

// The old value comes back, and the new one is stored: for equal and for unequal values.
static void atomics(void)
{
	struct pair p = two(IBV_QPT_RC);
	uint64_t *word = (void *)far, *was = (void *)buf;
	*word = 40;
	OK(!atomic(p.qp, IBV_WR_ATOMIC_FETCH_AND_ADD, was, (uintptr_t)word, mr->rkey, 2, 0));
	WANT(status(p.cq) == IBV_WC_SUCCESS && *was == 40 && *word == 42);
	OK(!atomic(p.qp, IBV_WR_ATOMIC_CMP_AND_SWP, was, (uintptr_t)word, mr->rkey, 41, 7));
	WANT(status(p.cq) == IBV_WC_SUCCESS && *was == 42 && *word == 42);
	OK(!atomic(p.qp, IBV_WR_ATOMIC_CMP_AND_SWP, was, (uintptr_t)word, mr->rkey, 42, 7));
	WANT(status(p.cq) == IBV_WC_SUCCESS && *was == 42 && *word == 7);
	OK(!atomic(p.qp, IBV_WR_ATOMIC_FETCH_AND_ADD, was, (uintptr_t)word, mr->rkey, -8, 0));
	WANT(status(p.cq) == IBV_WC_SUCCESS && *word == UINT64_MAX);
	end(p);
}

// A queue pair that was reset has lost what was posted, and is as new.
static void reset(void)
{
	struct pair p = two(IBV_QPT_RC);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };
	struct ibv_sge s = piece(buf, 8);
	struct ibv_wc wc;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 3; i++) OK(!receive(p.far_qp, 10 * round + i, far, 8));
		OK(!post(p.qp, IBV_WR_SEND, &s, 1, 0, 0));
		WANT(next(p.far_cq).wr_id == (uint64_t)(10 * round) && status(p.cq) == IBV_WC_SUCCESS);
		OK(!ibv_modify_qp(p.qp, &a, IBV_QP_STATE) && !ibv_modify_qp(p.far_qp, &a, IBV_QP_STATE));
		WANT(!within(p.far_cq, &wc, SHORT));
		to_init(p.qp), to_init(p.far_qp);
		connect_qp(p.qp, p.far_qp->qp_num), connect_qp(p.far_qp, p.qp->qp_num);
	}
	end(p);
}

// Completions of one queue pair come in the order of its posts, also where a READ is slower.
static void order(void)
{
	struct pair p = two(IBV_QPT_RC);
	for (int i = 0; i < 12; i++) {
		struct ibv_sge s = piece(buf + 512 * (i % 8), i % 3 ? 8 : 4000);
		OK(!post_flags(p.qp, i, i % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, &s, (uintptr_t)far, IBV_SEND_SIGNALED));
	}
	for (int i = 0; i < 12; i++) WANT(next(p.cq).wr_id == (uint64_t)i);
	end(p);
}

CASES(
	{ "a list with a wrong request", "ibv_post_send(3)", list },
	{ "a full send queue", "ibv_post_send(3)", full },
	{ "a full receive queue", "ibv_post_recv(3)", full_receives },
	{ "unsignaled requests", "ibv_post_send(3), IBTA 10.8.6", unsignaled },
	{ "an unsignaled request that fails", "IBTA 10.8.6", failed_unsignaled },
	{ "a fence", "ibv_post_send(3), IBTA 10.8.3.3", fenced },
	{ "inline data", "ibv_post_send(3)", inlined },
	{ "what completions say", "ibv_poll_cq(3)", says },
	{ "atomics", "IBTA 9.4.5", atomics },
	{ "a queue pair that is reset and connected again", "ibv_modify_qp(3), IBTA 10.3.1", reset },
	{ "the order of completions", "IBTA 10.8.5, o10-64", order },
)
