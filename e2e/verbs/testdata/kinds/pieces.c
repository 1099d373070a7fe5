// Scatter and gather: what is in several pieces arrives as one, whatever posts it.
#include "kind.h"

// whole reports whether n bytes of the near half are at the far half, and nothing behind them.
static int whole(int n) { return !memcmp(buf, far, n) && !far[n]; }

static void gathered(void)
{
	struct pair p = two(IBV_QPT_RC);
	struct ibv_sge s[3] = { piece(buf, 10), piece(buf + 10, 3000), piece(buf + 3010, 1) };
	OK(!post(p.qp, IBV_WR_RDMA_WRITE, s, 3, (uintptr_t)far, mr->rkey));
	WANT(status(p.cq) == IBV_WC_SUCCESS && whole(3011));
	end(p);
}

static struct pair extended(int inline_data)
{
	struct ibv_cq *cq = new_cq(NULL);
	struct ibv_qp_init_attr_ex a = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .pd = pd, .cap = { DEPTH, DEPTH, SGES, SGES, inline_data },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND };
	struct ibv_cq *far_cq = new_cq(NULL);
	struct ibv_qp_init_attr o = init_of(IBV_QPT_RC, far_cq, NULL);
	struct pair p = { cq, far_cq, ibv_create_qp_ex(ctx, &a), ibv_create_qp(pd, &o) };
	OK(p.qp && p.far_qp);
	to_init(p.qp), to_init(p.far_qp);
	connect_qp(p.qp, p.far_qp->qp_num), connect_qp(p.far_qp, p.qp->qp_num);
	return p;
}

static void built(void)
{
	struct pair p = extended(INLINE);
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(p.qp);
	struct ibv_sge s[3] = { piece(buf, 1), piece(buf + 1, 2000), piece(buf + 2001, 30) };
	ibv_wr_start(x);
	x->wr_id = 4, x->wr_flags = 0;
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)far);
	ibv_wr_set_sge_list(x, 3, s);
	WANT(!ibv_wr_complete(x));
	struct ibv_wc wc = next(p.cq);
	WANT(wc.status == IBV_WC_SUCCESS && wc.wr_id == 4 && whole(2031));
	end(p);
}

static void built_inline_list(void)
{
	struct pair p = extended(INLINE);
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(p.qp);
	unsigned char stack[40];
	memcpy(stack, buf, sizeof stack);
	struct ibv_data_buf d[2] = { { stack, 7 }, { stack + 7, 33 } };
	ibv_wr_start(x);
	x->wr_id = 5, x->wr_flags = IBV_SEND_INLINE;
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)far);
	ibv_wr_set_inline_data_list(x, 2, d);
	WANT(!ibv_wr_complete(x));
	memset(stack, 0, sizeof stack);
	WANT(status(p.cq) == IBV_WC_SUCCESS && whole(40));
	end(p);
}

static void built_inline(void)
{
	struct pair p = extended(INLINE);
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(p.qp);
	unsigned char stack[40];
	memcpy(stack, buf, sizeof stack);
	ibv_wr_start(x);
	x->wr_id = 5, x->wr_flags = IBV_SEND_INLINE;
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)far);
	ibv_wr_set_inline_data(x, stack, sizeof stack);
	WANT(!ibv_wr_complete(x));
	memset(stack, 0, sizeof stack);
	WANT(status(p.cq) == IBV_WC_SUCCESS && whole(40));
	end(p);
}

// An aborted list posts nothing, and the next one is whole.
static void aborted(void)
{
	struct pair p = extended(INLINE);
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(p.qp);
	struct ibv_wc wc;
	ibv_wr_start(x);
	x->wr_id = 6, x->wr_flags = 0;
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)far);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)buf, 100);
	ibv_wr_abort(x);
	WANT(!within(p.cq, &wc, SHORT) && !far[0] && !far[1]);
	ibv_wr_start(x);
	x->wr_id = 7, x->wr_flags = 0;
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)far);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)buf, 50);
	WANT(!ibv_wr_complete(x));
	wc = next(p.cq);
	WANT(wc.wr_id == 7 && wc.status == IBV_WC_SUCCESS && whole(50));
	end(p);
}

static void scattered_read(void)
{
	struct pair p = two(IBV_QPT_RC);
	struct ibv_sge s[4] = { piece(far, 3), piece(far + 3, 2500), piece(far + 2503, 1), piece(far + 2504, 96) };
	OK(!post(p.qp, IBV_WR_RDMA_READ, s, 4, (uintptr_t)buf, mr->rkey));
	struct ibv_wc wc = next(p.cq);
	WANT(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_READ && wc.byte_len == 2600 && whole(2600));
	end(p);
}

static void scattered_receive(void)
{
	struct pair p = two(IBV_QPT_RC);
	struct ibv_sge s[3] = { piece(far, 1), piece(far + 1, 1500), piece(far + 1501, 1000) }, from = piece(buf, 2000);
	struct ibv_recv_wr w = { .wr_id = 8, .sg_list = s, .num_sge = 3 }, *bad;
	OK(!ibv_post_recv(p.far_qp, &w, &bad) && !post(p.qp, IBV_WR_SEND, &from, 1, 0, 0));
	struct ibv_wc wc = next(p.far_cq);
	WANT(wc.status == IBV_WC_SUCCESS && wc.byte_len == 2000 && wc.wr_id == 8 && whole(2000));
	WANT(status(p.cq) == IBV_WC_SUCCESS);
	end(p);
}

// An empty piece between others has no effect, and its key is not looked at.
static void empty_piece(void)
{
	struct pair p = two(IBV_QPT_RC);
	struct ibv_sge s[3] = { piece(buf, 10), { 0, 0, mr->lkey }, piece(buf + 10, 20) };
	OK(!post(p.qp, IBV_WR_RDMA_WRITE, s, 3, (uintptr_t)far, mr->rkey));
	WANT(status(p.cq) == IBV_WC_SUCCESS && whole(30));
	end(p);
}

// A request of no bytes needs no valid R_Key.
static void nothing(void)
{
	struct pair p = two(IBV_QPT_RC);
	OK(!post(p.qp, IBV_WR_RDMA_WRITE, NULL, 0, 0, 0xdead00) && !post(p.qp, IBV_WR_RDMA_READ, NULL, 0, 0, 0xdead00));
	WANT(status(p.cq) == IBV_WC_SUCCESS);
	WANT(status(p.cq) == IBV_WC_SUCCESS);
	end(p);
}

// A WRITE with immediate data takes a receive, and writes nothing to its memory.
static void immediate(void)
{
	struct pair p = two(IBV_QPT_RC);
	struct ibv_sge s = piece(buf, 100);
	struct ibv_send_wr w = { .wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htobe32(0x01020304), .wr.rdma = { (uintptr_t)far, mr->rkey } }, *bad;
	far[1000] = 9;
	OK(!receive(p.far_qp, 3, far + 1000, 200) && !ibv_post_send(p.qp, &w, &bad));
	struct ibv_wc wc = next(p.far_cq);
	WANT(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wc_flags & IBV_WC_WITH_IMM && be32toh(wc.imm_data) == 0x01020304 && wc.wr_id == 3);
	WANT(wc.byte_len == 100 && whole(100) && far[1000] == 9);
	end(p);
}

CASES(
	{ "unequal pieces are gathered", "ibv_post_send(3)", gathered },
	{ "unequal pieces of ibv_wr_set_sge_list are gathered", "ibv_wr_post(3)", built },
	{ "inline data is taken at the post", "ibv_wr_post(3)", built_inline },
	{ "pieces of ibv_wr_set_inline_data_list", "ibv_wr_post(3)", built_inline_list },
	{ "an aborted list posts nothing", "ibv_wr_post(3)", aborted },
	{ "a READ is scattered", "IBTA 10.7.2", scattered_read },
	{ "a SEND is scattered", "ibv_post_recv(3)", scattered_receive },
	{ "an empty piece has no effect", "ibv_post_send(3)", empty_piece },
	{ "no bytes need no key", "IBTA 9.7.4.1.2, C9-88", nothing },
	{ "immediate data takes a receive", "ibv_post_send(3), IBTA 9.4.2", immediate },
)
