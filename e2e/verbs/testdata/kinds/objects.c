// Objects: their order of destruction, what queries say of them, and that none is left over.
#include "kind.h"

static void busy(void)
{
	struct ibv_pd *d = ibv_alloc_pd(ctx);
	OK(d);
	struct ibv_mr *m = ibv_reg_mr(d, far, 4096, ANY);
	OK(m);
	WANT(ibv_dealloc_pd(d) == EBUSY, "with a region");
	OK(!ibv_dereg_mr(m));
	struct ibv_ah_attr to = path();
	struct ibv_ah *h = ibv_create_ah(d, &to);
	OK(h);
	WANT(ibv_dealloc_pd(d) == EBUSY, "with an address handle");
	OK(!ibv_destroy_ah(h));
	struct ibv_srq_init_attr sa = { .attr = { DEPTH, 1, 0 } };
	struct ibv_srq *srq = ibv_create_srq(d, &sa);
	OK(srq);
	WANT(ibv_dealloc_pd(d) == EBUSY, "with a shared receive queue");
	struct ibv_cq *cq = new_cq(NULL);
	struct ibv_qp_init_attr a = init_of(IBV_QPT_RC, cq, srq);
	struct ibv_qp *q = ibv_create_qp(d, &a);
	OK(q);
	WANT(ibv_destroy_cq(cq) == EBUSY, "of a queue pair");
	WANT(ibv_destroy_srq(srq) == EBUSY, "of a queue pair");
	WANT(ibv_dealloc_pd(d) == EBUSY);
	OK(!ibv_destroy_qp(q));
	WANT(!ibv_destroy_cq(cq) && !ibv_destroy_srq(srq) && !ibv_dealloc_pd(d));
}

static void channel_busy(void)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	OK(ch);
	struct ibv_cq *cq = new_cq(ch);
	WANT(ibv_destroy_comp_channel(ch) == EBUSY);
	WANT(!ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(ch));
}

// A query says what modify has set.
static void queried(void)
{
	struct pair p = two(IBV_QPT_RC);
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr i;
	OK(!ibv_query_qp(p.qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_CAP, &i));
	WANT(a.qp_state == IBV_QPS_RTS && a.path_mtu == IBV_MTU_1024 && a.dest_qp_num == p.far_qp->qp_num && a.port_num == 1);
	WANT(a.rq_psn == 7 && a.timeout == 17 && a.retry_cnt == 7 && a.rnr_retry == 7 && a.min_rnr_timer == 12, "PSN %u timeout %u", a.rq_psn, a.timeout);
	WANT(a.max_rd_atomic == 4 && a.max_dest_rd_atomic == 4 && a.qp_access_flags == (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
	WANT(a.ah_attr.is_global && !memcmp(&a.ah_attr.grh.dgid, &gid, sizeof gid) && a.ah_attr.grh.sgid_index == gid_index && a.ah_attr.grh.hop_limit == 64);
	WANT(i.send_cq == p.cq && i.recv_cq == p.cq && i.qp_type == IBV_QPT_RC && i.cap.max_send_wr >= DEPTH && i.cap.max_recv_sge >= SGES && i.sq_sig_all);
	end(p);
}

static void queried_srq(void)
{
	struct ibv_srq_init_attr sa = { .attr = { DEPTH, 2, 0 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &sa);
	struct ibv_srq_attr q, limit = { .srq_limit = 3 };
	OK(srq && !ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) && !ibv_query_srq(srq, &q));
	WANT(q.srq_limit == 3 && q.max_wr >= DEPTH && q.max_sge >= 2);
	limit.srq_limit = q.max_wr + 1;
	WANT(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == EINVAL, "a limit above the size");
	WANT(!ibv_destroy_srq(srq));
}

// All ways to ask for the device and its port agree.
static void device(void)
{
	struct ibv_device_attr d;
	struct ibv_device_attr_ex x;
	struct ibv_port_attr port;
	struct ibv_gid_entry e;
	struct ibv_gid_entry table[256];
	__be16 pkey;
	OK(!ibv_query_device(ctx, &d) && !ibv_query_device_ex(ctx, NULL, &x) && !ibv_query_port(ctx, 1, &port));
	WANT(!memcmp(&d, &x.orig_attr, sizeof d));
	WANT(d.node_guid == ibv_get_device_guid(ctx->device) && d.phys_port_cnt == 1);
	WANT(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET && port.active_mtu <= port.max_mtu && port.lid == 0);
	WANT(!ibv_query_gid_ex(ctx, 1, gid_index, &e, 0) && !memcmp(&e.gid, &gid, sizeof gid) && e.gid_type == IBV_GID_TYPE_ROCE_V2 && e.ndev_ifindex > 0);
	ssize_t n = ibv_query_gid_table(ctx, table, 256, 0);
	WANT(n > 0);
	for (ssize_t i = 0; i < n; i++) {
		union ibv_gid g;
		WANT(table[i].port_num == 1 && !ibv_query_gid(ctx, 1, table[i].gid_index, &g) && !memcmp(&g, &table[i].gid, sizeof g));
	}
	WANT(!ibv_query_pkey(ctx, 1, 0, &pkey) && pkey == 0xffff);
	WANT(ibv_get_pkey_index(ctx, 1, pkey) == 0);
	WANT(ibv_query_port(ctx, 2, &port) != 0 && ibv_query_gid(ctx, 1, 4096, &gid) != 0);
}

// Whatever is made and destroyed often leaves nothing: numbers, memory and descriptors come back.
static void often(void)
{
	int lowest = dup(0);
	close(lowest);
	for (int i = 0; i < 3000; i++) {
		struct ibv_mr *m = ibv_reg_mr(pd, far + i % 4096, 4096, ANY);
		OK(m && !ibv_dereg_mr(m));
	}
	for (int i = 0; i < 300; i++) {
		struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
		struct ibv_cq *cq = ibv_create_cq(ctx, 100, NULL, ch, 0);
		OK(ch && cq);
		struct ibv_qp_init_attr a = init_of(i % 3 ? IBV_QPT_RC : IBV_QPT_UD, cq, NULL);
		struct ibv_qp *q = ibv_create_qp(pd, &a);
		OK(q);
		OK(!ibv_destroy_qp(q) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(ch));
	}
	int now = dup(0);
	close(now);
	WANT(now == lowest, "descriptors are left over");
}

// A device may be opened more than once, and each context has its own objects.
static void twice(void)
{
	struct ibv_context *other = ibv_open_device(ctx->device);
	OK(other);
	struct ibv_pd *d = ibv_alloc_pd(other);
	OK(d);
	struct ibv_mr *m = ibv_reg_mr(d, far, 4096, ANY);
	OK(m);
	WANT(!ibv_close_device(other), "with objects: they end with it");
	struct pair p = two(IBV_QPT_RC);
	struct ibv_sge s = piece(buf, 8);
	OK(!post(p.qp, IBV_WR_RDMA_WRITE, &s, 1, (uintptr_t)far, mr->rkey));
	WANT(status(p.cq) == IBV_WC_SUCCESS);
	end(p);
}

CASES(
	{ "objects that others use", "ibv_dealloc_pd(3), ibv_destroy_cq(3), ibv_destroy_srq(3)", busy },
	{ "a channel that a queue uses", "ibv_create_comp_channel(3)", channel_busy },
	{ "what a query of a queue pair says", "ibv_query_qp(3)", queried },
	{ "what a query of a shared receive queue says", "ibv_query_srq(3), ibv_modify_srq(3)", queried_srq },
	{ "device, port, GIDs and P_Keys", "ibv_query_device(3), ibv_query_gid_table(3)", device },
	{ "objects made and destroyed often", "ibv_create_qp(3)", often },
	{ "two contexts", "ibv_open_device(3)", twice },
)
