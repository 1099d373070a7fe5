// A server and a client with many connections, as servers make them (valkey, brpc, targets of NVMe-oF): each connection has a completion
// channel, a completion queue and regions of its own; the client also has an event channel for each. Each connection carries a message
// both ways, when all of them are there.
//
//	connections -s ADDRESS N
//	connections -c ADDRESS N
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define OK(c) do { if (!(c)) { fprintf(stderr, "%s:%d: %s: %s (connection %d)\n", __FILE__, __LINE__, #c, strerror(errno), made); exit(1); } } while (0)

enum { DEPTH = 1024, SIZE = 256, PATIENCE = 120000 };

struct conn {
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *in, *out;
	char room[2 * SIZE];
};

static int made;

// prepare makes what a connection has, and posts its receive.
static void prepare(struct conn *c, struct ibv_pd *pd)
{
	OK(c->channel = ibv_create_comp_channel(c->id->verbs));
	OK(c->cq = ibv_create_cq(c->id->verbs, 2 * DEPTH, c, c->channel, 0));
	OK(!ibv_req_notify_cq(c->cq, 0));
	struct ibv_qp_init_attr a = { .send_cq = c->cq, .recv_cq = c->cq, .qp_type = IBV_QPT_RC, .cap = { DEPTH, DEPTH, 1, 1, 0 } };
	OK(!rdma_create_qp(c->id, pd, &a));
	OK(c->in = ibv_reg_mr(pd, c->room, SIZE, IBV_ACCESS_LOCAL_WRITE));
	OK(c->out = ibv_reg_mr(pd, c->room + SIZE, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
	struct ibv_sge s = { (uintptr_t)c->room, SIZE, c->in->lkey };
	struct ibv_recv_wr w = { .sg_list = &s, .num_sge = 1 }, *bad;
	OK(!ibv_post_recv(c->id->qp, &w, &bad));
	made++;
}

static void say(struct conn *c, int n)
{
	memset(c->room + SIZE, n, SIZE);
	struct ibv_sge s = { (uintptr_t)c->room + SIZE, SIZE, c->out->lkey };
	struct ibv_send_wr w = { .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	OK(!ibv_post_send(c->id->qp, &w, &bad));
}

// hear waits for events of the channel until the receive is complete, and checks the message.
static void hear(struct conn *c, int n)
{
	for (;;) {
		struct ibv_wc wc;
		int got;
		while ((got = ibv_poll_cq(c->cq, 1, &wc)) > 0) {
			if (wc.status != IBV_WC_SUCCESS) { fprintf(stderr, "connection %d: %s\n", n, ibv_wc_status_str(wc.status)); exit(1); }
			if (wc.opcode != IBV_WC_RECV) continue;
			for (int i = 0; i < SIZE; i++) OK((unsigned char)c->room[i] == (n & 0xff));
			return;
		}
		OK(!got);
		struct pollfd p = { .fd = c->channel->fd, .events = POLLIN };
		OK(poll(&p, 1, PATIENCE) == 1);
		struct ibv_cq *cq;
		void *of;
		OK(!ibv_get_cq_event(c->channel, &cq, &of));
		OK(of == c);
		ibv_ack_cq_events(cq, 1);
		OK(!ibv_req_notify_cq(cq, 0));
	}
}

static struct rdma_cm_id *await(struct rdma_event_channel *ec, enum rdma_cm_event_type want)
{
	struct pollfd p = { .fd = ec->fd, .events = POLLIN };
	struct rdma_cm_event *e;
	OK(poll(&p, 1, PATIENCE) == 1);
	OK(!rdma_get_cm_event(ec, &e));
	if (e->event != want) { fprintf(stderr, "%s instead of %s, status %d (connection %d)\n", rdma_event_str(e->event), rdma_event_str(want), e->status, made); exit(1); }
	struct rdma_cm_id *id = e->id;
	OK(!rdma_ack_cm_event(e));
	return id;
}

static struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };

static void serve(struct sockaddr_in *at, struct conn *all, int n)
{
	struct rdma_event_channel *ec = rdma_create_event_channel();
	struct rdma_cm_id *l;
	OK(ec && !rdma_create_id(ec, &l, NULL, RDMA_PS_TCP) && !rdma_bind_addr(l, (void *)at) && !rdma_listen(l, 0));
	struct ibv_pd *pd = NULL;
	for (int i = 0; i < n; i++) {
		all[i].id = await(ec, RDMA_CM_EVENT_CONNECT_REQUEST);
		if (!pd) OK(pd = ibv_alloc_pd(all[i].id->verbs));
		prepare(&all[i], pd);
		OK(!rdma_accept(all[i].id, &param));
		OK(await(ec, RDMA_CM_EVENT_ESTABLISHED) == all[i].id);
	}
	for (int i = 0; i < n; i++) hear(&all[i], i), say(&all[i], i);
	for (int i = 0; i < n; i++) await(ec, RDMA_CM_EVENT_DISCONNECTED);
}

static void connect_all(struct sockaddr_in *to, struct conn *all, int n)
{
	struct rdma_event_channel *ec;
	struct ibv_pd *pd = NULL;
	for (int i = 0; i < n; i++) {
		OK(ec = rdma_create_event_channel());
		OK(!rdma_create_id(ec, &all[i].id, NULL, RDMA_PS_TCP) && !rdma_resolve_addr(all[i].id, NULL, (void *)to, 2000));
		await(ec, RDMA_CM_EVENT_ADDR_RESOLVED);
		OK(!rdma_resolve_route(all[i].id, 2000));
		await(ec, RDMA_CM_EVENT_ROUTE_RESOLVED);
		if (!pd) OK(pd = ibv_alloc_pd(all[i].id->verbs));
		prepare(&all[i], pd);
		OK(!rdma_connect(all[i].id, &param));
		await(ec, RDMA_CM_EVENT_ESTABLISHED);
	}
	for (int i = 0; i < n; i++) say(&all[i], i);
	for (int i = 0; i < n; i++) hear(&all[i], i);
	for (int i = 0; i < n; i++) OK(!rdma_disconnect(all[i].id));
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(18600) };
	int n = argc == 4 ? atoi(argv[3]) : 0;
	struct rlimit files;
	OK(n > 0 && inet_pton(AF_INET, argv[2], &a.sin_addr) == 1);
	OK(!getrlimit(RLIMIT_NOFILE, &files));
	files.rlim_cur = files.rlim_max;
	OK(!setrlimit(RLIMIT_NOFILE, &files));
	struct conn *all = calloc((size_t)n, sizeof *all);
	OK(all);
	if (argv[1][1] == 's') serve(&a, all, n);
	else connect_all(&a, all, n);
	printf("%d connections, each with a message both ways\n", n);
	return 0;
}
