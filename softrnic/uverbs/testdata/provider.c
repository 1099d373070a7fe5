// A program that uses what the provider of this repository has and that of rxe has not, or has wrong. Its
// argument is the name of a story.
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../provider/rdmalabdv.h"

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "line %d: %s: %s\n", __LINE__, #x, strerror(errno)); _Exit(1); } } while (0)

enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static char buf[8192];
static struct ibv_mr *mr;

static void to(struct ibv_qp *q, enum ibv_qp_state state, uint32_t peer)
{
	union ibv_gid gid;
	CHECK(!ibv_query_gid(ctx, 1, 0, &gid));
	struct ibv_qp_attr a = {
		.qp_state = state, .port_num = 1, .qp_access_flags = ALL, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = 7, .sq_psn = 7,
		.max_dest_rd_atomic = 4, .max_rd_atomic = 4, .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 64 } },
	};
	int masks[] = {
		[IBV_QPS_RESET] = 0, [IBV_QPS_INIT] = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		[IBV_QPS_RTR] = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		[IBV_QPS_RTS] = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, [IBV_QPS_ERR] = 0,
	};
	errno = ibv_modify_qp(q, &a, IBV_QP_STATE | masks[state]);
	CHECK(!errno);
}

static void join(struct ibv_qp *a, struct ibv_qp *b)
{
	for (int s = IBV_QPS_INIT; s <= IBV_QPS_RTS; s++) to(a, s, b->qp_num), to(b, s, a->qp_num);
}

static const struct ibv_qp_cap cap = { .max_send_wr = 15, .max_recv_wr = 15, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64 };

static struct ibv_qp *pair_in(struct ibv_pd *in, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr a = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = cap };
	struct ibv_qp *q = ibv_create_qp(in, &a);
	CHECK(q);
	return q;
}

static struct ibv_cq_ex *queue(uint64_t fields, uint32_t flags, struct ibv_pd *parent)
{
	struct ibv_cq_init_attr_ex a = { .cqe = 31, .wc_flags = fields, .flags = flags, .parent_domain = parent };
	a.comp_mask = (flags ? IBV_CQ_INIT_ATTR_MASK_FLAGS : 0) | (parent ? IBV_CQ_INIT_ATTR_MASK_PD : 0);
	struct ibv_cq_ex *x = ibv_create_cq_ex(ctx, &a);
	CHECK(x);
	return x;
}

static void write_to(struct ibv_qp *q, uint64_t id, int n, uint64_t at, uint32_t key)
{
	struct ibv_sge s = { (uintptr_t)buf, (uint32_t)n, mr->lkey };
	struct ibv_send_wr w = { .wr_id = id, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { at, key } }, *bad;
	errno = ibv_post_send(q, &w, &bad);
	CHECK(!errno);
}

static struct ibv_wc next(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	for (time_t end = time(NULL) + 20; time(NULL) < end;)
		if (ibv_poll_cq(cq, 1, &wc) == 1) return wc;
	CHECK(!"a completion");
	return wc;
}

static void start(struct ibv_cq_ex *x)
{
	struct ibv_poll_cq_attr a = { 0 };
	for (time_t end = time(NULL) + 20; time(NULL) < end;) {
		int rc = ibv_start_poll(x, &a);
		if (!rc) return;
		CHECK(rc == ENOENT);
	}
	CHECK(!"a completion");
}

// Each completion is seen once, however ibv_next_poll and ibv_end_poll are called, by one thread or with
// a lock; the ring goes round several times.
static void polls(void)
{
	for (int alone = 0; alone < 2; alone++) {
		struct ibv_cq_ex *x = queue(IBV_WC_STANDARD_FLAGS, alone ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0, NULL);
		struct ibv_cq *cq = ibv_cq_ex_to_cq(x), *other = ibv_create_cq(ctx, 31, NULL, NULL, 0);
		struct ibv_qp *a = pair_in(pd, cq), *b = pair_in(pd, other);
		join(a, b);
		uint64_t posted = 0, seen = 0;
		for (int round = 0; round < 200; round++) {
			for (int i = 0; i <= round % 7; i++) write_to(a, posted++, 8, (uintptr_t)buf + 64, mr->rkey);
			while (seen < posted) {
				start(x);
				do CHECK(x->wr_id == seen++ && x->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(x) == IBV_WC_RDMA_WRITE && ibv_wc_read_qp_num(x) == a->qp_num);
				while (round % 3 && ibv_next_poll(x) == 0); // every third round only starts and ends
				ibv_end_poll(x);
			}
			struct ibv_poll_cq_attr none = { 0 }, bad = { 1 };
			struct ibv_wc wc;
			CHECK(ibv_start_poll(x, &none) == ENOENT && ibv_start_poll(x, &bad) == EINVAL && ibv_poll_cq(cq, 1, &wc) == 0);
		}
		CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq) && !ibv_destroy_cq(other));
	}
}

// Completions have the time at which they came, by two clocks.
static void stamps(void)
{
	struct ibv_cq_ex *x = queue(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, 0, NULL);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(x);
	struct ibv_qp *a = pair_in(pd, cq), *b = pair_in(pd, cq);
	join(a, b);
	struct ibv_device_attr_ex d;
	CHECK(!ibv_query_device_ex(ctx, NULL, &d) && d.completion_timestamp_mask == UINT64_MAX && d.hca_core_clock == 1000000);
	for (int i = 0; i < 3; i++) {
		struct ibv_values_ex before = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK }, after = before;
		struct timespec wall;
		CHECK(!ibv_query_rt_values_ex(ctx, &before));
		write_to(a, 1, 8, (uintptr_t)buf + 64, mr->rkey);
		start(x);
		uint64_t at = ibv_wc_read_completion_ts(x), by_wall = ibv_wc_read_completion_wallclock_ns(x);
		ibv_end_poll(x);
		clock_gettime(CLOCK_REALTIME, &wall);
		CHECK(!ibv_query_rt_values_ex(ctx, &after));
#define NS(t) ((uint64_t)(t).tv_sec * 1000000000 + (uint64_t)(t).tv_nsec)
		CHECK(at >= NS(before.raw_clock) && at <= NS(after.raw_clock));
		CHECK(by_wall <= NS(wall) && NS(wall) - by_wall < 30000000000ull);
	}
}

// A moderated queue raises one event for several completions.
static void moderated(void)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	CHECK(ch);
	struct ibv_cq *cq = ibv_create_cq(ctx, 31, NULL, ch, 0), *from;
	struct ibv_qp *a = pair_in(pd, cq), *b = pair_in(pd, cq);
	join(a, b);
	struct ibv_modify_cq_attr m = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { 4, 65535 } }, wrong = { .attr_mask = 1 << 5 };
	CHECK(!ibv_modify_cq(cq, &m) && ibv_modify_cq(cq, &wrong) == EINVAL);
	CHECK(!ibv_req_notify_cq(cq, 0));
	for (int i = 0; i < 4; i++) {
		write_to(a, (uint64_t)i, 8, (uintptr_t)buf + 64, mr->rkey);
		CHECK(next(cq).status == IBV_WC_SUCCESS);
	}
	void *none;
	CHECK(!ibv_get_cq_event(ch, &from, &none) && from == cq);
	ibv_ack_cq_events(cq, 1);
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };
	CHECK(poll(&p, 1, 0) == 0);
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(ch));
}

// Device memory of several commands' size, a region of it, and a peer that writes it.
static void device(void)
{
	struct ibv_alloc_dm_attr size = { .length = 12000 };
	struct ibv_dm *dm = ibv_alloc_dm(ctx, &size);
	CHECK(dm);
	static char out[12000], in[12000];
	for (int i = 0; i < 12000; i++) out[i] = (char)(i * 7);
	CHECK(!ibv_memcpy_to_dm(dm, 0, out, sizeof out) && !ibv_memcpy_from_dm(in, dm, 0, sizeof in) && !memcmp(in, out, sizeof in));
	CHECK(ibv_memcpy_to_dm(dm, 8, out, sizeof out) && ibv_memcpy_to_dm(dm, 2, out, 4));
	struct ibv_mr *m = ibv_reg_dm_mr(pd, dm, 4000, 8000, IBV_ACCESS_ZERO_BASED | ALL);
	CHECK(m && !ibv_reg_dm_mr(pd, dm, 4000, 8004, IBV_ACCESS_ZERO_BASED | ALL) && !ibv_reg_dm_mr(pd, dm, 0, 4000, ALL));
	struct ibv_cq *cq = ibv_create_cq(ctx, 31, NULL, NULL, 0);
	struct ibv_qp *a = pair_in(pd, cq), *b = pair_in(pd, cq);
	join(a, b);
	memset(buf, 'x', 5000);
	write_to(a, 1, 5000, 1000, m->rkey);
	CHECK(next(cq).status == IBV_WC_SUCCESS && !ibv_memcpy_from_dm(in, dm, 5000, 5000) && !memcmp(in, buf, 5000));
	CHECK(ibv_free_dm(dm) == EBUSY && !ibv_dereg_mr(m) && !ibv_free_dm(dm));
	// A child of fork has its parent's device, and may allocate device memory.
	pid_t child = fork();
	if (child == 0) _Exit(!(dm = ibv_alloc_dm(ctx, &size)) || ibv_memcpy_to_dm(dm, 0, out, 100) || ibv_memcpy_from_dm(in, dm, 0, 100) || memcmp(in, out, 100) || ibv_free_dm(dm));
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

// Parent and thread domains stand for their domain, which lives as long as they do.
static void domains(void)
{
	struct ibv_td_init_attr ta = { 0 }, wrong = { 1 };
	struct ibv_td *td = ibv_alloc_td(ctx, &ta);
	CHECK(td && !ibv_alloc_td(ctx, &wrong));
	struct ibv_pd *base = ibv_alloc_pd(ctx);
	struct ibv_parent_domain_init_attr pa = { .pd = base, .td = td };
	struct ibv_pd *parent = ibv_alloc_parent_domain(ctx, &pa), *again;
	pa.pd = parent;
	CHECK(parent && (again = ibv_alloc_parent_domain(ctx, &pa)) && ibv_dealloc_pd(base) == EBUSY);
	pa.comp_mask = 1 << 9;
	CHECK(!ibv_alloc_parent_domain(ctx, &pa));
	struct ibv_mr *m = ibv_reg_mr(parent, buf, sizeof buf, ALL);
	struct ibv_cq_ex *x = queue(IBV_WC_STANDARD_FLAGS, 0, parent);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(x);
	struct ibv_qp *a = pair_in(parent, cq), *b = pair_in(again, cq);
	join(a, b);
	struct ibv_sge s = { (uintptr_t)buf, 8, m->lkey };
	struct ibv_send_wr w = { .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { (uintptr_t)buf + 64, m->rkey } }, *bad;
	CHECK(!ibv_post_send(a, &w, &bad) && next(cq).status == IBV_WC_SUCCESS);
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(m));
	CHECK(!ibv_dealloc_pd(again) && !ibv_dealloc_pd(parent) && !ibv_dealloc_pd(base) && !ibv_dealloc_td(td));
}

// Masked atomics change the bits of their masks, also in a list with other work requests.
static void masked(void)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 31, NULL, NULL, 0);
	struct ibv_qp *a = pair_in(pd, cq), *b = pair_in(pd, cq);
	join(a, b);
	uint64_t *word = (void *)(buf + 256);
	*word = 0x1122334455667788;
	struct ibv_sge s = { (uintptr_t)buf + 64, 8, mr->lkey };
	struct ibv_send_wr plain = { .wr_id = 3, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { (uintptr_t)buf + 512, mr->rkey } }, *bad;
	struct rdmalabdv_send_wr w[] = {
		{ { .wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_DRIVER1, .wr.atomic = { (uintptr_t)word, 0x88, 0xaa00, mr->rkey } }, RDMALABDV_MAGIC, RDMALABDV_MASKED_CMP_SWAP, 0xff, 0xff00 },
		{ { .wr_id = 2, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_DRIVER1, .wr.atomic = { (uintptr_t)word, 0xff00000001, 0, mr->rkey } }, RDMALABDV_MAGIC, RDMALABDV_MASKED_FETCH_ADD, 1ull << 31 | 1ull << 63, 0 },
	};
	w[0].wr.next = &w[1].wr, w[1].wr.next = &plain;
	errno = ibv_post_send(a, &w[0].wr, &bad);
	CHECK(!errno);
	struct ibv_wc one = next(cq), two = next(cq);
	CHECK(one.status == IBV_WC_SUCCESS && one.opcode == IBV_WC_COMP_SWAP && two.status == IBV_WC_SUCCESS && two.opcode == IBV_WC_FETCH_ADD && next(cq).wr_id == 3);
	CHECK(*word == 0x112234435566aa89);
	w[0].wr.next = NULL, w[0].magic++;
	CHECK(ibv_post_send(a, &w[0].wr, &bad) == EINVAL && bad == &w[0].wr);
	w[0].magic--, w[0].operation++, w[0].operation++;
	CHECK(ibv_post_send(a, &w[0].wr, &bad) == EINVAL);
	w[0].operation = RDMALABDV_MASKED_CMP_SWAP, w[0].wr.wr.atomic.remote_addr += 4;
	CHECK(ibv_post_send(a, &w[0].wr, &bad) == EINVAL);
}

// A peer writes to a memory file that is registered as a dma-buf, at the addresses that were given.
static void dmabuf(void)
{
	int fd = memfd_create("gpu", MFD_CLOEXEC);
	char got[8];
	CHECK(fd >= 0 && !ftruncate(fd, 16384));
	struct ibv_mr *m = ibv_reg_dmabuf_mr(pd, 4196, 8000, 0x10000, fd, ALL);
	CHECK(m && !ibv_reg_dmabuf_mr(pd, 12288, 8000, 0, fd, ALL) && !ibv_reg_dmabuf_mr(pd, 0, 8, 0, -1, ALL));
	struct ibv_cq *cq = ibv_create_cq(ctx, 31, NULL, NULL, 0);
	struct ibv_qp *a = pair_in(pd, cq), *b = pair_in(pd, cq);
	join(a, b);
	memcpy(buf, "on a gpu", 8);
	write_to(a, 1, 8, 0x10000 + 100, m->rkey);
	CHECK(next(cq).status == IBV_WC_SUCCESS && pread(fd, got, 8, 4296) == 8 && !memcmp(got, "on a gpu", 8));
	CHECK(!ibv_dereg_mr(m) && !close(fd));
}

// A region changes its rights, its memory and its domain.
static void reregistered(void)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 31, NULL, NULL, 0);
	struct ibv_qp *a = pair_in(pd, cq), *b = pair_in(pd, cq);
	static char other[4096];
	struct ibv_mr *m = ibv_reg_mr(pd, buf, 4096, ALL);
	uint32_t key = m->rkey;
	join(a, b);
	CHECK(!ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) && m->rkey == key);
	write_to(a, 1, 8, (uintptr_t)buf + 64, m->rkey);
	CHECK(next(cq).status == IBV_WC_SUCCESS);
	CHECK(!ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, sizeof other, 0) && m->addr == other && m->length == sizeof other);
	memcpy(buf, "to other", 8);
	write_to(a, 1, 8, (uintptr_t)other + 64, m->rkey);
	CHECK(next(cq).status == IBV_WC_SUCCESS && !memcmp(other + 64, "to other", 8));
	CHECK(ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)4096, 4096, 0) == IBV_REREG_MR_ERR_CMD && m->addr == other);
	struct ibv_pd *elsewhere = ibv_alloc_pd(ctx);
	CHECK(!ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_PD, elsewhere, NULL, 0, 0) && m->pd == elsewhere && ibv_dealloc_pd(elsewhere) == EBUSY);
	write_to(a, 1, 8, (uintptr_t)other + 64, m->rkey);
	CHECK(next(cq).status == IBV_WC_REM_ACCESS_ERR);
	CHECK(!ibv_dereg_mr(m) && !ibv_dealloc_pd(elsewhere));
}

// A second context of a copied descriptor has the first one's domains, regions and device memory.
static void imported(void)
{
	struct ibv_alloc_dm_attr size = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(ctx, &size), *dm2;
	struct ibv_context *second = ibv_import_device(dup(ctx->cmd_fd));
	char got[8];
	CHECK(dm && second && second->async_fd >= 0 && second->async_fd != ctx->async_fd);
	struct ibv_pd *pd2 = ibv_import_pd(second, pd->handle);
	struct ibv_mr *mr2 = ibv_import_mr(pd2, mr->handle);
	CHECK(pd2 && mr2 && mr2->rkey == mr->rkey && mr2->lkey == mr->lkey && mr2->length == mr->length && !ibv_import_mr(pd2, 999));
	CHECK((dm2 = ibv_import_dm(second, dm->handle)) && !ibv_memcpy_to_dm(dm, 0, "shared!", 8) && !ibv_memcpy_from_dm(got, dm2, 0, 8) && !memcmp(got, "shared!", 8));
	ibv_unimport_dm(dm2), ibv_unimport_mr(mr2), ibv_unimport_pd(pd2);
	CHECK(!ibv_close_device(second) && !ibv_free_dm(dm));
	struct ibv_cq *cq = ibv_create_cq(ctx, 31, NULL, NULL, 0);
	struct ibv_qp *a = pair_in(pd, cq), *b = pair_in(pd, cq);
	join(a, b);
	write_to(a, 1, 8, (uintptr_t)buf + 64, mr->rkey);
	CHECK(next(cq).status == IBV_WC_SUCCESS); // the first context goes on
}

// What is posted too early is refused and forgotten; what waits in the queue of a reset queue pair is
// gone; pieces and inline data of ibv_wr_* arrive in order; a full ring is said.
static void posts(void)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 63, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex xa = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = cap, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_qp *a = ibv_create_qp_ex(ctx, &xa), *b = pair_in(pd, cq);
	CHECK(a && ibv_qp_to_qp_ex(a) && !ibv_qp_to_qp_ex(b));
	struct ibv_sge s = { (uintptr_t)buf, 8, mr->lkey };
	struct ibv_send_wr w = { .wr_id = 66, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { (uintptr_t)buf + 64, mr->rkey } }, *bad = NULL;
	struct ibv_recv_wr r = { .sg_list = &s, .num_sge = 1 }, *bad_r;
	CHECK(ibv_post_send(a, &w, &bad) == EINVAL && bad == &w && ibv_post_recv(a, &r, &bad_r) == EINVAL);
	join(a, b);
	w.wr_id = 67;
	CHECK(!ibv_post_send(a, &w, &bad) && next(cq).wr_id == 67); // 66 is not posted by the way to RTS
	w.opcode = IBV_WR_TSO;
	CHECK(ibv_post_send(a, &w, &bad) == EINVAL);
	struct ibv_sge most = { (uintptr_t)buf, 8192, mr->lkey }; // more than an entry has room for
	struct ibv_send_wr add = { .sg_list = &most, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_INLINE, .wr.atomic = { (uintptr_t)buf + 64, 1, 0, mr->rkey } };
	CHECK(ibv_post_send(a, &add, &bad) == EINVAL && bad == &add);

	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(a);
	struct ibv_data_buf parts[] = { { "one ", 4 }, { "two ", 4 }, { "three", 6 } };
	struct ibv_sge list[] = { { (uintptr_t)buf, 3, mr->lkey }, { (uintptr_t)buf + 10, 3, mr->lkey } };
	memcpy(buf, "abc.......def", 13);
	ibv_wr_start(x);
	x->wr_id = 1, x->wr_flags = 0;
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)buf + 1024);
	ibv_wr_set_inline_data_list(x, 3, parts);
	x->wr_id = 2;
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)buf + 2048);
	ibv_wr_set_sge_list(x, 2, list);
	CHECK(!ibv_wr_complete(x) && next(cq).wr_id == 1 && next(cq).wr_id == 2);
	CHECK(!memcmp(buf + 1024, "one two three", 14) && !memcmp(buf + 2048, "abcdef", 6));
	ibv_wr_start(x);
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)buf + 4096);
	ibv_wr_abort(x);
	ibv_wr_start(x);
	for (int i = 0; i < 16; i++) ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)buf + 64), ibv_wr_set_sge(x, mr->lkey, (uintptr_t)buf, 8);
	CHECK(ibv_wr_complete(x) == ENOMEM);
	ibv_wr_start(x);
	ibv_wr_atomic_fetch_add(x, mr->rkey, (uintptr_t)buf + 4, 1);
	CHECK(ibv_wr_complete(x) == EINVAL);

	to(a, IBV_QPS_ERR, 0);
	for (int i = 0; i < 3; i++) CHECK(!ibv_post_recv(a, &r, &bad_r));
	CHECK(next(cq).status == IBV_WC_WR_FLUSH_ERR);
	usleep(20000);
	to(a, IBV_QPS_RESET, 0);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq));
}

// told writes, and waits until the completion has come, without polling it.
static void told(struct ibv_comp_channel *channel, struct ibv_cq *cq, struct ibv_qp *q, uint64_t id)
{
	void *context;
	CHECK(!ibv_req_notify_cq(cq, 0));
	write_to(q, id, 8, (uintptr_t)buf + 64, mr->rkey);
	struct pollfd event = { .fd = channel->fd, .events = POLLIN };
	CHECK(poll(&event, 1, 5000) == 1 && !ibv_get_cq_event(channel, &cq, &context));
	ibv_ack_cq_events(cq, 1);
}

// The places of completions that a reset withdraws are free at once, also behind one of another queue pair that
// the program has not polled: as many completions of that one as the queue has places come by polls alone.
static void withdrawn(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
	CHECK(channel);
	struct ibv_cq *cq = ibv_create_cq(ctx, 7, NULL, channel, 0), *other = ibv_create_cq(ctx, 31, NULL, NULL, 0);
	struct ibv_qp *kept = pair_in(pd, cq), *reset = pair_in(pd, cq), *peers[] = { pair_in(pd, other), pair_in(pd, other) };
	join(kept, peers[0]);
	join(reset, peers[1]);
	int room = cq->cqe, n = 0;
	CHECK(room == 7);
	told(channel, cq, reset, 99);
	told(channel, cq, kept, n++);
	told(channel, cq, reset, 100);
	told(channel, cq, kept, n++);
	while (n < room - 2) told(channel, cq, reset, 100 + (uint64_t)n++);
	to(reset, IBV_QPS_RESET, 0);
	for (n = 2; n < room; n++) told(channel, cq, kept, n);
	for (int i = 0; i < room; i++) {
		struct ibv_wc wc = next(cq);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.qp_num == kept->qp_num && wc.wr_id == (uint64_t)i);
	}
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	CHECK(!ibv_destroy_qp(kept) && !ibv_destroy_qp(reset) && !ibv_destroy_qp(peers[0]) && !ibv_destroy_qp(peers[1]));
	CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_cq(other) && !ibv_destroy_comp_channel(channel));
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*f)(void); } stories[] = {
		{ "polls", polls }, { "stamps", stamps }, { "moderated", moderated }, { "device", device }, { "domains", domains },
		{ "reregistered", reregistered }, { "imported", imported }, { "posts", posts }, { "dmabuf", dmabuf }, { "masked", masked },
		{ "withdrawn", withdrawn },
	};
	int n = 0;
	struct ibv_device **l = ibv_get_device_list(&n);
	CHECK(l && n == 1 && (ctx = ibv_open_device(l[0])) && (pd = ibv_alloc_pd(ctx)) && (mr = ibv_reg_mr(pd, buf, sizeof buf, ALL)));
	for (size_t i = 0; i < sizeof stories / sizeof stories[0]; i++)
		if (argc > 1 && !strcmp(argv[1], stories[i].name)) stories[i].f(), puts("ok");
	return 0;
}
