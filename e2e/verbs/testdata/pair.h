// What the programs of this folder share: a device, and two RC queue pairs of this process that are connected to each other.
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK(c) do { if (!(c)) { fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #c, strerror(errno)); exit(2); } } while (0)

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static int __attribute__((unused)) wrong;

// expect counts what is not as it is to be.
#define expect(c, ...) do { if (!(c)) { wrong++; printf("wrong: " __VA_ARGS__); printf(" (%s:%d)\n", __FILE__, __LINE__); } } while (0)

static void open_first(void)
{
	int n = 0;
	struct ibv_device **l = ibv_get_device_list(&n);
	OK(l && n > 0 && (ctx = ibv_open_device(l[0])) && (pd = ibv_alloc_pd(ctx)));
}

// join connects two queue pairs of this process over the NIC.
static void __attribute__((unused)) join(struct ibv_qp *a, struct ibv_qp *b)
{
	struct ibv_qp *q[2] = { a, b };
	union ibv_gid gid;
	OK(!ibv_query_gid(ctx, 1, 1, &gid));
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr x = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
		OK(!ibv_modify_qp(q[i], &x, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
		x = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = q[1 - i]->qp_num, .rq_psn = 7, .max_dest_rd_atomic = 4, .min_rnr_timer = 12,
			.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = 1, .hop_limit = 64 } } };
		OK(!ibv_modify_qp(q[i], &x, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
		x = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 17, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 7, .max_rd_atomic = 4 };
		OK(!ibv_modify_qp(q[i], &x, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	}
}

// next returns the next completion of a queue, or ends the program.
static struct ibv_wc __attribute__((unused)) next(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	for (int i = 0; i < 300000; i++) {
		int n = ibv_poll_cq(cq, 1, &wc);
		OK(n >= 0);
		if (n) return wc;
		usleep(100);
	}
	fprintf(stderr, "no completion\n");
	exit(3);
}
