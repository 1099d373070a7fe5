// The events of librdmacm, each with its number and its status. Prints a line for each case that is not as a kernel gives it, and ends with 1
// if there is one. Arguments: an address of this host; an address of this network that no host has.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define NEED(c) do { if (!(c)) { printf("%s:%d: %s: %s\n", now, __LINE__, #c, strerror(errno)); exit(2); } } while (0)
#define WANT(c) do { if (!(c)) { printf("%s:%d: not %s\n", now, __LINE__, #c); bad = 1; } } while (0)

enum { CONSUMER_DEFINED = 28, INVALID_SERVICE = 8, LONG = 20000, SHORT = 200, LEAST_WAIT = 500 };

static const char *now = "open"; // the case that runs
static int bad;
static struct sockaddr_in own, nowhere;

// expect waits for an event of this kind, and returns its identifier.
static struct rdma_cm_id *expect(struct rdma_event_channel *ch, enum rdma_cm_event_type kind, int status)
{
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };
	struct rdma_cm_event *e;
	if (poll(&p, 1, LONG) != 1) {
		printf("%s: no %s\n", now, rdma_event_str(kind));
		exit(1);
	}
	NEED(!rdma_get_cm_event(ch, &e));
	struct rdma_cm_id *id = e->id;
	if (e->event != kind || e->status != status) {
		printf("%s: %s with %d, want %s with %d\n", now, rdma_event_str(e->event), e->status, rdma_event_str(kind), status);
		bad = 1;
	}
	NEED(!rdma_ack_cm_event(e));
	return id;
}

static int quiet(struct rdma_event_channel *ch)
{
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };
	return poll(&p, 1, SHORT) == 0;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
	NEED(!rdma_create_qp(id, NULL, &a));
}

static struct rdma_cm_id *routed(struct rdma_event_channel *ch, enum rdma_port_space space)
{
	struct rdma_cm_id *id;
	NEED(!rdma_create_id(ch, &id, NULL, space));
	NEED(!rdma_resolve_addr(id, NULL, (void *)&own, 2000));
	expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	NEED(!rdma_resolve_route(id, 2000));
	expect(ch, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	return id;
}

static struct rdma_conn_param plain(void) { return (struct rdma_conn_param){ .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 }; }

struct meeting { struct rdma_event_channel *cch, *sch; struct rdma_cm_id *client, *server, *listener; };

static struct meeting listening(void)
{
	struct meeting m = { 0 };
	NEED((m.cch = rdma_create_event_channel()) && (m.sch = rdma_create_event_channel()));
	NEED(!rdma_create_id(m.sch, &m.listener, NULL, RDMA_PS_TCP));
	NEED(!rdma_bind_addr(m.listener, (void *)&own));
	NEED(!rdma_listen(m.listener, 4));
	return m;
}

static void asks(struct meeting *m)
{
	struct rdma_conn_param p = plain();
	m->client = routed(m->cch, RDMA_PS_TCP);
	make_qp(m->client);
	NEED(!rdma_connect(m->client, &p));
	m->server = expect(m->sch, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
}

static struct meeting met(void)
{
	struct meeting m = listening();
	struct rdma_conn_param p = plain();
	asks(&m);
	make_qp(m.server);
	NEED(!rdma_accept(m.server, &p));
	expect(m.cch, RDMA_CM_EVENT_ESTABLISHED, 0);
	expect(m.sch, RDMA_CM_EVENT_ESTABLISHED, 0);
	return m;
}

static void forget(struct rdma_cm_id *id)
{
	if (id->qp) rdma_destroy_qp(id);
	NEED(!rdma_destroy_id(id));
}

static void end(struct meeting *m)
{
	forget(m->client), forget(m->server), forget(m->listener);
	rdma_destroy_event_channel(m->cch), rdma_destroy_event_channel(m->sch);
}

static int ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int)(t.tv_sec % 100000 * 1000 + t.tv_nsec / 1000000);
}

// Both sides disconnect. early: the queue pair of the client is destroyed before its connection has ended.
static void parts(int early)
{
	struct meeting m = met();
	int began = ms();
	NEED(!rdma_disconnect(m.client));
	if (early) rdma_destroy_qp(m.client);
	expect(m.cch, RDMA_CM_EVENT_DISCONNECTED, 0);
	expect(m.sch, RDMA_CM_EVENT_DISCONNECTED, 0);
	NEED(!rdma_disconnect(m.server));
	WANT(expect(m.cch, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0) == m.client);
	WANT(ms() - began >= LEAST_WAIT);
	WANT(expect(m.sch, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0) == m.server);
	WANT(quiet(m.cch) && quiet(m.sch));
	end(&m);
}

static void disconnect(void) { parts(0); }
static void disconnect_early(void) { parts(1); }

// One side dies: its identifier is destroyed.
static void gone(void)
{
	struct meeting m = met();
	forget(m.client);
	expect(m.sch, RDMA_CM_EVENT_DISCONNECTED, 0);
	NEED(!rdma_disconnect(m.server));
	expect(m.sch, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
	m.client = routed(m.cch, RDMA_PS_TCP);
	end(&m);
}

static void rejects(void)
{
	struct meeting m = listening();
	asks(&m);
	NEED(!rdma_reject(m.server, "no", 2));
	expect(m.cch, RDMA_CM_EVENT_REJECTED, CONSUMER_DEFINED);
	WANT(quiet(m.cch) && quiet(m.sch));
	end(&m);
}

static void no_listener(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param p = plain();
	struct rdma_cm_id *id = routed(ch, RDMA_PS_TCP);
	make_qp(id);
	NEED(!rdma_connect(id, &p));
	expect(ch, RDMA_CM_EVENT_REJECTED, INVALID_SERVICE);
	forget(id);
	rdma_destroy_event_channel(ch);
}

// A request that the program does not answer in time, because the listener is destroyed: the request is refused.
static void listener_gone(void)
{
	struct meeting m = listening();
	struct rdma_conn_param p = plain();
	m.client = routed(m.cch, RDMA_PS_TCP);
	make_qp(m.client);
	NEED(!rdma_connect(m.client, &p));
	WANT(!quiet(m.sch)); // the event of the request, which the program does not read
	NEED(!rdma_destroy_id(m.listener));
	expect(m.cch, RDMA_CM_EVENT_REJECTED, CONSUMER_DEFINED);
	forget(m.client);
	rdma_destroy_event_channel(m.cch), rdma_destroy_event_channel(m.sch);
}

static void no_address(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;
	NEED(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	NEED(!rdma_resolve_addr(id, NULL, (void *)&nowhere, 1000));
	expect(ch, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH);
	forget(id);
	rdma_destroy_event_channel(ch);
}

// What the connection manager puts into queue pairs: the RNR timer is that of the kernel, 655.36 ms.
static void timer(void)
{
	struct meeting m = met();
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr b;
	NEED(!ibv_query_qp(m.server->qp, &a, IBV_QP_MIN_RNR_TIMER, &b));
	WANT(a.min_rnr_timer == 0);
	end(&m);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*run)(void); } cases[] = {
		{ "disconnect", disconnect }, { "queue pair destroyed early", disconnect_early }, { "one side gone", gone }, { "rejected", rejects },
		{ "no listener", no_listener }, { "listener gone", listener_gone }, { "no address", no_address }, { "RNR timer", timer },
	};
	own = nowhere = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(18599) };
	NEED(argc == 3 && inet_pton(AF_INET, argv[1], &own.sin_addr) == 1 && inet_pton(AF_INET, argv[2], &nowhere.sin_addr) == 1);
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		now = cases[i].name;
		cases[i].run();
	}
	return bad;
}
