// A program that polls completion queues. It counts by itself how often the processor is yielded.
// With an argument it loads the library libibverbs.so.1 for a part of itself only.
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "line %d: %s: %s\n", __LINE__, #x, strerror(errno)); _Exit(1); } } while (0)

#if __has_include(<infiniband/verbs.h>)
#include <stddef.h>
#include <infiniband/verbs.h>
_Static_assert(offsetof(struct ibv_context, ops.poll_cq) == 12 * sizeof(void *), "poll_cq has another place");
_Static_assert(offsetof(struct ibv_context, cmd_fd) == 33 * sizeof(void *) && offsetof(struct ibv_cq, context) == 0, "cmd_fd has another place");
#endif

static int yields;
int sched_yield(void) { return yields++, 0; }

typedef int (*poller)(void *cq, int n, void *wc);
static void poll_times(void **context, int times, int want)
{
	for (int i = 0; i < times; i++) CHECK(((poller)context[12])(&context, 1, NULL) == want);
}

int main(int argc, char **argv)
{
	void *lib = dlopen("libibverbs.so.1", argc > 1 ? RTLD_NOW | RTLD_LOCAL : RTLD_NOW | RTLD_GLOBAL);
	CHECK(lib);
	int *has = dlsym(lib, "has");
	void **(*open)(size_t) = (void **(*)(size_t))dlsym(RTLD_DEFAULT, "ibv_open_device"); // that of the preloaded library
	CHECK(has && open && (void *)open != dlsym(lib, "ibv_open_device"));
	void **a = open(1), **b = open(2), **c = open(3);
	CHECK(a && b && c);
	errno = 0;
	CHECK(!open(0) && errno == ENODEV);

	poll_times(a, 16, 0);
	CHECK(yields == 0); // what is there at once costs no system call
	poll_times(a, 10, 0);
	CHECK(yields == 10);
	*has = 1;
	poll_times(b, 100, 1);
	CHECK(yields == 10);
	*has = 0;
	poll_times(b, 17, 0);
	CHECK(yields == 11); // once, although the function was there when the second device was opened
	poll_times(c, 100, 0);
	CHECK(yields == 11); // another provider's queues stay as they are
	puts("ok");
	return argv == NULL;
}
