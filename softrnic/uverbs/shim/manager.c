// The device below librdmacm: /dev/infiniband/rdma_cm.
#define _GNU_SOURCE
#include "shim.h"

// event_channel is an event channel of librdmacm, found by its descriptor in the program. Each
// message on the descriptor announces an event. An event_channel is never freed, but reused: a
// thread may wait for events of a channel that another thread closes.
struct event_channel { struct device *m; uint32_t number; pid_t pid; int copies; struct event_channel *next; };

// manager is the connection of this process for the commands of librdmacm: a device without memory.
// It lasts as long as the process or the daemon. manager_mu guards it, unused, and the list of
// closed channels; a thread that holds manager_mu does not wait for the daemon.
static struct device *manager;
static struct event_channel *unused;
static pthread_mutex_t manager_mu = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct event_channel *) event_channels[MAX_FDS];

struct event_channel *event_channel_of(int fd)
{
	if (fd < 0 || fd >= MAX_FDS) return NULL;
	return event_channels[fd];
}

// ask_entered sends a command of a channel, followed by the bytes of value, if any, and receives
// the answer. If the command fails, it sets errno and returns -1. The caller has entered the
// connection; ask is the same function for callers that have not.
static ssize_t ask_entered(struct device *m, uint32_t channel, const void *b, size_t n, const void *value, size_t len, void *out, size_t max, int *fd)
{
	struct prefix p = { channel, 0 };
	struct iovec v[3] = { { &p, sizeof p }, { (void *)b, n }, { (void *)value, len } };
	ssize_t got = exchange(m, v, len ? 3 : 2, NO_FILE, out, max, fd);
	struct answer *a = out;
	if (got >= 0 && a->error) return errno = (int)a->error, -1;
	return got;
}

static ssize_t ask(struct device *m, uint32_t channel, const void *b, size_t n, const void *value, size_t len, void *out, size_t max, int *fd)
{
	int cancel;
	if (!enter(m, &cancel)) return -1;
	ssize_t got = ask_entered(m, channel, b, n, value, len, out, max, fd);
	int saved = errno;
	leave(m, cancel);
	return errno = saved, got;
}

// tell sends a command of the library itself. It returns the number of a new channel, or -1. The
// caller has entered the connection.
static int64_t tell(struct device *m, uint32_t channel, uint32_t op, int *fd)
{
	struct rdma_ucm_cmd_hdr h = { op, 0, 0 };
	struct { struct answer a; uint8_t data[64]; } reply;
	return ask_entered(m, channel, &h, sizeof h, NULL, 0, &reply, sizeof reply, fd) < 0 ? -1 : (int64_t)reply.a.number;
}

// end_channels tells the daemon which channels were closed.
static void end_channels(struct device *m)
{
	struct held h = hold(&manager_mu);
	struct event_channel *c = m->closed, *next;
	m->closed = NULL;
	let_go(&manager_mu, h);
	for (; c; c = next) {
		int none;
		next = c->next;
		tell(m, c->number, CMD_CLOSE_CHANNEL, &none);
		h = hold(&manager_mu);
		c->next = unused, unused = c;
		let_go(&manager_mu, h);
	}
}

// has_ended reports whether the daemon of a connection is gone. If so, it closes the socket; the
// device stays, because channels point to it.
static int has_ended(struct device *m)
{
	char b;
	int cancel;
	if (!enter(m, &cancel)) return 0; // a command is in progress
	int ended = m->sock < 0 || recv(m->sock, &b, 1, MSG_PEEK | MSG_DONTWAIT) == 0 || errno != EAGAIN; // no message can wait: each was received by its command
	if (ended && m->sock >= 0) {
		drop_private(m->sock);
		m->sock = -1;
	}
	leave(m, cancel);
	return ended;
}

// connected returns the connection of this process, or a new one if the daemon was restarted.
static struct device *connected(void)
{
	struct { struct answer a; uint8_t data[64]; } welcome;
	int none, nfds;
	struct held h = hold(&manager_mu);
	struct device *before = manager;
	let_go(&manager_mu, h);
	if (before && !has_ended(before)) return before;
	struct device *m = calloc(1, sizeof *m);
	if (!m) return NULL;
	if ((m->sock = dial(0, hello_manager, -1)) < 0) return free(m), NULL;
	ssize_t n = recv_fds(m->sock, &welcome, sizeof welcome, &none, 0, &nfds);
	if (n < (ssize_t)sizeof welcome.a || welcome.a.error) {
		errno = n >= (ssize_t)sizeof welcome.a ? (int)welcome.a.error : EIO;
		int saved = errno;
		real_close(m->sock);
		free(m);
		return errno = saved, NULL;
	}
	pthread_mutex_init(&m->mu, NULL);
	m->wake = -1;
	m->pid = getpid();
	m->end = end_channels;
	h = hold(&manager_mu);
	struct device *now = manager;
	if (now == before) {
		keep_private(m->sock);
		manager = m;
	}
	let_go(&manager_mu, h);
	if (now == before) return m;
	real_close(m->sock); // another thread has connected first
	free(m);
	return now;
}

// new_channel requests a channel from the daemon. It returns its number, or -1.
static int64_t new_channel(struct device *m, int *fd)
{
	int cancel;
	if (!enter(m, &cancel)) return -1;
	int64_t number = tell(m, NO_CHANNEL, CMD_OPEN_CHANNEL, fd);
	if (number >= 0 && (*fd < 0 || *fd >= MAX_FDS)) {
		int none;
		tell(m, (uint32_t)number, CMD_CLOSE_CHANNEL, &none);
		errno = EMFILE, number = -1;
	}
	int saved = errno;
	leave(m, cancel);
	return errno = saved, number;
}

// open_event_channel returns the descriptor on which events are announced.
int open_event_channel(int flags)
{
	watch_forks();
	int fd = -1;
	struct device *m = connected();
	if (!m) return -1;
	struct held h = hold(&manager_mu);
	struct event_channel *c = unused ? unused : calloc(1, sizeof *c);
	if (c) unused = c->next;
	let_go(&manager_mu, h);
	if (!c) return -1;
	int64_t number = new_channel(m, &fd);
	if (number < 0) {
		int saved = errno;
		h = hold(&manager_mu);
		c->next = unused, unused = c;
		let_go(&manager_mu, h);
		if (fd >= 0) real_close(fd);
		return errno = saved, -1;
	}
	if (!(flags & O_CLOEXEC)) fcntl(fd, F_SETFD, 0);
	if (flags & O_NONBLOCK) fcntl(fd, F_SETFL, O_NONBLOCK);
	c->m = m, c->number = (uint32_t)number, c->pid = getpid(), c->copies = 0;
	event_channels[fd] = c;
	return fd;
}

// close_event_channel removes a descriptor from its channel, which ends with its last descriptor.
void close_event_channel(int fd)
{
	if (!event_channel_of(fd) || is_borrowed()) return;
	struct held h = hold(&manager_mu);
	struct event_channel *c = atomic_exchange(&event_channels[fd], NULL);
	struct device *m = c && c->copies-- == 0 && is_own(c->pid) ? c->m : NULL;
	if (m) c->next = m->closed, m->closed = c;
	let_go(&manager_mu, h);
	if (!m) return;
	m->left = 1;
	end_left(m);
}

// copy_event_channel is called when the program duplicates a descriptor.
void copy_event_channel(int from, int to)
{
	if (!event_channel_of(from) || to < 0 || to >= MAX_FDS || is_borrowed()) return;
	struct held h = hold(&manager_mu);
	struct event_channel *c = event_channels[from];
	if (c) c->copies++;
	event_channels[to] = c;
	let_go(&manager_mu, h);
}

// move_manager moves the connection's descriptor to another number, as move_device does.
int move_manager(int fd, int to)
{
	struct held h = hold(&manager_mu);
	struct device *m = manager;
	let_go(&manager_mu, h);
	int cancel;
	if (!m || m->sock != fd) return 0;
	if (!enter(m, &cancel)) return -1;
	int found = atomic_compare_exchange_strong(&m->sock, &fd, to);
	leave(m, cancel);
	return found;
}

// withdraw removes n announcements of events from a channel, because these events do not exist any
// more.
static void withdraw(struct device *m, uint32_t channel, uint32_t n)
{
	for (int fd = 0; n > 0 && fd < MAX_FDS; fd++) {
		struct event_channel *c = event_channels[fd];
		if (!c || c->m != m || c->number != channel) continue;
		char b;
		while (n > 0 && recv(fd, &b, 1, MSG_DONTWAIT) == 1) n--;
		return; // another thread has read the other announcements, and will find no event
	}
}

// get_event waits for an announcement and fetches the event. If another thread has taken the event,
// it waits for the next announcement.
static ssize_t get_event(struct event_channel *c, int fd, const uint8_t *b, size_t n, void *out, size_t max)
{
	for (;;) {
		char one;
		int none;
		ssize_t got = read(fd, &one, 1); // read is a cancellation point, so that the program can cancel a thread that waits for an event
		if (got < 0) return -1;
		while (got == 0 && event_channels[fd] != c) pause(); // another thread has closed the channel: this read waits for ever, as with the kernel
		if (got == 0) return errno = EIO, -1;
		got = ask(c->m, c->number, b, n, NULL, 0, out, max, &none);
		if (got >= 0 || errno != EAGAIN) return got;
	}
}

// manage executes a command that librdmacm writes to an event channel.
ssize_t manage(struct event_channel *c, int fd, const uint8_t *b, size_t n)
{
	const struct rdma_ucm_cmd_hdr *h = (const void *)b;
	uint64_t buf[MAX_MESSAGE / 8], response = 0;
	struct answer *a = (void *)buf;
	ssize_t got;
	int none;
	if (!is_own(c->pid)) return errno = EIO, -1;
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

// forget_manager is called in a child of fork: the connection belongs to the parent, and another
// thread of the parent may have held the lock.
void forget_manager(void)
{
	manager = NULL;
	pthread_mutex_init(&manager_mu, NULL);
}
