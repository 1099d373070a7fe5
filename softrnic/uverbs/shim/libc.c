// Functions of libc that the library replaces.
#define _GNU_SOURCE
#include "shim.h"

#define NETLINK_RDMA_FAMILY 20 // of AF_NETLINK; libibverbs would ask it for devices and believe an empty answer

// NEXT finds the next definition of a function. The library's constructor has done so before most
// calls: a handler of signals may make them, and may not call dlsym.
#define NEXT(name) \
	if (!next_##name) next_##name = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

// Only glibc has functions for large files that are not the others.
#ifdef __GLIBC__
#define LARGE(f) f(open64) f(openat64) f(stat64) f(lstat64) f(fstat64)
#else
#define LARGE(f)
#endif
#define HOOKED(f) LARGE(f) f(open) f(openat) f(read) f(write) f(close) f(stat) f(lstat) f(fstat) f(access) f(socket)
#define DECLARE(name) static __typeof__(&name) next_##name;
HOOKED(DECLARE)
__attribute__((constructor)) static void find_all(void)
{
#define FIND(name) NEXT(name);
	HOOKED(FIND)
}

static int is_device(const char *path)
{
	return path && path[0] == '/' && (!strcmp(path, DEVICE) || !strcmp(path, MANAGER)) && getenv(ENV_SOCKET);
}

static int open_path(const char *path, int flags) { return strcmp(path, MANAGER) ? open_device(flags) : open_event_channel(flags); }

// ---- functions of libc

#define MODE(flags) ({ mode_t m_ = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list a_; va_start(a_, flags); m_ = va_arg(a_, mode_t); va_end(a_); } m_; })

int open(const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	if (is_device(path)) return open_path(path, flags);
	NEXT(open);
	return next_open(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	if (is_device(path)) return open_path(path, flags);
	NEXT(openat);
	return next_openat(dir, path, flags, mode);
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

int close(int fd)
{
	close_device(fd);
	close_event_channel(fd);
	NEXT(close);
	return next_close(fd);
}

// A device looks like a character device whose number is that of the file dev in sysfs.
#define STAT_FIELDS(s) ((s)->st_mode = S_IFCHR | 0666, (s)->st_rdev = makedev(1, 3))

#define STAT(name, type) \
	int name(const char *path, struct type *s) \
	{ \
		if (is_device(path)) { memset(s, 0, sizeof *s); STAT_FIELDS(s); return 0; } \
		NEXT(name); \
		return next_##name(path, s); \
	}
#define FSTAT(name, type) \
	int name(int fd, struct type *s) \
	{ \
		NEXT(name); \
		int rc = next_##name(fd, s); \
		if (rc == 0 && (device_of(fd) || event_channel_of(fd) || is_copy(fd, s->st_mode, s->st_nlink))) STAT_FIELDS(s); \
		return rc; \
	}
STAT(stat, stat)
STAT(lstat, stat)
FSTAT(fstat, stat)

int access(const char *path, int mode)
{
	if (is_device(path)) return 0;
	NEXT(access);
	return next_access(path, mode);
}

// A machine with RDMA in its kernel answers here, if only with nothing, and libibverbs would not
// look into sysfs then.
int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA_FAMILY && getenv(ENV_SOCKET)) return errno = EPROTONOSUPPORT, -1;
	NEXT(socket);
	return next_socket(domain, type, protocol);
}

#ifdef __GLIBC__

int open64(const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	if (is_device(path)) return open_path(path, flags);
	NEXT(open64);
	return next_open64(path, flags, mode);
}

int openat64(int dir, const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	if (is_device(path)) return open_path(path, flags);
	NEXT(openat64);
	return next_openat64(dir, path, flags, mode);
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
	return next ? next(v, path, s) : stat(path, s);
}

int __fxstat(int v, int fd, struct stat *s)
{
	static int (*next)(int, int, struct stat *);
	if (!next) next = (int (*)(int, int, struct stat *))dlsym(RTLD_NEXT, "__fxstat");
	if (!next) return fstat(fd, s);
	int rc = next(v, fd, s);
	if (rc == 0 && (device_of(fd) || event_channel_of(fd) || is_copy(fd, s->st_mode, s->st_nlink))) STAT_FIELDS(s);
	return rc;
}

#endif
