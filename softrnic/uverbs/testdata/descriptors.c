// A program over the kernel's interface alone, which does with its descriptors what programs do. Its
// argument names a story; it prints "ok" when the story went as it does over a kernel. It needs no
// function that musl does not have.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "line %d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(1); } } while (0)

// Of glibc alone.
extern int close_range(unsigned first, unsigned last, int flags) __attribute__((weak));
extern void closefrom(int first) __attribute__((weak));

static int device(void)
{
	int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

// command writes a command whose arguments begin with the place of its answer.
static int command(int fd, uint32_t op, const void *args, size_t n, void *out, size_t room)
{
	struct { struct ib_uverbs_cmd_hdr h; uint64_t response; uint8_t args[200]; } b = { { op, 0, (uint16_t)(room / 4) }, (uintptr_t)out, { 0 } };
	memcpy(b.args, args, n);
	size_t len = sizeof b.h + 8 + n;
	b.h.in_words = (uint16_t)(len / 4);
	return write(fd, &b, len) == (ssize_t)len ? 0 : -1;
}

// works reports whether a descriptor is an open device.
static int works(int fd)
{
	uint32_t pd = 0;
	struct stat s;
	if (command(fd, IB_USER_VERBS_CMD_ALLOC_PD, "", 0, &pd, 4) != 0) return 0;
	return fstat(fd, &s) == 0 && S_ISCHR(s.st_mode);
}

static int channel(int fd)
{
	uint32_t got = 0;
	CHECK(command(fd, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, "", 0, &got, 4) == 0);
	return (int)got;
}

static void make_and_destroy(int fd, int on)
{
	struct ib_uverbs_create_cq make = { .cqe = 8, .comp_channel = on };
	uint32_t answer[32], reported[2];
	CHECK(command(fd, IB_USER_VERBS_CMD_CREATE_CQ, &make.user_handle, sizeof make - 8, answer, sizeof answer) == 0);
	uint32_t handle[2] = { answer[0], 0 };
	CHECK(command(fd, IB_USER_VERBS_CMD_DESTROY_CQ, handle, sizeof handle, reported, sizeof reported) == 0);
}

// manager opens an event channel of librdmacm, on which an identifier can be made.
static int manager(void)
{
	struct { struct rdma_ucm_cmd_hdr h; struct rdma_ucm_create_id a; } b = { { RDMA_USER_CM_CMD_CREATE_ID, sizeof b.a, 4 }, { 0 } };
	uint32_t id = 0;
	int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	b.a.uid = 1, b.a.response = (uintptr_t)&id, b.a.ps = RDMA_PS_TCP;
	CHECK(write(fd, &b, sizeof b) == sizeof b);
	return fd;
}

// is_a_file checks that what is written to a descriptor arrives in a file.
static void is_a_file(int fd)
{
	char b[4] = "";
	struct stat s;
	CHECK(write(fd, "abc", 3) == 3);
	CHECK(pread(fd, b, 3, 0) == 3 && !strcmp(b, "abc"));
	CHECK(fstat(fd, &s) == 0 && S_ISREG(s.st_mode));
}

static int file(void)
{
	char name[] = "/tmp/descriptors.XXXXXX";
	int fd = mkstemp(name);
	CHECK(fd >= 0 && unlink(name) == 0);
	return fd;
}

// A file gets the number of a device, a channel and an event channel.
static void replaced(void)
{
	int fds[] = { device(), manager(), channel(device()) };
	for (int i = 0; i < 3; i++) {
		CHECK(i % 2 ? dup3(file(), fds[i], O_CLOEXEC) == fds[i] : dup2(file(), fds[i]) == fds[i]);
		is_a_file(fds[i]);
	}
	int d = device();
	CHECK(dup2(1000, d) < 0 && errno == EBADF && works(d));
	CHECK(dup2(d, d) == d && works(d));
	CHECK(dup3(d, d, 0) < 0 && errno == EINVAL && works(d));
}

// A copy of a device is the device, until the last one is closed.
static void copied(void)
{
	int d = device(), copies[] = { dup(d), dup2(d, 100), dup3(d, 101, 0), fcntl(d, F_DUPFD, 102), fcntl(d, F_DUPFD_CLOEXEC, 103) };
	CHECK(close(d) == 0);
	for (int i = 0; i < 5; i++) {
		CHECK(works(copies[i]));
		CHECK(close(copies[i]) == 0 && !works(copies[i]));
	}
	int m = manager(), n = dup(m);
	CHECK(close(m) == 0 && close(n) == 0);
	d = device();
	int c = channel(d), e = dup(c);
	CHECK(close(c) == 0);
	make_and_destroy(d, e);
}

// All descriptors are closed at once, as by a daemon that begins.
static void closed(const char *how)
{
	int d = device(), c = channel(d), m = manager();
	if (!strcmp(how, "close_range")) CHECK(close_range && close_range(3, ~0u, 0) == 0);
	if (!strcmp(how, "closefrom")) { CHECK(closefrom); closefrom(3); }
	if (!strcmp(how, "close")) for (int fd = 3; fd < 1024; fd++) close(fd);
	for (int i = 0; i < 3; i++) CHECK(fcntl((int[]){ d, c, m }[i], F_GETFD) < 0 && errno == EBADF);
	for (int n = 0; n < 3; n++) is_a_file(file());
	CHECK(works(device()));
	manager();
}

// What the library has for itself survives a program that closes what it did not open, or takes its
// number.
static void kept(void)
{
	int d = device(), m = manager();
	for (int fd = 3; fd < 200; fd++)
		if (fd != d && fd != m) close(fd);
	CHECK(works(d));
	int f = dup2(file(), 500);
	for (int fd = 3; fd < 200; fd++)
		if (fd != d && fd != m && fd != f) CHECK(dup2(f, fd) == fd);
	CHECK(works(d));
	manager();
	CHECK(close_range ? close_range((unsigned)(d > m ? d : m) + 1, ~0u, 0) == 0 : 1);
	CHECK(works(d));
}

// A child of vfork has descriptors of its own and the memory of its parent.
static void borrowed(void)
{
	int d = device(), m = manager(), c = channel(d), f = file(), status = 1;
	pid_t child = vfork();
	CHECK(child >= 0);
	if (child == 0) {
		if (close(d) != 0 || dup2(f, m) != m || dup3(f, c, 0) != c || dup2(f, d) != d) _exit(2);
		if (close_range && close_range(3, ~0u, 0) != 0) _exit(3);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(works(d));
	make_and_destroy(d, c);
	CHECK(close(m) == 0);
	manager();
}

// A child of fork has its parent's devices, may close them, and may have its own. It has no event channels of
// its parent.
static void forked(void)
{
	int d = device(), m = manager(), c = channel(d), status = 1;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(works(d));
		make_and_destroy(d, c);
		CHECK(close(d) == 0 && close(c) == 0 && close(m) == 0);
		for (int fd = 3; fd < 200; fd++) close(fd);
		d = device();
		CHECK(works(d));
		make_and_destroy(d, channel(d));
		manager();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(works(d));
	make_and_destroy(d, c);
	manager();
}

// Children that use devices of their own die in the middle of commands; their parent and the daemon go on.
static void slain(void)
{
	int d = device();
	for (int i = 0; i < 20; i++) {
		int busy[2], status;
		char c;
		CHECK(works(d) && pipe(busy) == 0);
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			int own = device(), on = channel(own);
			for (;;) {
				make_and_destroy(own, on);
				if (write(busy[1], "b", 1) != 1) _exit(1);
			}
		}
		for (int k = 0; k <= i; k++) CHECK(read(busy[0], &c, 1) == 1);
		CHECK(kill(child, SIGKILL) == 0);
		CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		CHECK(close(busy[0]) == 0 && close(busy[1]) == 0);
		make_and_destroy(d, channel(d));
	}
}

enum { ROUNDS = 100 };

static void *opens_and_closes(void *of)
{
	for (int i = 0; i < ROUNDS; i++) {
		int c = channel(*(int *)of);
		CHECK(close(c) == 0);
	}
	return NULL;
}

// Threads close channels and devices while another settles the events of a queue.
static void raced(void)
{
	int d = device(), c = channel(d);
	pthread_t threads[2];
	for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, opens_and_closes, &d) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		make_and_destroy(d, c);
		if (i % 10 == 0) CHECK(close(device()) == 0);
	}
	for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static _Atomic int stopped;

static void *allocates(void *of)
{
	struct { struct ib_uverbs_cmd_hdr h; uint32_t pd; } b = { { IB_USER_VERBS_CMD_DEALLOC_PD, sizeof b / 4, 0 }, 0 };
	while (!stopped) {
		CHECK(command(*(int *)of, IB_USER_VERBS_CMD_ALLOC_PD, "", 0, &b.pd, 4) == 0);
		CHECK(write(*(int *)of, &b, sizeof b) == sizeof b);
	}
	return NULL;
}

static void *identifies(void *of)
{
	struct { struct rdma_ucm_cmd_hdr h; struct rdma_ucm_create_id a; } make = { { RDMA_USER_CM_CMD_CREATE_ID, sizeof make.a, 4 }, { 0 } };
	struct { struct rdma_ucm_cmd_hdr h; struct rdma_ucm_destroy_id a; } drop = { { RDMA_USER_CM_CMD_DESTROY_ID, sizeof drop.a, 4 }, { 0 } };
	uint32_t id, events;
	make.a.response = (uintptr_t)&id, make.a.ps = RDMA_PS_TCP;
	drop.a.response = (uintptr_t)&events;
	while (!stopped) {
		CHECK(write(*(int *)of, &make, sizeof make) == sizeof make);
		drop.a.id = id;
		CHECK(write(*(int *)of, &drop, sizeof drop) == sizeof drop);
	}
	return NULL;
}

// What the library has for itself gets other numbers while other threads give commands: each has its
// own answer, and no command arrives in the file that took the number.
static void moved(void)
{
	int d = device(), m = manager(), f = file();
	struct stat s;
	pthread_t threads[2];
	CHECK(pthread_create(&threads[0], NULL, allocates, &d) == 0 && pthread_create(&threads[1], NULL, identifies, &m) == 0);
	for (int i = 0; i < 20 * ROUNDS; i++)
		for (int fd = 3; fd < 20; fd++)
			if (fd != d && fd != m && fd != f) CHECK(dup2(f, fd) == fd && close(fd) == 0);
	stopped = 1;
	for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(fstat(f, &s) == 0 && s.st_size == 0);
	CHECK(works(d));
	manager();
}

enum { CLOSES = 60 };
static int to_close[CLOSES], put_there;
static volatile sig_atomic_t closes;

static void closes_one(int signal)
{
	int saved = errno;
	(void)signal;
	if (closes < CLOSES) {
		int fd = to_close[closes];
		CHECK(closes % 2 ? dup2(put_there, fd) == fd && close(fd) == 0 : close(fd) == 0);
		closes = closes + 1;
	}
	errno = saved;
}

// A handler of signals closes descriptors, or puts a file there, while a command of its thread goes on:
// channels, event channels, other devices and at last the device itself.
static void signalled(void)
{
	int d = device(), c = channel(d), m = manager();
	struct sigaction act = { .sa_handler = closes_one, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 3777 }, { 0, 3777 } };
	put_there = file();
	for (int i = 0; i < CLOSES; i++) to_close[i] = i == CLOSES - 1 ? d : i % 6 < 2 ? channel(d) : i % 6 < 4 ? manager() : device();
	CHECK(sigaction(SIGALRM, &act, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
	while (closes < CLOSES - 2) {
		make_and_destroy(d, c);
		CHECK(close(manager()) == 0);
	}
	while (closes < CLOSES) works(d);
	CHECK(!works(d));
	is_a_file(file());
	d = device();
	make_and_destroy(d, channel(d));
	CHECK(close(m) == 0);
	manager();
}

// A program without free descriptors gets no channel, device or event channel, and no number of a
// descriptor that is not theirs. It gets them when it has closed some.
static void full(void)
{
	int d = device(), c = channel(d), f = file();
	uint32_t got[4] = { 77, 77, 77, 77 };
	struct rlimit all, few;
	CHECK(getrlimit(RLIMIT_NOFILE, &all) == 0);
	few = all;
	few.rlim_cur = (rlim_t)f + 1; // the lower numbers are all in use
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	for (int i = 0; i < 3; i++) {
		CHECK(command(d, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, "", 0, got, 4) < 0 && errno == EMFILE && got[0] == 77);
		CHECK(open("/dev/infiniband/uverbs0", O_RDWR) < 0 && errno == EMFILE);
		CHECK(open("/dev/infiniband/rdma_cm", O_RDWR) < 0 && errno == EMFILE);
	}
	CHECK(command(d, IB_USER_VERBS_CMD_GET_CONTEXT, "", 0, got, 8) < 0 && errno == EMFILE && got[0] == 77);
	CHECK(works(d));
	make_and_destroy(d, c);
	CHECK(close(f) == 0);
	make_and_destroy(d, channel(d));
	CHECK(setrlimit(RLIMIT_NOFILE, &all) == 0);
	CHECK(works(device()));
	manager();
}

// The daemon answers a command with less than an answer, and then with one: no later command takes it.
static void severed(void)
{
	int d = device();
	for (int i = 0; i < 3; i++) CHECK(!works(d) && errno == EIO);
}

int main(int argc, char **argv)
{
	const char *story = argc > 1 ? argv[1] : "";
	if (!strcmp(story, "replaced")) replaced();
	else if (!strcmp(story, "copied")) copied();
	else if (!strncmp(story, "close", 5)) closed(story);
	else if (!strcmp(story, "kept")) kept();
	else if (!strcmp(story, "borrowed")) borrowed();
	else if (!strcmp(story, "forked")) forked();
	else if (!strcmp(story, "slain")) slain();
	else if (!strcmp(story, "raced")) raced();
	else if (!strcmp(story, "moved")) moved();
	else if (!strcmp(story, "signalled")) signalled();
	else if (!strcmp(story, "full")) full();
	else if (!strcmp(story, "severed")) severed();
	else CHECK(!"a story");
	puts("ok");
	return 0;
}
