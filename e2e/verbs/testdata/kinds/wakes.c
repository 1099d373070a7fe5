// Completion channels: events, their contexts, arming, descriptors.
#include "kind.h"

static struct ibv_comp_channel *channel(void)
{
	struct ibv_comp_channel *c = ibv_create_comp_channel(ctx);
	OK(c);
	return c;
}

static int ready(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	return poll(&p, 1, ms) == 1;
}

struct woken { struct ibv_comp_channel *ch; struct pair p; };

static struct woken woken(void)
{
	struct woken w = { .ch = channel() };
	w.p = joined(init_of(IBV_QPT_RC, new_cq(NULL), NULL), init_of(IBV_QPT_RC, new_cq(w.ch), NULL));
	return w;
}

static void finish(struct woken w)
{
	end(w.p);
	WANT(!ibv_destroy_comp_channel(w.ch));
}

static void send_to(struct woken *w, int flags)
{
	struct ibv_sge s = piece(buf, 8);
	struct ibv_send_wr wr = { .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags }, *bad;
	OK(!receive(w->p.far_qp, 1, far, 8) && !ibv_post_send(w->p.qp, &wr, &bad));
	WANT(status(w->p.cq) == IBV_WC_SUCCESS);
}

static void took(struct woken *w)
{
	struct ibv_cq *cq = NULL;
	void *context;
	OK(!ibv_get_cq_event(w->ch, &cq, &context));
	WANT(cq == w->p.far_cq);
	ibv_ack_cq_events(cq, 1);
}

static void solicited(void)
{
	struct woken w = woken();
	OK(!ibv_req_notify_cq(w.p.far_cq, 1));
	send_to(&w, 0);
	WANT(!ready(w.ch->fd, SHORT));
	send_to(&w, IBV_SEND_SOLICITED);
	WANT(ready(w.ch->fd, patience));
	took(&w);
	WANT(status(w.p.far_cq) == IBV_WC_SUCCESS && status(w.p.far_cq) == IBV_WC_SUCCESS);
	finish(w);
}

// Armed for solicited and then for all completions, the wider one holds.
static void wider(void)
{
	struct woken w = woken();
	OK(!ibv_req_notify_cq(w.p.far_cq, 1) && !ibv_req_notify_cq(w.p.far_cq, 0));
	send_to(&w, 0);
	WANT(ready(w.ch->fd, patience));
	took(&w);
	finish(w);
}

static void nonblocking(void)
{
	struct woken w = woken();
	struct ibv_cq *cq;
	void *context;
	OK(!fcntl(w.ch->fd, F_SETFL, fcntl(w.ch->fd, F_GETFL) | O_NONBLOCK));
	errno = 0;
	WANT(ibv_get_cq_event(w.ch, &cq, &context) == -1 && errno == EAGAIN, "%s", strerror(errno));
	OK(!ibv_req_notify_cq(w.p.far_cq, 0));
	send_to(&w, 0);
	WANT(ready(w.ch->fd, patience));
	took(&w);
	WANT(ibv_get_cq_event(w.ch, &cq, &context) == -1 && errno == EAGAIN);
	finish(w);
}

static void edges(void)
{
	struct woken w = woken();
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event e = { .events = EPOLLIN | EPOLLET };
	OK(ep >= 0 && !epoll_ctl(ep, EPOLL_CTL_ADD, w.ch->fd, &e));
	for (int i = 0; i < 3; i++) {
		OK(!ibv_req_notify_cq(w.p.far_cq, 0));
		send_to(&w, 0);
		WANT(epoll_wait(ep, &e, 1, patience) == 1);
		took(&w);
	}
	close(ep);
	finish(w);
}

// Two queues of a channel: an event names its queue and the context that the program gave it.
static void contexts(void)
{
	struct ibv_comp_channel *ch = channel();
	int marks[2];
	struct ibv_cq *cq[2];
	for (int i = 0; i < 2; i++) OK(cq[i] = ibv_create_cq(ctx, DEPTH, &marks[i], ch, 0));
	for (int i = 1; i >= 0; i--) {
		struct pair p = joined(init_of(IBV_QPT_RC, cq[i], NULL), init_of(IBV_QPT_RC, new_cq(NULL), NULL));
		struct ibv_sge s = piece(buf, 8);
		struct ibv_cq *which = NULL;
		void *context = NULL;
		OK(!ibv_req_notify_cq(cq[i], 0) && !post(p.qp, IBV_WR_RDMA_WRITE, &s, 1, (uintptr_t)far, mr->rkey));
		WANT(ready(ch->fd, patience) && !ibv_get_cq_event(ch, &which, &context) && which == cq[i] && context == &marks[i]);
		ibv_ack_cq_events(cq[i], 1);
		OK(!ibv_destroy_qp(p.qp) && !ibv_destroy_qp(p.far_qp));
	}
	WANT(!ibv_destroy_cq(cq[0]) && !ibv_destroy_cq(cq[1]) && !ibv_destroy_comp_channel(ch));
}

// Events of a queue that nobody read do not stop its end; nor do those acknowledged in one call.
static void unread(void)
{
	struct woken w = woken();
	struct ibv_cq *cq;
	void *context;
	for (int i = 0; i < 3; i++) {
		OK(!ibv_req_notify_cq(w.p.far_cq, 0));
		send_to(&w, 0);
		WANT(ready(w.ch->fd, patience));
		if (i < 2) OK(!ibv_get_cq_event(w.ch, &cq, &context));
	}
	ibv_ack_cq_events(w.p.far_cq, 2);
	finish(w);
}

// The sender's queue is woken by its own completions, by one event for each arming.
static void one_each(void)
{
	struct ibv_comp_channel *ch = channel();
	struct pair p = joined(init_of(IBV_QPT_RC, new_cq(ch), NULL), init_of(IBV_QPT_RC, new_cq(NULL), NULL));
	struct ibv_sge s = piece(buf, 8);
	struct ibv_cq *cq;
	void *context;
	OK(!ibv_req_notify_cq(p.cq, 0));
	for (int i = 0; i < 5; i++) OK(!post(p.qp, IBV_WR_RDMA_WRITE, &s, 1, (uintptr_t)far, mr->rkey));
	for (int i = 0; i < 5; i++) WANT(status(p.cq) == IBV_WC_SUCCESS);
	WANT(ready(ch->fd, patience) && !ibv_get_cq_event(ch, &cq, &context));
	ibv_ack_cq_events(p.cq, 1);
	WANT(!ready(ch->fd, SHORT));
	end(p);
	WANT(!ibv_destroy_comp_channel(ch));
}

static void duplicated(void)
{
	struct woken w = woken();
	int copy = dup(w.ch->fd);
	OK(copy >= 0 && !ibv_req_notify_cq(w.p.far_cq, 0));
	send_to(&w, 0);
	WANT(ready(copy, patience) && ready(w.ch->fd, patience));
	took(&w);
	WANT(!ready(copy, SHORT));
	close(copy);
	finish(w);
}

CASES(
	{ "solicited completions", "ibv_req_notify_cq(3), IBTA 11.4.2.2", solicited },
	{ "armed for solicited, then for all", "IBTA 11.4.2.2", wider },
	{ "a channel that does not block", "ibv_get_cq_event(3)", nonblocking },
	{ "epoll, by edges", "ibv_get_cq_event(3)", edges },
	{ "two queues of a channel", "ibv_create_cq(3), ibv_get_cq_event(3)", contexts },
	{ "events that nobody has read", "ibv_destroy_cq(3), ibv_ack_cq_events(3)", unread },
	{ "one event for each arming", "ibv_req_notify_cq(3)", one_each },
	{ "a copy of the descriptor", "dup(2)", duplicated },
)
