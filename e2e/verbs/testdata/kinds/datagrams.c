// Datagrams, unreliable connections, multicast.
#include "kind.h"

enum { GRH = 40 };

static struct ibv_ah *self(void)
{
	struct ibv_ah_attr a = path();
	struct ibv_ah *h = ibv_create_ah(pd, &a);
	OK(h);
	return h;
}

static int datagram(struct ibv_qp *q, struct ibv_ah *h, uint32_t qpn, uint32_t qkey, void *at, uint32_t n, int flags, int op)
{
	struct ibv_sge s = piece(at, n);
	struct ibv_send_wr w = { .wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = op, .imm_data = htobe32(99), .send_flags = flags, .wr.ud = { h, qpn, qkey } }, *bad;
	return ibv_post_send(q, &w, &bad);
}

// The first 40 bytes of a receive are for the GRH, which IPv4 fills from byte 20 on; they count.
static void arrives(void)
{
	struct pair p = two(IBV_QPT_UD);
	struct ibv_ah *h = self();
	OK(!receive(p.far_qp, 5, far, 2000) && !datagram(p.qp, h, p.far_qp->qp_num, 17, buf, 500, 0, IBV_WR_SEND_WITH_IMM));
	WANT(status(p.cq) == IBV_WC_SUCCESS);
	struct ibv_wc wc = next(p.far_cq);
	WANT(wc.status == IBV_WC_SUCCESS && wc.wr_id == 5 && wc.byte_len == 500 + GRH && wc.wc_flags & IBV_WC_GRH && wc.src_qp == p.qp->qp_num);
	WANT(wc.wc_flags & IBV_WC_WITH_IMM && be32toh(wc.imm_data) == 99);
	WANT(!memcmp(far + GRH, buf, 500) && !far[GRH + 500]);
	struct ibv_ah *back = ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)far, 1);
	WANT(back != NULL);
	if (back) {
		OK(!receive(p.qp, 6, far + 4096, 1000) && !datagram(p.far_qp, back, wc.src_qp, 17, buf, 20, 0, IBV_WR_SEND));
		WANT(next(p.cq).wr_id == 6);
		OK(!ibv_destroy_ah(back));
	}
	end(p);
	OK(!ibv_destroy_ah(h));
}

static void wrong_key(void)
{
	struct pair p = two(IBV_QPT_UD);
	struct ibv_ah *h = self();
	struct ibv_wc wc;
	OK(!receive(p.far_qp, 5, far, 2000) && !datagram(p.qp, h, p.far_qp->qp_num, 18, buf, 10, 0, IBV_WR_SEND));
	WANT(status(p.cq) == IBV_WC_SUCCESS, "the sender does not know");
	WANT(!within(p.far_cq, &wc, SHORT));
	OK(!datagram(p.qp, h, p.far_qp->qp_num, 17, buf, 11, 0, IBV_WR_SEND));
	WANT(next(p.far_cq).byte_len == 11 + GRH);
	end(p);
	OK(!ibv_destroy_ah(h));
}

// A datagram without a receive is lost, and the next one is not.
static void no_receive(void)
{
	struct pair p = two(IBV_QPT_UD);
	struct ibv_ah *h = self();
	struct ibv_wc wc;
	OK(!datagram(p.qp, h, p.far_qp->qp_num, 17, buf, 10, 0, IBV_WR_SEND));
	WANT(status(p.cq) == IBV_WC_SUCCESS && !within(p.far_cq, &wc, SHORT));
	OK(!receive(p.far_qp, 5, far, 2000) && !datagram(p.qp, h, p.far_qp->qp_num, 17, buf, 12, 0, IBV_WR_SEND));
	WANT(next(p.far_cq).byte_len == 12 + GRH);
	end(p);
	OK(!ibv_destroy_ah(h));
}

// The same on an unreliable connection: a message without a receive is dropped, later ones arrive.
static void connection(void)
{
	struct pair p = two(IBV_QPT_UC);
	struct ibv_sge s = piece(buf, 3000);
	struct ibv_wc wc;
	OK(!post(p.qp, IBV_WR_SEND, &s, 1, 0, 0));
	WANT(status(p.cq) == IBV_WC_SUCCESS && !within(p.far_cq, &wc, SHORT));
	OK(!receive(p.far_qp, 7, far, 4000) && !post(p.qp, IBV_WR_SEND, &s, 1, 0, 0));
	wc = next(p.far_cq);
	WANT(wc.status == IBV_WC_SUCCESS && wc.byte_len == 3000 && wc.wr_id == 7 && !memcmp(far, buf, 3000));
	OK(!post(p.qp, IBV_WR_RDMA_WRITE, &s, 1, (uintptr_t)far + 8192, mr->rkey));
	WANT(next(p.cq).status == IBV_WC_SUCCESS && status(p.cq) == IBV_WC_SUCCESS);
	for (int i = 0; i < patience && memcmp(far + 8192, buf, 3000); i++) usleep(1000);
	WANT(!memcmp(far + 8192, buf, 3000));
	end(p);
}

// A group's members each get a copy, and none after they have left.
static void group(void)
{
	struct pair p = two(IBV_QPT_UD);
	struct ibv_wc wc;
	union ibv_gid g = { .raw = { [10] = 0xff, 0xff, 239, 1, 2, 77 } }; // of IPv4, as the GID of this program
	struct ibv_ah_attr a = { .is_global = 1, .port_num = 1, .grh = { .dgid = g, .sgid_index = gid_index, .hop_limit = 1 } };
	struct ibv_ah *h = ibv_create_ah(pd, &a);
	OK(h);
	WANT(!ibv_attach_mcast(p.far_qp, &g, 0) && !ibv_attach_mcast(p.qp, &g, 0));
	OK(!receive(p.far_qp, 5, far, 2000) && !receive(p.qp, 6, far + 4096, 2000));
	OK(!datagram(p.qp, h, 0xffffff, 17, buf, 100, 0, IBV_WR_SEND));
	wc = next(p.far_cq);
	WANT(wc.wr_id == 5 && wc.byte_len == 100 + GRH && !memcmp(far + GRH, buf, 100));
	WANT(!ibv_detach_mcast(p.far_qp, &g, 0) && !ibv_detach_mcast(p.qp, &g, 0));
	OK(!receive(p.far_qp, 5, far, 2000) && !datagram(p.qp, h, 0xffffff, 17, buf, 100, 0, IBV_WR_SEND));
	WANT(!within(p.far_cq, &wc, SHORT));
	end(p);
	OK(!ibv_destroy_ah(h));
}

CASES(
	{ "a datagram arrives behind 40 bytes", "ibv_post_recv(3), IBTA 11.4.1.2", arrives },
	{ "a wrong Q_Key", "IBTA 10.2.5, 9.6.1.2", wrong_key },
	{ "a datagram without a receive", "IBTA 9.8.3", no_receive },
	{ "an unreliable connection", "IBTA 9.8.2", connection },
	{ "a multicast group", "ibv_attach_mcast(3)", group },
)
