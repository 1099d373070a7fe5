// What is below libibverbs: /dev/infiniband/uverbs0.
#define _GNU_SOURCE
#include "shim.h"

// The control page, with which the memory file begins: see package softrnic/ipc/ring.
enum { CONTROL_LEN = 8192, OFF_ASLEEP = 0, OFF_SUMMARY = 128, OFF_BELLS = 192 };

enum { STATE_RTS = 3, EVENT_DEVICE_FATAL = 8 }; // enum ibv_qp_state, enum ibv_event_type

// The name of the memory file, as a link of /proc has it.
#define AREA "/memfd:verbs-area (deleted)"

// channel is a completion channel, by its descriptor in the program.
struct channel { struct device *dev; uint32_t number; };

static _Atomic(struct device *) devices[MAX_FDS];
static _Atomic(struct channel *) channels[MAX_FDS];
// asyncs says which descriptors are for asynchronous events.
static _Atomic uint8_t asyncs[MAX_FDS];
enum { NOT_ASYNC, ASYNC, LOST };


struct device *device_of(int fd)
{
	if (fd < 0 || fd >= MAX_FDS) return NULL;
	return devices[fd];
}

// open_device connects to the daemon and returns the memory file, in which libibverbs maps the rings.
int open_device(int flags)
{
	watch_forks();
	int sock = dial(hello);
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
		asyncs[fd] = ASYNC;
	} else {
		struct channel *c = calloc(1, sizeof *c);
		if (!c) return -1;
		c->dev = d, c->number = a->number;
		channels[fd] = c;
	}
	memcpy(a->data, &fd, 4);
	return 0;
}

// note_state remembers whether a queue pair is in a state that sends, when a command has succeeded.
static void note_state(struct device *d, const uint8_t *b, size_t n, uint32_t op, int ex, const struct answer *a, size_t got)
{
	const struct ib_uverbs_modify_qp *m = (const void *)(b + sizeof(struct ib_uverbs_cmd_hdr) + (ex ? sizeof(struct ib_uverbs_ex_cmd_hdr) : 0));
	uint32_t bell;
	int sends = 0;
	if (op == IB_USER_VERBS_CMD_CREATE_QP && got >= sizeof bell) {
		memcpy(&bell, a->data, sizeof bell);
	} else if (op == IB_USER_VERBS_CMD_MODIFY_QP && (const uint8_t *)(m + 1) <= b + n && m->attr_mask & 1) {
		bell = m->qp_handle, sends = m->qp_state >= STATE_RTS;
	} else {
		return;
	}
	if (bell >= MAX_BELLS) return;
	if (sends) d->sends[bell / 64] |= 1ull << bell % 64;
	else d->sends[bell / 64] &= ~(1ull << bell % 64);
}

// command executes what libibverbs writes to a device.
ssize_t command(struct device *d, const uint8_t *b, size_t n)
{
	const struct ib_uverbs_cmd_hdr *h = (const void *)b;
	if (!is_own(d->pid)) return errno = EIO, -1;
	if (n < sizeof *h || n > 4096) return errno = EINVAL, -1;
	uint32_t op = h->command & IB_USER_VERBS_CMD_COMMAND_MASK;
	int ex = (h->command & IB_USER_VERBS_CMD_FLAG_EXTENDED) != 0;
	if (!ex && op == IB_USER_VERBS_CMD_POST_SEND) {
		const struct ib_uverbs_post_send *p = (const void *)(b + sizeof *h);
		if (n < sizeof *h + sizeof *p || p->qp_handle >= MAX_BELLS) return errno = EINVAL, -1;
		if (!(d->sends[p->qp_handle / 64] & 1ull << p->qp_handle % 64)) return errno = EINVAL, -1;
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
	int fd, rc = 0, cancel;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); // a thread that ends here would keep the lock
	pthread_mutex_lock(&d->mu);
	ssize_t got = exchange(d, v, 2, buf, sizeof buf, &fd);
	if (got >= 0 && a->error) errno = (int)a->error, rc = -1;
	if (got < 0) rc = -1;
	if (rc == 0) {
		got -= sizeof *a;
		settle(d, a, (size_t)got);
		note_state(d, b, n, op, ex, a, (size_t)got);
		if (fd >= 0) rc = put_fd(d, a, (size_t)got, op, fd), fd = rc ? fd : -1;
	}
	int saved = errno;
	pthread_mutex_unlock(&d->mu);
	pthread_setcancelstate(cancel, NULL);
	if (fd >= 0) real_close(fd);
	errno = saved;
	if (rc) return -1;
	if (response) memcpy((void *)(uintptr_t)response, a->data, (size_t)got < room ? (size_t)got : room);
	return (ssize_t)n;
}

// close_device forgets the device or the completion channel of a descriptor. A child of vfork closes
// only its own descriptor, and one of fork has none of its parent's devices.
void close_device(int fd)
{
	if (fd < 0 || fd >= MAX_FDS || (!devices[fd] && !channels[fd] && !asyncs[fd]) || is_borrowed()) return;
	struct device *d = atomic_exchange(&devices[fd], NULL);
	if (d && is_own(d->pid)) {
		real_close(d->sock); // the daemon frees everything
		real_close(d->wake);
		syscall(SYS_munmap, d->page, CONTROL_LEN);
		free(d);
	}
	free(atomic_exchange(&channels[fd], NULL));
	asyncs[fd] = NOT_ASYNC;
}

// device_lost is called when nothing follows on a descriptor. That of asynchronous events ends with
// the daemon: the program is told once that the device has failed.
ssize_t device_lost(int fd, void *b, size_t n)
{
	struct ib_uverbs_async_event_desc ev = { .event_type = EVENT_DEVICE_FATAL };
	uint8_t before = ASYNC;
	if (fd < 0 || fd >= MAX_FDS || n < sizeof ev || !atomic_compare_exchange_strong(&asyncs[fd], &before, LOST)) return 0;
	memcpy(b, &ev, sizeof ev);
	return sizeof ev;
}

// is_copy reports whether a descriptor, which is none that was opened, is a copy of a device's:
// libibverbs looks at it before it takes a device from another context.
int is_copy(int fd, mode_t mode, nlink_t links)
{
	char path[32], link[sizeof AREA];
	if (!S_ISREG(mode) || links != 0) return 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return readlink(path, link, sizeof link) == sizeof AREA - 1 && !memcmp(link, AREA, sizeof AREA - 1);
}
