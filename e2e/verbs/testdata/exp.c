// A program over the experimental calls of MLNX_OFED 4, as academic code makes them (Sherman, SMART, Aceso, pDPM): locks in device
// memory, taken by masked atomics; dynamically connected transport is asked for, and refused. It is compiled with the folder
// of verbs_exp.h in the include path.
#include "pair.h"

enum { LOCKS = 4096, MOST = 256 * 1024, SGID = 1, ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

static uint64_t words[512];
static struct ibv_mr *mine, *locks;
static struct ibv_exp_dm *dm;
static struct ibv_cq *cq;

static void limits(void)
{
	struct ibv_exp_device_attr a;
	a.comp_mask = IBV_EXP_DEVICE_ATTR_UMR | IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE;
	OK(!ibv_exp_query_device(ctx, &a));
	expect(a.comp_mask == IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE && a.max_dm_size >= MOST && a.max_qp > 0, "comp_mask %#x, %llu bytes of device memory", a.comp_mask, (unsigned long long)a.max_dm_size);
	a.comp_mask = IBV_EXP_DEVICE_ATTR_RESERVED - 1;
	OK(!ibv_exp_query_device(ctx, &a));
	expect(a.exp_device_cap_flags == IBV_EXP_DEVICE_EXT_ATOMICS && a.ext_atom.log_atomic_arg_sizes == 8, "extended atomics of 8 bytes, no DC");
}

static void memory(void)
{
	struct ibv_exp_alloc_dm_attr size;
	memset(&size, 0, sizeof size);
	size.length = MOST; // all that a ConnectX-5 has: the lock table of Sherman
	OK(dm = ibv_exp_alloc_dm(ctx, &size));
	OK(!ibv_exp_free_dm(dm));
	size.length = LOCKS;
	OK(dm = ibv_exp_alloc_dm(ctx, &size));
	struct ibv_exp_reg_mr_in in;
	memset(&in, 0, sizeof in);
	in.pd = pd, in.length = LOCKS, in.exp_access = ALL, in.dm = dm, in.comp_mask = IBV_EXP_REG_MR_DM;
	OK(locks = ibv_exp_reg_mr(&in));
	in.addr = words;
	expect(!ibv_exp_reg_mr(&in) && errno == ENOTSUP, "device memory at an address");
	in.comp_mask = 0, in.length = sizeof words;
	OK(mine = ibv_exp_reg_mr(&in));
	struct ibv_exp_memcpy_dm_attr copy;
	memset(&copy, 0, sizeof copy);
	copy.memcpy_dir = IBV_EXP_DM_CPY_TO_DEVICE, copy.host_addr = words, copy.length = LOCKS;
	for (int i = 0; i < 512; i++) words[i] = 0x100ull * (unsigned)i;
	OK(!ibv_exp_memcpy_dm(dm, &copy));
	memset(words, 0xff, sizeof words);
	copy.memcpy_dir = IBV_EXP_DM_CPY_TO_HOST, copy.dm_offset = 2048, copy.length = 8;
	OK(!ibv_exp_memcpy_dm(dm, &copy));
	expect(words[0] == 0x100ull * 256 && words[1] == ~0ull, "%llx", (unsigned long long)words[0]);
}

static struct ibv_qp *new_qp(uint32_t most)
{
	struct ibv_exp_qp_init_attr a;
	memset(&a, 0, sizeof a);
	a.qp_type = IBV_QPT_RC, a.send_cq = a.recv_cq = cq, a.pd = pd, a.max_atomic_arg = most;
	a.comp_mask = IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS | IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG;
	a.cap.max_send_wr = 64, a.cap.max_recv_wr = 4, a.cap.max_send_sge = a.cap.max_recv_sge = 1;
	struct ibv_qp *q = ibv_exp_create_qp(ctx, &a);
	OK(q);
	return q;
}

// connect brings a to RTS with peer b, by ibv_exp_modify_qp with the names of MLNX_OFED.
static void connect_exp(struct ibv_qp *a, struct ibv_qp *b)
{
	struct ibv_exp_qp_attr x;
	memset(&x, 0, sizeof x);
	x.qp_state = IBV_QPS_INIT, x.port_num = 1, x.qp_access_flags = ALL, x.dct_key = 7; // dct_key: not in the mask
	OK(!(errno = ibv_exp_modify_qp(a, &x, IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT | IBV_EXP_QP_ACCESS_FLAGS)));
	errno = 0;
	expect(ibv_exp_modify_qp(a, &x, IBV_EXP_QP_STATE | IBV_EXP_QP_DC_KEY) == ENOTSUP && errno == ENOTSUP, "a DC key: %s", strerror(errno));
	x.qp_state = IBV_QPS_RTR, x.path_mtu = IBV_MTU_1024, x.dest_qp_num = b->qp_num, x.rq_psn = 5, x.max_dest_rd_atomic = 16, x.min_rnr_timer = 12;
	x.ah_attr.is_global = 1, x.ah_attr.port_num = 1, x.ah_attr.grh.hop_limit = 1, x.ah_attr.grh.sgid_index = SGID;
	OK(!ibv_query_gid(ctx, 1, SGID, &x.ah_attr.grh.dgid));
	OK(!(errno = ibv_exp_modify_qp(a, &x, IBV_EXP_QP_STATE | IBV_EXP_QP_AV | IBV_EXP_QP_PATH_MTU | IBV_EXP_QP_DEST_QPN | IBV_EXP_QP_RQ_PSN |
		IBV_EXP_QP_MAX_DEST_RD_ATOMIC | IBV_EXP_QP_MIN_RNR_TIMER)));
	x.qp_state = IBV_QPS_RTS, x.sq_psn = 5, x.timeout = 14, x.retry_cnt = 7, x.rnr_retry = 7, x.max_rd_atomic = 16;
	OK(!(errno = ibv_exp_modify_qp(a, &x, IBV_EXP_QP_STATE | IBV_EXP_QP_SQ_PSN | IBV_EXP_QP_TIMEOUT | IBV_EXP_QP_RETRY_CNT | IBV_EXP_QP_RNR_RETRY |
		IBV_EXP_QP_MAX_QP_RD_ATOMIC)));
}

static struct ibv_exp_send_wr request(enum ibv_exp_wr_opcode op, struct ibv_sge *s, uint64_t at)
{
	struct ibv_exp_send_wr w;
	memset(&w, 0, sizeof w);
	s->addr = (uintptr_t)words, s->length = 8, s->lkey = mine->lkey;
	w.sg_list = s, w.num_sge = 1, w.exp_opcode = op, w.exp_send_flags = IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_EXT_ATOMIC_INLINE;
	w.ext_op.masked_atomics.log_arg_sz = 3, w.ext_op.masked_atomics.remote_addr = at, w.ext_op.masked_atomics.rkey = locks->rkey;
	return w;
}

static void completes(enum ibv_wc_opcode op)
{
	struct ibv_wc wc = next(cq);
	expect(wc.status == IBV_WC_SUCCESS && wc.opcode == op, "%s, opcode %d", ibv_wc_status_str(wc.status), wc.opcode);
}

static void atomics(struct ibv_qp *q)
{
	struct ibv_sge s;
	struct ibv_exp_send_wr w = request(IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP, &s, 8), *bad = NULL;
	struct ibv_exp_cmp_swap *c = &w.ext_op.masked_atomics.wr_data.inline_data.op.cmp_swap;
	c->compare_val = 0, c->compare_mask = 0xff, c->swap_val = 7, c->swap_mask = 0xff; // the word is 0x100
	OK(!(errno = ibv_exp_post_send(q, &w, &bad)));
	completes(IBV_WC_COMP_SWAP);
	expect(words[0] == 0x100, "masked CAS returns %llx", (unsigned long long)words[0]);
	w = request(IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD, &s, 8);
	w.ext_op.masked_atomics.wr_data.inline_data.op.fetch_add.add_val = 0xf9, w.ext_op.masked_atomics.wr_data.inline_data.op.fetch_add.field_boundary = 1ull << 7;
	OK(!(errno = ibv_exp_post_send(q, &w, &bad)));
	completes(IBV_WC_FETCH_ADD);
	expect(words[0] == 0x107, "masked ADD returns %llx", (unsigned long long)words[0]);
	w = request(IBV_EXP_WR_RDMA_READ, &s, 0);
	w.wr.rdma.remote_addr = 8, w.wr.rdma.rkey = locks->rkey;
	OK(!(errno = ibv_exp_post_send(q, &w, &bad)));
	completes(IBV_WC_RDMA_READ);
	expect(words[0] == 0x100, "the low byte has not carried: %llx", (unsigned long long)words[0]);
	w = request(IBV_EXP_WR_ATOMIC_FETCH_AND_ADD, &s, 0);
	w.wr.atomic.remote_addr = 8, w.wr.atomic.rkey = locks->rkey, w.wr.atomic.compare_add = 1;
	OK(!(errno = ibv_exp_post_send(q, &w, &bad)));
	completes(IBV_WC_FETCH_ADD);
}

// lists: a list that is longer than what is posted at once, with a request that is refused in it.
static void lists(struct ibv_qp *q)
{
	struct ibv_exp_send_wr w[40], *bad = NULL;
	struct ibv_sge s[40];
	for (int i = 0; i < 40; i++) {
		w[i] = request(IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD, &s[i], 64);
		w[i].wr_id = (uint64_t)i, w[i].next = i < 39 ? &w[i + 1] : NULL;
		w[i].ext_op.masked_atomics.wr_data.inline_data.op.fetch_add.add_val = 1;
	}
	OK(!(errno = ibv_exp_post_send(q, w, &bad)));
	for (int i = 0; i < 40; i++) expect(next(cq).wr_id == (uint64_t)i, "completion %d", i);
	w[20].ext_op.masked_atomics.log_arg_sz = 4; // 16 bytes
	expect(ibv_exp_post_send(q, w, &bad) == ENOTSUP && bad == &w[20], "16 bytes, at %d", (int)(bad - w));
	for (int i = 0; i < 20; i++) expect(next(cq).wr_id == (uint64_t)i, "completion %d", i);
	w[0].exp_opcode = IBV_EXP_WR_CQE_WAIT;
	expect(ibv_exp_post_send(q, w, &bad) == ENOTSUP && bad == w, "WAIT");
	w[0] = request(IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD, &s[0], 64);
	w[1] = request(IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD, &s[1], 65);
	w[0].next = &w[1];
	expect(ibv_exp_post_send(q, w, &bad) == EINVAL && bad == &w[1], "a word that is not aligned");
	completes(IBV_WC_FETCH_ADD);
	expect(words[0] == 0x800 + 60, "%llu", (unsigned long long)words[0] - 0x800);
}

// published makes the queue pairs of Aceso, with its attributes.
static void published(void)
{
	struct ibv_exp_qp_init_attr a;
	for (int datagrams = 0; datagrams < 2; datagrams++) {
		memset(&a, 0, sizeof a);
		a.qp_type = datagrams ? IBV_QPT_UD : IBV_QPT_RC, a.send_cq = a.recv_cq = cq, a.pd = pd, a.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
		a.cap.max_send_wr = datagrams ? 1024 : 512, a.cap.max_recv_wr = datagrams ? 1024 : 1, a.cap.max_inline_data = 256;
		a.cap.max_send_sge = a.cap.max_recv_sge = datagrams ? 1 : 16;
		if (!datagrams) a.comp_mask |= IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS | IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG, a.max_atomic_arg = 8;
		struct ibv_qp *q = ibv_exp_create_qp(ctx, &a);
		OK(q);
		expect(a.cap.max_send_wr >= (datagrams ? 1024 : 512) && a.cap.max_inline_data >= 256, "%u sends, %u bytes inline", a.cap.max_send_wr, a.cap.max_inline_data);
		OK(!ibv_destroy_qp(q));
	}
}

static void refused(void)
{
	struct ibv_exp_dct_init_attr d;
	memset(&d, 0, sizeof d);
	d.pd = pd, d.cq = cq;
	errno = 0;
	expect(!ibv_exp_create_dct(ctx, &d) && errno == ENOTSUP, "a DC target: %s", strerror(errno));
	struct ibv_exp_qp_init_attr a;
	memset(&a, 0, sizeof a);
	a.qp_type = IBV_EXP_QPT_DC_INI, a.send_cq = a.recv_cq = cq, a.pd = pd, a.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
	errno = 0;
	expect(!ibv_exp_create_qp(ctx, &a) && errno == ENOTSUP, "a DC initiator: %s", strerror(errno));
	a.qp_type = IBV_QPT_RC, a.comp_mask |= IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS, a.exp_create_flags = IBV_EXP_QP_CREATE_CROSS_CHANNEL;
	errno = 0;
	expect(!ibv_exp_create_qp(ctx, &a) && errno == ENOTSUP, "flags: %s", strerror(errno));
	a.exp_create_flags = IBV_EXP_QP_CREATE_ATOMIC_BE_REPLY; // pDPM, built for Connect-IB: it would swap the bytes of results
	expect(!ibv_exp_create_qp(ctx, &a) && errno == ENOTSUP, "big-endian results: %s", strerror(errno));
}

int main(void)
{
	open_first();
	limits();
	memory();
	struct ibv_exp_res_domain_init_attr ra;
	memset(&ra, 0, sizeof ra);
	struct ibv_exp_cq_init_attr ca;
	memset(&ca, 0, sizeof ca);
	OK(ca.res_domain = ibv_exp_create_res_domain(ctx, &ra));
	ca.comp_mask = IBV_EXP_CQ_INIT_ATTR_RES_DOMAIN;
	OK(cq = ibv_exp_create_cq(ctx, 128, NULL, NULL, 0, &ca));
	struct ibv_qp *a = new_qp(8), *b = new_qp(32);
	connect_exp(a, b);
	connect_exp(b, a);
	atomics(a);
	lists(a);
	published();
	refused();
	OK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq) && !ibv_exp_destroy_res_domain(ctx, ca.res_domain, NULL));
	OK(!ibv_dereg_mr(locks) && !ibv_exp_free_dm(dm));
	printf("%d wrong\n", wrong);
	return !!wrong;
}
