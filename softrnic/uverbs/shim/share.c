// Memory that the program shares with the daemon, if the environment asks for it: the library
// replaces private pages that are about to be registered by pages of a memory file that the daemon
// has mapped, too. When no region is over them any more, it makes them private again.
//
// Other threads of the program may write to these pages at any time. While the library copies a
// page, userfaultfd makes them wait. If the kernel does not allow that, nothing is shared, and the
// daemon accesses the memory by /proc/self/mem.
#define _GNU_SOURCE
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "shim.h"

#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

// NAME begins the names of the daemon's memory files; the number of the file follows. In
// /proc/self/maps a space comes next.
#define NAME "/memfd:rdmalab-share-"

// share_mu is held while pages are replaced. No other thread then sends a command that concerns
// memory, because the kernel refuses the daemon's writes to these pages.
static pthread_mutex_t share_mu = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int sharing; // a device of this process shares memory

int shares_memory(void)
{
	const char *v = getenv(ENV_MEMORY);
	int shares = v && !strcmp(v, "shared");
	if (shares) sharing = 1;
	return shares;
}

// holds reports whether a range has memory that the calling thread itself writes to while it copies
// pages: its stack or errno.
static int holds(uintptr_t from, size_t len)
{
	char here;
	return (uintptr_t)&here - from < len || (uintptr_t)&errno - from < len;
}

static long control(int fd, unsigned long request, void *arg)
{
	long rc;
	do rc = syscall(SYS_ioctl, fd, request, arg);
	while (rc < 0 && errno == EAGAIN);
	return rc;
}

// freeze makes threads that write to a range of pages wait until the descriptor that it returns is
// closed. It returns -1 if the kernel does not allow that.
static int freeze(uintptr_t from, size_t len)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM };
	struct uffdio_register reg = { .range = { from, len }, .mode = UFFDIO_REGISTER_MODE_WP };
	struct uffdio_writeprotect protect = { .range = { from, len }, .mode = UFFDIO_WRITEPROTECT_MODE_WP };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) return -1;
	// Only pages that exist can be protected.
	if (control(fd, UFFDIO_API, &api) == 0 && control(fd, UFFDIO_REGISTER, &reg) == 0 &&
	    syscall(SYS_madvise, from, len, MADV_POPULATE_WRITE) == 0 && control(fd, UFFDIO_WRITEPROTECT, &protect) == 0)
		return fd;
	real_close(fd);
	return -1;
}

// replace copies the pages at `from` to new pages, which are mapped at `fresh` for reading and
// writing. Then it moves these to `from`, with the rights `prot`. It reports success. If `alone` is
// set, no other thread writes to the pages.
static int replace(uintptr_t from, size_t len, void *fresh, int prot, int alone)
{
	if (fresh == MAP_FAILED) return 0;
	uint64_t signals = defer_signals(); // a handler could write to the pages
	int frozen = -1, ok = 0;
	// Pages are allocated before the copy: without memory this fails, and a write would end the
	// program.
	if (syscall(SYS_madvise, fresh, len, MADV_POPULATE_WRITE) == 0 && (alone || (!holds(from, len) && (frozen = freeze(from, len)) >= 0))) {
		memcpy(fresh, (void *)from, len);
		ok = (prot == (PROT_READ | PROT_WRITE) || syscall(SYS_mprotect, fresh, len, prot) == 0) &&
		     syscall(SYS_mremap, fresh, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, from) == (long)from;
	}
	if (frozen >= 0) real_close(frozen);
	allow_signals(signals);
	if (!ok) syscall(SYS_munmap, fresh, len);
	return ok;
}

// to_shared replaces pages by a memory file, and reports success.
static int to_shared(uintptr_t from, size_t len, int file)
{
	void *fresh = (void *)syscall(SYS_mmap, NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	return replace(from, len, fresh, PROT_READ | PROT_WRITE, 0);
}

// to_private replaces pages with the rights `prot` by private ones. in_child is set in a child of
// fork, which has only one thread.
static void to_private(uintptr_t from, size_t len, int prot, int in_child)
{
	if (!(prot & PROT_READ) && syscall(SYS_mprotect, from, len, PROT_READ) < 0) return; // the program has just unmapped them
	void *fresh = (void *)syscall(SYS_mmap, NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	replace(from, len, fresh, prot, in_child || !(prot & PROT_WRITE));
}

static uint64_t number(const char **s, int base)
{
	uint64_t v = 0;
	for (;; ++*s) {
		char c = **s;
		int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : base;
		if (digit >= base) return v;
		v = v * (unsigned)base + (unsigned)digit;
	}
}

// mapping is a mapping of a memory file of the daemon.
struct mapping { uintptr_t from; size_t len; int prot; };

// find sets *m to the program's first mapping, from address `after` on, of the daemon's memory file
// with the number `file`, or of any of its memory files if `file` is 0. It returns 0 if there is
// none.
static int find(uint32_t file, uintptr_t after, struct mapping *m)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC), found = 0;
	char b[4096], line[128]; // a path that is longer is not the daemon's
	size_t have = 0;
	ssize_t n = 0;
	while (fd >= 0 && !found && (n = syscall(SYS_read, fd, b, sizeof b)) > 0) {
		for (ssize_t i = 0; i < n && !found; i++) {
			if (b[i] != '\n') {
				if (have < sizeof line - 1) line[have++] = b[i];
				continue;
			}
			line[have] = 0, have = 0;
			const char *s = line, *path = strstr(line, NAME);
			if (!path) continue;
			m->from = number(&s, 16), s++;
			m->len = number(&s, 16) - m->from;
			m->prot = (s[1] == 'r' ? PROT_READ : 0) | (s[2] == 'w' ? PROT_WRITE : 0) | (s[3] == 'x' ? PROT_EXEC : 0);
			path += sizeof NAME - 1;
			found = m->from >= after && (number(&path, 10) == file || file == 0);
		}
	}
	if (fd >= 0) real_close(fd);
	return found;
}

// make_private makes all mappings of the daemon's memory file with the number `file` private, or
// those of all its memory files if `file` is 0.
static void make_private(uint32_t file, int in_child)
{
	struct mapping m;
	for (uintptr_t after = 0; find(file, after, &m); after = m.from + m.len) to_private(m.from, m.len, m.prot, in_child);
}

// end_unused makes those pages private that the process no longer needs to share. The caller has
// entered the device and holds share_mu.
static void end_unused(struct device *d, uint32_t closing)
{
	while (d->sock >= 0) {
		struct { struct prefix p; struct ib_uverbs_cmd_hdr h; uint32_t closing; } ask = { { NO_CHANNEL, 0 }, { CMD_UNSHARE, 0, 0 }, closing };
		struct { struct answer a; uint32_t number; } reply;
		struct iovec v = { &ask, sizeof ask };
		int none;
		if (exchange(d, &v, 1, NO_FILE, &reply, sizeof reply, &none) < (ssize_t)(sizeof reply.a + sizeof reply.number)) return;
		if (reply.a.error || reply.number == 0) return;
		make_private(reply.number, 0);
	}
}

// lock_shares locks share_mu. A signal handler does not wait, because it may have interrupted the
// thread that holds share_mu.
static int lock_shares(int in_handler)
{
	return (in_handler ? pthread_mutex_trylock(&share_mu) : pthread_mutex_lock(&share_mu)) == 0;
}

// begin_registration is called before a command that registers `length` bytes from `start` on, or
// that ends a region; then length is 0. It shares the memory. The caller calls end_registration
// after the command, unless begin_registration has returned 0.
int begin_registration(struct device *d, uint64_t start, uint64_t length)
{
	if (!lock_shares(is_nested())) return errno = EBUSY, 0;
	while (length > 0) {
		struct { struct prefix p; struct ib_uverbs_cmd_hdr h; uint64_t start, end; } ask = { { NO_CHANNEL, 0 }, { CMD_SHARE, 0, 0 }, start, start + length };
		struct { struct answer a; uint64_t from, length; uint32_t number, reserved; } reply;
		struct iovec v = { &ask, sizeof ask };
		int file;
		ssize_t n = exchange(d, &v, 1, NO_FILE, &reply, sizeof reply, &file);
		if (n < 0 || file < 0) break;
		int ok = n >= (ssize_t)sizeof reply && reply.a.error == 0 && to_shared(reply.from, reply.length, file);
		real_close(file);
		if (!ok) break;
	}
	return 1;
}

// end_registration makes pages private that are shared for nothing: their last region has ended, or
// they could not be registered.
void end_registration(struct device *d)
{
	end_unused(d, 0);
	pthread_mutex_unlock(&share_mu);
}

// end_shares is called before the connection of a device is closed. If a signal handler closes it
// while pages are replaced, the pages of this device stay shared.
void end_shares(struct device *d)
{
	if (!lock_shares(is_nested())) return;
	end_unused(d, 1);
	pthread_mutex_unlock(&share_mu);
}

// copying are the two ends of a pipe by which a child of fork says that it has its own copy of
// shared pages. deferred: signals were deferred before the fork, because a handler could write to
// the pages, or fork; signals is the mask before that.
static __thread int copying[2] __attribute__((tls_model("initial-exec"))) = { -1, -1 };
static __thread int deferred __attribute__((tls_model("initial-exec")));
static __thread uint64_t signals __attribute__((tls_model("initial-exec")));

// before_fork, after_fork and in_forked are called around a fork, the last in the child. The parent
// waits until the child has private pages, so that the child has the contents at the fork. The
// child ends the wait by a byte. The end of file would not do: another thread may fork at the same
// time, and its child has the pipe as well.
void before_fork(void)
{
	copying[0] = -1;
	deferred = sharing;
	if (!deferred) return;
	signals = defer_signals();
	if (syscall(SYS_pipe2, copying, O_CLOEXEC) < 0) copying[0] = -1;
}

void after_fork(void)
{
	char none;
	if (!deferred) return;
	if (copying[0] >= 0) {
		real_close(copying[1]);
		while (syscall(SYS_read, copying[0], &none, 1) < 0 && errno == EINTR) {}
		real_close(copying[0]);
	}
	allow_signals(signals);
}

void in_forked(void)
{
	pthread_mutex_init(&share_mu, NULL);
	if (sharing) make_private(0, 1);
	if (!deferred) return;
	if (copying[0] >= 0) {
		(void)!syscall(SYS_write, copying[1], "", 1);
		real_close(copying[0]);
		real_close(copying[1]);
	}
	allow_signals(signals);
}
