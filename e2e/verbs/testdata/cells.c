// Every way to modify a queue pair: a line for each service and pair of states, with a letter for
// each set of attributes. The first set has those that the transition needs, as programs name them;
// then one attribute is removed or added, for each; then two, for each pair. A program cannot reach
// SQE by a modify command. Argument: the index of the GID.
//
//	. accepted   x EINVAL   n EOPNOTSUPP   ? any other
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define OK(c) do { if (!(c)) { fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #c, strerror(errno)); exit(2); } } while (0)

enum { BITS = 21, STATES = 7 };
enum { RESET, INIT, RTR, RTS, SQD, SQE, ERR };

static const char *const states[STATES] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };
static const struct { enum ibv_qp_type type; const char *name; } services[3] = { { IBV_QPT_RC, "RC" }, { IBV_QPT_UC, "UC" }, { IBV_QPT_UD, "UD" } };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static union ibv_gid gid;
static int gid_index;

// base is the mask with which programs make a transition.
static int base(enum ibv_qp_type t, int from, int to)
{
	int m = IBV_QP_STATE;
	if (from == RESET && to == INIT) m |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (t == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (from == INIT && to == RTR && t != IBV_QPT_UD) m |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (from == INIT && to == RTR && t == IBV_QPT_RC) m |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (from == RTR && to == RTS) m |= IBV_QP_SQ_PSN;
	if (from == RTR && to == RTS && t == IBV_QPT_RC) m |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return m;
}

// modify names these attributes, all with valid values.
static int modify(struct ibv_qp *q, int from, int to, int mask)
{
	struct ibv_ah_attr path = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 } };
	struct ibv_qp_attr a = { .qp_state = to, .cur_qp_state = from, .path_mtu = IBV_MTU_1024, .qkey = 5, .rq_psn = 7, .sq_psn = 7, .dest_qp_num = 9,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .cap = { 4, 4, 1, 1, 0 }, .ah_attr = path, .alt_ah_attr = path, .max_rd_atomic = 4,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12, .port_num = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .alt_port_num = 1 };
	return ibv_modify_qp(q, &a, mask);
}

// in returns a queue pair in a state.
static struct ibv_qp *in(enum ibv_qp_type t, int state)
{
	struct ibv_qp_init_attr a = { .send_cq = cq, .recv_cq = cq, .qp_type = t, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp *q = ibv_create_qp(pd, &a);
	OK(q);
	for (int from = RESET; from < state && from < SQD;) {
		int to = state == ERR && from == INIT ? ERR : from + 1;
		OK(!(errno = modify(q, from, to, base(t, from, to))));
		if (to == ERR) break;
		from = to;
	}
	if (state == SQD) {
		struct ibv_qp_attr x;
		for (int i = 0; i < 1000; i++) { // until it has drained
			OK(!ibv_query_qp(q, &x, IBV_QP_STATE, &a));
			if (!x.sq_draining) break;
			usleep(1000);
		}
	}
	return q;
}

// tried makes a command and returns its letter. *q is replaced if the command has changed it.
static char tried(struct ibv_qp **q, enum ibv_qp_type t, int from, int to, int mask)
{
	int got = modify(*q, from, to, mask);
	if (got) return got == EINVAL ? 'x' : got == EOPNOTSUPP ? 'n' : '?';
	OK(!ibv_destroy_qp(*q));
	*q = in(t, from);
	return '.';
}

int main(int argc, char **argv)
{
	int n = 0;
	struct ibv_device **l = ibv_get_device_list(&n);
	OK(l && n > 0);
	if (argc > 1) gid_index = atoi(argv[1]);
	OK(ctx = ibv_open_device(l[0]));
	OK(pd = ibv_alloc_pd(ctx));
	OK(cq = ibv_create_cq(ctx, 16, NULL, NULL, 0));
	OK(!ibv_query_gid(ctx, 1, gid_index, &gid));
	for (int s = 0; s < 3; s++)
		for (int from = RESET; from <= ERR; from++) {
			if (from == SQE) continue;
			struct ibv_qp *q = in(services[s].type, from);
			for (int to = RESET; to <= ERR; to++) {
				int m = base(services[s].type, from, to);
				printf("%s %s %s %#x ", services[s].name, states[from], states[to], m);
				putchar(tried(&q, services[s].type, from, to, m));
				for (int i = 0; i < BITS; i++) putchar(tried(&q, services[s].type, from, to, m ^ 1 << i));
				for (int i = 0; i < BITS; i++)
					for (int k = i + 1; k < BITS; k++) putchar(tried(&q, services[s].type, from, to, m ^ 1 << i ^ 1 << k));
				putchar('\n');
			}
			OK(!ibv_destroy_qp(q));
		}
	return 0;
}
