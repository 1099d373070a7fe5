// Functions of libc for sockets that the library replaces, for sockets of NETLINK_RDMA (see netlink.c).
// Other sockets reach the original functions as they are.
#define _GNU_SOURCE
#include <linux/netlink.h>

#include "shim.h"

#define NETCALLS(f) f(socket) f(bind) f(connect) f(getsockname) f(setsockopt) f(sendto) f(sendmsg) f(recvfrom) f(recvmsg)
NETCALLS(DECLARE)
__attribute__((constructor)) static void find_netcalls(void) { NETCALLS(FIND) }

int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA && getenv(ENV_SOCKET)) return open_netlink(type);
	NEXT(socket);
	return next_socket(domain, type, protocol);
}

int bind(int fd, const struct sockaddr *at, socklen_t n)
{
	if (is_netlink(fd)) return bind_netlink(fd, at, n);
	NEXT(bind);
	return next_bind(fd, at, n);
}

int connect(int fd, const struct sockaddr *to, socklen_t n)
{
	if (is_netlink(fd)) return 0; // it is connected to the only peer that there is
	NEXT(connect);
	return next_connect(fd, to, n);
}

int getsockname(int fd, struct sockaddr *at, socklen_t *n)
{
	if (is_netlink(fd)) return name_netlink(fd, at, n);
	NEXT(getsockname);
	return next_getsockname(fd, at, n);
}

int setsockopt(int fd, int level, int name, const void *v, socklen_t n)
{
	if (level == SOL_NETLINK && is_netlink(fd)) return name == NETLINK_ADD_MEMBERSHIP ? (errno = EOPNOTSUPP, -1) : 0;
	NEXT(setsockopt);
	return next_setsockopt(fd, level, name, v, n);
}

ssize_t sendto(int fd, const void *b, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
	NEXT(sendto);
	if (is_netlink(fd)) return next_sendto(fd, b, n, flags | MSG_NOSIGNAL, NULL, 0);
	return next_sendto(fd, b, n, flags, to, len);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	NEXT(sendmsg);
	if (!is_netlink(fd)) return next_sendmsg(fd, m, flags);
	struct msghdr plain = { .msg_iov = m->msg_iov, .msg_iovlen = m->msg_iovlen };
	return next_sendmsg(fd, &plain, flags | MSG_NOSIGNAL);
}

ssize_t recvfrom(int fd, void *b, size_t n, int flags, struct sockaddr *from, socklen_t *len)
{
	NEXT(recvfrom);
	if (!is_netlink(fd)) return next_recvfrom(fd, b, n, flags, from, len);
	ssize_t got = next_recvfrom(fd, b, n, flags, NULL, NULL);
	if (got >= 0) fill_peer(from, len);
	return got;
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	NEXT(recvmsg);
	if (!m || !is_netlink(fd)) return next_recvmsg(fd, m, flags);
	socklen_t room = m->msg_namelen; // the kernel sets it to 0: its peer has no name
	ssize_t got = next_recvmsg(fd, m, flags);
	if (got >= 0 && m->msg_name) {
		m->msg_namelen = room;
		fill_peer(m->msg_name, &m->msg_namelen);
	}
	return got;
}
