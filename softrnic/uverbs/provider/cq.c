// Completion queues: the daemon writes completions to a ring, and the program polls it by ibv_poll_cq
// or by the extended interface, ibv_start_poll to ibv_end_poll.
#define _GNU_SOURCE
#include <time.h>

#include "provider.h"

// An entry of the ring is a completion, and behind it its timestamp if the program wants one.
struct stamped { struct ib_uverbs_wc wc; uint64_t nanoseconds; };
_Static_assert(sizeof(struct ib_uverbs_wc) == sizeof(struct ibv_wc), "completions are copied");

static struct completions *completions_of(struct ibv_cq_ex *x) { return (void *)x; }

// owner_of returns the number of an entry's queue pair. 0: the completion is withdrawn, because its queue pair was
// reset. The daemon withdraws completions of a target of XRC, which another process may have reset, at any time.
static _Atomic uint32_t *owner_of(const struct completions *c, uint32_t at)
{
	struct stamped *s = entry(&c->ring, at);
	return (_Atomic uint32_t *)&s->wc.qp_num;
}

int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct completions *c = (void *)cq;
	int got = 0;
	lock(&c->lock);
	uint32_t first = consumer(&c->ring), at = first, end = producer(&c->ring);
	for (; got < n && at != end; at = (at + 1) & c->ring.mask) {
		memcpy(&wc[got], entry(&c->ring, at), sizeof *wc);
		got += wc[got].qp_num != 0;
	}
	if (at != first) set_consumer(&c->ring, at);
	unlock(&c->lock);
	return got;
}

// move_completion copies the entry at `from` to `to`, which is behind it. The daemon may withdraw it meanwhile; it looks at
// entries from the first to the last, so what it misses at `to` it has withdrawn at `from` before that.
static void move_completion(struct completions *c, uint32_t from, uint32_t to)
{
	memcpy(entry(&c->ring, to), entry(&c->ring, from), sizeof(struct stamped));
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(owner_of(c, from), memory_order_relaxed)) atomic_store_explicit(owner_of(c, to), 0, memory_order_relaxed);
}

// forget_completions removes the completions of a queue pair that is in RESET: they are about work requests that do
// not exist any more. The others move up to the newest entry, so that the places of all removed ones are free.
void forget_completions(struct ibv_cq *cq, uint32_t qp_num)
{
	struct completions *c = (void *)cq;
	lock(&c->lock);
	uint32_t first = consumer(&c->ring), end = producer(&c->ring), to = end;
	for (uint32_t at = end; at != first;) {
		at = (at - 1) & c->ring.mask;
		uint32_t owner = atomic_load_explicit(owner_of(c, at), memory_order_relaxed);
		if (!owner || owner == qp_num) continue;
		to = (to - 1) & c->ring.mask;
		if (to != at) move_completion(c, at, to);
	}
	set_consumer(&c->ring, to);
	unlock(&c->lock);
}

// ---- the extended interface

// find makes the first completion from index `at` on the current one. ENOENT: there is none before `end`.
static int find(struct completions *c, uint32_t at, uint32_t end)
{
	for (; at != end; at = (at + 1) & c->ring.mask) {
		uint32_t owner = atomic_load_explicit(owner_of(c, at), memory_order_relaxed);
		if (!owner) continue;
		c->at = at, c->qp_num = owner;
		c->now = entry(&c->ring, at);
		c->ex.status = (enum ibv_wc_status)c->now->status;
		c->ex.wr_id = c->now->wr_id;
		return 0;
	}
	return ENOENT;
}

static int start_poll(struct ibv_cq_ex *x, struct ibv_poll_cq_attr *a)
{
	struct completions *c = completions_of(x);
	if (a && a->comp_mask) return EINVAL;
	lock(&c->lock);
	uint32_t first = consumer(&c->ring), end = producer(&c->ring);
	if (!find(c, first, end)) return 0;
	if (first != end) set_consumer(&c->ring, end);
	unlock(&c->lock);
	// The preloaded library yields the processor in empty polls; it knows only of this function.
	c->cq.context->ops.poll_cq(&c->cq, 0, NULL);
	return ENOENT;
}

// next_poll keeps the lock and the current completion when there is no further one: the program then
// calls end_poll, which frees the completion.
static int next_poll(struct ibv_cq_ex *x)
{
	struct completions *c = completions_of(x);
	return find(c, (c->at + 1) & c->ring.mask, producer(&c->ring));
}

static void end_poll(struct ibv_cq_ex *x)
{
	struct completions *c = completions_of(x);
	set_consumer(&c->ring, c->at + 1);
	unlock(&c->lock);
}

#define READ(type, name, value) \
	static type read_##name(struct ibv_cq_ex *x) { const struct ib_uverbs_wc *now = completions_of(x)->now; return (type)(value); }
READ(enum ibv_wc_opcode, opcode, now->opcode)
READ(uint32_t, vendor_err, now->vendor_err)
READ(uint32_t, byte_len, now->byte_len)
READ(__be32, imm_data, now->ex.imm_data)
static uint32_t read_qp_num(struct ibv_cq_ex *x) { return completions_of(x)->qp_num; }
READ(uint32_t, src_qp, now->src_qp)
READ(unsigned int, wc_flags, now->wc_flags)
READ(uint32_t, slid, now->slid)
READ(uint8_t, sl, now->sl)
READ(uint8_t, dlid_path_bits, now->dlid_path_bits)
READ(uint64_t, completion_ts, ((const struct stamped *)now)->nanoseconds)

// read_wallclock converts a timestamp by what the two clocks are now.
static uint64_t read_wallclock(struct ibv_cq_ex *x)
{
	struct timespec stamp, wall;
	read_clock(&stamp);
	clock_gettime(CLOCK_REALTIME, &wall);
	int64_t ahead = ((int64_t)wall.tv_sec - stamp.tv_sec) * 1000000000 + wall.tv_nsec - stamp.tv_nsec;
	return read_completion_ts(x) + (uint64_t)ahead;
}

static void set_extended_poll(struct ibv_cq_ex *x, uint64_t fields)
{
	x->start_poll = start_poll, x->next_poll = next_poll, x->end_poll = end_poll;
	x->read_opcode = read_opcode, x->read_vendor_err = read_vendor_err, x->read_wc_flags = read_wc_flags;
	if (fields & IBV_WC_EX_WITH_BYTE_LEN) x->read_byte_len = read_byte_len;
	if (fields & IBV_WC_EX_WITH_IMM) x->read_imm_data = read_imm_data;
	if (fields & IBV_WC_EX_WITH_QP_NUM) x->read_qp_num = read_qp_num;
	if (fields & IBV_WC_EX_WITH_SRC_QP) x->read_src_qp = read_src_qp;
	if (fields & IBV_WC_EX_WITH_SLID) x->read_slid = read_slid;
	if (fields & IBV_WC_EX_WITH_SL) x->read_sl = read_sl;
	if (fields & IBV_WC_EX_WITH_DLID_PATH_BITS) x->read_dlid_path_bits = read_dlid_path_bits;
	if (fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) x->read_completion_ts = read_completion_ts;
	if (fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) x->read_completion_wallclock_ns = read_wallclock;
}

// ---- making and ending

// new_queue makes a completion queue. flags are those of the extended command.
static struct completions *new_queue(struct ibv_context *context, uint32_t cqe, struct ibv_comp_channel *channel, uint32_t vector, uint32_t flags)
{
	struct completions *c = calloc(1, sizeof *c);
	if (!c) return NULL;
	WITH_HEADS(struct ib_uverbs_ex_create_cq) cmd = {
		.c = { .user_handle = (uintptr_t)c, .cqe = cqe, .comp_vector = vector, .comp_channel = channel ? channel->fd : -1, .flags = flags },
	};
	struct { struct ib_uverbs_ex_create_cq_resp r; struct mminfo ring; } got = { 0 };
	int error = send_extended(context, IB_USER_VERBS_EX_CMD_CREATE_CQ, &cmd, sizeof cmd, &got, sizeof got);
	if (error) return fail(c, error);
	c->cq.context = context;
	c->cq.handle = got.r.base.cq_handle;
	c->cq.cqe = (int)got.r.base.cqe;
	if (!(error = map_ring(&c->ring, context->cmd_fd, &got.ring, sizeof(struct stamped)))) return c;
	WITH_HEAD(struct ib_uverbs_destroy_cq) end = { .c.cq_handle = c->cq.handle };
	struct ib_uverbs_destroy_cq_resp ended;
	send_command(context, IB_USER_VERBS_CMD_DESTROY_CQ, &end, sizeof end, &ended, sizeof ended);
	return fail(c, error);
}

struct ibv_cq *create_cq(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel, int vector)
{
	struct completions *c = new_queue(context, (uint32_t)cqe, channel, (uint32_t)vector, 0);
	return c ? &c->cq : NULL;
}

struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *a)
{
	const uint64_t stamps = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	uint32_t asked = a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? a->flags : 0, flags = 0;
	if ((a->wc_flags & ~(IBV_WC_STANDARD_FLAGS | stamps)) || (a->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) ||
	    (asked & ~(uint32_t)(IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)))
		return errno = EOPNOTSUPP, NULL;
	if (a->wc_flags & stamps) flags |= IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION;
	if (asked & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) flags |= IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
	const struct domain *parent = a->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? (void *)a->parent_domain : NULL;
	if ((a->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) && (!parent || !parent->of)) return errno = EINVAL, NULL;
	struct completions *c = new_queue(context, a->cqe, a->channel, a->comp_vector, flags);
	if (!c) return NULL;
	c->lock.none = (asked & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) || (parent && parent->one_thread);
	set_extended_poll(&c->ex, a->wc_flags);
	return &c->ex;
}

int destroy_cq(struct ibv_cq *cq)
{
	struct completions *c = (void *)cq;
	WITH_HEAD(struct ib_uverbs_destroy_cq) cmd = { .c.cq_handle = cq->handle };
	struct ib_uverbs_destroy_cq_resp got = { 0 };
	int error = send_command(cq->context, IB_USER_VERBS_CMD_DESTROY_CQ, &cmd, sizeof cmd, &got, sizeof got);
	if (error) return error;
	wait_for_events(&cq->mutex, &cq->cond, &cq->comp_events_completed, got.comp_events_reported);
	wait_for_events(&cq->mutex, &cq->cond, &cq->async_events_completed, got.async_events_reported);
	unmap_ring(&c->ring);
	free(c);
	return 0;
}

int resize_cq(struct ibv_cq *cq, int cqe)
{
	struct completions *c = (void *)cq;
	WITH_HEAD(struct ib_uverbs_resize_cq) cmd = { .c = { .cq_handle = cq->handle, .cqe = (uint32_t)cqe } };
	struct { struct ib_uverbs_resize_cq_resp r; struct mminfo ring; } got = { 0 };
	struct ring now = { 0 };
	lock(&c->lock);
	int error = send_command(cq->context, IB_USER_VERBS_CMD_RESIZE_CQ, &cmd, sizeof cmd, &got, sizeof got);
	if (!error && !(error = map_ring(&now, cq->context->cmd_fd, &got.ring, sizeof(struct stamped)))) {
		unmap_ring(&c->ring);
		c->ring = now;
		cq->cqe = (int)got.r.cqe;
	}
	unlock(&c->lock);
	return error;
}

int modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *a)
{
	if (a->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE) return EINVAL;
	WITH_HEADS(struct ib_uverbs_ex_modify_cq) cmd = {
		.c = { .cq_handle = cq->handle, .attr_mask = a->attr_mask, .attr = { .cq_count = a->moderate.cq_count, .cq_period = a->moderate.cq_period } },
	};
	return send_extended(cq->context, IB_USER_VERBS_EX_CMD_MODIFY_CQ, &cmd, sizeof cmd, NULL, 0);
}

int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	WITH_HEAD(struct ib_uverbs_req_notify_cq) cmd = { .c = { .cq_handle = cq->handle, .solicited_only = solicited != 0 } };
	return send_command(cq->context, IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, &cmd, sizeof cmd, NULL, 0);
}
