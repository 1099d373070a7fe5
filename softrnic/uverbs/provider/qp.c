// Queue pairs: make, query, modify, destroy.
#define _GNU_SOURCE
#include "provider.h"

static int map_rings(struct pair *q, struct ibv_context *c, const struct rxe_create_qp_resp *at)
{
	int error = map_ring(&q->ring, c->cmd_fd, &at->sq_mi, sizeof(struct rxe_send_wqe));
	if (!error && !q->qp.srq && q->qp.qp_type != IBV_QPT_XRC_SEND) error = map_ring(&q->receives.ring, c->cmd_fd, &at->rq_mi, sizeof(struct rxe_recv_wqe));
	if (error) unmap_ring(&q->ring);
	return error;
}

static uint32_t handle_of(const struct ibv_cq *cq) { return cq ? cq->handle : 0; }

// is_type reports whether libibverbs has a queue pair type; which of them exist here, the daemon says.
static int is_type(enum ibv_qp_type t)
{
	return t == IBV_QPT_RC || t == IBV_QPT_UC || t == IBV_QPT_UD || t == IBV_QPT_RAW_PACKET || t == IBV_QPT_XRC_SEND || t == IBV_QPT_DRIVER;
}

// fill_pair sets what libibverbs and programs read of a new queue pair.
void fill_pair(struct pair *q, struct ibv_context *c, const struct ibv_qp_init_attr_ex *a, const struct ib_uverbs_create_qp_resp *got)
{
	q->qp = (struct ibv_qp){
		.context = c, .qp_context = a->qp_context, .send_cq = a->send_cq, .recv_cq = a->recv_cq, .srq = a->srq,
		.handle = got->qp_handle, .qp_num = got->qpn, .state = IBV_QPS_RESET, .qp_type = a->qp_type,
	};
	pthread_mutex_init(&q->qp.mutex, NULL);
	pthread_cond_init(&q->qp.cond, NULL);
}

// new_pair makes a queue pair and sets a->cap to what it can do.
static struct pair *new_pair(struct ibv_pd *pd, struct ibv_qp_init_attr_ex *a)
{
	struct ibv_context *c = pd->context;
	if (!is_type(a->qp_type)) return errno = EINVAL, NULL;
	struct pair *q = calloc(1, sizeof *q);
	if (!q) return NULL;
	WITH_HEAD(struct ib_uverbs_create_qp) cmd = {
		.c = { .user_handle = (uintptr_t)q, .pd_handle = pd->handle, .send_cq_handle = handle_of(a->send_cq), .recv_cq_handle = handle_of(a->recv_cq),
		       .srq_handle = a->srq ? a->srq->handle : 0, .is_srq = a->srq != NULL, .max_send_wr = a->cap.max_send_wr, .max_recv_wr = a->cap.max_recv_wr,
		       .max_send_sge = a->cap.max_send_sge, .max_recv_sge = a->cap.max_recv_sge, .max_inline_data = a->cap.max_inline_data,
		       .sq_sig_all = (uint8_t)a->sq_sig_all, .qp_type = (uint8_t)a->qp_type, .reserved = BY_OWN_PROVIDER },
	};
	struct { struct ib_uverbs_create_qp_resp r; struct rxe_create_qp_resp rings; } got = { 0 };
	int error = send_command(c, IB_USER_VERBS_CMD_CREATE_QP, &cmd, sizeof cmd, &got, sizeof got);
	if (error) return fail(q, error);
	a->cap = (struct ibv_qp_cap){ got.r.max_send_wr, got.r.max_recv_wr, got.r.max_send_sge, got.r.max_recv_sge, got.r.max_inline_data };
	q->sges = got.r.max_send_sge, q->inlined = got.r.max_inline_data, q->receives.most = got.r.max_recv_sge;
	q->lock.none = q->receives.lock.none = ((struct domain *)(void *)pd)->one_thread;
	fill_pair(q, c, a, &got.r);
	q->qp.pd = pd;
	if (!(error = map_rings(q, c, &got.rings))) return q;
	WITH_HEAD(struct ib_uverbs_destroy_qp) end = { .c.qp_handle = q->qp.handle };
	struct ib_uverbs_destroy_qp_resp ended;
	send_command(c, IB_USER_VERBS_CMD_DESTROY_QP, &end, sizeof end, &ended, sizeof ended);
	return fail(q, error);
}

struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex x = {
		.qp_context = a->qp_context, .send_cq = a->send_cq, .recv_cq = a->recv_cq, .srq = a->srq, .cap = a->cap, .qp_type = a->qp_type, .sq_sig_all = a->sq_sig_all,
	};
	struct pair *q = new_pair(pd, &x);
	if (!q) return NULL;
	a->cap = x.cap;
	return &q->qp;
}

struct ibv_qp *create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *a)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_XRCD;
	if ((a->comp_mask & ~known) || ((a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && a->create_flags) ||
	    ((a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (a->send_ops_flags & ~extended_of(a->qp_type))))
		return errno = EOPNOTSUPP, NULL;
	// A target of XRC has a domain of XRC in place of a protection domain.
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_XRCD) != (a->qp_type != IBV_QPT_XRC_RECV)) return errno = EINVAL, NULL;
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) && a->qp_type != IBV_QPT_XRC_RECV) return errno = EINVAL, NULL;
	struct pair *q = a->qp_type == IBV_QPT_XRC_RECV ? create_target(c, a) : new_pair(a->pd, a);
	if (!q) return NULL;
	if (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		set_extended(q, a->send_ops_flags);
		*(uint32_t *)(q->room + qp_ex_size) = QP_HAS_EX;
	}
	return &q->qp;
}

int destroy_qp(struct ibv_qp *qp)
{
	struct pair *q = (void *)qp;
	WITH_HEAD(struct ib_uverbs_destroy_qp) cmd = { .c.qp_handle = qp->handle };
	struct ib_uverbs_destroy_qp_resp got = { 0 };
	int error = send_command(qp->context, IB_USER_VERBS_CMD_DESTROY_QP, &cmd, sizeof cmd, &got, sizeof got);
	if (error) return error;
	wait_for_events(&qp->mutex, &qp->cond, &qp->events_completed, got.events_reported);
	unmap_ring(&q->ring);
	unmap_ring(&q->receives.ring);
	free(q);
	return 0;
}

// OLD_ATTRIBUTES are the attributes that the commands below have; those behind are of extended ones.
enum { OLD_ATTRIBUTES = IBV_QP_RATE_LIMIT - 1 };

static void copy_path(struct ibv_ah_attr *to, const struct ib_uverbs_qp_dest *from)
{
	memcpy(to->grh.dgid.raw, from->dgid, sizeof from->dgid);
	to->grh.flow_label = from->flow_label, to->grh.sgid_index = from->sgid_index, to->grh.hop_limit = from->hop_limit;
	to->grh.traffic_class = from->traffic_class;
	to->dlid = from->dlid, to->sl = from->sl, to->src_path_bits = from->src_path_bits, to->static_rate = from->static_rate;
	to->is_global = from->is_global, to->port_num = from->port_num;
}

int query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	if (mask & ~OLD_ATTRIBUTES) return EOPNOTSUPP;
	WITH_HEAD(struct ib_uverbs_query_qp) cmd = { .c = { .qp_handle = qp->handle, .attr_mask = (uint32_t)mask } };
	struct ib_uverbs_query_qp_resp r = { 0 };
	int error = send_command(qp->context, IB_USER_VERBS_CMD_QUERY_QP, &cmd, sizeof cmd, &r, sizeof r);
	if (error) return error;
	copy_path(&a->ah_attr, &r.dest);
	copy_path(&a->alt_ah_attr, &r.alt_dest);
#define COPY(name) a->name = (__typeof__(a->name))r.name
	COPY(qkey), COPY(rq_psn), COPY(sq_psn), COPY(dest_qp_num), COPY(qp_access_flags), COPY(pkey_index), COPY(alt_pkey_index), COPY(qp_state);
	COPY(cur_qp_state), COPY(path_mtu), COPY(path_mig_state), COPY(sq_draining), COPY(max_rd_atomic), COPY(max_dest_rd_atomic);
	COPY(min_rnr_timer), COPY(port_num), COPY(timeout), COPY(retry_cnt), COPY(rnr_retry), COPY(alt_port_num), COPY(alt_timeout);
#undef COPY
	a->cap = (struct ibv_qp_cap){ r.max_send_wr, r.max_recv_wr, r.max_send_sge, r.max_recv_sge, r.max_inline_data };
	*init = (struct ibv_qp_init_attr){
		.qp_context = qp->qp_context, .send_cq = qp->send_cq, .recv_cq = qp->recv_cq, .srq = qp->srq, .qp_type = qp->qp_type, .cap = a->cap,
		.sq_sig_all = r.sq_sig_all,
	};
	return 0;
}

static struct ib_uverbs_qp_dest path_of(const struct ibv_ah_attr *a)
{
	struct ib_uverbs_qp_dest d = {
		.flow_label = a->grh.flow_label, .dlid = a->dlid, .sgid_index = a->grh.sgid_index, .hop_limit = a->grh.hop_limit,
		.traffic_class = a->grh.traffic_class, .sl = a->sl, .src_path_bits = a->src_path_bits, .static_rate = a->static_rate,
		.is_global = a->is_global, .port_num = a->port_num,
	};
	memcpy(d.dgid, a->grh.dgid.raw, sizeof d.dgid);
	return d;
}

// modify_qp passes on the attributes that the mask names; a program need not have set the others.
int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	if (mask & ~OLD_ATTRIBUTES) return EOPNOTSUPP;
	WITH_HEAD(struct ib_uverbs_modify_qp) cmd = { .c = { .qp_handle = qp->handle, .attr_mask = (uint32_t)mask } };
	struct ib_uverbs_modify_qp *m = &cmd.c;
#define SET(bit, field, from) \
	if (mask & bit) m->field = (__typeof__(m->field))a->from
	SET(IBV_QP_STATE, qp_state, qp_state);
	SET(IBV_QP_CUR_STATE, cur_qp_state, cur_qp_state);
	SET(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify, en_sqd_async_notify);
	SET(IBV_QP_ACCESS_FLAGS, qp_access_flags, qp_access_flags);
	SET(IBV_QP_PKEY_INDEX, pkey_index, pkey_index);
	SET(IBV_QP_PORT, port_num, port_num);
	SET(IBV_QP_QKEY, qkey, qkey);
	SET(IBV_QP_PATH_MTU, path_mtu, path_mtu);
	SET(IBV_QP_TIMEOUT, timeout, timeout);
	SET(IBV_QP_RETRY_CNT, retry_cnt, retry_cnt);
	SET(IBV_QP_RNR_RETRY, rnr_retry, rnr_retry);
	SET(IBV_QP_RQ_PSN, rq_psn, rq_psn);
	SET(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic, max_rd_atomic);
	SET(IBV_QP_MIN_RNR_TIMER, min_rnr_timer, min_rnr_timer);
	SET(IBV_QP_SQ_PSN, sq_psn, sq_psn);
	SET(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic, max_dest_rd_atomic);
	SET(IBV_QP_PATH_MIG_STATE, path_mig_state, path_mig_state);
	SET(IBV_QP_DEST_QPN, dest_qp_num, dest_qp_num);
	SET(IBV_QP_ALT_PATH, alt_pkey_index, alt_pkey_index);
	SET(IBV_QP_ALT_PATH, alt_port_num, alt_port_num);
	SET(IBV_QP_ALT_PATH, alt_timeout, alt_timeout);
#undef SET
	if (mask & IBV_QP_AV) m->dest = path_of(&a->ah_attr);
	if (mask & IBV_QP_ALT_PATH) m->alt_dest = path_of(&a->alt_ah_attr);
	int error = send_command(qp->context, IB_USER_VERBS_CMD_MODIFY_QP, &cmd, sizeof cmd, NULL, 0);
	if (!error && (mask & IBV_QP_STATE) && a->qp_state == IBV_QPS_RESET && qp->qp_type != IBV_QPT_XRC_RECV) {
		if (qp->send_cq) forget_completions(qp->send_cq, qp->qp_num);
		if (qp->recv_cq && qp->recv_cq != qp->send_cq) forget_completions(qp->recv_cq, qp->qp_num);
	}
	return error;
}

// post_recv refuses receives in RESET, where they have no meaning (C10-97.2.1).
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct pair *q = (void *)qp;
	*bad = wr;
	if (!q->receives.ring.q || qp->state == IBV_QPS_RESET) return EINVAL;
	return post_list(&q->receives, wr, bad);
}
