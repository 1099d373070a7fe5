// What is refused when objects are made or modified and when work requests are posted: a line for
// each, with its name, and the errno or the status of the completion. Argument: the index of the GID.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define OK(c) do { if (!(c)) { fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #c, strerror(errno)); exit(2); } } while (0)

enum { MAX_SGES = 64 };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_device_attr dev;
static union ibv_gid gid;
static int gid_index;
static struct ibv_qp_cap got; // of the queue pair that was made last, which may have more than it asked for
static char buf[8192] __attribute__((aligned(4096)));

static void say(const char *name, int err) { printf("%-48s %s\n", name, err ? strerrorname_np(err) : "ok"); }

// made reports whether an object was made, and destroys it.
#define MADE(name, make, end) do { errno = 0; __typeof__(make) o = make; int e = o ? 0 : errno; if (o) end(o); say(name, e); } while (0)

static struct ibv_qp_init_attr plain(enum ibv_qp_type t)
{
	return (struct ibv_qp_init_attr){ .send_cq = cq, .recv_cq = cq, .qp_type = t, .sq_sig_all = 1, .cap = { 8, 8, 2, 2, 64 } };
}

static struct ibv_qp *make(enum ibv_qp_type t)
{
	struct ibv_qp_init_attr a = plain(t);
	struct ibv_qp *q = ibv_create_qp(pd, &a);
	OK(q && a.cap.max_send_sge < MAX_SGES && a.cap.max_recv_sge < MAX_SGES);
	got = a.cap;
	return q;
}

// valid are the attributes of a connection of a queue pair to itself.
static struct ibv_qp_attr valid(struct ibv_qp *q)
{
	return (struct ibv_qp_attr){ .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, .qkey = 5, .path_mtu = IBV_MTU_1024,
		.dest_qp_num = q->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 } } };
}

// needs is the mask of the transition to a state.
static int needs(enum ibv_qp_type t, int state)
{
	int connected = t != IBV_QPT_UD, rc = t == IBV_QPT_RC;
	const int masks[] = { 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | (connected ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY),
		(connected ? IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN : 0) | (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0),
		IBV_QP_SQ_PSN | (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0) };
	return IBV_QP_STATE | (state <= IBV_QPS_RTS ? masks[state] : 0);
}

static void move(struct ibv_qp *q, enum ibv_qp_type t, int state)
{
	struct ibv_qp_attr a = valid(q);
	for (int s = IBV_QPS_INIT; s <= state; s++) {
		a.qp_state = s;
		OK(!(errno = ibv_modify_qp(q, &a, needs(t, s))));
	}
}

static struct ibv_qp *in(enum ibv_qp_type t, int state)
{
	struct ibv_qp *q = make(t);
	move(q, t, state);
	return q;
}

static void creation(void)
{
	struct ibv_qp_init_attr a;
#define QP(name, change) do { a = plain(IBV_QPT_RC); change; MADE(name, ibv_create_qp(pd, &a), ibv_destroy_qp); } while (0)
	QP("QP: plain", (void)0);
	QP("QP: nothing to send, nothing to receive", (a.cap = (struct ibv_qp_cap){ 0 }));
	QP("QP: max_send_wr above the device's", a.cap.max_send_wr = dev.max_qp_wr + 1);
	QP("QP: max_recv_wr above the device's", a.cap.max_recv_wr = dev.max_qp_wr + 1);
	QP("QP: max_send_sge above the device's", a.cap.max_send_sge = dev.max_sge + 1);
	QP("QP: max_recv_sge above the device's", a.cap.max_recv_sge = dev.max_sge + 1);
	QP("QP: max_inline_data 1 GiB", a.cap.max_inline_data = 1 << 30);
	QP("QP: no such type", a.qp_type = 77);
	MADE("CQ: no entries", ibv_create_cq(ctx, 0, NULL, NULL, 0), ibv_destroy_cq);
	MADE("CQ: -1 entries", ibv_create_cq(ctx, -1, NULL, NULL, 0), ibv_destroy_cq);
	MADE("CQ: more entries than the device's", ibv_create_cq(ctx, dev.max_cqe + 1, NULL, NULL, 0), ibv_destroy_cq);
	MADE("CQ: vector behind the last", ibv_create_cq(ctx, 8, NULL, NULL, ctx->num_comp_vectors), ibv_destroy_cq);
	struct ibv_srq_init_attr s = { .attr = { 8, 1, 0 } };
#define SRQ(name, change) do { s = (struct ibv_srq_init_attr){ .attr = { 8, 1, 0 } }; change; MADE(name, ibv_create_srq(pd, &s), ibv_destroy_srq); } while (0)
	SRQ("SRQ: plain", (void)0);
	SRQ("SRQ: no entries", s.attr.max_wr = 0);
	SRQ("SRQ: more entries than the device's", s.attr.max_wr = dev.max_srq_wr + 1);
	SRQ("SRQ: more SGEs than the device's", s.attr.max_sge = dev.max_srq_sge + 1);
	struct ibv_ah_attr h;
#define AH(name, change) do { h = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 } }; \
	change; MADE(name, ibv_create_ah(pd, &h), ibv_destroy_ah); } while (0)
	AH("AH: plain", (void)0);
	AH("AH: no GRH", h.is_global = 0);
	AH("AH: port 0", h.port_num = 0);
	AH("AH: port 2", h.port_num = 2);
	MADE("MR: remote write without local write", ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_REMOTE_WRITE), ibv_dereg_mr);
	MADE("MR: remote atomic without local write", ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_REMOTE_ATOMIC), ibv_dereg_mr);
	MADE("MR: memory that is not there", ibv_reg_mr(pd, (void *)4096, 4096, IBV_ACCESS_LOCAL_WRITE), ibv_dereg_mr);
	struct ibv_qp *rc = make(IBV_QPT_RC), *ud = in(IBV_QPT_UD, IBV_QPS_INIT);
	union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 9 } };
	say("multicast: RC", ibv_attach_mcast(rc, &group, 0));
	say("multicast: not a group", ibv_attach_mcast(ud, &gid, 0));
	say("multicast: not attached", ibv_detach_mcast(ud, &group, 0));
	struct ibv_port_attr p;
	say("port 0", ibv_query_port(ctx, 0, &p));
	say("port 2", ibv_query_port(ctx, 2, &p));
	ibv_destroy_qp(rc), ibv_destroy_qp(ud);
}

// posted posts a work request, and says how that or its completion ended.
static void posted(const char *name, struct ibv_qp *q, struct ibv_send_wr w)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int err = ibv_post_send(q, &w, &bad);
	if (err) {
		say(name, err);
		return;
	}
	for (int i = 0; i < 2000; i++) {
		int n = ibv_poll_cq(cq, 1, &wc);
		if (n == 1) {
			struct ibv_qp_attr a;
			struct ibv_qp_init_attr b;
			ibv_query_qp(q, &a, IBV_QP_STATE, &b);
			printf("%-48s status %d, then state %d\n", name, wc.status, a.qp_state);
			return;
		}
		usleep(1000);
	}
	printf("%-48s no completion\n", name);
}

static void sending(void)
{
	static const struct { enum ibv_qp_type type; const char *name; } types[] = { { IBV_QPT_RC, "RC" }, { IBV_QPT_UC, "UC" }, { IBV_QPT_UD, "UD" } };
	char name[64];
	struct ibv_ah_attr h = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 } };
	struct ibv_ah *ah = ibv_create_ah(pd, &h);
	OK(ah);
	for (int t = 0; t < 3; t++) {
		struct ibv_sge s[MAX_SGES];
		for (int i = 0; i < MAX_SGES; i++) s[i] = (struct ibv_sge){ (uintptr_t)buf, 8, mr->lkey };
		struct ibv_send_wr w = { .wr_id = 1, .sg_list = s, .num_sge = 1, .opcode = IBV_WR_SEND };
		if (types[t].type == IBV_QPT_UD) w.wr.ud.ah = ah, w.wr.ud.remote_qpn = 1 << 20, w.wr.ud.remote_qkey = 5;
#define POST(text, state, change) do { struct ibv_qp *q = in(types[t].type, state); struct ibv_send_wr x = w; change; \
	snprintf(name, sizeof name, "%s: %s", types[t].name, text); posted(name, q, x); ibv_destroy_qp(q); while (ibv_poll_cq(cq, 1, &(struct ibv_wc){ 0 }) > 0) { } } while (0)
		POST("SEND in RESET", IBV_QPS_RESET, (void)0);
		POST("SEND in INIT", IBV_QPS_INIT, (void)0);
		POST("SEND in RTR", IBV_QPS_RTR, (void)0);
		POST("an SGE too many", IBV_QPS_RTS, x.num_sge = got.max_send_sge + 1);
		POST("inline data of 65 MiB", IBV_QPS_RTS, (x.send_flags = IBV_SEND_INLINE, s[0].length = 65 << 20));
		s[0].length = 8;
		POST("a wrong L_Key", IBV_QPS_RTS, s[0].lkey ^= 0xff00);
		s[0].lkey = mr->lkey;
		if (types[t].type != IBV_QPT_RC) {
			POST("READ", IBV_QPS_RTS, (x.opcode = IBV_WR_RDMA_READ, x.wr.rdma.remote_addr = (uintptr_t)buf, x.wr.rdma.rkey = mr->rkey));
			POST("FETCH_ADD", IBV_QPS_RTS, (x.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, x.wr.atomic.remote_addr = (uintptr_t)buf, x.wr.atomic.rkey = mr->rkey));
		} else {
			POST("FETCH_ADD at an odd address", IBV_QPS_RTS, (x.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, x.wr.atomic.remote_addr = (uintptr_t)buf + 1, x.wr.atomic.rkey = mr->rkey));
			POST("FETCH_ADD of 4 bytes", IBV_QPS_RTS, (x.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, s[0].length = 4, x.wr.atomic.remote_addr = (uintptr_t)buf, x.wr.atomic.rkey = mr->rkey));
			s[0].length = 8;
		}
		if (types[t].type == IBV_QPT_UD) {
			POST("WRITE", IBV_QPS_RTS, x.opcode = IBV_WR_RDMA_WRITE);
			POST("SEND of 5000 bytes", IBV_QPS_RTS, s[0].length = 5000);
			s[0].length = 8;
		}
		struct ibv_qp *q = in(types[t].type, IBV_QPS_INIT);
		struct ibv_recv_wr r = { .sg_list = s, .num_sge = got.max_recv_sge + 1 }, *bad;
		snprintf(name, sizeof name, "%s: receive with an SGE too many", types[t].name);
		say(name, ibv_post_recv(q, &r, &bad));
		ibv_destroy_qp(q);
	}
	ibv_destroy_ah(ah);
}

// modifying gives attributes of RC values that they cannot have.
static void modifying(void)
{
	struct ibv_port_attr p;
	OK(!ibv_query_port(ctx, 1, &p));
	int last = p.gid_tbl_len > 256 ? 255 : p.gid_tbl_len - 1; // an empty entry
#define TO(state, text, more, change) do { struct ibv_qp *q = in(IBV_QPT_RC, (state) > IBV_QPS_RTS ? IBV_QPS_RTS : (state) - 1); struct ibv_qp_attr a = valid(q); a.qp_state = (state); change; \
	say("value: " text, ibv_modify_qp(q, &a, needs(IBV_QPT_RC, state) | (more))); ibv_destroy_qp(q); } while (0)
	TO(IBV_QPS_INIT, "port 0", 0, a.port_num = 0);
	TO(IBV_QPS_INIT, "port 2", 0, a.port_num = 2);
	TO(IBV_QPS_RTR, "no GRH", 0, a.ah_attr.is_global = 0);
	TO(IBV_QPS_RTR, "port of the path 0", 0, a.ah_attr.port_num = 0);
	TO(IBV_QPS_RTR, "port of the path 2", 0, a.ah_attr.port_num = 2);
	TO(IBV_QPS_RTR, "an empty GID entry", 0, a.ah_attr.grh.sgid_index = last);
	TO(IBV_QPS_RTR, "path MTU 0", 0, a.path_mtu = 0);
	TO(IBV_QPS_RTR, "path MTU 6", 0, a.path_mtu = 6);
	TO(IBV_QPS_RTR, "receive PSN of 25 bits", 0, a.rq_psn = 1 << 24);
	TO(IBV_QPS_RTR, "RNR timer 32", 0, a.min_rnr_timer = 32);
	TO(IBV_QPS_RTR, "responder resources 0", 0, a.max_dest_rd_atomic = 0);
	TO(IBV_QPS_RTR, "responder resources 255", 0, a.max_dest_rd_atomic = 255);
	TO(IBV_QPS_RTR, "an alternate path", IBV_QP_ALT_PATH, (a.alt_ah_attr = a.ah_attr, a.alt_port_num = 1));
	TO(IBV_QPS_RTS, "timeout 31", 0, a.timeout = 31);
	TO(IBV_QPS_RTS, "timeout 32", 0, a.timeout = 32);
	TO(IBV_QPS_RTS, "retries 8", 0, a.retry_cnt = 8);
	TO(IBV_QPS_RTS, "RNR retries 8", 0, a.rnr_retry = 8);
	TO(IBV_QPS_RTS, "send PSN of 25 bits", 0, a.sq_psn = 1 << 24);
	TO(IBV_QPS_RTS, "READs in flight 0", 0, a.max_rd_atomic = 0);
	TO(IBV_QPS_RTS, "READs in flight 255", 0, a.max_rd_atomic = 255);
	TO(IBV_QPS_RTS, "the current state", IBV_QP_CUR_STATE, a.cur_qp_state = IBV_QPS_RTR);
	TO(IBV_QPS_RTS, "another current state, INIT", IBV_QP_CUR_STATE, a.cur_qp_state = IBV_QPS_INIT);
	TO(IBV_QPS_RTS, "a current state that is none", IBV_QP_CUR_STATE, a.cur_qp_state = 77);
	TO(7, "a state that is none", 0, (void)0);
}

int main(int argc, char **argv)
{
	int n = 0;
	struct ibv_device **l = ibv_get_device_list(&n);
	OK(l && n > 0);
	if (argc > 1) gid_index = atoi(argv[1]);
	OK(ctx = ibv_open_device(l[0]));
	OK(!ibv_query_device(ctx, &dev));
	OK(pd = ibv_alloc_pd(ctx));
	OK(cq = ibv_create_cq(ctx, 64, NULL, NULL, 0));
	OK(mr = ibv_reg_mr(pd, buf, sizeof buf, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
	OK(!ibv_query_gid(ctx, 1, gid_index, &gid));
	creation();
	modifying();
	sending();
	return 0;
}
