// The library that is preloaded into unmodified RDMA programs. It plays the kernel's part below the
// system's libibverbs and its rxe provider: /dev/infiniband/uverbs0 is a connection to the daemon of
// the host, which executes the commands, and a memory file in which the rings of the rxe driver are.
// Below librdmacm, /dev/infiniband/rdma_cm is an event channel; all of a process share a connection.
//
// It makes no thread and does nothing in a program that opens no device. A child of fork has none of
// its parent's devices; it may open its own. Functions of libc that it replaces call the next
// definition for everything that is not its own.
#define _GNU_SOURCE
#include "shim.h"

// First words of the first messages.
#define MAGIC "rxeshim1"
#define MAGIC_MANAGER "rxecmgr1"
#define NAME_LEN 16
#define FIRST_LEN (sizeof MAGIC - 1 + NAME_LEN)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pid_t self; // of the process whose memory this is

static void in_child(void)
{
	self = getpid();
	forget_manager();
}
static void begin(void)
{
	self = getpid();
	pthread_atfork(NULL, NULL, in_child);
}

// watch_forks is called before anything is opened.
void watch_forks(void) { pthread_once(&once, begin); }

// is_own reports whether what process pid has opened is that of this one, and not of its parent.
int is_own(pid_t pid) { return pid == self; }

// is_borrowed reports whether this is a child of vfork: it has descriptors of its own, but closes
// them in the memory of its parent.
int is_borrowed(void) { return getpid() != self; }

void real_close(int fd) { syscall(SYS_close, fd); }

// recv_fds receives a message and up to max descriptors; *nfds is how many came.
ssize_t recv_fds(int sock, void *b, size_t n, int *fds, int max, int *nfds)
{
	union { char b[CMSG_SPACE(8 * sizeof(int))]; struct cmsghdr align; } control;
	struct iovec v = { b, n };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control.b, .msg_controllen = sizeof control.b };
	ssize_t got;
	*nfds = 0;
	do got = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
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

// first fills the first message, which names the program.
static void first(char b[FIRST_LEN], const char *magic)
{
	memset(b, 0, FIRST_LEN);
	memcpy(b, magic, sizeof MAGIC - 1);
	memcpy(b + sizeof MAGIC - 1, program_invocation_short_name, strnlen(program_invocation_short_name, NAME_LEN));
}

// hello_manager sends the first message of the connection for librdmacm.
int hello_manager(int sock)
{
	char b[FIRST_LEN];
	first(b, MAGIC_MANAGER);
	return syscall(SYS_sendto, sock, b, sizeof b, MSG_NOSIGNAL, NULL, 0) == (ssize_t)sizeof b ? 0 : -1;
}

// hello sends the first message with the program's memory.
int hello(int sock)
{
	char b[FIRST_LEN];
	first(b, MAGIC);
	int fds[2];
	fds[0] = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC);
	fds[1] = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
	int rc = -1;
	if (fds[0] >= 0 && fds[1] >= 0) {
		union { char b[CMSG_SPACE(sizeof fds)]; struct cmsghdr align; } control = { 0 };
		struct iovec v = { b, sizeof b };
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control.b, .msg_controllen = sizeof control.b };
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof fds);
		memcpy(CMSG_DATA(c), fds, sizeof fds);
		rc = sendmsg(sock, &m, MSG_NOSIGNAL) == (ssize_t)sizeof b ? 0 : -1;
	}
	int saved = errno;
	if (fds[0] >= 0) real_close(fds[0]);
	if (fds[1] >= 0) real_close(fds[1]);
	errno = saved;
	return rc;
}

// dial connects to the daemon.
int dial(int (*hello)(int sock))
{
	const char *path = getenv(ENV_SOCKET);
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof to.sun_path) return errno = ENAMETOOLONG, -1;
	strcpy(to.sun_path, path);
	int sock = (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (sock < 0) return -1;
	if (connect(sock, (struct sockaddr *)&to, sizeof to) == 0 && hello(sock) == 0) return sock;
	int saved = errno;
	real_close(sock);
	errno = saved;
	return -1;
}

// exchange sends a message and receives the answer; the length, or -1. The caller holds the lock, so
// that the thread must not be cancelled here.
ssize_t exchange(struct device *d, struct iovec *v, int nv, void *out, size_t max, int *fd)
{
	struct msghdr m = { .msg_iov = v, .msg_iovlen = (size_t)nv };
	ssize_t n;
	int nfds, cancel;
	*fd = -1;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	do n = sendmsg(d->sock, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n >= 0) {
		n = recv_fds(d->sock, out, max, fd, 1, &nfds);
		if (n < (ssize_t)sizeof(struct answer)) errno = EIO, n = -1;
	} else if (errno != EFAULT) { // which is the program's mistake
		errno = EIO;
	}
	pthread_setcancelstate(cancel, NULL);
	return n;
}
