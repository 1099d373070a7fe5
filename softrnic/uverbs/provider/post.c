// Work requests by ibv_post_send, and the bell.
#define _GNU_SOURCE
#include "provider.h"
#include "rdmalabdv.h"

// post_bell tells the daemon that there are entries in a send ring. The preloaded library takes this
// command; if the queue pair takes sends, it asks nobody.
static int post_bell(struct pair *q)
{
	WITH_HEAD(struct ib_uverbs_post_send) cmd = { .c.qp_handle = q->qp.handle };
	struct ib_uverbs_post_send_resp got;
	return send_command(q->qp.context, IB_USER_VERBS_CMD_POST_SEND, &cmd, sizeof cmd, &got, sizeof got);
}

// complete_post makes the entries from `first` to before `end` visible to the daemon, and rings the
// bell. If the daemon refuses them, because the state of the queue pair does not allow sends or because
// of an injected fault, complete_post takes those back that the daemon has not taken; *taken is the
// number of the others. The caller holds the lock of the ring.
int complete_post(struct pair *q, uint32_t first, uint32_t end, uint32_t *taken)
{
	set_producer(&q->ring, end);
	int error = post_bell(q);
	uint32_t now = producer(&q->ring);
	*taken = (now - first) & q->ring.mask;
	if (error && now == end) set_producer(&q->ring, first), *taken = 0; // the daemon has taken none
	return error;
}

// MASKS is the offset of the masks of an atomic in an entry, where the rxe driver has the addresses of
// datagrams.
enum { MASKS = 56 };

// KNOWN has the bit 1 << opcode of each opcode that can be posted. Whether the queue pair has it, the NIC
// says by the status of the completion, as others do.
enum {
	KNOWN = 1 << IBV_WR_RDMA_WRITE | 1 << IBV_WR_RDMA_WRITE_WITH_IMM | 1 << IBV_WR_SEND | 1 << IBV_WR_SEND_WITH_IMM | 1 << IBV_WR_RDMA_READ |
		1 << IBV_WR_ATOMIC_CMP_AND_SWP | 1 << IBV_WR_ATOMIC_FETCH_AND_ADD | 1 << IBV_WR_LOCAL_INV | 1 << IBV_WR_BIND_MW |
		1 << IBV_WR_SEND_WITH_INV | 1 << IBV_WR_ATOMIC_WRITE | 1 << IBV_WR_DRIVER1,
};

// length_of returns the bytes of all pieces of a work request.
static uint64_t length_of(const struct ibv_send_wr *wr)
{
	uint64_t n = 0;
	for (int i = 0; i < wr->num_sge; i++) n += wr->sg_list[i].length;
	return n;
}

// masked_of returns a work request for masked atomics, or NULL if it is none.
static const struct rdmalabdv_send_wr *masked_of(const struct ibv_send_wr *wr)
{
	const struct rdmalabdv_send_wr *x = (const void *)wr;
	if (wr->opcode != IBV_WR_DRIVER1 || x->magic != RDMALABDV_MAGIC) return NULL;
	return x->operation == RDMALABDV_MASKED_CMP_SWAP || x->operation == RDMALABDV_MASKED_FETCH_ADD ? x : NULL;
}

// check returns the errno with which a work request is refused, or 0.
static int check(const struct pair *q, const struct ibv_send_wr *wr)
{
	uint32_t op = (uint32_t)wr->opcode;
	if (op >= 32 || !((uint32_t)KNOWN & 1u << op)) return EINVAL;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > q->sges) return EINVAL;
	if ((wr->send_flags & IBV_SEND_INLINE) && op != IBV_WR_ATOMIC_WRITE && length_of(wr) > q->inlined) return EINVAL;
	switch (op) {
	case IBV_WR_DRIVER1:
		if (!masked_of(wr)) return EINVAL;
		return length_of(wr) < 8 || wr->wr.atomic.remote_addr % 8 ? EINVAL : 0;
	case IBV_WR_BIND_MW:
		return wr->num_sge || q->qp.qp_type == IBV_QPT_UD ? EINVAL : 0;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return length_of(wr) < 8 || wr->wr.atomic.remote_addr % 8 ? EINVAL : 0;
	case IBV_WR_ATOMIC_WRITE:
		return wr->num_sge == 1 && wr->sg_list[0].length == 8 && wr->wr.rdma.remote_addr % 8 == 0 ? 0 : EINVAL;
	}
	return 0;
}

static void put_bind(struct rxe_send_wr *e, const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *b = &wr->bind_mw.bind_info;
	e->wr.mw.addr = b->addr, e->wr.mw.length = b->length, e->wr.mw.mr_lkey = b->mr ? b->mr->lkey : 0;
	e->wr.mw.mw_rkey = wr->bind_mw.mw->rkey, e->wr.mw.rkey = wr->bind_mw.rkey, e->wr.mw.access = b->mw_access_flags;
}

static void put_data(struct rxe_dma_info *d, const struct ibv_send_wr *wr)
{
	if (!(wr->send_flags & IBV_SEND_INLINE) && wr->opcode != IBV_WR_ATOMIC_WRITE) {
		d->num_sge = (uint32_t)wr->num_sge;
		memcpy(d->sge, wr->sg_list, (size_t)wr->num_sge * sizeof *wr->sg_list);
		return;
	}
	uint8_t *to = d->inline_data;
	for (int i = 0; i < wr->num_sge; to += wr->sg_list[i++].length) memcpy(to, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
	d->length = (uint32_t)(to - d->inline_data), d->num_sge = 0;
}

// put writes a work request to an entry: what the daemon reads (see package softrnic/uverbs).
static void put(const struct pair *q, struct rxe_send_wqe *w, const struct ibv_send_wr *wr)
{
	struct rxe_send_wr *e = &w->wr;
	e->wr_id = wr->wr_id, e->opcode = (uint32_t)wr->opcode, e->send_flags = wr->send_flags;
	e->ex.imm_data = wr->imm_data; // or the R_Key to invalidate
	w->dma.length = w->dma.num_sge = 0;
	if (q->qp.qp_type == IBV_QPT_XRC_SEND) memcpy((uint8_t *)e + SRQN, &wr->qp_type.xrc.remote_srqn, sizeof wr->qp_type.xrc.remote_srqn);
	const struct rdmalabdv_send_wr *masked;
	switch (wr->opcode) {
	case IBV_WR_BIND_MW:
		put_bind(e, wr);
		return;
	case IBV_WR_DRIVER1:
		masked = masked_of(wr);
		e->opcode = masked->operation;
		memcpy((uint8_t *)e + MASKS, &masked->compare_mask, sizeof masked->compare_mask);
		memcpy((uint8_t *)e + MASKS + 8, &masked->swap_mask, sizeof masked->swap_mask);
		// fall through
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		e->wr.atomic.remote_addr = wr->wr.atomic.remote_addr, e->wr.atomic.compare_add = wr->wr.atomic.compare_add;
		e->wr.atomic.swap = wr->wr.atomic.swap, e->wr.atomic.rkey = wr->wr.atomic.rkey;
		break;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		if (q->qp.qp_type != IBV_QPT_UD) break;
		e->wr.ud.remote_qpn = wr->wr.ud.remote_qpn, e->wr.ud.remote_qkey = wr->wr.ud.remote_qkey;
		e->wr.ud.ah_num = wr->wr.ud.ah ? ((struct address *)(void *)wr->wr.ud.ah)->number : 0;
		break;
	default:
		e->wr.rdma.remote_addr = wr->wr.rdma.remote_addr, e->wr.rdma.rkey = wr->wr.rdma.rkey;
	}
	put_data(&w->dma, wr);
}

int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct pair *q = (void *)qp;
	struct ibv_send_wr *list = wr;
	int error = 0;
	*bad = wr;
	if (!q->ring.q) return EINVAL; // a target of XRC
	lock(&q->lock);
	uint32_t first = producer(&q->ring), at = first;
	for (; wr; wr = wr->next, at = (at + 1) & q->ring.mask) {
		error = check(q, wr);
		if (!error && ((at + 1) & q->ring.mask) == consumer(&q->ring)) error = ENOMEM;
		if (error) {
			*bad = wr;
			break;
		}
		put(q, entry(&q->ring, at), wr);
	}
	if (at != first) {
		uint32_t taken;
		int refused = complete_post(q, first, at, &taken);
		if (refused) {
			error = refused;
			for (*bad = list; taken > 0 && *bad; taken--) *bad = (*bad)->next;
		}
	}
	unlock(&q->lock);
	return error;
}
