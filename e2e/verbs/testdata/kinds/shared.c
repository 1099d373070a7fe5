// Shared receive queues and memory windows.
#include "kind.h"

static struct ibv_srq *queue(void)
{
	struct ibv_srq_init_attr a = { .attr = { DEPTH, 2, 0 } };
	struct ibv_srq *s = ibv_create_srq(pd, &a);
	OK(s);
	return s;
}

static int take(struct ibv_srq *s, uint64_t id, void *to, uint32_t n)
{
	struct ibv_sge e = piece(to, n);
	struct ibv_recv_wr w = { .wr_id = id, .sg_list = &e, .num_sge = 1 }, *bad;
	return ibv_post_srq_recv(s, &w, &bad);
}

// Two connections share a queue: receives are taken in order, and each completion names its queue pair.
static void two_connections(void)
{
	struct ibv_srq *s = queue();
	struct ibv_cq *cq = new_cq(NULL);
	struct pair a = joined(init_of(IBV_QPT_RC, new_cq(NULL), NULL), init_of(IBV_QPT_RC, cq, s)), b = joined(init_of(IBV_QPT_RC, new_cq(NULL), NULL), init_of(IBV_QPT_RC, cq, s));
	struct ibv_sge e = piece(buf, 8);
	for (int i = 0; i < 10; i++) {
		OK(!take(s, 50 + i, far + 64 * i, 64));
		struct pair *p = i % 2 ? &a : &b;
		OK(!post(p->qp, IBV_WR_SEND, &e, 1, 0, 0));
		struct ibv_wc wc = next(cq);
		WANT(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)(50 + i) && wc.qp_num == p->far_qp->qp_num && !memcmp(far + 64 * i, buf, 8));
		WANT(status(p->cq) == IBV_WC_SUCCESS);
	}
	OK(!ibv_destroy_qp(a.qp) && !ibv_destroy_qp(a.far_qp) && !ibv_destroy_qp(b.qp) && !ibv_destroy_qp(b.far_qp));
	WANT(!ibv_destroy_srq(s));
}

// An empty shared queue makes the sender wait, and a receive ends that.
static void empty(void)
{
	struct ibv_srq *s = queue();
	struct pair p = joined(init_of(IBV_QPT_RC, new_cq(NULL), NULL), init_of(IBV_QPT_RC, new_cq(NULL), s));
	struct ibv_sge e = piece(buf, 8);
	struct ibv_wc wc;
	OK(!post(p.qp, IBV_WR_SEND, &e, 1, 0, 0));
	WANT(!within(p.cq, &wc, SHORT));
	OK(!take(s, 1, far, 8));
	WANT(status(p.cq) == IBV_WC_SUCCESS && status(p.far_cq) == IBV_WC_SUCCESS);
	end(p);
	OK(!ibv_destroy_srq(s));
}

static void full(void)
{
	struct ibv_srq *s = queue();
	int n = 0, rc = 0;
	while (n < 4096 && !(rc = take(s, n, far, 8))) n++;
	WANT(rc == ENOMEM && n >= DEPTH, "after %d: %s", n, strerror(rc));
	OK(!ibv_destroy_srq(s));
}

// A queue pair with a shared queue has no receive queue of its own.
static void no_own(void)
{
	struct ibv_srq *s = queue();
	struct pair p = joined(init_of(IBV_QPT_RC, new_cq(NULL), NULL), init_of(IBV_QPT_RC, new_cq(NULL), s));
	WANT(receive(p.far_qp, 1, far, 8) != 0);
	end(p);
	OK(!ibv_destroy_srq(s));
}

static struct ibv_mw *window(enum ibv_mw_type t)
{
	struct ibv_mw *w = ibv_alloc_mw(pd, t);
	OK(w);
	return w;
}

static int bind2(struct ibv_qp *q, struct ibv_mw *w, uint32_t key, void *at, uint32_t n, int rights)
{
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_BIND_MW, .bind_mw = { w, key, { mr, (uintptr_t)at, n, rights } } }, *bad;
	return ibv_post_send(q, &wr, &bad);
}

// A window of type 2: its range and rights hold, and not those of the region.
static void range(void)
{
	static const struct { long at; uint32_t n; enum ibv_wr_opcode op; int want; } all[] = {
		{ 0, 100, IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS }, { 1, 100, IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR }, { -1, 8, IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR },
		{ 0, 8, IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR },
	};
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		struct pair p = two(IBV_QPT_RC);
		struct ibv_mw *w = window(IBV_MW_TYPE_2);
		uint32_t key = ibv_inc_rkey(w->rkey);
		OK(!bind2(p.far_qp, w, key, far, 100, IBV_ACCESS_REMOTE_WRITE));
		WANT(status(p.far_cq) == IBV_WC_SUCCESS);
		struct ibv_sge s = piece(buf, all[i].n);
		OK(!post(p.qp, all[i].op, &s, 1, (uintptr_t)far + (uint64_t)all[i].at, key));
		WANT(status(p.cq) == all[i].want, "case %u", i);
		WANT(!ibv_dealloc_mw(w));
		end(p);
	}
}

// A SEND that invalidates a window ends it.
static void invalidated(void)
{
	struct pair p = two(IBV_QPT_RC);
	struct ibv_mw *w = window(IBV_MW_TYPE_2);
	uint32_t key = ibv_inc_rkey(w->rkey);
	struct ibv_sge s = piece(buf, 8);
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key }, *bad;
	OK(!bind2(p.far_qp, w, key, far, 100, IBV_ACCESS_REMOTE_WRITE));
	WANT(status(p.far_cq) == IBV_WC_SUCCESS);
	OK(!receive(p.far_qp, 3, far + 4096, 64) && !ibv_post_send(p.qp, &wr, &bad));
	WANT(status(p.cq) == IBV_WC_SUCCESS);
	struct ibv_wc wc = next(p.far_cq);
	WANT(wc.wr_id == 3 && wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == key);
	OK(!post(p.qp, IBV_WR_RDMA_WRITE, &s, 1, (uintptr_t)far, key));
	WANT(status(p.cq) == IBV_WC_REM_ACCESS_ERR);
	WANT(!ibv_dealloc_mw(w));
	end(p);
}

// A region with a bound window cannot end.
static void bound(void)
{
	struct pair p = two(IBV_QPT_RC);
	struct ibv_mr *m = ibv_reg_mr(pd, far, 4096, ANY), *before = mr;
	struct ibv_mw *w = window(IBV_MW_TYPE_2);
	OK(m);
	mr = m;
	OK(!bind2(p.qp, w, ibv_inc_rkey(w->rkey), far, 100, IBV_ACCESS_REMOTE_WRITE));
	mr = before;
	WANT(status(p.cq) == IBV_WC_SUCCESS);
	WANT(ibv_dereg_mr(m) != 0, "a window is bound to it");
	WANT(!ibv_dealloc_mw(w) && !ibv_dereg_mr(m));
	end(p);
}

CASES(
	{ "two connections share receives", "ibv_create_srq(3), IBTA 10.2.9", two_connections },
	{ "a shared queue without receives", "IBTA 9.7.5.2.8", empty },
	{ "a full shared queue", "ibv_post_srq_recv(3)", full },
	{ "no receives of its own", "ibv_post_recv(3)", no_own },
	{ "a window's range and rights", "ibv_bind_mw(3), IBTA 10.6.7", range },
	{ "a window that a SEND invalidates", "ibv_post_send(3), IBTA 9.4.1.1", invalidated },
	{ "a region with a bound window", "ibv_dereg_mr(3)", bound },
)
