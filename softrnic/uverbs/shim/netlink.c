// Sockets of NETLINK_RDMA: connections to the daemon of the host, which answers for the kernel (package
// softrnic/nldev). A datagram of netlink is a message of the connection, both ways.
#define _GNU_SOURCE
#include <linux/netlink.h>

#include "shim.h"

#define MAGIC "rxenldv1"
#define SUFFIX ".nldev"

// ports has, by descriptor, the address of a netlink socket, by which answers name it. 0: no such socket.
static _Atomic uint32_t ports[MAX_FDS];

// is_netlink is false in a child of vfork, whose descriptors are its own.
int is_netlink(int fd) { return fd >= 0 && fd < MAX_FDS && ports[fd] != 0 && !is_borrowed(); }

// path_of sets the path of the daemon's socket: that for verbs with another suffix.
static int path_of(struct sockaddr_un *to)
{
	const char *verbs = getenv(ENV_SOCKET), *suffix = verbs ? strrchr(verbs, '.') : NULL;
	size_t n = suffix ? (size_t)(suffix - verbs) : 0;
	memset(to, 0, sizeof *to);
	to->sun_family = AF_UNIX;
	if (!suffix || n + sizeof SUFFIX > sizeof to->sun_path) return -1;
	memcpy(to->sun_path, verbs, n);
	memcpy(to->sun_path + n, SUFFIX, sizeof SUFFIX);
	return 0;
}

// open_netlink connects to the daemon. flags are those of the type of a socket.
int open_netlink(int flags)
{
	struct { char magic[sizeof MAGIC - 1]; uint32_t port; } hello;
	struct sockaddr_un to;
	watch_forks();
	int fd = path_of(&to) ? -1 : (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | (flags & SOCK_CLOEXEC), 0);
	memcpy(hello.magic, MAGIC, sizeof hello.magic);
	hello.port = (uint32_t)getpid();
	if (fd >= 0 && fd < MAX_FDS && syscall(SYS_connect, fd, &to, sizeof to) == 0 &&
	    syscall(SYS_sendto, fd, &hello, sizeof hello, MSG_NOSIGNAL, NULL, 0) == (ssize_t)sizeof hello) {
		if (flags & SOCK_NONBLOCK) fcntl(fd, F_SETFL, O_NONBLOCK);
		ports[fd] = hello.port;
		return fd;
	}
	if (fd >= 0) real_close(fd);
	return errno = EPROTONOSUPPORT, -1; // as in a kernel without RDMA: libibverbs looks into /sys
}

void close_netlink(int fd)
{
	if (is_netlink(fd)) ports[fd] = 0;
}

void copy_netlink(int from, int to)
{
	if (is_netlink(from) && to >= 0 && to < MAX_FDS) ports[to] = ports[from];
}

// fill_peer writes the address of the kernel, from which answers come.
void fill_peer(void *to, socklen_t *n)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	if (!to || !n) return;
	memcpy(to, &kernel, *n < sizeof kernel ? *n : sizeof kernel);
	*n = sizeof kernel;
}

// bind_netlink gives a socket the address that the program chooses; 0 leaves the choice to the library.
int bind_netlink(int fd, const struct sockaddr *at, socklen_t n)
{
	const struct sockaddr_nl *a = (const void *)at;
	if (!a || n < sizeof *a || a->nl_family != AF_NETLINK) return errno = EINVAL, -1;
	if (a->nl_groups) return errno = EOPNOTSUPP, -1; // nothing is announced
	if (a->nl_pid) ports[fd] = a->nl_pid;
	return 0;
}

// name_netlink is getsockname of a netlink socket.
int name_netlink(int fd, struct sockaddr *to, socklen_t *n)
{
	if (!to || !n) return errno = EFAULT, -1;
	if ((int)*n < 0) return errno = EINVAL, -1;
	struct sockaddr_nl own = { .nl_family = AF_NETLINK, .nl_pid = ports[fd] };
	memcpy(to, &own, *n < sizeof own ? *n : sizeof own);
	*n = sizeof own;
	return 0;
}
