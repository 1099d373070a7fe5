// Address handles, and multicast groups.
#define _GNU_SOURCE
#include "provider.h"

struct ibv_ah *create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a)
{
	struct address *h = calloc(1, sizeof *h);
	if (!h) return NULL;
	WITH_HEAD(struct ib_uverbs_create_ah) cmd = {
		.c = { .user_handle = (uintptr_t)h, .pd_handle = pd->handle,
		       .attr = { .dlid = a->dlid, .sl = a->sl, .src_path_bits = a->src_path_bits, .static_rate = a->static_rate, .is_global = a->is_global,
		                 .port_num = a->port_num,
		                 .grh = { .flow_label = a->grh.flow_label, .sgid_index = a->grh.sgid_index, .hop_limit = a->grh.hop_limit,
		                          .traffic_class = a->grh.traffic_class } } },
	};
	memcpy(cmd.c.attr.grh.dgid, a->grh.dgid.raw, sizeof cmd.c.attr.grh.dgid);
	struct { struct ib_uverbs_create_ah_resp r; struct rxe_create_ah_resp number; } got = { 0 };
	int error = send_command(pd->context, IB_USER_VERBS_CMD_CREATE_AH, &cmd, sizeof cmd, &got, sizeof got);
	if (error) return fail(h, error);
	h->ah.context = pd->context, h->ah.handle = got.r.ah_handle;
	h->number = got.number.ah_num;
	return &h->ah;
}

int destroy_ah(struct ibv_ah *ah)
{
	WITH_HEAD(struct ib_uverbs_destroy_ah) cmd = { .c.ah_handle = ah->handle };
	int error = send_command(ah->context, IB_USER_VERBS_CMD_DESTROY_AH, &cmd, sizeof cmd, NULL, 0);
	if (!error) free(ah);
	return error;
}

int attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	WITH_HEAD(struct ib_uverbs_attach_mcast) cmd = { .c = { .qp_handle = qp->handle, .mlid = lid } };
	memcpy(cmd.c.gid, gid->raw, sizeof cmd.c.gid);
	return send_command(qp->context, IB_USER_VERBS_CMD_ATTACH_MCAST, &cmd, sizeof cmd, NULL, 0);
}

int detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	WITH_HEAD(struct ib_uverbs_detach_mcast) cmd = { .c = { .qp_handle = qp->handle, .mlid = lid } };
	memcpy(cmd.c.gid, gid->raw, sizeof cmd.c.gid);
	return send_command(qp->context, IB_USER_VERBS_CMD_DETACH_MCAST, &cmd, sizeof cmd, NULL, 0);
}
