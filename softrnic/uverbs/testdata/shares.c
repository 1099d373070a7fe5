// A program over the kernel's interface alone, which registers memory. Its argument names a story; it
// prints "ok" when its memory was shared with the daemon where it should be, and has kept all that was
// written. It needs no function that musl does not have.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "line %d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(1); } } while (0)

enum { PAGE = 4096, ACCESS = 7 };

static int device(void)
{
	int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

static uint32_t alloc_pd(int fd)
{
	uint32_t pd;
	struct { struct ib_uverbs_cmd_hdr h; uint64_t response; } b = { { IB_USER_VERBS_CMD_ALLOC_PD, 4, 1 }, (uintptr_t)&pd };
	CHECK(write(fd, &b, sizeof b) == sizeof b);
	return pd;
}

static int64_t reg(int fd, uint32_t pd, void *at, size_t n)
{
	struct ib_uverbs_reg_mr_resp r;
	struct { struct ib_uverbs_cmd_hdr h; struct ib_uverbs_reg_mr a; } b = { { IB_USER_VERBS_CMD_REG_MR, sizeof b / 4, sizeof r / 4 }, { 0 } };
	b.a.response = (uintptr_t)&r, b.a.start = b.a.hca_va = (uintptr_t)at, b.a.length = n, b.a.pd_handle = pd, b.a.access_flags = ACCESS;
	return write(fd, &b, sizeof b) == sizeof b ? (int64_t)r.mr_handle : -1;
}

static void dereg(int fd, int64_t mr)
{
	struct { struct ib_uverbs_cmd_hdr h; uint32_t mr; } b = { { IB_USER_VERBS_CMD_DEREG_MR, 3, 0 }, (uint32_t)mr };
	CHECK(write(fd, &b, sizeof b) == sizeof b);
}

// shared counts the bytes of the daemon's memory that are mapped in a range.
static size_t shared(void *at, size_t n)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[600];
	size_t sum = 0;
	unsigned long from, to;
	CHECK(f);
	while (fgets(line, sizeof line, f)) {
		if (!strstr(line, "/memfd:rdmalab-share-") || sscanf(line, "%lx-%lx", &from, &to) != 2) continue;
		if (from < (uintptr_t)at) from = (uintptr_t)at;
		if (to > (uintptr_t)at + n) to = (uintptr_t)at + n;
		if (from < to) sum += to - from;
	}
	fclose(f);
	return sum;
}

static char *anonymous(size_t n)
{
	char *b = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(b != MAP_FAILED);
	return b;
}

static void fill(char *b, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++) b[i] = (char)(i * 31 + i / PAGE + seed);
}

static int filled(const char *b, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		if (b[i] != (char)(i * 31 + i / PAGE + seed)) return 0;
	return 1;
}

// Registered memory is shared as long as it is registered, and keeps what is in it.
static void registered(void)
{
	int fd = device();
	uint32_t pd = alloc_pd(fd);
	size_t n = 300 * PAGE;
	char *b = anonymous(n), *other = anonymous(n);
	for (int round = 0; round < 3; round++) {
		fill(b, n, round);
		CHECK(round != 1 || reg(fd, pd, other, n) >= 0);
		int64_t mr = reg(fd, pd, b + 5, n - PAGE); // only whole pages of the region are shared
		CHECK(mr >= 0 && filled(b, n, round));
		CHECK(shared(b, n) == n - 2 * PAGE && shared(b, PAGE) == 0);
		fill(b, n, round + 100);
		dereg(fd, mr);
		CHECK(shared(b, n) == 0 && filled(b, n, round + 100));
		CHECK(shared(other, n) == (round < 1 ? 0 : n));
	}
	// A registration that fails leaves nothing shared.
	CHECK(reg(fd, pd + 77, b, n) < 0 && errno == EINVAL);
	CHECK(shared(b, n) == 0 && filled(b, n, 102));
}

// Regions over the same pages, from malloc.
static void several(void)
{
	int fd = device();
	uint32_t pd = alloc_pd(fd);
	enum { N = 40 };
	char *b[N];
	int64_t mr[N];
	for (int i = 0; i < N; i++) {
		CHECK(b[i] = malloc(1000 + i * 1000));
		fill(b[i], 1000 + i * 1000, i);
		CHECK((mr[i] = reg(fd, pd, b[i], 1000 + i * 1000)) >= 0);
	}
	CHECK(shared(b[0], 1000) == 0 && shared(b[20], 21000) >= 4 * PAGE);
	for (int i = 0; i < N; i++) {
		int k = i * 7 % N;
		CHECK(filled(b[k], 1000 + k * 1000, k));
		dereg(fd, mr[k]);
		CHECK(filled(b[k], 1000 + k * 1000, k));
		free(b[k]);
	}
	CHECK(shared(NULL, SIZE_MAX / 2) == 0);
}

static char *work;
static atomic_int stop, started;

// write_all counts in each page, again and again: a lost write is seen at the next round.
static void *write_all(void *arg)
{
	size_t off = (size_t)arg;
	for (uint64_t v = 0; !stop; v++) {
		for (size_t p = 0; p < 64; p++) {
			volatile uint64_t *w = (uint64_t *)(work + p * PAGE + off);
			if (*w != v) return "a write is lost";
			*w = v + 1;
		}
		started |= 1 << off / 8;
	}
	return NULL;
}

static _Atomic(char *) fresh;
enum { FRESH = 2000 };

// touch_all writes to each page of fresh memory for the first time.
static void *touch_all(void *arg)
{
	(void)arg;
	while (!stop) {
		char *b = fresh;
		for (size_t p = 0; b && p < FRESH; p++) ((volatile char *)b)[p * PAGE] = 1;
		if (b) fresh = NULL;
	}
	return NULL;
}

// First writes of another thread while pages are replaced.
static void touched(void)
{
	int fd = device();
	uint32_t pd = alloc_pd(fd);
	pthread_t t;
	CHECK(pthread_create(&t, NULL, touch_all, NULL) == 0);
	for (int round = 0; round < 60; round++) {
		char *b = anonymous(FRESH * PAGE);
		fresh = b;
		int64_t mr = reg(fd, pd, b, FRESH * PAGE);
		CHECK(mr >= 0 && shared(b, FRESH * PAGE) == FRESH * PAGE);
		while (fresh) sched_yield();
		for (size_t p = 0; p < FRESH; p++) CHECK(b[p * PAGE] == 1);
		dereg(fd, mr);
		CHECK(munmap(b, FRESH * PAGE) == 0);
	}
	stop = 1;
	CHECK(pthread_join(t, NULL) == 0);
}

// Writes of other threads while pages are replaced.
static void written(void)
{
	int fd = device();
	uint32_t pd = alloc_pd(fd);
	pthread_t t[3];
	work = anonymous(64 * PAGE);
	for (size_t i = 0; i < 3; i++) CHECK(pthread_create(&t[i], NULL, write_all, (void *)(i * 8)) == 0);
	while (started != 7) sched_yield();
	for (int round = 0; round < 60; round++) {
		int64_t mr = reg(fd, pd, work, 64 * PAGE);
		CHECK(mr >= 0 && shared(work, 64 * PAGE) == 64 * PAGE);
		dereg(fd, mr);
		CHECK(shared(work, 64 * PAGE) == 0);
	}
	stop = 1;
	for (int i = 0; i < 3; i++) {
		void *why;
		CHECK(pthread_join(t[i], &why) == 0);
		if (why) fprintf(stderr, "%s\n", (char *)why), exit(1);
	}
}

// A child of fork has its own copy; its parent goes on with what is shared.
static void forked(void)
{
	int fd = device();
	uint32_t pd = alloc_pd(fd);
	size_t n = 500 * PAGE;
	char *b = anonymous(n), *small = malloc(5 * PAGE);
	int64_t mr = reg(fd, pd, b, n), heap = reg(fd, pd, small, 5 * PAGE);
	CHECK(mr >= 0 && heap >= 0 && shared(b, n) == n);
	for (int round = 0; round < 5; round++) {
		fill(b, n, round);
		strcpy(small, "parent");
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			CHECK(shared(NULL, SIZE_MAX / 2) == 0 && filled(b, n, round) && !strcmp(small, "parent"));
			memset(b, 'c', n);
			strcpy(small, "child");
			_exit(0);
		}
		fill(b, n, round + 50);
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		CHECK(filled(b, n, round + 50) && !strcmp(small, "parent") && shared(b, n) == n);
	}
	// A child with a device of its own shares its own memory.
	pid_t child = fork();
	if (child == 0) {
		int own = device();
		CHECK((mr = reg(own, alloc_pd(own), b, n)) >= 0 && shared(b, n) == n);
		dereg(own, mr);
		CHECK(shared(b, n) == 0 && filled(b, n, 54));
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

// Memory that was registered may grow afterwards.
static void grown(void)
{
	int fd = device();
	uint32_t pd = alloc_pd(fd);
	size_t n = 1 << 20;
	char *b = malloc(n);
	for (int round = 0; round < 4; round++) {
		fill(b, n, round);
		int64_t mr = reg(fd, pd, b, n);
		CHECK(mr >= 0 && shared(b, n) == n - PAGE);
		dereg(fd, mr);
		CHECK((b = realloc(b, 2 * n)) && filled(b, n, round));
		n *= 2;
	}
}

// Memory on a stack, the whole stack of a thread, too: the library runs on it.
static void *on_stack(void *arg)
{
	int fd = *(int *)arg;
	pthread_attr_t attr;
	void *at;
	size_t n;
	char b[100];
	strcpy(b, "on the stack");
	CHECK(pthread_getattr_np(pthread_self(), &attr) == 0 && pthread_attr_getstack(&attr, &at, &n) == 0);
	uint32_t pd = alloc_pd(fd);
	int64_t part = reg(fd, pd, b, sizeof b);
	int64_t rest = reg(fd, pd, (char *)(((uintptr_t)b & -PAGE) - PAGE), PAGE + 100);
	CHECK(part >= 0 && rest >= 0 && !strcmp(b, "on the stack"));
	if (getpid() != gettid()) {
		int64_t all = reg(fd, pd, at, n);
		CHECK(all >= 0 && !strcmp(b, "on the stack"));
		dereg(fd, all);
	} else {
		CHECK(shared(b, sizeof b) == 0);
	}
	dereg(fd, rest);
	dereg(fd, part);
	CHECK(shared(b, sizeof b) == 0 && !strcmp(b, "on the stack"));
	pthread_attr_destroy(&attr);
	return NULL;
}

static void stack(void)
{
	int fd = device();
	pthread_t t;
	on_stack(&fd);
	CHECK(pthread_create(&t, NULL, on_stack, &fd) == 0 && pthread_join(t, NULL) == 0);
}

// A device that is closed with regions leaves private memory.
static void closed(void)
{
	int fd = device();
	size_t n = 10 * PAGE;
	char *b = anonymous(n);
	fill(b, n, 3);
	CHECK(reg(fd, alloc_pd(fd), b, n) >= 0 && shared(b, n) == n);
	CHECK(close(fd) == 0);
	CHECK(shared(b, n) == 0 && filled(b, n, 3));
}

// Two devices of a process, and moved memory.
static void devices(void)
{
	int a = device(), b = device();
	size_t n = 10 * PAGE;
	char *m = anonymous(n), *to = anonymous(n);
	int64_t x = reg(a, alloc_pd(a), m, n), y = reg(b, alloc_pd(b), m, n);
	fill(m, n, 9);
	CHECK(x >= 0 && y >= 0 && shared(m, n) == n);
	dereg(a, x);
	CHECK(shared(m, n) == n);
	CHECK(close(a) == 0);
	CHECK(shared(m, n) == n && filled(m, n, 9));
	CHECK(mremap(m, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	dereg(b, y);
	CHECK(shared(to, n) == 0 && filled(to, n, 9));
}

// Where the kernel allows no userfaultfd, or there are no descriptors, memory is registered all the same.
static void refused(void)
{
	int fd = device();
	uint32_t pd = alloc_pd(fd);
	char *b = anonymous(PAGE);
	struct rlimit few = { (rlim_t)fd + 3, (rlim_t)fd + 3 };
	fill(b, PAGE, 1);
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	int fill_up[8], n = 0;
	while (n < 8 && (fill_up[n] = dup(0)) >= 0) n++;
	int64_t mr = reg(fd, pd, b, PAGE);
	CHECK(mr >= 0);
	while (n > 0) close(fill_up[--n]);
	CHECK(shared(b, PAGE) == 0 && filled(b, PAGE, 1));
	dereg(fd, mr);
}

static char *small;
static atomic_int step;

static void step_to(int n) { while (step != n) sched_yield(); }

// allocates registers memory of malloc. In a thread that is not the first, malloc keeps its own data beside it.
static void *allocates(void *arg)
{
	int fd = *(int *)arg;
	CHECK(small = malloc(100));
	strcpy(small, "parent");
	CHECK(reg(fd, alloc_pd(fd), small, 100) >= 0);
	step = 1;
	step_to(2);
	free(malloc(200));
	return NULL;
}

// What libc has in pages beside registered memory is the parent's own: in a child of fork libc resets
// its locks and counts before the library runs.
static void beside(void)
{
	int fd = device(), status;
	pthread_t t;
	CHECK(pthread_create(&t, NULL, allocates, &fd) == 0);
	step_to(1);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) _exit(strcmp(small, "parent") != 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	step = 2;
	CHECK(pthread_join(t, NULL) == 0);
}

// forks registers memory on its stack, and forks: parent and child both return.
static void *forks(void *arg)
{
	int fd = *(int *)arg, status;
	char b[100];
	strcpy(b, "on the stack");
	int64_t mr = reg(fd, alloc_pd(fd), b, sizeof b);
	CHECK(mr >= 0);
	for (int round = 0; round < 5; round++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			CHECK(!strcmp(b, "on the stack") && shared(NULL, SIZE_MAX / 2) == 0);
			strcpy(b, "child");
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		CHECK(!strcmp(b, "on the stack"));
	}
	dereg(fd, mr);
	return NULL;
}

static void stackforked(void)
{
	int fd = device();
	pthread_t t;
	CHECK(pthread_create(&t, NULL, forks, &fd) == 0 && pthread_join(t, NULL) == 0);
}

// forks_long makes children that live until they are killed.
static void *forks_long(void *arg)
{
	(void)arg;
	enum { N = 30 };
	pid_t all[N];
	for (int i = 0; i < N; i++) {
		CHECK((all[i] = fork()) >= 0);
		if (all[i] == 0) for (;;) pause();
	}
	step = 1;
	step_to(2);
	for (int i = 0; i < N; i++) CHECK(kill(all[i], SIGKILL) == 0 && waitpid(all[i], NULL, 0) == all[i]);
	return NULL;
}

// A fork does not wait for the children of other threads.
static void forkers(void)
{
	int fd = device(), status;
	uint32_t pd = alloc_pd(fd);
	char *b = anonymous(10 * PAGE);
	CHECK(reg(fd, pd, b, 10 * PAGE) >= 0);
	alarm(100);
	pthread_t t;
	CHECK(pthread_create(&t, NULL, forks_long, NULL) == 0);
	while (step == 0) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) _exit(0);
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	step = 2;
	CHECK(pthread_join(t, NULL) == 0);
}

// The limit of a file's size does not concern memory.
static void limited(void)
{
	int fd = device();
	char *b = anonymous(10 * PAGE);
	struct rlimit small_files = { PAGE, PAGE };
	CHECK(setrlimit(RLIMIT_FSIZE, &small_files) == 0);
	fill(b, 10 * PAGE, 1);
	CHECK(reg(fd, alloc_pd(fd), b, 10 * PAGE) >= 0 && shared(b, 10 * PAGE) == 10 * PAGE && filled(b, 10 * PAGE, 1));
}

// A child has its own copy of pages, too, that may not be written at the fork.
static void guarded(void)
{
	int fd = device(), status;
	char *b = anonymous(10 * PAGE);
	fill(b, 10 * PAGE, 1);
	CHECK(reg(fd, alloc_pd(fd), b, 10 * PAGE) >= 0 && mprotect(b, 5 * PAGE, PROT_READ) == 0 && mprotect(b, PAGE, PROT_NONE) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(mprotect(b, 5 * PAGE, PROT_READ | PROT_WRITE) == 0 && shared(b, 10 * PAGE) == 0 && filled(b, 10 * PAGE, 1));
		memset(b, 'c', 10 * PAGE);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(mprotect(b, 5 * PAGE, PROT_READ | PROT_WRITE) == 0 && filled(b, 10 * PAGE, 1));
}

static void unasked(void)
{
	int fd = device();
	char *b = anonymous(PAGE);
	CHECK(reg(fd, alloc_pd(fd), b, PAGE) >= 0 && shared(b, PAGE) == 0);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*f)(void); } stories[] = {
		{ "registered", registered }, { "several", several }, { "written", written }, { "touched", touched }, { "forked", forked }, { "grown", grown },
		{ "stack", stack }, { "closed", closed }, { "devices", devices }, { "refused", refused }, { "unasked", unasked },
		{ "beside", beside }, { "stackforked", stackforked }, { "forkers", forkers }, { "limited", limited }, { "guarded", guarded },
	};
	for (size_t i = 0; argc == 2 && i < sizeof stories / sizeof *stories; i++) {
		if (strcmp(argv[1], stories[i].name)) continue;
		stories[i].f();
		printf("ok\n");
		return 0;
	}
	return 2;
}
