// Functions of libc that the library replaces.
#define _GNU_SOURCE
#include "shim.h"

#define HOOKED(f) \
	f(open) f(openat) f(read) f(write) f(close) f(stat) f(lstat) f(fstat) f(access) f(dup) f(dup2) f(dup3) f(fcntl) f(ioctl) \
	f(open64) f(openat64) f(stat64) f(lstat64) f(fstat64) f(fcntl64)
HOOKED(DECLARE)
__attribute__((constructor)) static void find_all(void) { HOOKED(FIND) }

// nic_of returns the number in the path of a NIC's device, which is one digit, or -1.
static int nic_of(const char *path)
{
	const size_t n = sizeof DEVICE - 1;
	if (strncmp(path, DEVICE, n) || path[n] < '0' || path[n] > '9' || path[n + 1]) return -1;
	return path[n] - '0';
}

static int is_device(const char *path)
{
	if (!path || path[0] != '/') return 0;
	int nic = strcmp(path, MANAGER) ? nic_of(path) : 0;
	return nic >= 0 && getenv(ENV_SOCKET) && has_nic(nic);
}

static int open_path(const char *path, int flags) { return strcmp(path, MANAGER) ? open_device(nic_of(path), flags) : open_event_channel(flags); }

// ---- functions of libc

// reads is true for flags of an open that changes nothing. Files of /sys that a program writes are not those of
// the daemon.
static int reads(int flags) { return (flags & O_ACCMODE) == O_RDONLY && !(flags & (O_CREAT | O_TRUNC)); }

#define MODE(flags) ({ mode_t m_ = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list a_; va_start(a_, flags); m_ = va_arg(a_, mode_t); va_end(a_); } m_; })

int open(const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	if (is_device(path)) return open_path(path, flags);
	char b[MAX_PATH];
	NEXT(open);
	return next_open(reads(flags) ? redirect(path, b) : path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	if (is_device(path)) return open_path(path, flags);
	char b[MAX_PATH];
	NEXT(openat);
	return next_openat(dir, reads(flags) ? redirect(path, b) : path, flags, mode);
}

ssize_t read(int fd, void *b, size_t n)
{
	NEXT(read);
	ssize_t got = next_read(fd, b, n);
	return got == 0 && n > 0 ? device_lost(fd, b, n) : got;
}

ssize_t write(int fd, const void *b, size_t n)
{
	struct device *d = device_of(fd);
	if (d) return command(d, b, n);
	struct event_channel *c = event_channel_of(fd);
	if (c) return manage(c, fd, b, n);
	NEXT(write);
	return next_write(fd, b, n);
}

// forget removes what the library knows of a descriptor. It is called before the descriptor is
// closed.
static void forget(int fd)
{
	close_device(fd);
	close_event_channel(fd);
	close_netlink(fd);
}

int close(int fd)
{
	if (is_private(fd)) return errno = EBADF, -1;
	forget(fd);
	NEXT(close);
	return next_close(fd);
}

// close_range closes the program's descriptors in the range, but not the library's.
int close_range(unsigned first, unsigned last, int flags)
{
	const unsigned none = ~0u;
	int ends = first <= last && !(flags & ~CLOSE_RANGE_UNSHARE) && syscall(SYS_close_range, none, none, 0) == 0; // the call succeeds if the kernel has close_range
	for (unsigned fd = first; ends && fd <= last && fd < MAX_FDS; fd++) {
		if (!is_private((int)fd)) {
			forget((int)fd);
			continue;
		}
		if (fd > first && syscall(SYS_close_range, first, fd - 1, flags) < 0) return -1;
		first = fd + 1;
	}
	return ends && first > last ? 0 : (int)syscall(SYS_close_range, first, last, flags);
}

void closefrom(int first)
{
	if (first < 0) first = 0;
	if (close_range((unsigned)first, ~0u, 0) == 0) return;
	for (int fd = first; fd < MAX_FDS; fd++) close(fd);
}

// replace is called before dup2 or dup3 makes the number `to` a copy of another descriptor. It
// moves a descriptor of the library away from that number. It returns 0 if it cannot; errno says
// why.
static int replace(int from, int to)
{
	if (fcntl(from, F_GETFD) < 0) return 0;
	if (is_private(to)) {
		// This fails with EMFILE if all numbers are in use: the library has no other place for its
		// descriptor. With a device of the kernel dup2 would not fail there.
		int moved = fcntl(to, F_DUPFD_CLOEXEC, 0);
		if (moved < 0) return 0;
		keep_private(moved);
		int found = move_device(to, moved);
		if (found == 0) found = move_manager(to, moved);
		if (found > 0) release_private(to); // the duplication closes it
		else drop_private(moved);           // it was closed just now, or a command uses it
		return found >= 0;
	}
	forget(to);
	return 1;
}

static int copied(int from, int to)
{
	if (to >= 0 && to != from) {
		copy_device(from, to);
		copy_event_channel(from, to);
		copy_netlink(from, to);
	}
	return to;
}

int dup(int fd)
{
	NEXT(dup);
	return copied(fd, next_dup(fd));
}

int dup2(int from, int to)
{
	NEXT(dup2);
	if (from != to && !replace(from, to)) return -1;
	return copied(from, next_dup2(from, to));
}

int dup3(int from, int to, int flags)
{
	NEXT(dup3);
	if (from != to && !(flags & ~O_CLOEXEC) && !replace(from, to)) return -1;
	return copied(from, next_dup3(from, to, flags));
}

#define FCNTL(name) \
	int name(int fd, int cmd, ...) \
	{ \
		va_list a; \
		va_start(a, cmd); \
		void *arg = va_arg(a, void *); \
		va_end(a); \
		NEXT(name); \
		int got = next_##name(fd, cmd, arg); \
		return cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC ? copied(fd, got) : got; \
	}
FCNTL(fcntl)
FCNTL(fcntl64)

// ioctl takes the ioctl of a device by which libibverbs gets a descriptor for events; see verbs_ioctl.
int ioctl(int fd, unsigned long request, ...)
{
	va_list a;
	va_start(a, request);
	void *arg = va_arg(a, void *);
	va_end(a);
	struct device *d = device_of(fd);
	if (d && request == RDMA_VERBS_IOCTL) return verbs_ioctl(d, arg);
	NEXT(ioctl);
	return next_ioctl(fd, request, arg);
}

// A device looks like a character device with the number in the file dev of sysfs.
#define STAT_FIELDS(s) ((s)->st_mode = S_IFCHR | 0666, (s)->st_rdev = makedev(1, 3))

#define STAT(name, type) \
	int name(const char *path, struct type *s) \
	{ \
		if (is_device(path)) { memset(s, 0, sizeof *s); STAT_FIELDS(s); return 0; } \
		char b[MAX_PATH]; \
		NEXT(name); \
		return next_##name(redirect(path, b), s); \
	}
#define FSTAT(name, type) \
	int name(int fd, struct type *s) \
	{ \
		NEXT(name); \
		int rc = next_##name(fd, s); \
		if (rc == 0 && (device_of(fd) || event_channel_of(fd))) STAT_FIELDS(s); \
		return rc; \
	}
STAT(stat, stat)
STAT(lstat, stat)
FSTAT(fstat, stat)

int access(const char *path, int mode)
{
	if (is_device(path)) return 0;
	char b[MAX_PATH];
	NEXT(access);
	return next_access(redirect(path, b), mode);
}

// ---- functions of glibc alone

int open64(const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	if (is_device(path)) return open_path(path, flags);
	char b[MAX_PATH];
	NEXT(open64);
	return next_open64(reads(flags) ? redirect(path, b) : path, flags, mode);
}

int openat64(int dir, const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	if (is_device(path)) return open_path(path, flags);
	char b[MAX_PATH];
	NEXT(openat64);
	return next_openat64(dir, reads(flags) ? redirect(path, b) : path, flags, mode);
}

STAT(stat64, stat64)
STAT(lstat64, stat64)
FSTAT(fstat64, stat64)

// Programs that were built for glibc before 2.33 call these.
int __xstat(int v, const char *path, struct stat *s)
{
	if (is_device(path)) return stat(path, s);
	static int (*next)(int, const char *, struct stat *);
	if (!next) next = (int (*)(int, const char *, struct stat *))dlsym(RTLD_NEXT, "__xstat");
	char b[MAX_PATH];
	return next ? next(v, redirect(path, b), s) : stat(path, s);
}

int __fxstat(int v, int fd, struct stat *s)
{
	static int (*next)(int, int, struct stat *);
	if (!next) next = (int (*)(int, int, struct stat *))dlsym(RTLD_NEXT, "__fxstat");
	if (!next) return fstat(fd, s);
	int rc = next(v, fd, s);
	if (rc == 0 && (device_of(fd) || event_channel_of(fd))) STAT_FIELDS(s);
	return rc;
}

