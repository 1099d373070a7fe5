// The library that is preloaded into unmodified RDMA programs. It plays the kernel's part below the
// system's libibverbs and its rxe provider: /dev/infiniband/uverbs0 is a connection to the daemon of
// the host, which executes the commands, and a memory file in which the rings of the rxe driver are.
// Below librdmacm, /dev/infiniband/rdma_cm is an event channel; all of a process share a connection.
//
// It makes no thread and does nothing in a program that opens no device. A child of fork has none of
// its parent's devices; it may open its own. Functions of libc that it replaces call the next
// definition for everything that is not its own.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#define ENV_SOCKET "RDMALAB_VERBS"
#define DEVICE "/dev/infiniband/uverbs0"
#define MANAGER "/dev/infiniband/rdma_cm"
#define MAGIC "rxeshim1"
#define MAGIC_MANAGER "rxecmgr1"
#define NAME_LEN 16
#define FIRST_LEN (sizeof MAGIC - 1 + NAME_LEN)
#define NETLINK_RDMA_FAMILY 20 // of AF_NETLINK; libibverbs would ask it for devices and believe an empty answer

// The control page, with which the memory file begins: see package softrnic/ipc/ring.
enum { CONTROL_LEN = 8192, OFF_ASLEEP = 0, OFF_SUMMARY = 128, OFF_BELLS = 192, MAX_BELLS = 4096 };

enum { MAX_FDS = 65536, MAX_MESSAGE = 8192, MAX_EVENTS = 4096 };
enum { NO_CHANNEL = 0xffffffff, CMD_REPOST = 0x7fff0000 };
enum { CMD_OPEN_CHANNEL = 0x7fff0001, CMD_CLOSE_CHANNEL = 0x7fff0002, MAX_MANAGER_COMMAND = 1024, MAX_OPTION = 1024 };

// What precedes a command, and an answer: see package softrnic/uverbs.
struct prefix { uint32_t channel, reserved; };
struct answer { uint32_t error, drain, channel, number; uint64_t element; uint8_t data[]; };

// device is an open device. It stays until its descriptor is closed.
struct device {
	pthread_mutex_t mu; // one command at a time
	int sock, wake, async;
	uint8_t *page; // the control page
	pid_t pid;     // of the process that has opened it
};

// channel is a completion channel, by its descriptor in the program.
struct channel { struct device *dev; uint32_t number; };

// event_channel is an event channel of librdmacm, by its descriptor in the program. Each message on
// the descriptor announces an event. It is not freed, but used again: a thread may wait for events of
// a channel that another closes.
struct event_channel { struct device *m; uint32_t number; pid_t pid; struct event_channel *next; };

// manager is the connection of this process for the commands of librdmacm, of which only socket and
// lock are in use. It lasts as long as the process. Both are guarded by manager_mu.
static struct device *manager;
static struct event_channel *unused;
static pthread_mutex_t manager_mu = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct event_channel *) event_channels[MAX_FDS];
static _Atomic(struct device *) devices[MAX_FDS];
static _Atomic(struct channel *) channels[MAX_FDS];
static _Atomic int forked; // set in a child: its parent's devices are not its own
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void in_child(void)
{
	forked = 1;
	manager = NULL; // it is the parent's, and another thread may have held the lock
	pthread_mutex_init(&manager_mu, NULL);
}
static void watch_fork(void) { pthread_atfork(NULL, NULL, in_child); }

// NEXT finds the next definition of a function. The library's constructor has done so before most
// calls: a handler of signals may make them, and may not call dlsym.
#define NEXT(name) \
	if (!next_##name) next_##name = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define HOOKED(f) f(open) f(open64) f(openat) f(openat64) f(write) f(close) f(stat) f(stat64) f(lstat) f(lstat64) f(fstat) f(fstat64) f(access) f(socket) f(read)
#define DECLARE(name) static __typeof__(&name) next_##name;
HOOKED(DECLARE)
__attribute__((constructor)) static void find_all(void)
{
#define FIND(name) NEXT(name);
	HOOKED(FIND)
}

static void real_close(int fd) { syscall(SYS_close, fd); }

static struct device *device_of(int fd)
{
	if (fd < 0 || fd >= MAX_FDS) return NULL;
	return devices[fd];
}

static int is_device(const char *path)
{
	return path && path[0] == '/' && (!strcmp(path, DEVICE) || !strcmp(path, MANAGER)) && getenv(ENV_SOCKET);
}

static struct event_channel *event_channel_of(int fd)
{
	if (fd < 0 || fd >= MAX_FDS) return NULL;
	return event_channels[fd];
}

// recv_fds receives a message and up to max descriptors; *nfds is how many came.
static ssize_t recv_fds(int sock, void *b, size_t n, int *fds, int max, int *nfds)
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
static int hello_manager(int sock)
{
	char b[FIRST_LEN];
	first(b, MAGIC_MANAGER);
	return syscall(SYS_sendto, sock, b, sizeof b, MSG_NOSIGNAL, NULL, 0) == (ssize_t)sizeof b ? 0 : -1;
}

// hello sends the first message with the program's memory.
static int hello(int sock)
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

static int dial(const char *path, int (*hello)(int sock))
{
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

// open_device connects to the daemon and returns the memory file, in which libibverbs maps the rings.
static int open_device(int flags)
{
	pthread_once(&fork_once, watch_fork);
	int sock = dial(getenv(ENV_SOCKET), hello);
	if (sock < 0) return -1;
	struct { struct answer a; uint8_t data[64]; } m;
	int fds[2] = { -1, -1 }, nfds, saved;
	struct device *d = NULL;
	ssize_t n = recv_fds(sock, &m, sizeof m, fds, 2, &nfds);
	if (n < (ssize_t)sizeof m.a || m.a.error || nfds != 2 || fds[0] >= MAX_FDS) {
		errno = n >= (ssize_t)sizeof m.a && m.a.error ? (int)m.a.error : EIO;
		goto fail;
	}
	if (!(d = calloc(1, sizeof *d))) goto fail;
	// By system calls, because some programs replace mmap.
	void *page = (void *)syscall(SYS_mmap, NULL, CONTROL_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	if (page == MAP_FAILED) goto fail;
	if (!(flags & O_CLOEXEC)) fcntl(fds[0], F_SETFD, 0);
	pthread_mutex_init(&d->mu, NULL);
	d->sock = sock, d->wake = fds[1], d->async = -1, d->page = page, d->pid = getpid();
	devices[fds[0]] = d;
	return fds[0];
fail:
	saved = errno;
	free(d);
	for (int i = 0; i < nfds && i < 2; i++) real_close(fds[i]);
	real_close(sock);
	errno = saved;
	return -1;
}

// ring rings the bell of a queue pair, and wakes the daemon if it sleeps.
static void ring(struct device *d, uint32_t bell)
{
	_Atomic uint64_t *bells = (_Atomic uint64_t *)(d->page + OFF_BELLS), *summary = (_Atomic uint64_t *)(d->page + OFF_SUMMARY);
	atomic_fetch_or(&bells[bell / 64], 1ull << bell % 64);
	atomic_fetch_or(summary, 1ull << bell / 64);
	if (atomic_load((_Atomic uint64_t *)(d->page + OFF_ASLEEP)))
		(void)!syscall(SYS_sendto, d->wake, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

// exchange sends a message and receives the answer; the length, or -1. The caller holds the lock, so
// that the thread must not be cancelled here.
static ssize_t exchange(struct device *d, struct iovec *v, int nv, void *out, size_t max, int *fd)
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

// drain takes the unread events of an object from a descriptor and returns how many they were. The
// first 8 bytes of an event name its object. What belongs to others goes back by the daemon.
static uint32_t drain(struct device *d, int fd, size_t size, uint64_t element, uint32_t number)
{
	uint32_t dropped = 0, kept = 0;
	uint8_t *others = malloc(MAX_EVENTS * size);
	if (!others) return 0;
	while (kept < MAX_EVENTS && recv(fd, others + kept * size, size, MSG_DONTWAIT) == (ssize_t)size) {
		if (memcmp(others + kept * size, &element, sizeof element)) kept++;
		else dropped++;
	}
	for (uint32_t i = 0; i < kept; i += 128) {
		struct { struct prefix p; struct ib_uverbs_cmd_hdr h; } head = { { number, 0 }, { CMD_REPOST, 0, 0 } };
		struct { struct answer a; uint8_t data[64]; } reply;
		struct iovec v[2] = { { &head, sizeof head }, { others + i * size, (kept - i < 128 ? kept - i : 128) * size } };
		int none;
		exchange(d, v, 2, &reply, sizeof reply, &none);
	}
	free(others);
	return dropped;
}

// settle subtracts the unread events from the counts of an answer, so that a destroy waits only for
// events that the program has read.
static void settle(struct device *d, struct answer *a, size_t n)
{
	uint32_t *words = (uint32_t *)a->data;
	for (size_t i = 0; i < n / 4 && i < 2; i++) {
		if (!(a->drain & 1u << i)) continue;
		if (i == 0 && a->channel != NO_CHANNEL) {
			for (int fd = 0; fd < MAX_FDS; fd++) {
				struct channel *c = channels[fd];
				if (c && c->dev == d && c->number == a->channel) words[i] -= drain(d, fd, 8, a->element, a->channel);
			}
		} else if (d->async >= 0) {
			words[i] -= drain(d, d->async, sizeof(struct ib_uverbs_async_event_desc), a->element, NO_CHANNEL);
		}
	}
}

// channel_number is the number of the completion channel of a descriptor.
static uint32_t channel_number(struct device *d, int fd)
{
	struct channel *c = fd >= 0 && fd < MAX_FDS ? channels[fd] : NULL;
	return c && c->dev == d ? c->number : NO_CHANNEL;
}

// named_channel is the channel that a command names, if it is one that does.
static uint32_t named_channel(struct device *d, const uint8_t *b, size_t n, uint32_t op, int ex)
{
	if (op != IB_USER_VERBS_CMD_CREATE_CQ) return NO_CHANNEL;
	if (!ex && n >= sizeof(struct ib_uverbs_cmd_hdr) + sizeof(struct ib_uverbs_create_cq))
		return channel_number(d, ((const struct ib_uverbs_create_cq *)(b + sizeof(struct ib_uverbs_cmd_hdr)))->comp_channel);
	size_t at = sizeof(struct ib_uverbs_cmd_hdr) + sizeof(struct ib_uverbs_ex_cmd_hdr);
	if (ex && n >= at + sizeof(struct ib_uverbs_ex_create_cq))
		return channel_number(d, ((const struct ib_uverbs_ex_create_cq *)(b + at))->comp_channel);
	return NO_CHANNEL;
}

// put_fd makes a descriptor that came with an answer the program's.
static int put_fd(struct device *d, struct answer *a, size_t n, uint32_t op, int fd)
{
	if (n < 4 || fd >= MAX_FDS) return errno = EMFILE, -1;
	if (op == IB_USER_VERBS_CMD_GET_CONTEXT) {
		d->async = fd;
	} else {
		struct channel *c = calloc(1, sizeof *c);
		if (!c) return -1;
		c->dev = d, c->number = a->number;
		channels[fd] = c;
	}
	memcpy(a->data, &fd, 4);
	return 0;
}

// command executes what libibverbs writes to a device.
static ssize_t command(struct device *d, const uint8_t *b, size_t n)
{
	const struct ib_uverbs_cmd_hdr *h = (const void *)b;
	if (forked && d->pid != getpid()) return errno = EIO, -1;
	if (n < sizeof *h || n > 4096) return errno = EINVAL, -1;
	uint32_t op = h->command & IB_USER_VERBS_CMD_COMMAND_MASK;
	int ex = (h->command & IB_USER_VERBS_CMD_FLAG_EXTENDED) != 0;
	if (!ex && op == IB_USER_VERBS_CMD_POST_SEND) {
		const struct ib_uverbs_post_send *p = (const void *)(b + sizeof *h);
		if (n < sizeof *h + sizeof *p || p->qp_handle >= MAX_BELLS) return errno = EINVAL, -1;
		ring(d, p->qp_handle);
		return (ssize_t)n;
	}
	uint64_t response = 0;
	size_t room = 0;
	if (ex && n >= sizeof *h + sizeof(struct ib_uverbs_ex_cmd_hdr)) {
		const struct ib_uverbs_ex_cmd_hdr *e = (const void *)(b + sizeof *h);
		response = e->response;
		room = (h->out_words + e->provider_out_words) * 8ul;
	} else if (!ex && h->out_words && n >= sizeof *h + 8) {
		memcpy(&response, b + sizeof *h, 8);
		room = h->out_words * 4ul;
	}
	uint64_t buf[MAX_MESSAGE / 8];
	struct answer *a = (void *)buf;
	struct prefix p = { named_channel(d, b, n, op, ex), 0 };
	struct iovec v[2] = { { &p, sizeof p }, { (void *)b, n } };
	int fd, rc = 0;
	pthread_mutex_lock(&d->mu);
	ssize_t got = exchange(d, v, 2, buf, sizeof buf, &fd);
	if (got >= 0 && a->error) errno = (int)a->error, rc = -1;
	if (got < 0) rc = -1;
	if (rc == 0) {
		got -= sizeof *a;
		settle(d, a, (size_t)got);
		if (fd >= 0) rc = put_fd(d, a, (size_t)got, op, fd), fd = rc ? fd : -1;
	}
	int saved = errno;
	pthread_mutex_unlock(&d->mu);
	if (fd >= 0) real_close(fd);
	errno = saved;
	if (rc) return -1;
	if (response) memcpy((void *)(uintptr_t)response, a->data, (size_t)got < room ? (size_t)got : room);
	return (ssize_t)n;
}

// ---- /dev/infiniband/rdma_cm

// ask sends a command of a channel; value are more bytes behind it. The errno of the command is
// returned as an error.
static ssize_t ask(struct device *m, uint32_t channel, const void *b, size_t n, const void *value, size_t len, void *out, size_t max, int *fd)
{
	struct prefix p = { channel, 0 };
	struct iovec v[3] = { { &p, sizeof p }, { (void *)b, n }, { (void *)value, len } };
	pthread_mutex_lock(&m->mu);
	ssize_t got = exchange(m, v, len ? 3 : 2, out, max, fd);
	pthread_mutex_unlock(&m->mu);
	struct answer *a = out;
	if (got >= 0 && a->error) return errno = (int)a->error, -1;
	return got;
}

// tell is ask for a command of the library itself; the number of a new channel, or -1.
static int64_t tell(struct device *m, uint32_t channel, uint32_t op, int *fd)
{
	struct rdma_ucm_cmd_hdr h = { op, 0, 0 };
	struct { struct answer a; uint8_t data[64]; } reply;
	return ask(m, channel, &h, sizeof h, NULL, 0, &reply, sizeof reply, fd) < 0 ? -1 : (int64_t)reply.a.number;
}

// connected returns the connection of this process. The caller holds the lock.
static struct device *connected(void)
{
	struct { struct answer a; uint8_t data[64]; } welcome;
	int none, nfds;
	if (manager) return manager;
	struct device *m = calloc(1, sizeof *m);
	if (!m) return NULL;
	if ((m->sock = dial(getenv(ENV_SOCKET), hello_manager)) < 0) return free(m), NULL;
	ssize_t n = recv_fds(m->sock, &welcome, sizeof welcome, &none, 0, &nfds);
	if (n < (ssize_t)sizeof welcome.a || welcome.a.error) {
		errno = n >= (ssize_t)sizeof welcome.a ? (int)welcome.a.error : EIO;
		int saved = errno;
		real_close(m->sock);
		free(m);
		return errno = saved, NULL;
	}
	pthread_mutex_init(&m->mu, NULL);
	return manager = m;
}

// open_event_channel returns the descriptor on which events are announced.
static int open_event_channel(int flags)
{
	pthread_once(&fork_once, watch_fork);
	int fd = -1, cancel;
	int64_t number = -1;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&manager_mu);
	struct device *m = connected();
	struct event_channel *c = unused ? unused : calloc(1, sizeof *c);
	if (c) unused = c->next;
	if (m && c) {
		number = tell(m, NO_CHANNEL, CMD_OPEN_CHANNEL, &fd);
		if (number >= 0 && (fd < 0 || fd >= MAX_FDS)) {
			int none;
			tell(m, (uint32_t)number, CMD_CLOSE_CHANNEL, &none);
			errno = EMFILE, number = -1;
		}
	}
	int saved = errno;
	if (number < 0 && c) c->next = unused, unused = c;
	pthread_mutex_unlock(&manager_mu);
	pthread_setcancelstate(cancel, NULL);
	if (number < 0) {
		if (fd >= 0) real_close(fd);
		return errno = saved, -1;
	}
	if (!(flags & O_CLOEXEC)) fcntl(fd, F_SETFD, 0);
	if (flags & O_NONBLOCK) fcntl(fd, F_SETFL, O_NONBLOCK);
	c->m = m, c->number = (uint32_t)number, c->pid = getpid();
	event_channels[fd] = c;
	return fd;
}

// close_event_channel forgets the channel of a descriptor.
static void close_event_channel(int fd)
{
	struct event_channel *c = atomic_exchange(&event_channels[fd], NULL);
	if (!c) return;
	if (c->pid == getpid()) {
		int none, cancel;
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
		pthread_mutex_lock(&manager_mu);
		tell(c->m, c->number, CMD_CLOSE_CHANNEL, &none);
		c->next = unused, unused = c;
		pthread_mutex_unlock(&manager_mu);
		pthread_setcancelstate(cancel, NULL);
	}
}

// withdraw takes announcements of events back that nothing will read.
static void withdraw(struct device *m, uint32_t channel, uint32_t n)
{
	for (int fd = 0; n > 0 && fd < MAX_FDS; fd++) {
		struct event_channel *c = event_channels[fd];
		if (!c || c->m != m || c->number != channel) continue;
		char b;
		while (n > 0 && recv(fd, &b, 1, MSG_DONTWAIT) == 1) n--;
		return; // what is missing was taken by a thread that will find no event
	}
}

// get_event waits for an announcement and asks for the event. Another thread may have taken it.
static ssize_t get_event(struct event_channel *c, int fd, const uint8_t *b, size_t n, void *out, size_t max)
{
	NEXT(read);
	for (;;) {
		char one;
		int none;
		ssize_t got = next_read(fd, &one, 1); // threads are cancelled here
		if (got < 0) return -1;
		while (got == 0 && event_channels[fd] != c) pause(); // another thread has closed it: as in the kernel
		if (got == 0) return errno = EIO, -1;
		got = ask(c->m, c->number, b, n, NULL, 0, out, max, &none);
		if (got >= 0 || errno != EAGAIN) return got;
	}
}

// manage executes what librdmacm writes to an event channel.
static ssize_t manage(struct event_channel *c, int fd, const uint8_t *b, size_t n)
{
	const struct rdma_ucm_cmd_hdr *h = (const void *)b;
	uint64_t buf[MAX_MESSAGE / 8], response = 0;
	struct answer *a = (void *)buf;
	ssize_t got;
	int none;
	if (c->pid != getpid()) return errno = EIO, -1;
	if (n < sizeof *h || n > MAX_MANAGER_COMMAND) return errno = EINVAL, -1;
	size_t at = sizeof *h + (h->cmd == RDMA_USER_CM_CMD_CREATE_ID ? 8 : 0);
	if (h->out && n >= at + 8) memcpy(&response, b + at, 8);
	if (h->cmd == RDMA_USER_CM_CMD_GET_EVENT) {
		got = get_event(c, fd, b, n, buf, sizeof buf);
	} else if (h->cmd == RDMA_USER_CM_CMD_SET_OPTION && n >= sizeof *h + sizeof(struct rdma_ucm_set_option)) {
		const struct rdma_ucm_set_option *o = (const void *)(b + sizeof *h);
		if (o->optlen > MAX_OPTION) return errno = EINVAL, -1;
		got = ask(c->m, c->number, b, sizeof *h + sizeof *o, (void *)(uintptr_t)o->optval, o->optlen, buf, sizeof buf, &none);
	} else {
		got = ask(c->m, c->number, b, n, NULL, 0, buf, sizeof buf, &none);
	}
	if (got < 0) return -1;
	if (a->drain) withdraw(c->m, a->channel, a->drain);
	got -= sizeof *a;
	if (response) memcpy((void *)(uintptr_t)response, a->data, (size_t)got < h->out ? (size_t)got : h->out);
	return (ssize_t)n;
}

static int open_path(const char *path, int flags) { return strcmp(path, MANAGER) ? open_device(flags) : open_event_channel(flags); }

// ---- functions of libc

#define MODE(flags) ({ mode_t m_ = 0; if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list a_; va_start(a_, flags); m_ = va_arg(a_, mode_t); va_end(a_); } m_; })

int open(const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	if (is_device(path)) return open_path(path, flags);
	NEXT(open);
	return next_open(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	if (is_device(path)) return open_path(path, flags);
	NEXT(open64);
	return next_open64(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	if (is_device(path)) return open_path(path, flags);
	NEXT(openat);
	return next_openat(dir, path, flags, mode);
}

int openat64(int dir, const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);
	if (is_device(path)) return open_path(path, flags);
	NEXT(openat64);
	return next_openat64(dir, path, flags, mode);
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
	struct device *d = device_of(fd);
	if (d) {
		devices[fd] = NULL;
		if (!forked || d->pid == getpid()) {
			real_close(d->sock); // the daemon frees everything
			real_close(d->wake);
			syscall(SYS_munmap, d->page, CONTROL_LEN);
			free(d);
		}
	} else if (event_channel_of(fd)) {
		close_event_channel(fd);
	} else if (fd >= 0 && fd < MAX_FDS && channels[fd]) {
		free(atomic_exchange(&channels[fd], NULL));
	}
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
		if (rc == 0 && (device_of(fd) || event_channel_of(fd))) STAT_FIELDS(s); \
		return rc; \
	}
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)
FSTAT(fstat, stat)
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
	if (rc == 0 && (device_of(fd) || event_channel_of(fd))) STAT_FIELDS(s);
	return rc;
}

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
