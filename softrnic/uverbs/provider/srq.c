// Receives, and shared receive queues; those of XRC are in xrc.c.
#define _GNU_SOURCE
#include "provider.h"

// post_list puts receives into a ring. The daemon reads the ring when a message needs a receive, so
// there is no bell.
int post_list(struct receives *r, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int error = 0;
	lock(&r->lock);
	uint32_t first = producer(&r->ring), at = first;
	for (; wr; wr = wr->next, at = (at + 1) & r->ring.mask) {
		if (((at + 1) & r->ring.mask) == consumer(&r->ring)) error = ENOMEM;
		else if (wr->num_sge < 0 || (uint32_t)wr->num_sge > r->most) error = EINVAL;
		if (error) {
			*bad = wr;
			break;
		}
		struct rxe_recv_wqe *e = entry(&r->ring, at);
		e->wr_id = wr->wr_id;
		e->dma.num_sge = (uint32_t)wr->num_sge;
		memcpy(e->dma.sge, wr->sg_list, (size_t)wr->num_sge * sizeof *wr->sg_list);
	}
	if (at != first) set_producer(&r->ring, at);
	unlock(&r->lock);
	return error;
}

int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return post_list(&((struct shared_receives *)(void *)srq)->receives, wr, bad);
}

// new_srq makes *s a shared receive queue by a command of n bytes, and sets *a to what it has. It frees s after an error.
struct ibv_srq *new_srq(uint32_t op, void *cmd, size_t n, struct shared_receives *s, struct ibv_pd *pd, struct ibv_srq_attr *a)
{
	struct { struct ib_uverbs_create_srq_resp r; struct mminfo ring; struct { uint32_t number, reserved; } n; } got = { 0 };
	int error = send_command(pd->context, op, cmd, n, &got, sizeof got);
	if (error) return fail(s, error);
	s->srq.context = pd->context, s->srq.handle = got.r.srq_handle, s->srq.pd = pd;
	s->number = got.r.srqn;
	s->receives.most = got.r.max_sge;
	s->receives.lock.none = ((struct domain *)(void *)pd)->one_thread;
	if ((error = map_ring(&s->receives.ring, pd->context->cmd_fd, &got.ring, sizeof(struct rxe_recv_wqe)))) {
		WITH_HEAD(struct ib_uverbs_destroy_srq) end = { .c.srq_handle = s->srq.handle };
		struct ib_uverbs_destroy_srq_resp ended;
		send_command(pd->context, IB_USER_VERBS_CMD_DESTROY_SRQ, &end, sizeof end, &ended, sizeof ended);
		return fail(s, error);
	}
	a->max_wr = got.r.max_wr, a->max_sge = got.r.max_sge;
	return &s->srq;
}

struct ibv_srq *create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct shared_receives *s = calloc(1, sizeof *s);
	if (!s) return NULL;
	WITH_HEAD(struct ib_uverbs_create_srq) cmd = {
		.c = { .user_handle = (uintptr_t)s, .pd_handle = pd->handle, .max_wr = a->attr.max_wr, .max_sge = a->attr.max_sge, .srq_limit = a->attr.srq_limit },
	};
	return new_srq(IB_USER_VERBS_CMD_CREATE_SRQ, &cmd, sizeof cmd, s, pd, &a->attr);
}

// create_srq_ex sets the fields that ibv_create_srq sets in the other case.
struct ibv_srq *create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *a)
{
	(void)c;
	enum ibv_srq_type type = a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? a->srq_type : IBV_SRQT_BASIC;
	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_PD)) return errno = EINVAL, NULL;
	if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC) return errno = EOPNOTSUPP, NULL;
	struct ibv_srq_init_attr basic = { .attr = a->attr };
	struct ibv_srq *srq = type == IBV_SRQT_XRC ? create_xrc_srq(a) : create_srq(a->pd, &basic);
	if (!srq) return NULL;
	if (type == IBV_SRQT_BASIC) a->attr = basic.attr;
	srq->srq_context = a->srq_context;
	pthread_mutex_init(&srq->mutex, NULL);
	pthread_cond_init(&srq->cond, NULL);
	return srq;
}

int modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *a, int mask)
{
	WITH_HEAD(struct ib_uverbs_modify_srq) cmd = {
		.c = { .srq_handle = srq->handle, .attr_mask = (uint32_t)mask, .max_wr = a->max_wr, .srq_limit = a->srq_limit },
	};
	return send_command(srq->context, IB_USER_VERBS_CMD_MODIFY_SRQ, &cmd, sizeof cmd, NULL, 0);
}

int query_srq(struct ibv_srq *srq, struct ibv_srq_attr *a)
{
	WITH_HEAD(struct ib_uverbs_query_srq) cmd = { .c.srq_handle = srq->handle };
	struct ib_uverbs_query_srq_resp got = { 0 };
	int error = send_command(srq->context, IB_USER_VERBS_CMD_QUERY_SRQ, &cmd, sizeof cmd, &got, sizeof got);
	if (!error) *a = (struct ibv_srq_attr){ got.max_wr, got.max_sge, got.srq_limit };
	return error;
}

int destroy_srq(struct ibv_srq *srq)
{
	struct shared_receives *s = (void *)srq;
	WITH_HEAD(struct ib_uverbs_destroy_srq) cmd = { .c.srq_handle = srq->handle };
	struct ib_uverbs_destroy_srq_resp got = { 0 };
	int error = send_command(srq->context, IB_USER_VERBS_CMD_DESTROY_SRQ, &cmd, sizeof cmd, &got, sizeof got);
	if (error) return error;
	wait_for_events(&srq->mutex, &srq->cond, &srq->events_completed, got.events_reported);
	unmap_ring(&s->receives.ring);
	free(s);
	return 0;
}
