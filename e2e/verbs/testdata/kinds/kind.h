// What the programs of this folder share. Each has the cases of a kind of behaviour: a case has a name and the rule or manual page that it
// holds. The program prints a line for each, and under it what is wrong. Arguments: the index of the GID; how many ms it waits for what must come;
// a part of the names to run.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAYBE __attribute__((unused))
#define OK(c) do { if (!(c)) { printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #c, strerror(errno)); exit(2); } } while (0)
#define WANT(c, ...) do { if (!(c)) { wrong++; printf("  wrong: not %s", #c); printf(" " __VA_ARGS__); printf(" (%s:%d)\n", __FILE__, __LINE__); } } while (0)

enum { DEPTH = 16, SGES = 4, INLINE = 64, HALF = 32768, SHORT = 100 };
enum { ANY = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND };

static int wrong, gid_index, patience = 20000;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static union ibv_gid gid;
static unsigned char buf[2 * HALF] __attribute__((aligned(4096)));
static unsigned char MAYBE *const far = buf + HALF; // the half that the peer writes and reads
static struct ibv_mr *mr;

static void open_device(void)
{
	int n = 0;
	struct ibv_device **l = ibv_get_device_list(&n);
	OK(l && n > 0 && (ctx = ibv_open_device(l[0])) && (pd = ibv_alloc_pd(ctx)));
	OK(!ibv_query_gid(ctx, 1, gid_index, &gid));
	OK(mr = ibv_reg_mr(pd, buf, sizeof buf, ANY));
}

// pair is two queue pairs of this process that are connected to each other over the NIC.
struct pair { struct ibv_cq *cq, *far_cq; struct ibv_qp *qp, *far_qp; };

static struct ibv_qp_init_attr init_of(enum ibv_qp_type type, struct ibv_cq *cq, struct ibv_srq *srq)
{
	return (struct ibv_qp_init_attr){ .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = type, .sq_sig_all = 1, .cap = { DEPTH, DEPTH, SGES, SGES, INLINE } };
}

static void to_init(struct ibv_qp *q)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 17,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | (q->qp_type == IBV_QPT_RC ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC : 0) };
	OK(!(errno = ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (q->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS))));
}

static struct ibv_ah_attr path(void) { return (struct ibv_ah_attr){ .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 } }; }

// connect brings a queue pair in INIT to RTS.
static void connect_qp(struct ibv_qp *q, uint32_t peer)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = 7, .max_dest_rd_atomic = 4, .min_rnr_timer = 12, .ah_attr = path() };
	int connected = q->qp_type != IBV_QPT_UD, rc = q->qp_type == IBV_QPT_RC;
	OK(!(errno = ibv_modify_qp(q, &a, IBV_QP_STATE | (connected ? IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN : 0) | (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0))));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 17, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 7, .max_rd_atomic = 4 };
	OK(!(errno = ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0))));
}

// joined connects two queue pairs, made of these attributes.
static struct pair joined(struct ibv_qp_init_attr near, struct ibv_qp_init_attr other)
{
	struct pair p = { near.send_cq, other.send_cq, ibv_create_qp(pd, &near), ibv_create_qp(pd, &other) };
	OK(p.qp && p.far_qp);
	to_init(p.qp), to_init(p.far_qp);
	connect_qp(p.qp, p.far_qp->qp_num), connect_qp(p.far_qp, p.qp->qp_num);
	return p;
}

static struct ibv_cq *new_cq(struct ibv_comp_channel *ch)
{
	struct ibv_cq *c = ibv_create_cq(ctx, 4 * DEPTH, NULL, ch, 0);
	OK(c);
	return c;
}

static struct pair MAYBE two(enum ibv_qp_type type) { return joined(init_of(type, new_cq(NULL), NULL), init_of(type, new_cq(NULL), NULL)); }

// end destroys what two has made.
static void MAYBE end(struct pair p)
{
	WANT(!ibv_destroy_qp(p.qp) && !ibv_destroy_qp(p.far_qp) && !ibv_destroy_cq(p.cq) && !ibv_destroy_cq(p.far_cq));
}

static struct ibv_sge piece(void *at, uint32_t n) { return (struct ibv_sge){ (uintptr_t)at, n, mr->lkey }; }

static int MAYBE post(struct ibv_qp *q, enum ibv_wr_opcode op, struct ibv_sge *s, int n, uint64_t va, uint32_t rkey)
{
	struct ibv_send_wr w = { .wr_id = 1, .sg_list = s, .num_sge = n, .opcode = op, .wr.rdma = { va, rkey } }, *bad;
	return ibv_post_send(q, &w, &bad);
}

static int MAYBE atomic(struct ibv_qp *q, enum ibv_wr_opcode op, void *to, uint64_t va, uint32_t rkey, uint64_t a, uint64_t b)
{
	struct ibv_sge s = piece(to, 8);
	struct ibv_send_wr w = { .wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = op, .wr.atomic = { va, a, b, rkey } }, *bad;
	return ibv_post_send(q, &w, &bad);
}

static int MAYBE receive(struct ibv_qp *q, uint64_t id, void *to, uint32_t n)
{
	struct ibv_sge s = piece(to, n);
	struct ibv_recv_wr w = { .wr_id = id, .sg_list = &s, .num_sge = 1 }, *bad;
	return ibv_post_recv(q, &w, &bad);
}

// within takes the next completion if it comes within ms.
static int within(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	for (int i = 0; i < 10 * ms; i++, usleep(100)) {
		int n = ibv_poll_cq(cq, 1, wc);
		OK(n >= 0);
		if (n) return 1;
	}
	return 0;
}

static struct ibv_wc next(struct ibv_cq *cq)
{
	struct ibv_wc wc = { .status = -1 };
	WANT(within(cq, &wc, patience), "a completion");
	return wc;
}

static int MAYBE status(struct ibv_cq *cq) { return next(cq).status; }

static void fill(void)
{
	for (size_t i = 0; i < sizeof buf; i++) buf[i] = (unsigned char)(i < HALF ? i * 7 + i / 256 : 0);
}

struct kase { const char *name, *rule; void (*run)(void); };

static int MAYBE run_all(const struct kase *k, int n, int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	gid_index = argc > 1 ? atoi(argv[1]) : 0;
	patience = argc > 2 ? atoi(argv[2]) : patience;
	open_device();
	int bad = 0;
	for (int i = 0; i < n; i++) {
		if (argc > 3 && !strstr(k[i].name, argv[3])) continue;
		wrong = 0;
		printf("%s [%s]\n", k[i].name, k[i].rule);
		fill();
		k[i].run();
		bad += !!wrong;
	}
	printf("%d of %d cases wrong\n", bad, n);
	return bad != 0;
}
#define CASES(...) int main(int argc, char **argv) \
{ \
	static const struct kase all[] = { __VA_ARGS__ }; \
	return run_all(all, (int)(sizeof all / sizeof *all), argc, argv); \
}
