// XRC with a provider that has none: the device says so before a program asks for it, and refuses what it is asked for.
#include "kind.h"

static void no_xrc(void)
{
	struct ibv_device_attr d;
	OK(!ibv_query_device(ctx, &d));
	WANT(!(d.device_cap_flags & IBV_DEVICE_XRC));
	struct ibv_xrcd_init_attr x = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT };
	errno = 0;
	WANT(!ibv_open_xrcd(ctx, &x) && errno == EOPNOTSUPP, "a domain: %s", strerror(errno));
	struct ibv_cq *cq = new_cq(NULL);
	struct ibv_srq_init_attr_ex s = { .attr = { DEPTH, 1, 0 }, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ, .srq_type = IBV_SRQT_XRC, .pd = pd, .cq = cq };
	errno = 0;
	WANT(!ibv_create_srq_ex(ctx, &s) && (errno == EOPNOTSUPP || errno == EINVAL), "a shared receive queue: %s", strerror(errno)); // rxe looks for the domain first
	struct ibv_qp_init_attr q = init_of(IBV_QPT_XRC_SEND, cq, NULL);
	errno = 0;
	WANT(!ibv_create_qp(pd, &q) && errno == EOPNOTSUPP, "an initiator: %s", strerror(errno));
	struct ibv_qp_init_attr_ex r = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD };
	errno = 0;
	WANT(!ibv_create_qp_ex(ctx, &r) && errno == EOPNOTSUPP, "a target: %s", strerror(errno));
	struct ibv_qp_open_attr o = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE, .qp_num = 17, .qp_type = IBV_QPT_XRC_RECV };
	errno = 0;
	WANT(!ibv_open_qp(ctx, &o) && errno == EOPNOTSUPP, "a target of another process: %s", strerror(errno));
	WANT(!ibv_destroy_cq(cq));
}

CASES({ "XRC, which the provider does not have", "ibv_open_xrcd(3), ibv_create_srq_ex(3), ibv_open_qp(3)", no_xrc })
