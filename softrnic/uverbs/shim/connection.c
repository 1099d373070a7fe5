// The library that is preloaded into unmodified RDMA programs. It stands in for the kernel below
// the system's libibverbs and its rxe provider: /dev/infiniband/uverbsN is a connection to the
// daemon of the host, which executes the commands on NIC N, and a memory file that contains the rings
// of the rxe driver. Below librdmacm, /dev/infiniband/rdma_cm is an event channel; all channels of a
// process share one connection.
//
// The library creates no thread, and does nothing in a program that opens no device. A child of
// fork has its parent's devices: objects are common, and the child sends its commands on a connection of
// its own. Event channels of librdmacm it opens itself. The libc functions that the library
// replaces call the original functions for everything that is not the library's.
#define _GNU_SOURCE
#include "shim.h"

// The magic of the first messages.
#define MAGIC "rxeshim2"
#define MAGIC_MANAGER "rxecmgr2"
#define MAGIC_CHILD "rxechld2"
#define NAME_LEN 16
#define TOKEN_LEN 16
#define FIRST_LEN (sizeof MAGIC - 1 + NAME_LEN + TOKEN_LEN)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pid_t self; // the process to which this memory belongs

// token is a random number of the process. By it the daemon knows which connections are of the same
// process; the process ID does not say this for processes of other PID namespaces.
static uint8_t token[TOKEN_LEN];

// be is called once in a process that uses the library, and in each child of fork. It records that
// this memory belongs to the calling process, and draws the process's token.
static void be(void)
{
	self = getpid();
	syscall(SYS_getrandom, token, sizeof token, 0);
}

// privates has a bit for each descriptor that the library uses itself. close_range of the program
// spares these: the program has not opened them.
static _Atomic uint64_t privates[MAX_FDS / 64];

// entered counts the devices that this thread has entered: more than one only in signal handlers.
static __thread volatile int entered __attribute__((tls_model("initial-exec")));

static void in_child(void)
{
	be();
	for (int i = 0; i < MAX_FDS / 64; i++)
		if (privates[i]) privates[i] = 0; // the child may close that of librdmacm
	keep_devices(entered);
	forget_manager();
	in_forked();
}

// glibc has the first function in its shared library, musl the second.
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));
extern int pthread_atfork(void (*)(void), void (*)(void), void (*)(void)) __attribute__((weak));

static void begin(void)
{
	be();
	if (__register_atfork) __register_atfork(before_fork, after_fork, in_child, NULL);
	else if (pthread_atfork) pthread_atfork(before_fork, after_fork, in_child);
}

// keep_private marks a descriptor as one that the library itself uses. release_private removes the
// mark. drop_private removes the mark and closes the descriptor.
void keep_private(int fd)
{
	if (fd >= 0 && fd < MAX_FDS) atomic_fetch_or(&privates[fd / 64], 1ull << fd % 64);
}
void release_private(int fd)
{
	if (fd >= 0 && fd < MAX_FDS) atomic_fetch_and(&privates[fd / 64], ~(1ull << fd % 64));
}
void drop_private(int fd)
{
	release_private(fd);
	if (fd >= 0) real_close(fd);
}
int is_private(int fd) { return fd >= 0 && fd < MAX_FDS && privates[fd / 64] & 1ull << fd % 64 && !is_borrowed(); }

// watch_forks is called before the library opens anything.
void watch_forks(void) { pthread_once(&once, begin); }

// is_own reports whether process pid, which has opened a device or channel, is this process. If
// not, it is a parent of this process, which was forked.
int is_own(pid_t pid) { return pid == self; }

// is_borrowed reports whether this is a child of vfork: it has descriptors of its own, but runs in
// the memory of its parent.
int is_borrowed(void) { return getpid() != self; }

// The library makes, uses and closes its own descriptors by system calls only. A tool that wraps
// libc (valgrind, a sanitizer) would see some of the libc calls and not others, and would confuse a
// reused descriptor number with its former descriptor.
void real_close(int fd) { syscall(SYS_close, fd); }
static ssize_t send_message(int sock, const struct msghdr *m) { return syscall(SYS_sendmsg, sock, m, MSG_NOSIGNAL); }
static ssize_t recv_message(int sock, struct msghdr *m) { return syscall(SYS_recvmsg, sock, m, MSG_CMSG_CLOEXEC); }

// recv_fds receives a message and up to max descriptors; *nfds is their number.
ssize_t recv_fds(int sock, void *b, size_t n, int *fds, int max, int *nfds)
{
	union { char b[CMSG_SPACE(8 * sizeof(int))]; struct cmsghdr align; } control;
	struct iovec v = { b, n };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control.b, .msg_controllen = sizeof control.b };
	ssize_t got;
	*nfds = 0;
	do got = recv_message(sock, &m);
	while (got < 0 && errno == EINTR);
	if (got < 0) return got;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
		int k = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		for (int i = 0; i < k; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (*nfds < max) fds[(*nfds)++] = fd;
			else real_close(fd);
		}
	}
	return got;
}

// first builds the first message, which names the program and has its token.
static void first(char b[FIRST_LEN], const char *magic)
{
	memset(b, 0, FIRST_LEN);
	memcpy(b, magic, sizeof MAGIC - 1);
	memcpy(b + sizeof MAGIC - 1, program_invocation_short_name, strnlen(program_invocation_short_name, NAME_LEN));
	memcpy(b + FIRST_LEN - TOKEN_LEN, token, TOKEN_LEN);
}

// hello_manager sends the first message of the connection for librdmacm.
int hello_manager(int sock, int area)
{
	char b[FIRST_LEN];
	(void)area;
	first(b, MAGIC_MANAGER);
	return syscall(SYS_sendto, sock, b, sizeof b, MSG_NOSIGNAL, NULL, 0) == (ssize_t)sizeof b ? 0 : -1;
}

// hello sends the first message with descriptors of the program's memory. A child of fork also sends the
// memory file of its parent's device, area, which names the device; else area is -1.
int hello(int sock, int area)
{
	char b[FIRST_LEN];
	first(b, area < 0 ? MAGIC : MAGIC_CHILD);
	int fds[3] = { -1, -1, area };
	size_t n = (area < 0 ? 2 : 3) * sizeof fds[0];
	fds[0] = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC);
	fds[1] = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
	int rc = -1;
	if (fds[0] >= 0 && fds[1] >= 0) {
		union { char b[CMSG_SPACE(sizeof fds)]; struct cmsghdr align; } control = { 0 };
		struct iovec v = { b, sizeof b };
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control.b, .msg_controllen = CMSG_SPACE(n) };
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n);
		memcpy(CMSG_DATA(c), fds, n);
		rc = send_message(sock, &m) == (ssize_t)sizeof b ? 0 : -1;
	}
	int saved = errno;
	if (fds[0] >= 0) real_close(fds[0]);
	if (fds[1] >= 0) real_close(fds[1]);
	errno = saved;
	return rc;
}

// socket_of sets the path of the daemon's socket for a NIC: that of NIC 0, and for others their number,
// a digit, behind it.
static int socket_of(int nic, struct sockaddr_un *to)
{
	const char *path = getenv(ENV_SOCKET);
	size_t n = strlen(path);
	memset(to, 0, sizeof *to);
	to->sun_family = AF_UNIX;
	if (n + (nic > 0) >= sizeof to->sun_path) return errno = ENAMETOOLONG, -1;
	memcpy(to->sun_path, path, n);
	if (nic > 0) to->sun_path[n] = (char)('0' + nic);
	return 0;
}

// has_nic reports whether the host has a NIC. There is always NIC 0.
int has_nic(int nic)
{
	struct sockaddr_un at;
	int saved = errno, has = nic == 0 || (socket_of(nic, &at) == 0 && syscall(SYS_faccessat, AT_FDCWD, at.sun_path, F_OK, 0) == 0);
	return errno = saved, has;
}

// dial connects to the daemon, for a NIC.
int dial(int nic, int (*hello)(int sock, int area), int area)
{
	struct sockaddr_un to;
	if (socket_of(nic, &to)) return -1;
	int sock = (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (sock < 0) return -1;
	if (syscall(SYS_connect, sock, &to, sizeof to) == 0 && hello(sock, area) == 0) return sock;
	int saved = errno;
	real_close(sock);
	errno = saved;
	return -1;
}

// enter locks a device, for a command or to change its descriptors; leave unlocks it. An answer may
// take long, so signal handlers may run meanwhile, and may close descriptors. In a signal handler
// that has interrupted a command, enter does not wait: if the device is locked, it fails with
// EBUSY.
int enter(struct device *d, int *cancel)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, cancel);
	if (entered++ == 0 ? pthread_mutex_lock(&d->mu) == 0 : pthread_mutex_trylock(&d->mu) == 0) return 1;
	entered--;
	pthread_setcancelstate(*cancel, NULL);
	errno = EBUSY;
	return 0;
}

// is_nested reports whether this is a signal handler that has interrupted a command.
int is_nested(void) { return entered > 1; }

void leave(struct device *d, int cancel)
{
	pthread_mutex_unlock(&d->mu);
	end_left(d);
	entered--;
	pthread_setcancelstate(cancel, NULL);
}

// end_left calls d->end if the close of a descriptor has requested it by d->left. If a command is
// in progress, end_left does nothing: the thread of the command calls it again when it leaves the
// device. So a close in a signal handler never waits for a command of its own thread.
void end_left(struct device *d)
{
	int cancel, saved = errno;
	if (!is_own(d->pid) && !d->page) return; // that of librdmacm, in a child that a signal handler has forked
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	entered++;
	while (d->left && pthread_mutex_trylock(&d->mu) == 0) {
		if (atomic_exchange(&d->left, 0)) d->end(d);
		pthread_mutex_unlock(&d->mu);
	}
	entered--;
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
}

// exchange sends a message, with descriptor `file` unless it is NO_FILE, and receives the answer. It returns the
// length of the answer, or -1. The caller has entered the device. If a command gets no answer, exchange closes the
// connection: a late answer would be taken for that of the next command.
ssize_t exchange(struct device *d, struct iovec *v, int nv, int file, void *out, size_t max, int *fd)
{
	struct msghdr m = { .msg_iov = v, .msg_iovlen = (size_t)nv };
	union { char b[CMSG_SPACE(sizeof file)]; struct cmsghdr align; } control = { 0 };
	ssize_t n;
	if (file != NO_FILE) {
		m.msg_control = control.b, m.msg_controllen = sizeof control.b;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof file);
		memcpy(CMSG_DATA(c), &file, sizeof file);
	}
	int nfds, sock = d->sock;
	*fd = -1;
	do n = send_message(sock, &m);
	while (n < 0 && errno == EINTR);
	if (n >= 0) {
		n = recv_fds(sock, out, max, fd, 1, &nfds);
		if (n < (ssize_t)sizeof(struct answer)) {
			if (*fd >= 0) real_close(*fd);
			d->sock = -1;
			*fd = -1;
			drop_private(sock);
			errno = EIO, n = -1;
		}
	} else if (errno != EFAULT && !(errno == EBADF && file != NO_FILE && sock >= 0)) { // these are errors of the program
		errno = EIO;
	}
	return n;
}
