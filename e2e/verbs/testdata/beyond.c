// A WRITE that goes beyond the region of its peer, between two queue pairs of this process. It prints
// the number of the queue pair that posts it, and each completion with its status and vendor_err. Then
// it asks for a transition that does not exist, and prints the errno.
#include "pair.h"

enum { SIZE = 4096 };

static char from[SIZE], to[SIZE];

static struct ibv_qp *make(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr a = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 8, 8, 1, 1, 0 } };
	struct ibv_qp *q = ibv_create_qp(pd, &a);
	OK(q);
	return q;
}

int main(void)
{
	open_first();
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_mr *src = ibv_reg_mr(pd, from, SIZE, IBV_ACCESS_LOCAL_WRITE), *dst = ibv_reg_mr(pd, to, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	OK(cq && src && dst);
	struct ibv_qp *a = make(cq), *b = make(cq);
	join(a, b);
	struct ibv_sge piece = { (uintptr_t)from, 8, src->lkey };
	const uint64_t at[] = { 0, SIZE, 8 }; // inside, beyond, and one that is flushed
	for (int i = 0; i < 3; i++) {
		struct ibv_send_wr *bad, wr = { .wr_id = 100 + i, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &piece, .num_sge = 1,
			.wr.rdma = { (uintptr_t)to + at[i], dst->rkey } };
		OK(!ibv_post_send(a, &wr, &bad));
	}
	printf("qpn %#x rkey %#x first %#lx last %#lx\n", a->qp_num, dst->rkey, (unsigned long)(uintptr_t)to, (unsigned long)((uintptr_t)to + SIZE - 1));
	for (int i = 0; i < 3; i++) {
		struct ibv_wc wc = next(cq);
		printf("wr_id %lu status %d vendor_err %#x\n", (unsigned long)wc.wr_id, wc.status, wc.vendor_err);
	}
	struct ibv_qp *c = make(cq);
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS };
	printf("qpn %#x errno %d\n", c->qp_num, ibv_modify_qp(c, &rts, IBV_QP_STATE));
	return 0;
}
