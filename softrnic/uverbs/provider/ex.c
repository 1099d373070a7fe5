// Work requests by ibv_wr_start, ibv_wr_*, ibv_wr_complete. An entry of the ring is written piece by
// piece; the daemon sees it when ibv_wr_complete makes it visible.
#define _GNU_SOURCE
#include "provider.h"

// later_ex is what newer versions have at the end of struct ibv_qp_ex.
struct later_ex {
	void (*wr_atomic_write)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr, const void *word);
	void (*wr_flush)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr, size_t length, uint8_t type, uint8_t level);
};
enum { LATER = offsetof(struct ibv_qp_ex, wr_abort) + sizeof(void *) };
enum { WR_ATOMIC_WRITE = 15, WR_FLUSH = 14, EX_FLUSH = 1 << 11, EX_ATOMIC_WRITE = 1 << 12 };

static struct pair *pair_of(struct ibv_qp_ex *x) { return (void *)x; }

// next takes the next free entry for a work request; NULL after an error, or if the ring is full.
static struct rxe_send_wqe *next(struct ibv_qp_ex *x, uint32_t op)
{
	struct pair *q = pair_of(x);
	if (!q->error && ((q->at + 1) & q->ring.mask) == consumer(&q->ring)) q->error = ENOMEM;
	if (q->error) return NULL;
	struct rxe_send_wqe *w = q->now = entry(&q->ring, q->at);
	q->at = (q->at + 1) & q->ring.mask;
	w->wr.wr_id = x->wr_id, w->wr.send_flags = x->wr_flags & ~(unsigned)IBV_SEND_INLINE, w->wr.opcode = op, w->wr.ex.imm_data = 0;
	w->dma.length = w->dma.num_sge = 0;
	return w;
}

static void put_remote(struct ibv_qp_ex *x, uint32_t op, uint32_t rkey, uint64_t addr, __be32 imm)
{
	struct rxe_send_wqe *w = next(x, op);
	if (w) w->wr.wr.rdma.remote_addr = addr, w->wr.wr.rdma.rkey = rkey, w->wr.ex.imm_data = imm;
}

static void put_send(struct ibv_qp_ex *x, uint32_t op, uint32_t word)
{
	struct rxe_send_wqe *w = next(x, op);
	if (w) w->wr.ex.invalidate_rkey = word;
}

static void put_atomic(struct ibv_qp_ex *x, uint32_t op, uint32_t rkey, uint64_t addr, uint64_t compare_add, uint64_t swap)
{
	struct pair *q = pair_of(x);
	struct rxe_send_wqe *w = next(x, op);
	if (!w) return;
	if (addr % 8) q->error = EINVAL;
	w->wr.wr.atomic.remote_addr = addr, w->wr.wr.atomic.compare_add = compare_add, w->wr.wr.atomic.swap = swap, w->wr.wr.atomic.rkey = rkey;
}

static void wr_cmp_swp(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap) { put_atomic(x, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap); }
static void wr_fetch_add(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, uint64_t add) { put_atomic(x, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0); }
static void wr_read(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr) { put_remote(x, IBV_WR_RDMA_READ, rkey, addr, 0); }
static void wr_write(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr) { put_remote(x, IBV_WR_RDMA_WRITE, rkey, addr, 0); }
static void wr_write_imm(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, __be32 imm) { put_remote(x, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm); }
static void wr_send(struct ibv_qp_ex *x) { put_send(x, IBV_WR_SEND, 0); }
static void wr_send_imm(struct ibv_qp_ex *x, __be32 imm) { put_send(x, IBV_WR_SEND_WITH_IMM, imm); }
static void wr_send_inv(struct ibv_qp_ex *x, uint32_t key) { put_send(x, IBV_WR_SEND_WITH_INV, key); }
static void wr_local_inv(struct ibv_qp_ex *x, uint32_t key) { put_send(x, IBV_WR_LOCAL_INV, key); }

static void wr_bind(struct ibv_qp_ex *x, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *b)
{
	struct rxe_send_wqe *w = next(x, IBV_WR_BIND_MW);
	if (!w) return;
	w->wr.wr.mw.addr = b->addr, w->wr.wr.mw.length = b->length, w->wr.wr.mw.mr_lkey = b->mr ? b->mr->lkey : 0;
	w->wr.wr.mw.mw_rkey = mw->rkey, w->wr.wr.mw.rkey = rkey, w->wr.wr.mw.access = b->mw_access_flags;
}

static void wr_atomic_write(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, const void *word)
{
	struct rxe_send_wqe *w = next(x, WR_ATOMIC_WRITE);
	if (!w) return;
	if (addr % 8) pair_of(x)->error = EINVAL;
	w->wr.wr.rdma.remote_addr = addr, w->wr.wr.rdma.rkey = rkey;
	memcpy(w->dma.inline_data, word, 8);
	w->dma.length = 8;
}

// wr_flush_range has a layout that the kernel's headers got later; see package softrnic/uverbs.
static void wr_flush_range(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, size_t length, uint8_t type, uint8_t level)
{
	struct { uint64_t addr; uint32_t length, rkey; uint8_t type, level; } f = { addr, (uint32_t)length, rkey, type, level };
	struct rxe_send_wqe *w = next(x, WR_FLUSH);
	if (!w) return;
	if (length > UINT32_MAX) pair_of(x)->error = EINVAL;
	memcpy(&w->wr.wr, &f, sizeof f);
	w->dma.length = (uint32_t)length;
}

// ---- what is set after an operation

static struct rxe_send_wqe *current(struct ibv_qp_ex *x)
{
	struct pair *q = pair_of(x);
	return q->error ? NULL : q->now;
}

static void set_ud_addr(struct ibv_qp_ex *x, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct rxe_send_wqe *w = current(x);
	if (w) w->wr.wr.ud.remote_qpn = qpn, w->wr.wr.ud.remote_qkey = qkey, w->wr.wr.ud.ah_num = ah ? ((struct address *)(void *)ah)->number : 0;
}

static void set_xrc_srqn(struct ibv_qp_ex *x, uint32_t number)
{
	struct rxe_send_wqe *w = current(x);
	if (w) memcpy((uint8_t *)&w->wr + SRQN, &number, sizeof number);
}

// add_inline adds bytes to the inline data of the current entry, and reports whether they fit.
static int add_inline(struct ibv_qp_ex *x, const void *b, size_t n)
{
	struct pair *q = pair_of(x);
	struct rxe_send_wqe *w = current(x);
	if (!w) return 0;
	if (n > q->inlined || w->dma.length > q->inlined - n) return q->error = ENOMEM, 0;
	w->wr.send_flags |= IBV_SEND_INLINE;
	memcpy(w->dma.inline_data + w->dma.length, b, n);
	w->dma.length += (uint32_t)n;
	return 1;
}

static void set_inline(struct ibv_qp_ex *x, void *b, size_t n) { add_inline(x, b, n); }

static void set_inline_list(struct ibv_qp_ex *x, size_t n, const struct ibv_data_buf *list)
{
	for (size_t i = 0; i < n && add_inline(x, list[i].addr, list[i].length); i++) {}
}

static void set_sge_list(struct ibv_qp_ex *x, size_t n, const struct ibv_sge *list)
{
	struct pair *q = pair_of(x);
	struct rxe_send_wqe *w = current(x);
	if (!w) return;
	if (n > q->sges) {
		q->error = ENOMEM;
		return;
	}
	w->dma.num_sge = (uint32_t)n;
	memcpy(w->dma.sge, list, n * sizeof *list);
}

static void set_sge(struct ibv_qp_ex *x, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge one = { addr, length, lkey };
	set_sge_list(x, length > 0, &one); // a message without data names no memory
}

// ---- start and end

static void wr_start(struct ibv_qp_ex *x)
{
	struct pair *q = pair_of(x);
	lock(&q->lock);
	q->at = producer(&q->ring);
	q->now = NULL;
	q->error = 0;
}

static int wr_complete(struct ibv_qp_ex *x)
{
	struct pair *q = pair_of(x);
	uint32_t first = producer(&q->ring), taken;
	int error = q->error;
	if (!error && q->at != first) error = complete_post(q, first, q->at, &taken);
	unlock(&q->lock);
	return error;
}

static void wr_abort(struct ibv_qp_ex *x) { unlock(&pair_of(x)->lock); }

enum {
	EX_UD = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	EX_UC = EX_UD | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV,
	EX_RC = EX_UC | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
};

// extended_of returns the operations that a queue pair type can have, as far as struct ibv_qp_ex of
// this libibverbs has them.
uint64_t extended_of(enum ibv_qp_type type)
{
	uint64_t later = 0;
	if (qp_ex_size >= LATER + offsetof(struct later_ex, wr_flush)) later |= EX_ATOMIC_WRITE;
	if (qp_ex_size >= LATER + sizeof(struct later_ex)) later |= EX_FLUSH;
	return type == IBV_QPT_RC ? EX_RC | later : type == IBV_QPT_XRC_SEND ? EX_RC : type == IBV_QPT_UC ? EX_UC : type == IBV_QPT_UD ? EX_UD : 0;
}

void set_extended(struct pair *q, uint64_t operations)
{
	struct ibv_qp_ex *x = &q->ex;
	struct later_ex *later = (void *)(q->room + LATER);
	x->wr_start = wr_start, x->wr_complete = wr_complete, x->wr_abort = wr_abort;
	x->wr_set_ud_addr = set_ud_addr, x->wr_set_inline_data = set_inline, x->wr_set_inline_data_list = set_inline_list;
	x->wr_set_sge = set_sge, x->wr_set_sge_list = set_sge_list, x->wr_set_xrc_srqn = set_xrc_srqn;
#define SET(bit, field, f) \
	if (operations & bit) x->field = f
	SET(IBV_QP_EX_WITH_SEND, wr_send, wr_send);
	SET(IBV_QP_EX_WITH_SEND_WITH_IMM, wr_send_imm, wr_send_imm);
	SET(IBV_QP_EX_WITH_SEND_WITH_INV, wr_send_inv, wr_send_inv);
	SET(IBV_QP_EX_WITH_RDMA_WRITE, wr_rdma_write, wr_write);
	SET(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, wr_rdma_write_imm, wr_write_imm);
	SET(IBV_QP_EX_WITH_RDMA_READ, wr_rdma_read, wr_read);
	SET(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, wr_atomic_cmp_swp, wr_cmp_swp);
	SET(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, wr_atomic_fetch_add, wr_fetch_add);
	SET(IBV_QP_EX_WITH_LOCAL_INV, wr_local_inv, wr_local_inv);
	SET(IBV_QP_EX_WITH_BIND_MW, wr_bind_mw, wr_bind);
#undef SET
	if (operations & EX_ATOMIC_WRITE) later->wr_atomic_write = wr_atomic_write;
	if (operations & EX_FLUSH) later->wr_flush = wr_flush_range;
}
