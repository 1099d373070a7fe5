// Attributes of new objects: what the manual pages call ignored is ignored, what the kernel's rxe raises is raised, the values that come
// back are those of the object, and what is beyond the device is EINVAL (ibv_create_qp(3), ibv_create_srq(3), ibv_create_cq(3)).
#include "pair.h"

static struct ibv_device_attr d;
static struct ibv_cq *cq;

static struct ibv_srq *srq(uint32_t wrs, uint32_t sges, uint32_t limit, int want)
{
	struct ibv_srq_init_attr a = { .attr = { wrs, sges, limit } };
	errno = 0;
	struct ibv_srq *s = ibv_create_srq(pd, &a);
	expect(!s == !!want && errno == want, "SRQ of %u receives of %u pieces: %s", wrs, sges, strerror(errno));
	if (!s) return NULL;
	struct ibv_srq_attr q;
	OK(!ibv_query_srq(s, &q));
	expect(a.attr.max_wr >= wrs && a.attr.max_sge >= sges && a.attr.max_sge > 0, "SRQ of %u of %u: %u of %u are returned", wrs, sges, a.attr.max_wr, a.attr.max_sge);
	expect(q.max_wr >= wrs && q.max_sge >= sges, "SRQ of %u of %u: a query says %u of %u", wrs, sges, q.max_wr, q.max_sge);
	return s;
}

static struct ibv_qp *qp(enum ibv_qp_type type, struct ibv_srq *s, struct ibv_qp_cap cap, int want)
{
	struct ibv_qp_init_attr a = { .send_cq = cq, .recv_cq = cq, .srq = s, .qp_type = type, .cap = cap }, now;
	struct ibv_qp_attr x;
	errno = 0;
	struct ibv_qp *q = ibv_create_qp(pd, &a);
	expect(!q == !!want && (q || errno == want), "QP type %d, SRQ %d, %u+%u requests of %u+%u pieces, %u inline: %s", type, !!s, cap.max_send_wr, cap.max_recv_wr,
		cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data, q ? "made" : strerror(errno));
	if (!q) return NULL;
	expect(a.cap.max_send_wr >= cap.max_send_wr && a.cap.max_send_sge >= cap.max_send_sge && a.cap.max_inline_data >= cap.max_inline_data, "QP has less than was asked for");
	expect(s || (a.cap.max_recv_wr >= cap.max_recv_wr && a.cap.max_recv_sge >= cap.max_recv_sge), "QP has fewer receives than were asked for");
	OK(!ibv_query_qp(q, &x, IBV_QP_CAP, &now));
	expect(now.cap.max_send_sge == a.cap.max_send_sge && now.cap.max_inline_data == a.cap.max_inline_data, "a query says %u pieces, %u inline; the call has said %u, %u",
		now.cap.max_send_sge, now.cap.max_inline_data, a.cap.max_send_sge, a.cap.max_inline_data);
	return q;
}

int main(void)
{
	open_first();
	OK(!ibv_query_device(ctx, &d) && (cq = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
	uint32_t wrs = (uint32_t)d.max_qp_wr, sges = (uint32_t)d.max_sge;

	struct ibv_srq *s = srq(1024, 0, 0, 0); // as PyTorch makes it
	srq(1, 1, 0, 0);
	srq(16, 2, 1u << 31, 0); // the limit is irrelevant
	srq((uint32_t)d.max_srq_wr, (uint32_t)d.max_srq_sge, 0, 0);
	srq(0, 1, 0, EINVAL);
	srq((uint32_t)d.max_srq_wr + 1, 1, 0, EINVAL);
	srq(1, (uint32_t)d.max_srq_sge + 1, 0, EINVAL);

	for (enum ibv_qp_type t = IBV_QPT_RC; t <= IBV_QPT_UD; t++) {
		if (t == IBV_QPT_UC) continue;
		qp(t, s, (struct ibv_qp_cap){ 4, wrs * 4, 1, 1, 0 }, 0);
		qp(t, s, (struct ibv_qp_cap){ 4, 1, 1, sges * 4, 0 }, 0);
		qp(t, s, (struct ibv_qp_cap){ 4, ~0u, 1, ~0u, 0 }, 0);
		qp(t, s, (struct ibv_qp_cap){ 4, 0, 1, 0, 0 }, 0);
		qp(t, s, (struct ibv_qp_cap){ wrs + 1, 0, 1, 0, 0 }, EINVAL);
		qp(t, NULL, (struct ibv_qp_cap){ 4, wrs + 1, 1, 1, 0 }, EINVAL);
		qp(t, NULL, (struct ibv_qp_cap){ 4, 1, 1, sges + 1, 0 }, EINVAL);
		qp(t, NULL, (struct ibv_qp_cap){ 4, 1, sges + 1, 1, 0 }, EINVAL);
		qp(t, NULL, (struct ibv_qp_cap){ 4, 1, 1, 1, 1 << 20 }, EINVAL);
		qp(t, NULL, (struct ibv_qp_cap){ 0, 0, 0, 0, 0 }, 0);
		qp(t, NULL, (struct ibv_qp_cap){ 4, 4, sges, sges, 64 }, 0);
	}

	// Receives without data of a queue that was made for none, and a send of inline data as long as was promised.
	struct ibv_qp *a = qp(IBV_QPT_RC, NULL, (struct ibv_qp_cap){ 16, 16, 1, 1, 100 }, 0), *b = qp(IBV_QPT_RC, s, (struct ibv_qp_cap){ 16, ~0u, 1, ~0u, 0 }, 0);
	OK(a && b);
	join(a, b);
	for (int i = 0; i < 20; i++) {
		struct ibv_recv_wr r = { .wr_id = 500 + (uint64_t)i }, *br;
		struct ibv_send_wr w = { .wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bw;
		OK(!ibv_post_srq_recv(s, &r, &br) && !ibv_post_send(a, &w, &bw));
		for (int k = 0; k < 2; k++) {
			struct ibv_wc wc = next(cq);
			expect(wc.status == IBV_WC_SUCCESS && (wc.opcode == IBV_WC_SEND || wc.wr_id == 500 + (uint64_t)i), "completion %llu: %s", (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
		}
	}

	errno = 0;
	expect(!ibv_create_cq(ctx, 0, NULL, NULL, 0) && errno == EINVAL, "CQ of 0: %s", strerror(errno));
	expect(!ibv_create_cq(ctx, 16, NULL, NULL, ctx->num_comp_vectors) && errno == EINVAL, "CQ with a vector too many: %s", strerror(errno));
	for (int n = 1; n <= 4096; n = n * 3 + 1) {
		struct ibv_cq *c = ibv_create_cq(ctx, n, NULL, NULL, 0);
		OK(c);
		expect(c->cqe >= n, "CQ of %d has %d", n, c->cqe);
		OK(!ibv_resize_cq(c, 2 * n));
		expect(c->cqe >= 2 * n, "CQ resized to %d has %d", 2 * n, c->cqe);
		OK(!ibv_destroy_cq(c));
	}
	printf("%d wrong\n", wrong);
	return !!wrong;
}
