// Completion queues as deep as hardware has them (mlx5: 4194303), also those that libfabric's ofi_rxm asks for by default (98688); a deep
// one works, and takes no memory of the machine as long as it is empty.
#include "pair.h"

int main(void)
{
	open_first();
	struct ibv_device_attr d;
	OK(!ibv_query_device(ctx, &d));
	expect(d.max_cqe >= 4194303, "max_cqe is %d", d.max_cqe);
	int depth[] = { 1, 32767, 65535, 65536, 98688, 1 << 20, d.max_cqe };
	for (unsigned i = 0; i < sizeof depth / sizeof *depth; i++) {
		struct ibv_cq *q = ibv_create_cq(ctx, depth[i], NULL, NULL, 0);
		expect(q, "CQ of %d: %s", depth[i], strerror(errno));
		if (!q) continue;
		expect(q->cqe >= depth[i], "CQ of %d has %d", depth[i], q->cqe);
		OK(!ibv_destroy_cq(q));
	}
	errno = 0;
	expect(!ibv_create_cq(ctx, d.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL, "CQ of one too many: %s", strerror(errno));

	struct ibv_cq *deep = ibv_create_cq(ctx, d.max_cqe, NULL, NULL, 0);
	OK(deep);
	struct ibv_qp_init_attr a = { .send_cq = deep, .recv_cq = deep, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 1000, 16, 1, 1, 0 } };
	struct ibv_qp *x = ibv_create_qp(pd, &a), *y = ibv_create_qp(pd, &a);
	OK(x && y);
	join(x, y);
	static char buf[64];
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof buf, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	OK(mr);
	uint64_t sent = 0, seen = 0;
	for (int round = 0; round < 5; round++) { // more than the NIC's own ring holds, none polled before the last
		for (int i = 0; i < 1000; i++) {
			struct ibv_sge s = { (uintptr_t)buf, 8, mr->lkey };
			struct ibv_send_wr w = { .wr_id = sent, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { (uintptr_t)buf + 8, mr->rkey } }, *bw;
			int e = ENOMEM;
			for (int k = 0; k < 300000 && (e = ibv_post_send(x, &w, &bw)) == ENOMEM; k++) usleep(100);
			OK(!e);
			sent++;
		}
	}
	for (; seen < sent; seen++) {
		struct ibv_wc wc = next(deep);
		expect(wc.status == IBV_WC_SUCCESS && wc.wr_id == seen, "completion %llu: %llu, %s", (unsigned long long)seen, (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
	}
	OK(!ibv_resize_cq(deep, 100) && !ibv_resize_cq(deep, d.max_cqe));
	printf("%d wrong\n", wrong);
	return !!wrong;
}
