// Extended reliable connections (XRC).
#include "kind.h"

static char file[] = "/tmp/xrcdXXXXXX"; // names the domain that processes share

// domain opens an XRC domain: of a file, or a private one if fd is -1.
static struct ibv_xrcd *domain(struct ibv_context *c, int fd, int flags)
{
	struct ibv_xrcd_init_attr a = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = flags };
	errno = 0;
	return ibv_open_xrcd(c, &a);
}

static struct ibv_xrcd *private_domain(void)
{
	struct ibv_xrcd *x = domain(ctx, -1, O_CREAT);
	OK(x);
	return x;
}

static struct ibv_srq *queue(struct ibv_xrcd *x, struct ibv_pd *d, struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex a = { .attr = { DEPTH, 2, 0 }, .srq_type = IBV_SRQT_XRC, .pd = d, .cq = cq, .xrcd = x,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_XRCD };
	struct ibv_srq *s = ibv_create_srq_ex(x->context, &a);
	OK(s);
	return s;
}

static uint32_t number(struct ibv_srq *s)
{
	uint32_t n = 0;
	OK(!ibv_get_srq_num(s, &n) && n);
	return n;
}

static struct ibv_qp *target(struct ibv_xrcd *x)
{
	struct ibv_qp_init_attr_ex a = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = x };
	struct ibv_qp *q = ibv_create_qp_ex(x->context, &a);
	OK(q);
	return q;
}

static struct ibv_qp *opened(struct ibv_xrcd *x, uint32_t n, enum ibv_qp_type t)
{
	struct ibv_qp_open_attr a = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE, .qp_num = n, .xrcd = x, .qp_type = t };
	errno = 0;
	return ibv_open_qp(x->context, &a);
}

static struct ibv_qp *initiator(struct ibv_cq *cq, uint64_t ops)
{
	struct ibv_qp_init_attr_ex a = { .send_cq = cq, .qp_type = IBV_QPT_XRC_SEND, .sq_sig_all = 1, .cap = { .max_send_wr = DEPTH, .max_send_sge = SGES, .max_inline_data = INLINE },
		.comp_mask = IBV_QP_INIT_ATTR_PD | (ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0), .pd = pd, .send_ops_flags = ops };
	struct ibv_qp *q = ibv_create_qp_ex(ctx, &a);
	OK(q);
	return q;
}

static void change(struct ibv_qp *q, struct ibv_qp_attr a, int mask) { OK(!(errno = ibv_modify_qp(q, &a, mask | IBV_QP_STATE))); }

// bring brings a queue pair of either type from RESET to RTS.
static void bring(struct ibv_qp *q, uint32_t peer)
{
	int sends = q->qp_type == IBV_QPT_XRC_SEND;
	change(q, (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = sends ? 0 : ANY & ~IBV_ACCESS_LOCAL_WRITE & ~IBV_ACCESS_MW_BIND },
		IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	change(q, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = 7, .max_dest_rd_atomic = 4, .min_rnr_timer = 12, .ah_attr = path() },
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER); // ignored where they have no meaning, as below
	change(q, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 7, .max_rd_atomic = 4 },
		IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

// lane is a connection, and a shared receive queue to which it leads.
struct lane { struct ibv_xrcd *x; struct ibv_cq *cq, *far_cq; struct ibv_srq *srq; struct ibv_qp *qp, *far_qp; uint32_t srqn; };

static struct lane lane(uint64_t ops)
{
	struct lane l = { .x = private_domain(), .cq = new_cq(NULL), .far_cq = new_cq(NULL) };
	l.srq = queue(l.x, pd, l.far_cq), l.qp = initiator(l.cq, ops), l.far_qp = target(l.x), l.srqn = number(l.srq);
	bring(l.qp, l.far_qp->qp_num), bring(l.far_qp, l.qp->qp_num);
	return l;
}

static void end_lane(struct lane l)
{
	WANT(!ibv_destroy_qp(l.qp) && !ibv_destroy_qp(l.far_qp) && !ibv_destroy_srq(l.srq));
	WANT(!ibv_destroy_cq(l.cq) && !ibv_destroy_cq(l.far_cq) && !ibv_close_xrcd(l.x));
}

static int take(struct ibv_srq *s, uint64_t id, void *to, uint32_t n)
{
	struct ibv_sge e = piece(to, n);
	struct ibv_recv_wr w = { .wr_id = id, .sg_list = &e, .num_sge = 1 }, *bad;
	return ibv_post_srq_recv(s, &w, &bad);
}

static int post_to(struct ibv_qp *q, uint32_t srqn, enum ibv_wr_opcode op, void *at, uint32_t n)
{
	struct ibv_sge e = piece(at, n);
	struct ibv_send_wr w = { .wr_id = 1, .sg_list = &e, .num_sge = 1, .opcode = op, .imm_data = htobe32(77), .qp_type.xrc.remote_srqn = srqn }, *bad;
	if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		w.wr.atomic.remote_addr = (uintptr_t)far, w.wr.atomic.rkey = mr->rkey, w.wr.atomic.compare_add = 5, w.wr.atomic.swap = 9;
	else w.wr.rdma.remote_addr = (uintptr_t)far, w.wr.rdma.rkey = mr->rkey;
	return ibv_post_send(q, &w, &bad);
}

static int state_of(struct ibv_qp *q)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr i;
	OK(!ibv_query_qp(q, &a, IBV_QP_STATE, &i));
	return a.qp_state;
}

// event takes the next asynchronous event of a context that is not COMM_EST; -1: none came.
static int event(struct ibv_context *c, struct ibv_async_event *e)
{
	struct pollfd p = { .fd = c->async_fd, .events = POLLIN };
	while (poll(&p, 1, patience) == 1 && !ibv_get_async_event(c, e)) {
		ibv_ack_async_event(e);
		if (e->event_type != IBV_EVENT_COMM_EST) return e->event_type;
	}
	return -1;
}

static void capable(void)
{
	struct ibv_device_attr_ex d;
	OK(!ibv_query_device_ex(ctx, NULL, &d));
	WANT(d.orig_attr.device_cap_flags & IBV_DEVICE_XRC);
	WANT(d.device_cap_flags_ex & IBV_DEVICE_XRC);
	WANT(d.xrc_odp_caps & IBV_ODP_SUPPORT_SRQ_RECV);
}

static void files(void)
{
	int fd = open(file, O_RDWR), again = open(file, O_RDONLY), bare = open(file, O_PATH);
	OK(fd >= 0 && again >= 0 && bare >= 0);
	WANT(!domain(ctx, fd, 0) && errno == EAGAIN, "without O_CREAT: %s", strerror(errno));
	WANT(!domain(ctx, 999, O_CREAT) && errno == EBADF, "no descriptor: %s", strerror(errno));
	WANT(!domain(ctx, -2, O_CREAT) && errno == EBADF, "no descriptor: %s", strerror(errno));
	WANT(!domain(ctx, bare, O_CREAT) && errno == EBADF, "not open: %s", strerror(errno));
	struct ibv_xrcd *a = domain(ctx, fd, O_CREAT | O_EXCL), *b = domain(ctx, again, 0), *c = domain(ctx, fd, O_CREAT);
	OK(a && b && c);
	WANT(!domain(ctx, again, O_CREAT | O_EXCL) && errno == EINVAL, "O_EXCL: %s", strerror(errno));
	struct ibv_qp *q = target(a), *o = opened(b, q->qp_num, IBV_QPT_XRC_RECV);
	WANT(o && o->qp_num == q->qp_num, "the same domain: %s", strerror(errno));
	struct ibv_xrcd *other = private_domain();
	WANT(!opened(other, q->qp_num, IBV_QPT_XRC_RECV) && errno == EINVAL, "another domain: %s", strerror(errno));
	WANT(!ibv_close_xrcd(other) && !ibv_close_xrcd(c));
	WANT(!ibv_destroy_qp(q) && !ibv_destroy_qp(o) && !ibv_close_xrcd(a));
	close(fd), close(again), close(bare);
	fd = open(file, O_RDONLY);
	WANT((c = domain(ctx, fd, 0)) && !ibv_close_xrcd(c), "its files were closed: %s", strerror(errno));
	WANT(!ibv_close_xrcd(b));
	WANT(!domain(ctx, fd, 0) && errno == EAGAIN, "the last one was closed: %s", strerror(errno));
	struct ibv_xrcd_init_attr bad = { .comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = -1 };
	WANT(!ibv_open_xrcd(ctx, &bad) && errno == EINVAL);
	close(fd);
}

static void used(void)
{
	struct ibv_xrcd *x = private_domain();
	struct ibv_cq *cq = new_cq(NULL);
	struct ibv_srq *s = queue(x, pd, cq);
	WANT(ibv_close_xrcd(x) == EBUSY, "with a shared receive queue");
	WANT(ibv_destroy_cq(cq) == EBUSY, "of a shared receive queue");
	struct ibv_qp *q = target(x);
	WANT(!ibv_destroy_srq(s) && ibv_close_xrcd(x) == EBUSY, "with a target");
	struct ibv_qp *o = opened(x, q->qp_num, IBV_QPT_XRC_RECV);
	WANT(o && !ibv_destroy_qp(q) && ibv_close_xrcd(x) == EBUSY, "with an opened target");
	WANT(!ibv_destroy_qp(o) && !ibv_close_xrcd(x) && !ibv_destroy_cq(cq));
}

static void wrong_calls(void)
{
	struct lane l = lane(0);
	struct ibv_qp_init_attr plain = init_of(IBV_QPT_XRC_RECV, l.cq, NULL);
	WANT(!ibv_create_qp(pd, &plain) && errno == EINVAL, "a target without a domain: %s", strerror(errno));
	struct ibv_qp_init_attr_ex none = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS, .pd = pd };
	WANT(!ibv_create_qp_ex(ctx, &none) && errno == EINVAL, "a target without a domain: %s", strerror(errno));
	struct ibv_srq_init_attr_ex bare = { .attr = { DEPTH, 1, 0 }, .srq_type = IBV_SRQT_XRC, .pd = pd, .cq = l.cq, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ };
	WANT(!ibv_create_srq_ex(ctx, &bare) && errno == EINVAL, "a queue without a domain: %s", strerror(errno));
	WANT(!opened(l.x, l.qp->qp_num, IBV_QPT_XRC_RECV) && errno == EINVAL, "an initiator is opened: %s", strerror(errno));
	WANT(!opened(l.x, l.far_qp->qp_num, IBV_QPT_RC) && errno == EINVAL, "another type: %s", strerror(errno));
	WANT(!opened(l.x, 0xfffff0, IBV_QPT_XRC_RECV) && errno == EINVAL, "no such queue pair: %s", strerror(errno));
	struct ibv_qp_init_attr rc = init_of(IBV_QPT_RC, l.cq, l.srq);
	WANT(!ibv_create_qp(pd, &rc) && errno == EINVAL, "RC with a queue of XRC: %s", strerror(errno));
	WANT(receive(l.qp, 1, far, 8) == EINVAL, "a receive of an initiator");
	WANT(receive(l.far_qp, 1, far, 8) == EINVAL, "a receive of a target");
	WANT(post_to(l.far_qp, l.srqn, IBV_WR_SEND, buf, 8) == EINVAL, "a send of a target");
	end_lane(l);
}

static void operations(void)
{
	static const struct { enum ibv_wr_opcode op; int wc, far_wc; } all[] = {
		{ IBV_WR_SEND, IBV_WC_SEND, IBV_WC_RECV }, { IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, IBV_WC_RECV }, { IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, -1 },
		{ IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM }, { IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, -1 },
		{ IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, -1 }, { IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, -1 },
	};
	struct lane l = lane(0);
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		int atomic = all[i].wc == IBV_WC_COMP_SWAP || all[i].wc == IBV_WC_FETCH_ADD;
		memset(far, 0, HALF);
		if (atomic) far[0] = 5;
		if (all[i].op == IBV_WR_RDMA_READ) memset(far, 8, 5000);
		if (all[i].far_wc >= 0) OK(!take(l.srq, 40 + i, all[i].far_wc == IBV_WC_RECV ? far : far + 16384, 8192));
		OK(!post_to(l.qp, l.srqn, all[i].op, buf, atomic ? 8 : 5000));
		struct ibv_wc wc = next(l.cq);
		WANT(wc.status == IBV_WC_SUCCESS && wc.opcode == (enum ibv_wc_opcode)all[i].wc && wc.qp_num == l.qp->qp_num, "operation %u: %d", i, wc.status);
		if (all[i].far_wc >= 0) {
			wc = next(l.far_cq);
			WANT(wc.status == IBV_WC_SUCCESS && wc.opcode == (enum ibv_wc_opcode)all[i].far_wc && wc.wr_id == 40 + i && wc.byte_len == 5000 && wc.qp_num == l.far_qp->qp_num, "operation %u", i);
			WANT(!(wc.wc_flags & IBV_WC_WITH_IMM) == (all[i].op == IBV_WR_SEND) && (all[i].op == IBV_WR_SEND || wc.imm_data == htobe32(77)), "operation %u", i);
		}
		if (all[i].op == IBV_WR_RDMA_READ) WANT(buf[0] == 8 && buf[4999] == 8);
		else if (atomic) WANT(buf[0] == 5 && far[0] == (all[i].wc == IBV_WC_COMP_SWAP ? 9 : 10), "%d %d", buf[0], far[0]);
		else WANT(!memcmp(far, buf, 5000), "operation %u", i);
		fill();
	}
	end_lane(l);
}

// The calls ibv_wr_*: the number of the queue is set after each operation.
static void extended(void)
{
	struct lane l = lane(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE);
	struct ibv_cq *cq = new_cq(NULL);
	struct ibv_srq *second = queue(l.x, pd, cq);
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(l.qp);
	OK(x && !take(l.srq, 1, far, 64) && !take(second, 2, far + 64, 64));
	ibv_wr_start(x);
	x->wr_id = 8, x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(x);
	ibv_wr_set_xrc_srqn(x, number(second));
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)buf, 32);
	x->wr_id = 9;
	ibv_wr_send_imm(x, htobe32(5));
	ibv_wr_set_xrc_srqn(x, l.srqn);
	ibv_wr_set_inline_data(x, buf, 16);
	OK(!ibv_wr_complete(x));
	struct ibv_wc a = next(l.cq), b = next(l.cq), c = next(cq), d = next(l.far_cq);
	WANT(a.status == IBV_WC_SUCCESS && a.wr_id == 8 && b.status == IBV_WC_SUCCESS && b.wr_id == 9);
	WANT(c.wr_id == 2 && c.byte_len == 32 && !memcmp(far + 64, buf, 32) && d.wr_id == 1 && d.byte_len == 16 && d.imm_data == htobe32(5) && !memcmp(far, buf, 16));
	WANT(!ibv_destroy_srq(second) && !ibv_destroy_cq(cq));
	end_lane(l);
}

// Two connections lead to one queue, and one connection leads to two queues.
static void two_senders(void)
{
	struct lane l = lane(0);
	struct ibv_qp *qp = initiator(l.cq, 0), *far_qp = target(l.x);
	bring(qp, far_qp->qp_num), bring(far_qp, qp->qp_num);
	for (int i = 0; i < 10; i++) {
		OK(!take(l.srq, 50 + i, far + 64 * i, 64));
		OK(!post_to(i % 2 ? qp : l.qp, l.srqn, IBV_WR_SEND, buf + i, 8));
		struct ibv_wc wc = next(l.far_cq);
		WANT(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)(50 + i) && wc.qp_num == (i % 2 ? far_qp : l.far_qp)->qp_num && !memcmp(far + 64 * i, buf + i, 8));
		WANT(status(l.cq) == IBV_WC_SUCCESS);
	}
	WANT(!ibv_destroy_qp(qp) && !ibv_destroy_qp(far_qp));
	end_lane(l);
}

// A request to a queue that does not exist, and to one of another domain: the sender gets an error, and so does the target.
static void wrong_numbers(void)
{
	for (int other = 0; other < 2; other++) {
		struct lane l = lane(0);
		struct ibv_xrcd *x = private_domain();
		struct ibv_srq *foreign = queue(x, pd, l.far_cq);
		struct ibv_async_event e;
		OK(!post_to(l.qp, other ? number(foreign) : 0xfffff0, IBV_WR_SEND, buf, 8));
		struct ibv_wc wc = next(l.cq);
		WANT(wc.status == (other ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_INV_REQ_ERR), "%s", ibv_wc_status_str(wc.status));
		int type = event(ctx, &e);
		WANT(type == (other ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR) && e.element.qp == l.far_qp, "event %d", type);
		WANT(state_of(l.qp) == IBV_QPS_ERR && state_of(l.far_qp) == IBV_QPS_ERR);
		WANT(!ibv_destroy_srq(foreign) && !ibv_close_xrcd(x));
		end_lane(l);
	}
}

// A queue without receives makes the sender wait, and a receive ends that. Where the sender does not wait, it gets an error.
static void empty(void)
{
	struct lane l = lane(0);
	struct ibv_wc wc;
	OK(!post_to(l.qp, l.srqn, IBV_WR_SEND, buf, 8));
	WANT(!within(l.cq, &wc, SHORT));
	OK(!take(l.srq, 1, far, 8));
	WANT(status(l.cq) == IBV_WC_SUCCESS && status(l.far_cq) == IBV_WC_SUCCESS && !memcmp(far, buf, 8));
	change(l.qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, 0);
	change(l.far_qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, 0);
	bring(l.far_qp, l.qp->qp_num);
	change(l.qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 }, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	change(l.qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = l.far_qp->qp_num, .rq_psn = 7, .ah_attr = path() }, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
	change(l.qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 1, .sq_psn = 7 }, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	OK(!post_to(l.qp, l.srqn, IBV_WR_SEND, buf, 8));
	WANT(status(l.cq) == IBV_WC_RNR_RETRY_EXC_ERR);
	end_lane(l);
}

static void limit(void)
{
	struct lane l = lane(0);
	struct ibv_srq_attr a = { .srq_limit = 2 }, q;
	struct ibv_async_event e;
	for (int i = 0; i < 3; i++) OK(!take(l.srq, i, far, 64));
	OK(!ibv_modify_srq(l.srq, &a, IBV_SRQ_LIMIT) && !ibv_query_srq(l.srq, &q));
	WANT(q.srq_limit == 2 && q.max_wr >= DEPTH && q.max_sge == 2);
	for (int i = 0; i < 2; i++) {
		OK(!post_to(l.qp, l.srqn, IBV_WR_SEND, buf, 8));
		WANT(status(l.cq) == IBV_WC_SUCCESS && status(l.far_cq) == IBV_WC_SUCCESS);
	}
	int type = event(ctx, &e);
	WANT(type == IBV_EVENT_SRQ_LIMIT_REACHED && e.element.srq == l.srq, "event %d", type);
	OK(!ibv_query_srq(l.srq, &q));
	WANT(q.srq_limit == 0);
	end_lane(l);
}

// A message that is longer than the receive: an error of both.
static void too_long(void)
{
	struct lane l = lane(0);
	OK(!take(l.srq, 3, far, 100) && !post_to(l.qp, l.srqn, IBV_WR_SEND, buf, 5000));
	WANT(status(l.cq) == IBV_WC_REM_INV_REQ_ERR);
	struct ibv_wc wc = next(l.far_cq);
	WANT(wc.status == IBV_WC_LOC_LEN_ERR && wc.wr_id == 3, "%s", ibv_wc_status_str(wc.status));
	end_lane(l);
}

// A completion queue that overruns breaks the shared receive queue: the sender gets an error, and the program two events.
static void overrun(void)
{
	struct lane l = lane(0);
	struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	OK(cq);
	struct ibv_srq *s = queue(l.x, pd, cq);
	struct ibv_async_event e;
	int st = IBV_WC_SUCCESS, queue_err = 0, cq_err = 0;
	for (int i = 0; i < 64 && st == IBV_WC_SUCCESS; i++) {
		OK(!take(s, i, far, 64) && !post_to(l.qp, number(s), IBV_WR_SEND, buf, 8));
		st = status(l.cq);
	}
	WANT(st == IBV_WC_REM_OP_ERR, "%s", ibv_wc_status_str(st));
	for (int i = 0; i < 2; i++) {
		int type = event(ctx, &e);
		queue_err += type == IBV_EVENT_SRQ_ERR && e.element.srq == s;
		cq_err += type == IBV_EVENT_CQ_ERR && e.element.cq == cq;
	}
	WANT(queue_err == 1 && cq_err == 1);
	WANT(!ibv_destroy_srq(s) && !ibv_destroy_cq(cq));
	end_lane(l);
}

// Events of a target go to all handles of it.
static void events(void)
{
	struct lane l = lane(0);
	struct ibv_qp *o = opened(l.x, l.far_qp->qp_num, IBV_QPT_XRC_RECV);
	struct ibv_async_event a, b;
	OK(o);
	WANT(state_of(o) == IBV_QPS_RTS && o->state == IBV_QPS_RTS);
	OK(!post_to(l.qp, 0xfffff0, IBV_WR_SEND, buf, 8));
	WANT(status(l.cq) == IBV_WC_REM_INV_REQ_ERR);
	WANT(event(ctx, &a) == IBV_EVENT_QP_REQ_ERR && event(ctx, &b) == IBV_EVENT_QP_REQ_ERR);
	WANT((a.element.qp == l.far_qp && b.element.qp == o) || (a.element.qp == o && b.element.qp == l.far_qp));
	WANT(!ibv_destroy_qp(o));
	end_lane(l);
}

// A target that is reset takes its completions with it, whatever calls poll the queue; those of others stay.
static void reset(void)
{
	struct ibv_cq_init_attr_ex ca = { .cqe = DEPTH, .wc_flags = IBV_WC_EX_WITH_QP_NUM };
	for (int ex = 0; ex < 2; ex++) {
		struct lane l = lane(0);
		struct ibv_cq_ex *x = ibv_create_cq_ex(ctx, &ca);
		OK(x);
		struct ibv_srq *s = queue(l.x, pd, ibv_cq_ex_to_cq(x));
		struct ibv_qp *qp = initiator(l.cq, 0), *far_qp = target(l.x);
		bring(qp, far_qp->qp_num), bring(far_qp, qp->qp_num);
		for (int i = 0; i < 6; i++) {
			OK(!take(s, i, far, 64) && !post_to(i == 2 || i == 4 ? qp : l.qp, number(s), IBV_WR_SEND, buf, 8));
			WANT(status(l.cq) == IBV_WC_SUCCESS);
		}
		change(l.far_qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, 0);
		struct ibv_wc wc[6];
		struct ibv_poll_cq_attr pa = { 0 };
		if (!ex) {
			int n = ibv_poll_cq(ibv_cq_ex_to_cq(x), 6, wc);
			WANT(n == 2 && wc[0].wr_id == 2 && wc[1].wr_id == 4 && wc[1].qp_num == far_qp->qp_num, "%d completions", n);
		} else {
			OK(!ibv_start_poll(x, &pa));
			WANT(x->wr_id == 2 && ibv_wc_read_qp_num(x) == far_qp->qp_num);
			WANT(!ibv_next_poll(x) && x->wr_id == 4 && ibv_next_poll(x) == ENOENT);
			ibv_end_poll(x);
			WANT(ibv_start_poll(x, &pa) == ENOENT);
		}
		for (int i = 0; i < 2 * DEPTH; i++) { // the ring takes what comes later, as often as it goes round
			OK(!take(s, 50, far, 64) && !post_to(qp, number(s), IBV_WR_SEND, buf, 8));
			WANT(status(l.cq) == IBV_WC_SUCCESS && next(ibv_cq_ex_to_cq(x)).wr_id == 50);
		}
		WANT(!ibv_destroy_qp(qp) && !ibv_destroy_qp(far_qp) && !ibv_destroy_srq(s) && !ibv_destroy_cq(ibv_cq_ex_to_cq(x)));
		end_lane(l);
	}
}

// ---- two processes

struct word { uint32_t qpn, srqn; };

static void tell(int fd, struct word w) { OK(write(fd, &w, sizeof w) == sizeof w); }
static struct word hear(int fd)
{
	struct word w = { 0 };
	OK(read(fd, &w, sizeof w) == sizeof w);
	return w;
}

// A child process opens the device and the domain by itself, makes the target and a queue, and serves what comes
// to the queue until it is killed.
static void serve(int in, int out)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	OK((ctx = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(ctx)) && (mr = ibv_reg_mr(pd, buf, sizeof buf, ANY)));
	int fd = open(file, O_RDONLY);
	struct ibv_xrcd *x = domain(ctx, fd, O_CREAT);
	OK(x);
	struct ibv_cq *cq = new_cq(NULL);
	struct ibv_srq *s = queue(x, pd, cq);
	struct ibv_qp *q = target(x);
	bring(q, hear(in).qpn);
	for (int i = 0; i < 8; i++) OK(!take(s, i, far, 64));
	tell(out, (struct word){ q->qp_num, number(s) });
	for (;;) {
		struct ibv_wc wc = next(cq);
		if (wc.status != IBV_WC_SUCCESS) exit(3);
		tell(out, (struct word){ wc.qp_num, far[0] });
	}
}

// A target outlives the process that has made it while another process has it open; what the dead process had alone ends.
static void survivor(void)
{
	int to[2], from[2];
	OK(!pipe(to) && !pipe(from));
	fflush(stdout);
	pid_t child = fork();
	OK(child >= 0);
	if (child == 0) serve(to[0], from[1]);
	struct ibv_cq *cq = new_cq(NULL), *far_cq = new_cq(NULL);
	struct ibv_qp *qp = initiator(cq, 0);
	tell(to[1], (struct word){ qp->qp_num, 0 });
	struct word peer = hear(from[0]);
	int fd = open(file, O_RDONLY);
	struct ibv_xrcd *x = domain(ctx, fd, 0);
	OK(x);
	struct ibv_qp *q = opened(x, peer.qpn, IBV_QPT_XRC_RECV);
	OK(q);
	struct ibv_srq *s = queue(x, pd, far_cq);
	bring(qp, peer.qpn);
	buf[0] = 42;
	OK(!post_to(qp, peer.srqn, IBV_WR_SEND, buf, 8));
	WANT(status(cq) == IBV_WC_SUCCESS);
	struct word got = hear(from[0]);
	WANT(got.srqn == 42 && got.qpn == peer.qpn, "the other process got %u", got.srqn);
	for (int i = 0; i < 2; i++) { // of this process: while the other one lives, and after its death
		OK(!take(s, 5, far, 64) && !post_to(qp, number(s), IBV_WR_SEND, buf + 10, 8));
		WANT(status(cq) == IBV_WC_SUCCESS && status(far_cq) == IBV_WC_SUCCESS && !memcmp(far, buf + 10, 8), "round %d", i);
		if (i) break;
		OK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
	}
	WANT(state_of(q) == IBV_QPS_RTS);
	OK(!post_to(qp, peer.srqn, IBV_WR_SEND, buf, 8));
	struct ibv_wc wc = next(cq);
	WANT(wc.status == IBV_WC_REM_INV_REQ_ERR, "the queue of a dead process: %s", ibv_wc_status_str(wc.status));
	WANT(!ibv_destroy_qp(q) && !ibv_destroy_qp(qp) && !ibv_destroy_srq(s) && !ibv_close_xrcd(x) && !ibv_destroy_cq(cq) && !ibv_destroy_cq(far_cq));
	WANT(!domain(ctx, fd, 0) && errno == EAGAIN, "the domain: %s", strerror(errno));
	close(fd);
	for (int i = 0; i < 2; i++) close(to[i]), close(from[i]);
}

// A child of fork has its parent's domain, which lasts as long as any of them.
static void forked(void)
{
	struct lane l = lane(0);
	int done[2];
	OK(!pipe(done));
	fflush(stdout);
	pid_t child = fork();
	OK(child >= 0);
	if (child == 0) {
		struct ibv_qp *o = opened(l.x, l.far_qp->qp_num, IBV_QPT_XRC_RECV), *mine = target(l.x);
		_exit(!o || !mine || ibv_destroy_qp(o) || ibv_destroy_qp(mine));
	}
	int how = -1;
	OK(waitpid(child, &how, 0) == child);
	WANT(how == 0, "the child: %x", how);
	OK(!take(l.srq, 1, far, 64) && !post_to(l.qp, l.srqn, IBV_WR_SEND, buf, 8));
	WANT(status(l.cq) == IBV_WC_SUCCESS && status(l.far_cq) == IBV_WC_SUCCESS);
	close(done[0]), close(done[1]);
	end_lane(l);
}

static void often(void)
{
	for (int i = 0; i < 300; i++) {
		struct lane l = lane(0);
		struct ibv_qp *o = opened(l.x, l.far_qp->qp_num, IBV_QPT_XRC_RECV);
		OK(o && !ibv_destroy_qp(o));
		end_lane(l);
	}
}

static const struct kase all[] = {
	{ "the device says that it has XRC", "ibv_query_device_ex(3)", capable },
	{ "domains of files", "ibv_open_xrcd(3)", files },
	{ "domains in use", "ibv_close_xrcd(3), IBTA A14", used },
	{ "what XRC has not", "ibv_create_qp_ex(3), ibv_create_srq_ex(3), ibv_open_qp(3)", wrong_calls },
	{ "all operations", "ibv_post_send(3), IBTA A14", operations },
	{ "the calls ibv_wr_*", "ibv_wr_post(3)", extended },
	{ "two senders and a queue", "IBTA A14", two_senders },
	{ "numbers of wrong queues", "IBTA A14", wrong_numbers },
	{ "a queue without receives", "IBTA 9.7.5.2.8", empty },
	{ "the limit of a queue", "ibv_modify_srq(3)", limit },
	{ "a message that is too long", "IBTA 9.7.4", too_long },
	{ "a completion queue that overruns", "IBTA A14", overrun },
	{ "events of a target", "ibv_get_async_event(3)", events },
	{ "a target that is reset takes its completions with it", "ibv_modify_qp(3)", reset },
	{ "a target that outlives its process", "ibv_open_qp(3)", survivor },
	{ "a child of fork", "fork(2)", forked },
	{ "objects of XRC made and destroyed often", "ibv_create_qp_ex(3)", often },
};

int main(int argc, char **argv)
{
	int fd = mkstemp(file);
	OK(fd >= 0);
	close(fd);
	int bad = run_all(all, (int)(sizeof all / sizeof *all), argc, argv);
	unlink(file);
	return bad;
}
