// Children of fork: they have the device of their parent, and its objects are theirs as well. Memory that a process registers is its own.
#include <arpa/inet.h>
#include <rdma/rdma_verbs.h>

#include "kind.h"

// forked calls f in a child of fork, and returns its exit status, or minus the signal that has ended it.
static int forked(int (*f)(void))
{
	fflush(stdout);
	pid_t child = fork();
	OK(child >= 0);
	if (child == 0) _exit(f());
	int st;
	OK(waitpid(child, &st, 0) == child);
	return WIFEXITED(st) ? WEXITSTATUS(st) : -WTERMSIG(st);
}

static unsigned char *page; // the second half is registered, the first is not

static int touch(void)
{
	for (int i = 0; i < 4096; i++) page[i] = 1;
	return 0;
}

static void neighbours(void)
{
	WANT(!ibv_fork_init());
	WANT(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	OK(page != MAP_FAILED);
	struct ibv_mr *m = ibv_reg_mr(pd, page + 2048, 2048, ANY);
	OK(m);
	int st = forked(touch);
	WANT(st == 0, "%d", st);
	WANT(page[0] == 0 && page[4095] == 0, "what a child writes is its own");
	OK(!ibv_dereg_mr(m));
}

// write_own makes all that it needs in the child, and moves bytes in the child's memory.
static int write_own(void)
{
	int before = wrong;
	struct ibv_mr *m = ibv_reg_mr(pd, buf, sizeof buf, ANY);
	OK(m);
	struct pair p = two(IBV_QPT_RC);
	memset(buf, 'c', 100);
	struct ibv_sge s = { (uintptr_t)buf, 100, m->lkey };
	OK(!post(p.qp, IBV_WR_RDMA_WRITE, &s, 1, (uintptr_t)far, m->rkey));
	WANT(status(p.cq) == IBV_WC_SUCCESS);
	WANT(!memcmp(far, buf, 100) && far[100] == 0);
	end(p);
	WANT(!ibv_dereg_mr(m));
	return wrong - before;
}

static void own_objects(void)
{
	fill();
	WANT(forked(write_own) == 0);
	WANT(far[0] == 0, "the parent's memory is not the child's");
	WANT(write_own() == 0, "in the parent, after that");
}

static struct pair common;

// write_common sends by a queue pair of the parent: from the child's memory to that of the parent.
static int write_common(void)
{
	int before = wrong;
	memset(buf, 'd', 100);
	struct ibv_mr *m = ibv_reg_mr(pd, buf, sizeof buf, ANY);
	OK(m);
	struct ibv_sge s = { (uintptr_t)buf, 100, m->lkey };
	OK(!post(common.qp, IBV_WR_RDMA_WRITE, &s, 1, (uintptr_t)far, mr->rkey));
	WANT(status(common.cq) == IBV_WC_SUCCESS);
	WANT(far[0] == 0, "the region is one of the parent");
	WANT(!ibv_dereg_mr(m));
	return wrong - before;
}

static void parents_objects(void)
{
	fill();
	common = two(IBV_QPT_RC);
	WANT(forked(write_common) == 0);
	WANT(far[0] == 'd' && far[99] == 'd' && far[100] == 0);
	struct ibv_sge s = piece(buf, 8);
	OK(!post(common.qp, IBV_WR_RDMA_WRITE, &s, 1, (uintptr_t)far, mr->rkey));
	WANT(status(common.cq) == IBV_WC_SUCCESS && !memcmp(far, buf, 8), "in the parent, after that");
	end(common);
}

static struct ibv_mr *given; // a region that the child is to destroy

static int destroy_given(void) { return ibv_dereg_mr(given); }

static void destroyed(void)
{
	OK(given = ibv_reg_mr(pd, buf, 4096, ANY));
	WANT(forked(destroy_given) == 0);
	WANT(ibv_dereg_mr(given) != 0, "it has ended");
}

enum { OFTEN = 300 };

static int make_often(void)
{
	for (int i = 0; i < OFTEN; i++) {
		struct ibv_pd *d = ibv_alloc_pd(ctx);
		struct ibv_mr *m = d ? ibv_reg_mr(d, buf, 4096, ANY) : NULL;
		if (!m || ibv_dereg_mr(m) || ibv_dealloc_pd(d)) return 1;
	}
	return 0;
}

// at_once: parent and children send commands at the same time; each gets its own answers.
static void at_once(void)
{
	pid_t child[4];
	for (int i = 0; i < 4; i++) {
		OK((child[i] = fork()) >= 0);
		if (child[i] == 0) _exit(make_often());
	}
	WANT(make_often() == 0);
	for (int i = 0; i < 4; i++) {
		int st;
		OK(waitpid(child[i], &st, 0) == child[i]);
		WANT(st == 0, "child %d: %#x", i, st);
	}
}

// killed: children die in the middle of commands.
static void killed(void)
{
	for (int i = 0; i < 20; i++) {
		int busy[2], st;
		char c;
		OK(pipe(busy) == 0);
		pid_t child = fork();
		OK(child >= 0);
		while (child == 0) {
			struct ibv_pd *d = ibv_alloc_pd(ctx);
			if (!d || ibv_dealloc_pd(d) || write(busy[1], "b", 1) != 1) _exit(1);
		}
		OK(!close(busy[1]));
		int done = 0; // by the child, which may be refused
		while (done <= i && read(busy[0], &c, 1) == 1) done++;
		WANT(done > i, "commands: %d", done);
		OK(!kill(child, SIGKILL) && waitpid(child, &st, 0) == child);
		WANT(WIFSIGNALED(st));
		OK(!close(busy[0]));
		WANT(make_often() == 0);
		if (done <= i) return;
	}
}

static int write_in_child(void) { return forked(write_own); }

// orphan uses the device when its parent has closed it.
static void orphan(void)
{
	int say[2], tell[2];
	char c = 1;
	OK(pipe(say) == 0 && pipe(tell) == 0);
	struct ibv_context *other = ibv_open_device(ctx->device);
	OK(other);
	struct ibv_pd *d = ibv_alloc_pd(other);
	OK(d);
	fflush(stdout);
	pid_t child = fork();
	OK(child >= 0);
	if (child == 0) {
		OK(read(tell[0], &c, 1) == 1);
		struct ibv_mr *m = ibv_reg_mr(d, buf, 4096, ANY);
		c = m && !ibv_dereg_mr(m) && !ibv_dealloc_pd(d) && !ibv_close_device(other) ? 0 : 1;
		OK(write(say[1], &c, 1) == 1);
		_exit(0);
	}
	close(say[1]);
	OK(!ibv_close_device(other) && write(tell[1], "g", 1) == 1);
	WANT(read(say[0], &c, 1) == 1 && c == 0);
	OK(waitpid(child, NULL, 0) == child);
	close(say[0]), close(tell[0]), close(tell[1]);
}

static void grandchild(void)
{
	fill();
	WANT(forked(write_in_child) == 0);
}

static int closes(void)
{
	if (ibv_close_device(ctx)) return 1;
	for (int fd = 3; fd < 100; fd++) close(fd); // as a daemon does
	open_device();
	struct pair p = two(IBV_QPT_RC);
	end(p);
	return wrong;
}

static void closed(void)
{
	WANT(forked(closes) == 0);
	WANT(make_often() == 0, "in the parent, after that");
}

// endpoint makes an endpoint of librdmacm for this host's address, which has its own device beside ctx.
static struct rdma_cm_id *endpoint(int flags, struct ibv_qp_init_attr *a)
{
	char at[INET_ADDRSTRLEN];
	OK(inet_ntop(AF_INET, gid.raw + 12, at, sizeof at));
	struct rdma_addrinfo h = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *r;
	struct rdma_cm_id *id;
	OK(!rdma_getaddrinfo(at, "18651", &h, &r));
	OK(!rdma_create_ep(&id, r, NULL, a));
	rdma_freeaddrinfo(r);
	return id;
}

static struct ibv_qp_init_attr of_endpoint(void) { return (struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { DEPTH, DEPTH, 1, 1, 0 } }; }

// connects is a client in a child, whose librdmacm has the devices that its parent has opened.
static int connects(void)
{
	int before = wrong;
	struct ibv_qp_init_attr a = of_endpoint();
	struct rdma_cm_id *id = endpoint(0, &a);
	struct ibv_mr *m = rdma_reg_msgs(id, buf, 64);
	struct ibv_wc wc;
	OK(m && !rdma_connect(id, NULL));
	memcpy(buf, "from a child", 12);
	OK(!rdma_post_send(id, NULL, buf, 12, m, 0));
	WANT(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	OK(!rdma_disconnect(id));
	WANT(!rdma_dereg_mr(m));
	rdma_destroy_ep(id);
	return wrong - before;
}

static void connected(void)
{
	memset(buf, 0, 64);
	struct ibv_qp_init_attr a = of_endpoint();
	struct rdma_cm_id *listener = endpoint(RAI_PASSIVE, &a), *id;
	OK(!rdma_listen(listener, 1));
	fflush(stdout);
	pid_t child = fork();
	OK(child >= 0);
	if (child == 0) _exit(connects());
	struct pollfd request = { listener->channel->fd, POLLIN, 0 };
	if (poll(&request, 1, patience) != 1) {
		int st;
		OK(!kill(child, SIGKILL) && waitpid(child, &st, 0) == child);
		WANT(0, "a request, the child has %#x", st);
		rdma_destroy_ep(listener);
		return;
	}
	OK(!rdma_get_request(listener, &id));
	struct ibv_mr *m = rdma_reg_msgs(id, buf, 64);
	struct ibv_wc wc;
	OK(m && !rdma_post_recv(id, NULL, buf, 64, m) && !rdma_accept(id, NULL));
	WANT(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.byte_len == 12 && !memcmp(buf, "from a child", 12));
	int st;
	OK(waitpid(child, &st, 0) == child);
	WANT(st == 0, "%#x", st);
	OK(!rdma_disconnect(id) && !rdma_dereg_mr(m));
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

static int ready[2], go[2]; // pipes: a child is ready; the parent lets the children go on

static int reads; // the child reads its event, and acknowledges it

// leaves_event makes a queue pair with an event, which nobody reads unless reads is set, and destroys it when all children have come so far.
static int leaves_event(void)
{
	struct ibv_srq_init_attr sa = { .attr = { DEPTH, 1, 0 } };
	struct ibv_srq *s = ibv_create_srq(pd, &sa);
	OK(s);
	struct pair p = joined(init_of(IBV_QPT_RC, new_cq(NULL), s), init_of(IBV_QPT_RC, new_cq(NULL), NULL));
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	OK(!ibv_modify_qp(p.qp, &a, IBV_QP_STATE)); // IBV_EVENT_QP_LAST_WQE_REACHED
	char c = 0;
	struct ibv_async_event ev;
	if (reads) {
		OK(!ibv_get_async_event(ctx, &ev));
		ibv_ack_async_event(&ev);
	}
	alarm(20); // a destroy that waits for the event of another process ends by it
	OK(write(ready[1], &c, 1) == 1 && close(go[1]) == 0 && read(go[0], &c, 1) == 0);
	end(p);
	OK(!ibv_destroy_srq(s));
	return 0;
}

// Children have the addresses of their parent, so the events of their objects have the same names.
static void same_addresses(void)
{
	enum { CHILDREN = 6 };
	pid_t child[CHILDREN];
	char c;
	OK(!pipe(ready) && !pipe(go));
	fflush(stdout);
	for (int i = 0; i < CHILDREN; i++) {
		OK((child[i] = fork()) >= 0);
		reads = i < CHILDREN / 2;
		if (child[i] == 0) _exit(leaves_event());
		OK(read(ready[0], &c, 1) == 1); // those that read their event come before the others have any
	}
	close(go[1]);
	for (int i = 0; i < CHILDREN; i++) {
		int st;
		OK(waitpid(child[i], &st, 0) == child[i]);
		WANT(st == 0, "child %d: %#x", i, st);
	}
	close(go[0]), close(ready[0]), close(ready[1]);
}

// changes_domain changes the domain of a region of the parent.
static struct ibv_mr *parents;
static int changes_domain(void)
{
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	OK(other);
	int rc = ibv_rereg_mr(parents, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0);
	if (rc) printf("  rereg: %d %s\n", rc, strerror(errno));
	return rc ? 1 : 0;
}

// A region whose domain a child changes keeps the memory of the process that has registered it.
static void keeps_memory(void)
{
	unsigned char *room = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	OK(room != MAP_FAILED);
	OK(parents = ibv_reg_mr(pd, room, 4096, ANY));
	madvise(room, 4096, MADV_DONTFORK); // the child does not even have it
	WANT(forked(changes_domain) == 0);
	OK(!ibv_dereg_mr(parents));
	munmap(room, 4096);
}

CASES(
	{ "the neighbours of registered memory", "ibv_fork_init(3), ibv_is_fork_initialized(3)", neighbours },
	{ "objects and memory of a child", "ibv_fork_init(3)", own_objects },
	{ "a child that posts on its parent's queue pair", "ibv_fork_init(3)", parents_objects },
	{ "a child that destroys an object of its parent", "ibv_fork_init(3)", destroyed },
	{ "commands of parent and children at the same time", "ibv_fork_init(3)", at_once },
	{ "children that are killed", "ibv_fork_init(3)", killed },
	{ "a parent that closes its device", "ibv_close_device(3)", orphan },
	{ "a child of a child", "ibv_fork_init(3)", grandchild },
	{ "a child that closes and opens the device", "ibv_close_device(3)", closed },
	{ "children whose objects have the same addresses and events that nobody reads", "ibv_destroy_qp(3), ibv_get_async_event(3)", same_addresses },
	{ "a child that changes the domain of its parent's region", "ibv_rereg_mr(3)", keeps_memory },
	{ "a child that connects by librdmacm", "rdma_create_ep(3)", connected },
)
