// Extended reliable connections: domains, shared receive queues of XRC, and the queue pairs that receive.
#define _GNU_SOURCE
#include "provider.h"

// open_xrcd opens the domain of a file, whose descriptor the preloaded library sends with the command, or a private
// one.
struct ibv_xrcd *open_xrcd(struct ibv_context *c, struct ibv_xrcd_init_attr *a)
{
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	if (a->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED) return errno = EOPNOTSUPP, NULL;
	if ((a->comp_mask & needed) != needed) return errno = EINVAL, NULL;
	struct xrc_domain *x = calloc(1, sizeof *x);
	if (!x) return NULL;
	WITH_HEAD(struct ib_uverbs_open_xrcd) cmd = { .c = { .fd = (uint32_t)a->fd, .oflags = (uint32_t)a->oflags } };
	struct ib_uverbs_open_xrcd_resp got = { 0 };
	int error = send_command(c, IB_USER_VERBS_CMD_OPEN_XRCD, &cmd, sizeof cmd, &got, sizeof got);
	if (error) return fail(x, error);
	x->xrcd.context = c, x->handle = got.xrcd_handle;
	return &x->xrcd;
}

int close_xrcd(struct ibv_xrcd *xrcd)
{
	struct xrc_domain *x = (void *)xrcd;
	WITH_HEAD(struct ib_uverbs_close_xrcd) cmd = { .c.xrcd_handle = x->handle };
	int error = send_command(xrcd->context, IB_USER_VERBS_CMD_CLOSE_XRCD, &cmd, sizeof cmd, NULL, 0);
	if (!error) free(x);
	return error;
}

struct ibv_srq *create_xrc_srq(struct ibv_srq_init_attr_ex *a)
{
	const uint32_t needed = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	if ((a->comp_mask & needed) != needed) return errno = EINVAL, NULL;
	struct shared_receives *s = calloc(1, sizeof *s);
	if (!s) return NULL;
	WITH_HEAD(struct ib_uverbs_create_xsrq) cmd = {
		.c = { .user_handle = (uintptr_t)s, .srq_type = IBV_SRQT_XRC, .pd_handle = a->pd->handle, .max_wr = a->attr.max_wr, .max_sge = a->attr.max_sge,
		       .srq_limit = a->attr.srq_limit, .xrcd_handle = ((struct xrc_domain *)(void *)a->xrcd)->handle, .cq_handle = a->cq->handle },
	};
	return new_srq(IB_USER_VERBS_CMD_CREATE_XSRQ, &cmd, sizeof cmd, s, a->pd, &a->attr);
}

int get_srq_num(struct ibv_srq *srq, uint32_t *number) { return *number = ((struct shared_receives *)(void *)srq)->number, 0; }

// create_target makes a queue pair that receives. It has no rings: its receives are those of shared receive queues.
struct pair *create_target(struct ibv_context *c, const struct ibv_qp_init_attr_ex *a)
{
	struct pair *q = calloc(1, sizeof *q);
	if (!q) return NULL;
	WITH_HEAD(struct ib_uverbs_create_qp) cmd = {
		.c = { .user_handle = (uintptr_t)q, .pd_handle = ((struct xrc_domain *)(void *)a->xrcd)->handle, .qp_type = IBV_QPT_XRC_RECV, .reserved = BY_OWN_PROVIDER },
	};
	struct { struct ib_uverbs_create_qp_resp r; struct rxe_create_qp_resp rings; } got = { 0 };
	int error = send_command(c, IB_USER_VERBS_CMD_CREATE_QP, &cmd, sizeof cmd, &got, sizeof got);
	if (error) return fail(q, error);
	fill_pair(q, c, a, &got.r); // with the queues that a program names, which librdmacm reads; the target does not use them
	q->qp.pd = a->comp_mask & IBV_QP_INIT_ATTR_PD ? a->pd : NULL;
	return q;
}

// open_qp opens a queue pair that receives and that this or another process has made. In which state it is, a
// query says.
struct ibv_qp *open_qp(struct ibv_context *c, struct ibv_qp_open_attr *a)
{
	const uint32_t needed = IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_TYPE;
	if (a->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED) return errno = EOPNOTSUPP, NULL;
	if ((a->comp_mask & needed) != needed) return errno = EINVAL, NULL;
	struct pair *q = calloc(1, sizeof *q);
	if (!q) return NULL;
	WITH_HEAD(struct ib_uverbs_open_qp) cmd = {
		.c = { .user_handle = (uintptr_t)q, .pd_handle = ((struct xrc_domain *)(void *)a->xrcd)->handle, .qpn = a->qp_num, .qp_type = (uint8_t)a->qp_type },
	};
	struct ib_uverbs_create_qp_resp got = { 0 };
	int error = send_command(c, IB_USER_VERBS_CMD_OPEN_QP, &cmd, sizeof cmd, &got, sizeof got);
	if (error) return fail(q, error);
	const struct ibv_qp_init_attr_ex of = { .qp_context = a->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT ? a->qp_context : NULL, .qp_type = a->qp_type };
	fill_pair(q, c, &of, &got);
	q->qp.state = IBV_QPS_UNKNOWN;
	return &q->qp;
}
