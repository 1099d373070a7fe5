// The error state of queue pairs, and asynchronous events. Prints a line for each case that is not as specified, and ends with 1 if there
// is one. Argument: the name of a case; without it, all run except for the last, which waits for faults from outside.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define NEED(c) do { if (!(c)) { printf("%s:%d: %s: %s\n", now, __LINE__, #c, strerror(errno)); exit(2); } } while (0)
#define WANT(c) do { if (!(c)) { printf("%s:%d: not %s\n", now, __LINE__, #c); bad = 1; } } while (0)

enum { DEPTH = 8, ROUNDS = 3, SECOND = 1000, LONG = 10 * SECOND, SHORT = 200 };

static const char *now = "open"; // the case that runs
static int bad;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static union ibv_gid gid;
static char memory[4096];
static struct ibv_mr *mr;
static struct ibv_ah *ah; // of this NIC

struct end { struct ibv_comp_channel *channel; struct ibv_cq *cq; struct ibv_qp *qp; };

static struct end make(enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct end e;
	NEED(e.channel = ibv_create_comp_channel(ctx));
	NEED(e.cq = ibv_create_cq(ctx, 64, NULL, e.channel, 0));
	struct ibv_qp_init_attr a = { .send_cq = e.cq, .recv_cq = e.cq, .srq = srq, .qp_type = type, .sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = srq ? 0 : DEPTH, .max_send_sge = 1, .max_recv_sge = 1 } };
	NEED(e.qp = ibv_create_qp(pd, &a));
	return e;
}

static void destroy(struct end *e)
{
	NEED(!ibv_destroy_qp(e->qp));
	NEED(!ibv_destroy_cq(e->cq));
	NEED(!ibv_destroy_comp_channel(e->channel));
}

static void to_init(struct ibv_qp *q)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 17, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	NEED(!ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (q->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
}

static void to_rtr(struct ibv_qp *q, struct ibv_qp *peer)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 64 } } };
	int connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, rc = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	NEED(!ibv_modify_qp(q, &a, IBV_QP_STATE | (q->qp_type != IBV_QPT_UD ? connected : 0) | (q->qp_type == IBV_QPT_RC ? rc : 0)));
}

static void to_rts(struct ibv_qp *q)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	int rc = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	NEED(!ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | (q->qp_type == IBV_QPT_RC ? rc : 0)));
}

static void to_err(struct ibv_qp *q)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	NEED(!ibv_modify_qp(q, &a, IBV_QP_STATE));
}

static enum ibv_qp_state state(struct ibv_qp *q)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr b;
	NEED(!ibv_query_qp(q, &a, IBV_QP_STATE, &b));
	return a.qp_state;
}

static struct ibv_sge piece(void) { return (struct ibv_sge){ .addr = (uintptr_t)memory, .length = 8, .lkey = mr->lkey }; }

static int receive(struct ibv_qp *q, uint64_t id)
{
	struct ibv_sge s = piece();
	struct ibv_recv_wr w = { .wr_id = id, .sg_list = &s, .num_sge = 1 }, *refused;
	return ibv_post_recv(q, &w, &refused);
}

static int post(struct ibv_qp *q, uint64_t id, enum ibv_wr_opcode op)
{
	struct ibv_sge s = piece();
	struct ibv_send_wr w = { .wr_id = id, .sg_list = &s, .num_sge = 1, .opcode = op }, *refused; // WRITE: with the bad R_Key 0
	if (q->qp_type == IBV_QPT_UD) w.wr.ud.ah = ah;
	return ibv_post_send(q, &w, &refused);
}

static int next(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	for (int i = 0; i < 10 * ms; i++, usleep(100)) {
		int n = ibv_poll_cq(cq, 1, wc);
		if (n) return n;
	}
	return 0;
}

static void flushed(struct end *e, uint64_t id)
{
	struct ibv_wc wc = { .wr_id = -1 };
	WANT(next(e->cq, &wc, LONG) == 1);
	WANT(wc.wr_id == id && wc.status == IBV_WC_WR_FLUSH_ERR && wc.qp_num == e->qp->qp_num);
}

// flushed_of_both takes the flushes of a send and a receive, which may come in any order: only those of one queue are in order.
static void flushed_of_both(struct end *e, uint64_t send, uint64_t recv)
{
	struct ibv_wc wc[2] = { { .wr_id = -1 }, { .wr_id = -1 } };
	for (int i = 0; i < 2; i++) {
		WANT(next(e->cq, &wc[i], LONG) == 1);
		WANT(wc[i].status == IBV_WC_WR_FLUSH_ERR && wc[i].qp_num == e->qp->qp_num);
	}
	WANT((wc[0].wr_id == send && wc[1].wr_id == recv) || (wc[0].wr_id == recv && wc[1].wr_id == send));
}

// posts_flush posts to both queues of a queue pair in ERROR.
static void posts_flush(struct end *e)
{
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < DEPTH; i++) WANT(!receive(e->qp, 100 * round + i));
		for (int i = 0; i < DEPTH; i++) flushed(e, 100 * round + i);
		for (int i = 0; i < DEPTH; i++) WANT(!post(e->qp, 1000 + i, IBV_WR_SEND));
		for (int i = 0; i < DEPTH; i++) flushed(e, 1000 + i);
	}
}

// A queue pair of each service, from each state, with receives that wait.
static void each_state(void)
{
	enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	for (int t = 0; t < 3; t++) {
		for (int steps = 1; steps <= 3; steps++) {
			struct end e = make(types[t], NULL), peer = make(types[t], NULL);
			to_init(e.qp);
			if (steps > 1) to_rtr(e.qp, peer.qp);
			if (steps > 2) to_rts(e.qp);
			WANT(!receive(e.qp, 1) && !receive(e.qp, 2));
			to_err(e.qp);
			flushed(&e, 1);
			flushed(&e, 2);
			posts_flush(&e);
			destroy(&e), destroy(&peer);
		}
	}
}

// A queue pair that goes to ERROR by itself: a in RTS because its WRITE is refused, b in RTR because it has refused it. The first completion
// of a has the reason, all others are flushes.
static void by_fault(void)
{
	struct end a = make(IBV_QPT_RC, NULL), b = make(IBV_QPT_RC, NULL);
	struct ibv_wc wc;
	to_init(a.qp), to_init(b.qp);
	to_rtr(a.qp, b.qp), to_rtr(b.qp, a.qp);
	to_rts(a.qp);
	WANT(!receive(a.qp, 5) && !receive(b.qp, 6));
	WANT(!post(a.qp, 1, IBV_WR_RDMA_WRITE) && !post(a.qp, 2, IBV_WR_SEND));
	WANT(next(a.cq, &wc, LONG) == 1 && wc.wr_id == 1 && wc.status == IBV_WC_REM_ACCESS_ERR);
	flushed_of_both(&a, 2, 5);
	flushed(&b, 6);
	WANT(state(a.qp) == IBV_QPS_ERR && state(b.qp) == IBV_QPS_ERR);
	posts_flush(&a), posts_flush(&b);
	destroy(&a), destroy(&b);
}

// event reports whether a completion event comes.
static int event(struct end *e, int ms)
{
	struct pollfd p = { .fd = e->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;
	if (poll(&p, 1, ms) != 1) return 0;
	NEED(!ibv_get_cq_event(e->channel, &cq, &context));
	ibv_ack_cq_events(cq, 1);
	return 1;
}

// Each arming gives one event. If the queue is armed for solicited completions, a flush gives it, too.
static void arming(void)
{
	for (int solicited = 0; solicited < 2; solicited++) {
		struct end e = make(IBV_QPT_RC, NULL), peer = make(IBV_QPT_RC, NULL);
		to_init(e.qp);
		WANT(!receive(e.qp, 1) && !receive(e.qp, 2));
		NEED(!ibv_req_notify_cq(e.cq, solicited));
		to_err(e.qp);
		WANT(event(&e, LONG));
		flushed(&e, 1), flushed(&e, 2);
		WANT(!receive(e.qp, 3));
		flushed(&e, 3);
		WANT(!event(&e, SHORT)); // it was not armed again
		NEED(!ibv_req_notify_cq(e.cq, solicited));
		WANT(!event(&e, SHORT)); // what is in the queue already gives none
		WANT(!receive(e.qp, 4) && !receive(e.qp, 5));
		WANT(event(&e, LONG));
		flushed(&e, 4), flushed(&e, 5);
		WANT(!event(&e, SHORT));
		destroy(&e), destroy(&peer);
	}
}

// told waits for an asynchronous event of this kind about an object, and ignores others.
static void told(enum ibv_event_type kind, const void *about)
{
	struct pollfd p = { .fd = ctx->async_fd, .events = POLLIN };
	for (;;) {
		struct ibv_async_event ev;
		if (poll(&p, 1, LONG) != 1) {
			printf("%s: no event %d\n", now, kind);
			bad = 1;
			return;
		}
		NEED(!ibv_get_async_event(ctx, &ev));
		int found = ev.event_type == kind && (const void *)ev.element.qp == about;
		ibv_ack_async_event(&ev);
		if (found) return;
	}
}

// again reports whether a second event of this kind comes, and ignores others.
static int again(enum ibv_event_type kind)
{
	struct pollfd p = { .fd = ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;
	while (poll(&p, 1, SHORT) == 1) {
		NEED(!ibv_get_async_event(ctx, &ev));
		ibv_ack_async_event(&ev);
		if (ev.event_type == kind) return 1;
	}
	return 0;
}

// A queue pair with a shared receive queue takes no more receives once IBV_EVENT_QP_LAST_WQE_REACHED has come: by a command, and by a fault.
// The event comes once, and the receives stay in the queue.
static void last_wqe(void)
{
	for (int fault = 0; fault < 2; fault++) {
		struct ibv_srq_init_attr sa = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
		struct ibv_srq *srq = ibv_create_srq(pd, &sa);
		NEED(srq);
		struct end a = make(IBV_QPT_RC, NULL), b = make(IBV_QPT_RC, srq);
		struct ibv_sge s = piece();
		struct ibv_recv_wr w = { .wr_id = 9, .sg_list = &s, .num_sge = 1 }, *refused;
		struct ibv_wc wc;
		WANT(!ibv_post_srq_recv(srq, &w, &refused) && !ibv_post_srq_recv(srq, &w, &refused));
		to_init(a.qp), to_init(b.qp);
		to_rtr(a.qp, b.qp), to_rtr(b.qp, a.qp);
		to_rts(a.qp), to_rts(b.qp);
		WANT(!post(a.qp, 1, IBV_WR_SEND));
		WANT(next(b.cq, &wc, LONG) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == 9);
		if (fault) WANT(!post(a.qp, 2, IBV_WR_RDMA_WRITE)); else to_err(b.qp);
		told(IBV_EVENT_QP_LAST_WQE_REACHED, b.qp); // a fault has an event of its own, before it
		to_err(b.qp);
		WANT(!again(IBV_EVENT_QP_LAST_WQE_REACHED));
		WANT(!next(b.cq, &wc, SHORT)); // no flush: the other receive is that of the shared queue
		WANT(!post(b.qp, 3, IBV_WR_SEND));
		flushed(&b, 3);
		destroy(&a), destroy(&b);
		NEED(!ibv_destroy_srq(srq));
	}
}

// The events of requests that a responder refuses: it has not the right, or the R_Key is bad. Before it, the first message is that of a
// connection whose responder is in RTR.
static void refused_requests(void)
{
	for (int right = 0; right < 2; right++) {
		struct end a = make(IBV_QPT_RC, NULL), b = make(IBV_QPT_RC, NULL);
		struct ibv_wc wc;
		to_init(a.qp), to_init(b.qp);
		struct ibv_qp_attr x = { .qp_access_flags = right ? IBV_ACCESS_REMOTE_WRITE : 0 };
		NEED(!ibv_modify_qp(b.qp, &x, IBV_QP_ACCESS_FLAGS));
		to_rtr(a.qp, b.qp), to_rtr(b.qp, a.qp);
		to_rts(a.qp);
		WANT(!receive(b.qp, 1));
		WANT(!post(a.qp, 1, IBV_WR_SEND));
		WANT(next(a.cq, &wc, LONG) == 1 && wc.status == IBV_WC_SUCCESS);
		told(IBV_EVENT_COMM_EST, b.qp);
		WANT(!post(a.qp, 2, IBV_WR_RDMA_WRITE));
		WANT(next(a.cq, &wc, LONG) == 1 && wc.status == (right ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_INV_REQ_ERR));
		told(right ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR, b.qp);
		destroy(&a), destroy(&b);
	}
}

static void drained(void)
{
	struct end a = make(IBV_QPT_RC, NULL), b = make(IBV_QPT_RC, NULL);
	to_init(a.qp), to_init(b.qp);
	to_rtr(a.qp, b.qp), to_rtr(b.qp, a.qp);
	to_rts(a.qp), to_rts(b.qp);
	WANT(!receive(b.qp, 1));
	WANT(!post(a.qp, 1, IBV_WR_SEND));
	struct ibv_qp_attr x = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	NEED(!ibv_modify_qp(a.qp, &x, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	told(IBV_EVENT_SQ_DRAINED, a.qp);
	destroy(&a), destroy(&b);
}

// A completion queue overruns: its queue pair fails.
static void overrun(void)
{
	struct end e = { 0 };
	NEED(e.channel = ibv_create_comp_channel(ctx));
	NEED(e.cq = ibv_create_cq(ctx, 1, NULL, e.channel, 0));
	struct ibv_qp_init_attr a = { .send_cq = e.cq, .recv_cq = e.cq, .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 1, .max_recv_wr = DEPTH, .max_recv_sge = 1 } };
	NEED(e.qp = ibv_create_qp(pd, &a));
	to_init(e.qp);
	for (int i = 0; i < DEPTH; i++) WANT(!receive(e.qp, i));
	to_err(e.qp);
	told(IBV_EVENT_CQ_ERR, e.cq);
	destroy(&e);
}

static void limit(void)
{
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &sa);
	NEED(srq);
	struct end a = make(IBV_QPT_RC, NULL), b = make(IBV_QPT_RC, srq);
	struct ibv_sge s = piece();
	struct ibv_recv_wr w = { .sg_list = &s, .num_sge = 1 }, *refused;
	struct ibv_srq_attr least = { .srq_limit = 2 };
	WANT(!ibv_post_srq_recv(srq, &w, &refused) && !ibv_post_srq_recv(srq, &w, &refused));
	NEED(!ibv_modify_srq(srq, &least, IBV_SRQ_LIMIT));
	to_init(a.qp), to_init(b.qp);
	to_rtr(a.qp, b.qp), to_rtr(b.qp, a.qp);
	to_rts(a.qp);
	WANT(!post(a.qp, 1, IBV_WR_SEND));
	told(IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	destroy(&a), destroy(&b);
	NEED(!ibv_destroy_srq(srq));
}

// watch prints the number of a queue pair in INIT, and then the numbers of all events, until the device fails.
static void watch(void)
{
	struct end e = make(IBV_QPT_RC, NULL);
	struct ibv_async_event ev = { .event_type = -1 };
	to_init(e.qp);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("qpn %u\n", e.qp->qp_num);
	while (ev.event_type != IBV_EVENT_DEVICE_FATAL) {
		NEED(!ibv_get_async_event(ctx, &ev));
		printf("event %d\n", ev.event_type);
		ibv_ack_async_event(&ev);
	}
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*run)(void); } cases[] = {
		{ "each state", each_state }, { "by fault", by_fault }, { "arming", arming }, { "last WQE", last_wqe },
		{ "refused requests", refused_requests }, { "drained", drained }, { "overrun", overrun }, { "limit", limit }, { "watch", watch },
	};
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	NEED(list && n > 0);
	NEED(ctx = ibv_open_device(list[0]));
	NEED(pd = ibv_alloc_pd(ctx));
	NEED(!ibv_query_gid(ctx, 1, 0, &gid));
	NEED(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 64 } };
	NEED(ah = ibv_create_ah(pd, &to));
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (argc > 1 ? strcmp(argv[1], cases[i].name) : cases[i].run == watch) continue;
		now = cases[i].name;
		cases[i].run();
	}
	return bad;
}
