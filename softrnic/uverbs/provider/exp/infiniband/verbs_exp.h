// The calls ibv_exp_* of MLNX_OFED 4 over those of libibverbs and of this NIC, so that programs which
// use them compile and run as they are: device memory, masked atomics, the "experimental" forms of calls that
// libibverbs has today. Put the folder exp, in which this file is, first into the include path (-I): programs
// that include <infiniband/verbs.h> or <infiniband/verbs_exp.h> find these. There is nothing to link. Masked
// atomics and device memory need rdmalab's own provider.
//
// What the NIC does not have is refused with ENOTSUP, and the reason is written to stderr once: dynamically
// connected transport (DC), masked atomics of other lengths than 8 bytes, device memory at addresses other
// than 0, WAIT and ENABLE by work request. Resource domains are hints, and change nothing. Structs have the fields that these calls use, by their names, not the layout of
// MLNX_OFED: a program is compiled for one or the other.
#ifndef RDMALAB_VERBS_EXP_H
#define RDMALAB_VERBS_EXP_H
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../rdmalabdv.h"

#ifdef __cplusplus
extern "C" {
#endif

// rdmalab_exp_refuse says once why a call is refused, and returns ENOTSUP.
static inline int rdmalab_exp_refuse(int *said, const char *what)
{
	if (!*said) fprintf(stderr, "rdmalab: %s: not supported\n", what);
	*said = 1;
	return errno = ENOTSUP;
}

// ---- device

enum ibv_exp_device_attr_comp_mask {
	IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS = 1 << 3, IBV_EXP_DEVICE_DC_RD_REQ = 1 << 4, IBV_EXP_DEVICE_DC_RD_RES = 1 << 5,
	IBV_EXP_DEVICE_ATTR_UMR = 1 << 8, IBV_EXP_DEVICE_ATTR_EXT_ATOMIC_ARGS = 1 << 9, IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE = 1 << 30,
};

enum ibv_exp_device_cap_flags { IBV_EXP_DEVICE_DC_TRANSPORT = 1 << 0, IBV_EXP_DEVICE_EXT_ATOMICS = 1 << 1 };

enum ibv_exp_atomic_cap { IBV_EXP_ATOMIC_NONE, IBV_EXP_ATOMIC_HCA, IBV_EXP_ATOMIC_GLOB, IBV_EXP_ATOMIC_HCA_REPLY_BE };

#define IBV_EXP_DEVICE_ATTR_RESERVED (1u << 31)

struct ibv_exp_device_attr {
	int max_qp, max_qp_wr, max_sge, max_cq, max_cqe, max_mr, max_pd, max_srq, max_srq_wr, max_qp_rd_atom, max_qp_init_rd_atom;
	uint32_t comp_mask; // in: what is asked for; out: what is there
	uint64_t exp_device_cap_flags;
	enum ibv_exp_atomic_cap exp_atomic_cap;
	struct { uint64_t log_atomic_arg_sizes; uint32_t max_fa_bit_boundary, log_max_atomic_inline; } ext_atom;
	uint64_t max_dm_size;
	int max_dc_req_rd_atom, max_dc_res_rd_atom;
};

static inline int ibv_exp_query_device(struct ibv_context *c, struct ibv_exp_device_attr *a)
{
	const uint32_t known = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS | IBV_EXP_DEVICE_ATTR_EXT_ATOMIC_ARGS | IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE;
	uint32_t asked = a->comp_mask;
	struct ibv_device_attr_ex x;
	int error = ibv_query_device_ex(c, NULL, &x);
	if (error) return error;
	memset(a, 0, sizeof *a);
#define RDMALAB_EXP_COPY(name) a->name = x.orig_attr.name
	RDMALAB_EXP_COPY(max_qp), RDMALAB_EXP_COPY(max_qp_wr), RDMALAB_EXP_COPY(max_sge), RDMALAB_EXP_COPY(max_cq), RDMALAB_EXP_COPY(max_cqe);
	RDMALAB_EXP_COPY(max_mr), RDMALAB_EXP_COPY(max_pd), RDMALAB_EXP_COPY(max_srq), RDMALAB_EXP_COPY(max_srq_wr);
	RDMALAB_EXP_COPY(max_qp_rd_atom), RDMALAB_EXP_COPY(max_qp_init_rd_atom);
#undef RDMALAB_EXP_COPY
	a->max_dm_size = x.max_dm_size, a->comp_mask = asked & known;
	a->exp_device_cap_flags = IBV_EXP_DEVICE_EXT_ATOMICS, a->exp_atomic_cap = IBV_EXP_ATOMIC_HCA;
	a->ext_atom.log_atomic_arg_sizes = 8, a->ext_atom.max_fa_bit_boundary = 64, a->ext_atom.log_max_atomic_inline = 3; // bit 3: 8 bytes
	return 0;
}

// ---- device memory

struct ibv_exp_dm { struct ibv_dm *dm; };

struct ibv_exp_alloc_dm_attr { size_t length; uint32_t comp_mask; };

enum ibv_exp_memcpy_dm_dir { IBV_EXP_DM_CPY_TO_DEVICE, IBV_EXP_DM_CPY_TO_HOST };

struct ibv_exp_memcpy_dm_attr {
	enum ibv_exp_memcpy_dm_dir memcpy_dir;
	void *host_addr;
	uint64_t dm_offset;
	size_t length;
	uint32_t comp_mask;
};

static inline struct ibv_exp_dm *ibv_exp_alloc_dm(struct ibv_context *c, struct ibv_exp_alloc_dm_attr *a)
{
	struct ibv_alloc_dm_attr x;
	struct ibv_exp_dm *d;
	memset(&x, 0, sizeof x);
	x.length = a->length;
	if (a->comp_mask) return errno = EINVAL, (struct ibv_exp_dm *)NULL;
	if (!(d = (struct ibv_exp_dm *)malloc(sizeof *d))) return NULL;
	if ((d->dm = ibv_alloc_dm(c, &x))) return d;
	free(d);
	return NULL;
}

static inline int ibv_exp_free_dm(struct ibv_exp_dm *d)
{
	int error = ibv_free_dm(d->dm);
	if (!error) free(d);
	return error;
}

static inline int ibv_exp_memcpy_dm(struct ibv_exp_dm *d, struct ibv_exp_memcpy_dm_attr *a)
{
	if (a->comp_mask) return EINVAL;
	return a->memcpy_dir == IBV_EXP_DM_CPY_TO_DEVICE ? ibv_memcpy_to_dm(d->dm, a->dm_offset, a->host_addr, a->length)
	                                                 : ibv_memcpy_from_dm(a->host_addr, d->dm, a->dm_offset, a->length);
}

// ---- regions

enum ibv_exp_access_flags {
	IBV_EXP_ACCESS_LOCAL_WRITE = IBV_ACCESS_LOCAL_WRITE, IBV_EXP_ACCESS_REMOTE_WRITE = IBV_ACCESS_REMOTE_WRITE,
	IBV_EXP_ACCESS_REMOTE_READ = IBV_ACCESS_REMOTE_READ, IBV_EXP_ACCESS_REMOTE_ATOMIC = IBV_ACCESS_REMOTE_ATOMIC,
	IBV_EXP_ACCESS_MW_BIND = IBV_ACCESS_MW_BIND, IBV_EXP_ACCESS_ON_DEMAND = IBV_ACCESS_ON_DEMAND,
};

enum ibv_exp_reg_mr_in_comp_mask { IBV_EXP_REG_MR_CREATE_FLAGS = 1 << 0, IBV_EXP_REG_MR_DM = 1 << 1 };

struct ibv_exp_reg_mr_in {
	struct ibv_pd *pd;
	void *addr; // of device memory: the address at which peers find its first byte
	size_t length;
	uint64_t exp_access;
	uint32_t comp_mask, create_flags;
	struct ibv_exp_dm *dm;
	uint64_t dm_offset;
};

static inline struct ibv_mr *ibv_exp_reg_mr(struct ibv_exp_reg_mr_in *in)
{
	static int said;
	if ((in->comp_mask & ~(uint32_t)(IBV_EXP_REG_MR_CREATE_FLAGS | IBV_EXP_REG_MR_DM)) || in->create_flags)
		return rdmalab_exp_refuse(&said, "ibv_exp_reg_mr with create_flags or a comp_mask other than IBV_EXP_REG_MR_DM"), (struct ibv_mr *)NULL;
	if (!(in->comp_mask & IBV_EXP_REG_MR_DM)) return ibv_reg_mr(in->pd, in->addr, in->length, (int)in->exp_access);
	if (in->addr) return rdmalab_exp_refuse(&said, "ibv_exp_reg_mr of device memory at an address; its addresses begin at 0"), (struct ibv_mr *)NULL;
	return ibv_reg_dm_mr(in->pd, in->dm->dm, in->dm_offset, in->length, (unsigned)in->exp_access | IBV_ACCESS_ZERO_BASED);
}

// ---- resource domains, completion queues

enum ibv_exp_thread_model { IBV_EXP_THREAD_SAFE, IBV_EXP_THREAD_UNSAFE, IBV_EXP_THREAD_SINGLE };
enum ibv_exp_msg_model { IBV_EXP_MSG_DEFAULT, IBV_EXP_MSG_LOW_LATENCY, IBV_EXP_MSG_HIGH_BW, IBV_EXP_MSG_FORCE_LOW_LATENCY };
enum ibv_exp_res_domain_init_attr_comp_mask { IBV_EXP_RES_DOMAIN_THREAD_MODEL = 1 << 0, IBV_EXP_RES_DOMAIN_MSG_MODEL = 1 << 1 };

struct ibv_exp_res_domain { struct ibv_context *context; };
struct ibv_exp_res_domain_init_attr { uint32_t comp_mask; enum ibv_exp_thread_model thread_model; enum ibv_exp_msg_model msg_model; };

static inline struct ibv_exp_res_domain *ibv_exp_create_res_domain(struct ibv_context *c, struct ibv_exp_res_domain_init_attr *a)
{
	struct ibv_exp_res_domain *d = (struct ibv_exp_res_domain *)malloc(sizeof *d);
	(void)a;
	if (d) d->context = c;
	return d;
}

static inline int ibv_exp_destroy_res_domain(struct ibv_context *c, struct ibv_exp_res_domain *d, void *attr)
{
	(void)c, (void)attr;
	free(d);
	return 0;
}

enum ibv_exp_cq_init_attr_mask { IBV_EXP_CQ_INIT_ATTR_FLAGS = 1 << 0, IBV_EXP_CQ_INIT_ATTR_RES_DOMAIN = 1 << 1 };
struct ibv_exp_cq_init_attr { uint32_t comp_mask, flags; struct ibv_exp_res_domain *res_domain; };

static inline struct ibv_cq *ibv_exp_create_cq(struct ibv_context *c, int cqe, void *cq_context, struct ibv_comp_channel *ch, int vector, struct ibv_exp_cq_init_attr *a)
{
	static int said;
	if ((a->comp_mask & IBV_EXP_CQ_INIT_ATTR_FLAGS) && a->flags) return rdmalab_exp_refuse(&said, "ibv_exp_create_cq with flags"), (struct ibv_cq *)NULL;
	return ibv_create_cq(c, cqe, cq_context, ch, vector);
}

// ---- queue pairs

enum ibv_exp_qp_init_attr_comp_mask {
	IBV_EXP_QP_INIT_ATTR_PD = 1 << 0, IBV_EXP_QP_INIT_ATTR_XRCD = 1 << 1, IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS = 1 << 2,
	IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG = 1 << 5, IBV_EXP_QP_INIT_ATTR_RES_DOMAIN = 1 << 7,
};

enum ibv_exp_qp_create_flags { IBV_EXP_QP_CREATE_CROSS_CHANNEL = 1 << 2, IBV_EXP_QP_CREATE_ATOMIC_BE_REPLY = 1 << 14 };

// IBV_EXP_QPT_DC_INI is the type of queue pairs that send by DC. There are none.
#define IBV_EXP_QPT_DC_INI ((enum ibv_qp_type)32)

struct ibv_exp_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
	uint32_t comp_mask;
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	struct ibv_exp_res_domain *res_domain;
	uint32_t exp_create_flags, max_atomic_arg, max_inl_recv;
};

static inline struct ibv_qp *ibv_exp_create_qp(struct ibv_context *c, struct ibv_exp_qp_init_attr *a)
{
	static int dc, more, atomics;
	const uint32_t known = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS | IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG |
		IBV_EXP_QP_INIT_ATTR_RES_DOMAIN;
	struct ibv_qp_init_attr x;
	struct ibv_qp *q;
	(void)c;
	if (a->qp_type == IBV_EXP_QPT_DC_INI) return rdmalab_exp_refuse(&dc, "dynamically connected transport (IBV_EXP_QPT_DC_INI)"), (struct ibv_qp *)NULL;
	if ((a->comp_mask & ~known) || ((a->comp_mask & IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS) && a->exp_create_flags))
		return rdmalab_exp_refuse(&more, "ibv_exp_create_qp with exp_create_flags or XRC"), (struct ibv_qp *)NULL;
	if ((a->comp_mask & IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG) && a->max_atomic_arg > 8) // programs ask for 32 and use 8
		rdmalab_exp_refuse(&atomics, "atomics of more than 8 bytes (max_atomic_arg); the queue pair has those of 8");
	if (!(a->comp_mask & IBV_EXP_QP_INIT_ATTR_PD)) return errno = EINVAL, (struct ibv_qp *)NULL;
	memset(&x, 0, sizeof x);
	x.qp_context = a->qp_context, x.send_cq = a->send_cq, x.recv_cq = a->recv_cq, x.srq = a->srq, x.cap = a->cap, x.qp_type = a->qp_type, x.sq_sig_all = a->sq_sig_all;
	if ((q = ibv_create_qp(a->pd, &x))) a->cap = x.cap;
	return q;
}

// The bits of libibverbs, so that a program which uses those with ibv_exp_modify_qp is right as well, and those
// that MLNX_OFED has beside them.
enum ibv_exp_qp_attr_mask {
	IBV_EXP_QP_STATE = IBV_QP_STATE, IBV_EXP_QP_CUR_STATE = IBV_QP_CUR_STATE, IBV_EXP_QP_EN_SQD_ASYNC_NOTIFY = IBV_QP_EN_SQD_ASYNC_NOTIFY,
	IBV_EXP_QP_ACCESS_FLAGS = IBV_QP_ACCESS_FLAGS, IBV_EXP_QP_PKEY_INDEX = IBV_QP_PKEY_INDEX, IBV_EXP_QP_PORT = IBV_QP_PORT,
	IBV_EXP_QP_QKEY = IBV_QP_QKEY, IBV_EXP_QP_AV = IBV_QP_AV, IBV_EXP_QP_PATH_MTU = IBV_QP_PATH_MTU, IBV_EXP_QP_TIMEOUT = IBV_QP_TIMEOUT,
	IBV_EXP_QP_RETRY_CNT = IBV_QP_RETRY_CNT, IBV_EXP_QP_RNR_RETRY = IBV_QP_RNR_RETRY, IBV_EXP_QP_RQ_PSN = IBV_QP_RQ_PSN,
	IBV_EXP_QP_MAX_QP_RD_ATOMIC = IBV_QP_MAX_QP_RD_ATOMIC, IBV_EXP_QP_ALT_PATH = IBV_QP_ALT_PATH, IBV_EXP_QP_MIN_RNR_TIMER = IBV_QP_MIN_RNR_TIMER,
	IBV_EXP_QP_SQ_PSN = IBV_QP_SQ_PSN, IBV_EXP_QP_MAX_DEST_RD_ATOMIC = IBV_QP_MAX_DEST_RD_ATOMIC, IBV_EXP_QP_PATH_MIG_STATE = IBV_QP_PATH_MIG_STATE,
	IBV_EXP_QP_CAP = IBV_QP_CAP, IBV_EXP_QP_DEST_QPN = IBV_QP_DEST_QPN, IBV_EXP_QP_GROUP_RSS = 1 << 21, IBV_EXP_QP_DC_KEY = 1 << 22,
	IBV_EXP_QP_FLOW_ENTROPY = 1 << 23, IBV_EXP_QP_RATE_LIMIT = 1 << 25,
};

struct ibv_exp_qp_attr {
	enum ibv_qp_state qp_state, cur_qp_state;
	enum ibv_mtu path_mtu;
	enum ibv_mig_state path_mig_state;
	uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
	int qp_access_flags;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah_attr, alt_ah_attr;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry,
		alt_port_num, alt_timeout;
	uint64_t dct_key;
	uint32_t comp_mask, flow_entropy, rate_limit;
};

static inline int ibv_exp_modify_qp(struct ibv_qp *qp, struct ibv_exp_qp_attr *a, uint64_t mask)
{
	static int said;
	const uint64_t known = (IBV_EXP_QP_DEST_QPN << 1) - 1;
	struct ibv_qp_attr x;
	if ((mask & ~known) || a->comp_mask) return rdmalab_exp_refuse(&said, "ibv_exp_modify_qp of what libibverbs has not (DC key, RSS, flow entropy, rate limit)");
	memset(&x, 0, sizeof x);
#define RDMALAB_EXP_COPY(name) x.name = a->name
	RDMALAB_EXP_COPY(qp_state), RDMALAB_EXP_COPY(cur_qp_state), RDMALAB_EXP_COPY(path_mtu), RDMALAB_EXP_COPY(path_mig_state), RDMALAB_EXP_COPY(qkey);
	RDMALAB_EXP_COPY(rq_psn), RDMALAB_EXP_COPY(sq_psn), RDMALAB_EXP_COPY(dest_qp_num), RDMALAB_EXP_COPY(qp_access_flags), RDMALAB_EXP_COPY(cap);
	RDMALAB_EXP_COPY(ah_attr), RDMALAB_EXP_COPY(alt_ah_attr), RDMALAB_EXP_COPY(pkey_index), RDMALAB_EXP_COPY(alt_pkey_index);
	RDMALAB_EXP_COPY(en_sqd_async_notify), RDMALAB_EXP_COPY(max_rd_atomic), RDMALAB_EXP_COPY(max_dest_rd_atomic), RDMALAB_EXP_COPY(min_rnr_timer);
	RDMALAB_EXP_COPY(port_num), RDMALAB_EXP_COPY(timeout), RDMALAB_EXP_COPY(retry_cnt), RDMALAB_EXP_COPY(rnr_retry), RDMALAB_EXP_COPY(alt_port_num);
	RDMALAB_EXP_COPY(alt_timeout);
#undef RDMALAB_EXP_COPY
	return ibv_modify_qp(qp, &x, (int)mask);
}

// ---- work requests

enum ibv_exp_wr_opcode {
	IBV_EXP_WR_RDMA_WRITE = IBV_WR_RDMA_WRITE, IBV_EXP_WR_RDMA_WRITE_WITH_IMM = IBV_WR_RDMA_WRITE_WITH_IMM, IBV_EXP_WR_SEND = IBV_WR_SEND,
	IBV_EXP_WR_SEND_WITH_IMM = IBV_WR_SEND_WITH_IMM, IBV_EXP_WR_RDMA_READ = IBV_WR_RDMA_READ, IBV_EXP_WR_ATOMIC_CMP_AND_SWP = IBV_WR_ATOMIC_CMP_AND_SWP,
	IBV_EXP_WR_ATOMIC_FETCH_AND_ADD = IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_EXP_WR_SEND_ENABLE = 0x100, IBV_EXP_WR_RECV_ENABLE, IBV_EXP_WR_CQE_WAIT,
	IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP, IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD, IBV_EXP_WR_NOP,
};

enum ibv_exp_send_flags {
	IBV_EXP_SEND_FENCE = IBV_SEND_FENCE, IBV_EXP_SEND_SIGNALED = IBV_SEND_SIGNALED, IBV_EXP_SEND_SOLICITED = IBV_SEND_SOLICITED,
	IBV_EXP_SEND_INLINE = IBV_SEND_INLINE, IBV_EXP_SEND_EXT_ATOMIC_INLINE = 1 << 23,
};

struct ibv_exp_cmp_swap { uint64_t compare_mask, compare_val, swap_val, swap_mask; };
struct ibv_exp_fetch_add { uint64_t add_val, field_boundary; };

struct ibv_exp_send_wr {
	uint64_t wr_id;
	struct ibv_exp_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_exp_wr_opcode exp_opcode;
	union { uint32_t imm_data, invalidate_rkey; } ex; // immediate data in the byte order of the network
	union {
		struct { uint64_t remote_addr; uint32_t rkey; } rdma;
		struct { uint64_t remote_addr, compare_add, swap; uint32_t rkey; } atomic;
		struct { struct ibv_ah *ah; uint32_t remote_qpn, remote_qkey; } ud;
	} wr;
	struct { struct ibv_ah *ah; uint64_t dct_access_key; uint32_t dct_number; } dc;
	uint64_t exp_send_flags;
	uint32_t comp_mask;
	union {
		struct {
			uint32_t log_arg_sz; // 3: 8 bytes
			uint64_t remote_addr;
			uint32_t rkey;
			union {
				struct { union { struct ibv_exp_cmp_swap cmp_swap; struct ibv_exp_fetch_add fetch_add; } op; } inline_data;
			} wr_data;
		} masked_atomics;
	} ext_op;
};

// rdmalab_exp_convert writes a work request as this NIC takes it, without the next one.
static inline int rdmalab_exp_convert(struct rdmalabdv_send_wr *to, const struct ibv_exp_send_wr *w)
{
	static int other, length;
	struct ibv_send_wr *x = &to->wr;
	memset(to, 0, sizeof *to);
	x->wr_id = w->wr_id, x->sg_list = w->sg_list, x->num_sge = w->num_sge, x->imm_data = w->ex.imm_data;
	x->send_flags = (unsigned)(w->exp_send_flags & ~(uint64_t)IBV_EXP_SEND_EXT_ATOMIC_INLINE);
	if (w->exp_opcode < IBV_EXP_WR_SEND_ENABLE) {
		x->opcode = (enum ibv_wr_opcode)w->exp_opcode;
		memcpy(&x->wr, &w->wr, sizeof w->wr); // these are the fields of libibverbs
		return 0;
	}
	if (w->exp_opcode != IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP && w->exp_opcode != IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD)
		return rdmalab_exp_refuse(&other, "ibv_exp_post_send of WAIT, ENABLE and NOP; rdmalabdv.h has send rings");
	if (w->ext_op.masked_atomics.log_arg_sz != 3 || !(w->exp_send_flags & IBV_EXP_SEND_EXT_ATOMIC_INLINE))
		return rdmalab_exp_refuse(&length, "masked atomics other than inline ones of 8 bytes");
	x->opcode = IBV_WR_DRIVER1, to->magic = RDMALABDV_MAGIC;
	x->wr.atomic.remote_addr = w->ext_op.masked_atomics.remote_addr, x->wr.atomic.rkey = w->ext_op.masked_atomics.rkey;
	if (w->exp_opcode == IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP) {
		const struct ibv_exp_cmp_swap *s = &w->ext_op.masked_atomics.wr_data.inline_data.op.cmp_swap;
		to->operation = RDMALABDV_MASKED_CMP_SWAP, to->compare_mask = s->compare_mask, to->swap_mask = s->swap_mask;
		x->wr.atomic.compare_add = s->compare_val, x->wr.atomic.swap = s->swap_val;
	} else {
		const struct ibv_exp_fetch_add *f = &w->ext_op.masked_atomics.wr_data.inline_data.op.fetch_add;
		to->operation = RDMALABDV_MASKED_FETCH_ADD, to->compare_mask = f->field_boundary, x->wr.atomic.compare_add = f->add_val;
	}
	return 0;
}

// RDMALAB_EXP_LIST is how many work requests are posted together. A longer list is posted in parts.
enum { RDMALAB_EXP_LIST = 16 };

static inline int ibv_exp_post_send(struct ibv_qp *qp, struct ibv_exp_send_wr *wr, struct ibv_exp_send_wr **bad)
{
	while (wr) {
		struct rdmalabdv_send_wr list[RDMALAB_EXP_LIST];
		struct ibv_exp_send_wr *at[RDMALAB_EXP_LIST];
		struct ibv_send_wr *failed = NULL;
		int n = 0, refused = 0, error;
		for (; wr && n < RDMALAB_EXP_LIST && !(refused = rdmalab_exp_convert(&list[n], wr)); wr = wr->next) {
			if (n > 0) list[n - 1].wr.next = &list[n].wr;
			at[n++] = wr;
		}
		if (n > 0 && (error = ibv_post_send(qp, &list[0].wr, &failed))) {
			for (int i = 0; i < n; i++)
				if (failed == &list[i].wr) *bad = at[i];
			return error;
		}
		if (refused) return *bad = wr, refused;
	}
	return 0;
}

// ---- dynamically connected transport: refused

struct ibv_exp_dct { struct ibv_context *context; uint32_t handle, dct_num; struct ibv_pd *pd; struct ibv_srq *srq; struct ibv_cq *cq; };

struct ibv_exp_dct_init_attr {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	uint64_t dc_key;
	uint8_t port;
	uint32_t access_flags;
	uint8_t min_rnr_timer, tclass;
	uint32_t flow_label;
	enum ibv_mtu mtu;
	uint8_t pkey_index, gid_index, hop_limit;
	uint32_t inline_size, create_flags, comp_mask;
};

struct ibv_exp_dct_attr { uint64_t dc_key; uint8_t port; uint32_t access_flags, comp_mask; };

static inline struct ibv_exp_dct *ibv_exp_create_dct(struct ibv_context *c, struct ibv_exp_dct_init_attr *a)
{
	static int said;
	(void)c, (void)a;
	return rdmalab_exp_refuse(&said, "dynamically connected transport (ibv_exp_create_dct)"), (struct ibv_exp_dct *)NULL;
}

static inline int ibv_exp_destroy_dct(struct ibv_exp_dct *d)
{
	(void)d;
	return EINVAL; // there is none
}

static inline int ibv_exp_query_dct(struct ibv_exp_dct *d, struct ibv_exp_dct_attr *a)
{
	(void)d, (void)a;
	return EINVAL;
}

#ifdef __cplusplus
}
#endif
#endif
