// The pace of polling. A program that polls an empty completion queue without pause keeps its
// processor for a whole time slice of some milliseconds, even if the daemon that has to serve the
// program waits for that processor. So the library yields the processor in empty polls. If no other
// process wants the processor, a yield takes less than a microsecond.
//
// The daemon says in the control page if more threads poll than there are processors: then every
// empty poll yields. From time to time an empty poll tells the daemon that the program polls.
//
// A program that polls its memory instead, as ib_write_lat does, calls nothing and does not yield.
#define _GNU_SOURCE
#include <sched.h>

#include "shim.h"

struct ibv_device;
struct ibv_cq;
struct ibv_wc;
struct ibv_context;

typedef int (*poller)(struct ibv_cq *, int, struct ibv_wc *);

// POLL_CQ is the place of poll_cq in a context, in pointers: behind the device and eleven other
// functions of struct ibv_context_ops. Programs call it there, so the place never changes.
enum { POLL_CQ = 1 + 11 };

// CMD_FD is the place of cmd_fd, behind the device and 32 functions. A queue begins with a pointer to
// its context.
enum { CMD_FD = 1 + 32 };

// Offsets in the control page.
enum { OFF_CROWDED = 16, OFF_POLLS = 64 };

// EMPTY is how many empty polls of a thread in a row do not yield.
enum { EMPTY = 16 };

// TELL: each TELL-th empty poll in a row, and the first one, is told to the daemon.
enum { TELL = 64 };

static _Atomic(poller) provided; // poll_cq of the provider of the first device that was opened
static _Thread_local unsigned empty __attribute__((tls_model("initial-exec")));

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = provided(cq, n, wc);
	if (got) return empty = 0, got;
	void **context = cq ? *(void ***)cq : NULL;
	struct device *d = context ? device_of(*(int *)&context[CMD_FD]) : NULL;
	int crowded = d && atomic_load_explicit((_Atomic uint64_t *)(d->page + OFF_CROWDED), memory_order_relaxed);
	if (d && empty % TELL == 0) atomic_fetch_add((_Atomic uint64_t *)(d->page + OFF_POLLS), 1);
	if (++empty > EMPTY || crowded) sched_yield();
	return 0;
}

// ibv_open_device replaces the function of libibverbs. librdmacm calls it, too.
struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	static _Atomic(struct ibv_context *(*)(struct ibv_device *)) next;
	if (!next) {
		// A program may load libibverbs for a part of itself, as UCX does. RTLD_NEXT does not find it
		// then.
		void *lib = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
		next = (struct ibv_context *(*)(struct ibv_device *))dlsym(lib ? lib : RTLD_NEXT, "ibv_open_device");
	}
	if (!next) return errno = ENOSYS, NULL;
	struct ibv_context *c = next(device);
	if (!c) return NULL;
	poller *at = (poller *)c + POLL_CQ, none = NULL;
	if (*at && *at != poll_cq && (atomic_compare_exchange_strong(&provided, &none, *at) || none == *at)) *at = poll_cq;
	return c;
}
