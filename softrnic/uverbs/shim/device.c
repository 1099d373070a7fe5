// The devices below libibverbs: /dev/infiniband/uverbs0, and uverbs1 and so on for further NICs.
#define _GNU_SOURCE
#include "shim.h"

enum { EVENT_DEVICE_FATAL = 8 }; // enum ibv_event_type

static _Atomic(struct device *) devices[MAX_FDS];

// ends says, by descriptor, which events are read from it: the upper half of an entry is the serial
// number of a device, the lower half the number of a completion channel, or NO_CHANNEL for
// asynchronous events. 0: no events.
static _Atomic uint64_t ends[MAX_FDS];
// lost has 1 for a descriptor of asynchronous events from which the program has read the event that
// the device has failed; see device_lost.
static _Atomic uint8_t lost[MAX_FDS];

// all is the list of all devices ever opened, unused the list of those that are closed. table_mu
// guards unused, serials, copies, and changes of all.
static _Atomic(struct device *) all;
static struct device *unused;
static uint32_t serials;
static pthread_mutex_t table_mu = PTHREAD_MUTEX_INITIALIZER;

struct device *device_of(int fd)
{
	if (fd < 0 || fd >= MAX_FDS) return NULL;
	return devices[fd];
}

// end_of returns the entry in ends for a channel of a device.
static uint64_t end_of(struct device *d, uint32_t number) { return (uint64_t)d->serial << 32 | number; }

// device_by returns the open device with a serial number.
static struct device *device_by(uint32_t serial)
{
	for (struct device *d = all; d; d = d->next)
		if (d->serial == serial) return d;
	return NULL;
}

// retire puts a closed device into the list unused.
static void retire(struct device *d)
{
	struct held h = hold(&table_mu);
	d->next_unused = unused, unused = d;
	let_go(&table_mu, h);
}

// SENDS_LEN is the length of device.sends in bytes, COMMON_LEN that of the memory that all processes of a
// device have in common: sends, and behind it device.events_mu.
enum { SENDS_LEN = MAX_BELLS / 8, COMMON_LEN = SENDS_LEN + sizeof(pthread_mutex_t) };

// lock_events locks what the processes of a device do one after the other: end an object, and take its unread
// events from those of the others. It returns whether it has the lock: it waits no longer than PATIENCE seconds
// for a process that is stopped. If a process has died with the lock, events of others that it had taken are lost.
static int lock_events(struct device *d)
{
	enum { PATIENCE = 2 };
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += PATIENCE;
	int error = pthread_mutex_timedlock(d->events_mu, &end);
	if (error == EOWNERDEAD) error = pthread_mutex_consistent(d->events_mu);
	return error == 0;
}

// make_events_lock makes the lock of a new device.
static int make_events_lock(pthread_mutex_t *mu)
{
	pthread_mutexattr_t a;
	int error = pthread_mutexattr_init(&a);
	if (error) return error;
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	error = pthread_mutex_init(mu, &a);
	pthread_mutexattr_destroy(&a);
	return error;
}

// end_device closes the connection of a device. It is called when its last descriptor is closed. The daemon
// frees all objects when no child of fork has the device any more.
static void end_device(struct device *d)
{
	if (d->shares) end_shares(d);
	int sock = atomic_exchange(&d->sock, -1), wake = atomic_exchange(&d->wake, -1), first = atomic_exchange(&d->first, -1);
	d->serial = 0;
	syscall(SYS_munmap, d->page, CONTROL_LEN);
	syscall(SYS_munmap, d->sends, COMMON_LEN);
	drop_private(sock);
	drop_private(wake);
	drop_private(first);
	retire(d);
}

// new_device returns a device from the list unused, or a new one.
static struct device *new_device(void)
{
	struct held h = hold(&table_mu);
	struct device *d = unused;
	if (d) {
		unused = d->next_unused;
	} else if ((d = calloc(1, sizeof *d))) {
		pthread_mutex_init(&d->mu, NULL);
		d->end = end_device;
		d->next = all;
		all = d;
	}
	if (d) {
		if (++serials == 0) serials = 1;
		d->serial = serials;
		d->copies = 0, d->async = -1, d->first = -1;
	}
	let_go(&table_mu, h);
	return d;
}

// open_device connects to the daemon, for a NIC, and returns the memory file, from which libibverbs maps the
// rings.
int open_device(int nic, int flags)
{
	watch_forks();
	int sock = dial(nic, hello, -1);
	if (sock < 0) return -1;
	struct { struct answer a; uint8_t data[64]; } m;
	int fds[2] = { -1, -1 }, nfds, saved;
	struct device *d = NULL;
	ssize_t n = recv_fds(sock, &m, sizeof m, fds, 2, &nfds);
	if (n < (ssize_t)sizeof m.a || m.a.error || nfds != 2 || fds[0] >= MAX_FDS) {
		errno = n >= (ssize_t)sizeof m.a && m.a.error ? (int)m.a.error : EIO;
		goto fail;
	}
	// By a system call, because some programs replace mmap.
	void *page = (void *)syscall(SYS_mmap, NULL, CONTROL_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	if (page == MAP_FAILED) goto fail;
	char *sends = (void *)syscall(SYS_mmap, NULL, COMMON_LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sends == MAP_FAILED || make_events_lock((void *)(sends + SENDS_LEN)) || !(d = new_device())) {
		saved = errno;
		syscall(SYS_munmap, page, CONTROL_LEN);
		if (sends != MAP_FAILED) syscall(SYS_munmap, sends, COMMON_LEN);
		errno = saved;
		goto fail;
	}
	if (!(flags & O_CLOEXEC)) fcntl(fds[0], F_SETFD, 0);
	d->page = page, d->sends = (void *)sends, d->events_mu = (void *)(sends + SENDS_LEN), d->nic = nic;
	d->shares = shares_memory();
	d->pid = getpid();
	d->sock = sock;
	d->wake = fds[1];
	keep_private(sock);
	keep_private(fds[1]);
	devices[fds[0]] = d;
	return fds[0];
fail:
	saved = errno;
	for (int i = 0; i < nfds && i < 2; i++) real_close(fds[i]);
	real_close(sock);
	errno = saved;
	return -1;
}

// descriptor_of returns a descriptor of a device, or -1.
static int descriptor_of(struct device *d)
{
	for (int fd = 0; fd < MAX_FDS; fd++)
		if (devices[fd] == d) return fd;
	return -1;
}

// join connects a child of fork to the daemon for commands on its parent's device. It returns the socket,
// or -1.
static int join(struct device *d)
{
	struct { struct answer a; uint8_t data[64]; } m;
	int area = descriptor_of(d), none, nfds, sock;
	if (area < 0) return errno = EIO, -1;
	if ((sock = dial(d->nic, hello, area)) < 0) return -1;
	ssize_t n = recv_fds(sock, &m, sizeof m, &none, 0, &nfds);
	if (n >= (ssize_t)sizeof m.a && !m.a.error) return sock;
	real_close(sock);
	return errno = EIO, -1; // the daemon has ended the device, or was started again
}

// inherit reports whether this process may send commands on a device. In a child of fork the first command
// connects; the connection that the child has from its parent stays open, so that the device lasts as long
// as any process that has it, as over a kernel.
static int inherit(struct device *d)
{
	int cancel, sock = 0;
	if (is_own(d->pid)) return 1;
	if (!enter(d, &cancel)) return 0;
	if (!is_own(d->pid) && (sock = join(d)) >= 0) {
		keep_private(sock);
		if (d->first < 0) d->first = d->sock;
		else drop_private(d->sock); // that of the parent, which has the device from its own parent
		d->sock = sock;
		d->pid = getpid();
	}
	int saved = errno;
	leave(d, cancel);
	return errno = saved, sock >= 0;
}

// drain removes the unread events of an object from a descriptor and returns their number. An event ends with
// the tag of its object. Events of other objects are returned through the daemon. A signal handler cannot close
// the descriptor while drain works on it.
static uint32_t drain(struct device *d, int fd, size_t size, uint32_t tag, uint32_t number)
{
	uint32_t dropped = 0, kept = 0;
	uint8_t *others = malloc(MAX_EVENTS * size);
	if (!others) return 0;
	uint64_t signals = defer_signals();
	while (ends[fd] == end_of(d, number) && kept < MAX_EVENTS && recv(fd, others + kept * size, size, MSG_DONTWAIT) == (ssize_t)size) {
		if (memcmp(others + (kept + 1) * size - sizeof tag, &tag, sizeof tag)) kept++;
		else dropped++;
	}
	allow_signals(signals);
	for (uint32_t i = 0; i < kept; i += 128) {
		struct { struct prefix p; struct ib_uverbs_cmd_hdr h; } head = { { number, 0 }, { CMD_REPOST, 0, 0 } };
		struct { struct answer a; uint8_t data[64]; } reply;
		struct iovec v[2] = { { &head, sizeof head }, { others + i * size, (kept - i < 128 ? kept - i : 128) * size } };
		int none;
		exchange(d, v, 2, NO_FILE, &reply, sizeof reply, &none);
	}
	free(others);
	return dropped;
}

// drain_all drains a channel through one of its descriptors. If the program has duplicated the
// descriptor, all of them have the same events. The caller holds the lock of the device, so that
// the descriptor is not closed meanwhile.
static uint32_t drain_all(struct device *d, size_t size, uint32_t tag, uint32_t number)
{
	uint64_t end = end_of(d, number);
	if (number == NO_CHANNEL && d->async >= 0 && ends[d->async] == end) return drain(d, d->async, size, tag, number);
	for (int fd = 0; fd < MAX_FDS; fd++)
		if (ends[fd] == end) return drain(d, fd, size, tag, number);
	return 0;
}

// settle subtracts the unread events from the counts in an answer, because a destroy in libibverbs
// waits until the program has acknowledged that many events.
static void settle(struct device *d, struct answer *a, size_t n)
{
	uint32_t *words = (uint32_t *)a->data;
	for (size_t i = 0; i < n / 4 && i < 2; i++) {
		if (!(a->drain & 1u << i)) continue;
		if (i == 0 && a->channel != NO_CHANNEL) {
			words[i] -= drain_all(d, 8 + TAG_LEN, (uint32_t)a->element, a->channel);
		} else {
			words[i] -= drain_all(d, sizeof(struct ib_uverbs_async_event_desc) + TAG_LEN, (uint32_t)a->element, NO_CHANNEL);
		}
	}
}

// channel_number returns the number of a descriptor's completion channel.
static uint32_t channel_number(struct device *d, int fd)
{
	uint64_t end = fd >= 0 && fd < MAX_FDS ? ends[fd] : 0;
	return end >> 32 == d->serial ? (uint32_t)end : NO_CHANNEL;
}

// named_channel returns the number of the channel that a command names, or NO_CHANNEL.
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

// named_file returns the descriptor of the file that names an XRC domain, if a command opens one of a file; else
// NO_FILE.
static int named_file(const uint8_t *b, size_t n, uint32_t op, int ex)
{
	if (ex || op != IB_USER_VERBS_CMD_OPEN_XRCD || n < sizeof(struct ib_uverbs_cmd_hdr) + sizeof(struct ib_uverbs_open_xrcd)) return NO_FILE;
	return (int)((const struct ib_uverbs_open_xrcd *)(const void *)(b + sizeof(struct ib_uverbs_cmd_hdr)))->fd;
}

// is_registration reports whether a command registers memory, or changes or ends a region. It sets the memory
// that the command registers; *length is 0 if it registers none.
static int is_registration(const uint8_t *b, size_t n, uint32_t op, int ex, uint64_t *start, uint64_t *length)
{
	const struct ib_uverbs_reg_mr *r = (const void *)(b + sizeof(struct ib_uverbs_cmd_hdr));
	*start = *length = 0;
	if (ex || (op != IB_USER_VERBS_CMD_REG_MR && op != IB_USER_VERBS_CMD_DEREG_MR && op != IB_USER_VERBS_CMD_REREG_MR)) return 0;
	if (op == IB_USER_VERBS_CMD_REG_MR && n >= sizeof(struct ib_uverbs_cmd_hdr) + sizeof *r) *start = r->start, *length = r->length;
	return 1;
}

// ends_object reports whether a command ends an object that has events.
static int ends_object(uint32_t op, int ex)
{
	return !ex && (op == IB_USER_VERBS_CMD_DESTROY_CQ || op == IB_USER_VERBS_CMD_DESTROY_QP || op == IB_USER_VERBS_CMD_DESTROY_SRQ);
}

// brings_fd reports whether the answer to a command has a descriptor.
static int brings_fd(uint32_t op, int ex) { return !ex && (op == IB_USER_VERBS_CMD_GET_CONTEXT || op == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL); }

// put_fd gives the program a descriptor that came with an answer. fd is -1 if the process had no
// free number for it: then the kernel has closed this end of the socket, and the daemon closes its
// end when it notices that.
static int put_fd(struct device *d, struct answer *a, size_t n, uint32_t op, int fd)
{
	if (n < 4 || fd < 0 || fd >= MAX_FDS) return errno = EMFILE, -1;
	if (op == IB_USER_VERBS_CMD_GET_CONTEXT) {
		d->async = fd;
		lost[fd] = 0;
		ends[fd] = end_of(d, NO_CHANNEL);
	} else {
		ends[fd] = end_of(d, a->number);
	}
	memcpy(a->data, &fd, 4);
	return 0;
}

// command executes a command that libibverbs writes to a device.
ssize_t command(struct device *d, const uint8_t *b, size_t n)
{
	const struct ib_uverbs_cmd_hdr *h = (const void *)b;
	if (n < sizeof *h || n > 4096) return errno = EINVAL, -1;
	uint32_t op = h->command & IB_USER_VERBS_CMD_COMMAND_MASK;
	int ex = (h->command & IB_USER_VERBS_CMD_FLAG_EXTENDED) != 0;
	if (!ex && op == IB_USER_VERBS_CMD_POST_SEND) {
		const struct ib_uverbs_post_send *p = (const void *)(b + sizeof *h);
		if (n < sizeof *h + sizeof *p || p->qp_handle >= MAX_BELLS) return errno = EINVAL, -1;
		if (takes_sends(d, p->qp_handle)) return ring(d, p->qp_handle), (ssize_t)n;
	}
	if (!inherit(d)) return -1;
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
	uint64_t start, length;
	int shares = d->shares && is_registration(b, n, op, ex, &start, &length);
	if (!enter(d, &cancel)) return -1;
	if (shares && !begin_registration(d, start, length)) {
		leave(d, cancel);
		return errno = EBUSY, -1;
	}
	pid_t locked = ends_object(op, ex) && lock_events(d) ? getpid() : 0; // a signal handler may fork
	ssize_t got = exchange(d, v, 2, named_file(b, n, op, ex), buf, sizeof buf, &fd);
	if (got >= 0 && a->error) errno = (int)a->error, rc = -1;
	if (got < 0) rc = -1;
	if (rc == 0) {
		got -= sizeof *a;
		settle(d, a, (size_t)got);
		note_state(d, b, n, op, ex, a, (size_t)got);
		if (fd >= 0 || brings_fd(op, ex)) rc = put_fd(d, a, (size_t)got, op, fd), fd = rc ? fd : -1;
	}
	int saved = errno;
	if (locked && locked == getpid()) pthread_mutex_unlock(d->events_mu);
	if (shares) end_registration(d);
	leave(d, cancel);
	if (fd >= 0) real_close(fd);
	errno = saved;
	if (rc) return -1;
	if (response) memcpy((void *)(uintptr_t)response, a->data, (size_t)got < room ? (size_t)got : room);
	return (ssize_t)n;
}

// forget_events removes a descriptor's entry from ends. It is called before the descriptor is
// closed. It waits for a command of the device in progress, which may read events from the
// descriptor; in a signal handler that has interrupted a command it does not wait.
static void forget_events(int fd)
{
	uint64_t end = ends[fd];
	struct device *d = device_by((uint32_t)(end >> 32));
	if (d && is_own(d->pid)) {
		int cancel, in = enter(d, &cancel);
		ends[fd] = 0;
		if (in) leave(d, cancel);
	}
	ends[fd] = 0;
}

// close_device is called when a descriptor is closed. It removes the descriptor from its device, or
// its entry from ends. The last descriptor of a device ends the device for this process. A child of vfork
// closes only its own descriptor.
void close_device(int fd)
{
	if (fd < 0 || fd >= MAX_FDS || (!devices[fd] && !ends[fd]) || is_borrowed()) return;
	if (ends[fd]) forget_events(fd);
	struct held h = hold(&table_mu);
	struct device *d = devices[fd];
	devices[fd] = NULL;
	int last = d && d->copies-- == 0;
	let_go(&table_mu, h);
	if (!last) return;
	d->left = 1;
	end_left(d);
}

// copy_device is called when the program duplicates a descriptor.
void copy_device(int from, int to)
{
	if (from < 0 || from >= MAX_FDS || to < 0 || to >= MAX_FDS || (!devices[from] && !ends[from]) || is_borrowed()) return;
	struct held h = hold(&table_mu);
	struct device *d = devices[from];
	if (d) d->copies++;
	devices[to] = d;
	lost[to] = lost[from];
	ends[to] = ends[from];
	let_go(&table_mu, h);
}

// move_device records that a descriptor that the library uses for a device now has the number `to`.
// It waits for a command of that device in progress. It returns 1; 0 if the descriptor belongs to
// no device; -1 if it cannot be moved now.
int move_device(int fd, int to)
{
	int found = 0, cancel;
	for (struct device *d = all; d && !found; d = d->next) {
		int sock = fd, wake = fd, first = fd;
		if (d->sock != fd && d->wake != fd && d->first != fd) continue;
		if (!enter(d, &cancel)) return -1;
		found = atomic_compare_exchange_strong(&d->sock, &sock, to) || atomic_compare_exchange_strong(&d->wake, &wake, to) ||
			atomic_compare_exchange_strong(&d->first, &first, to);
		leave(d, cancel);
	}
	return found;
}

// keep_devices is called in a child of fork: another thread of the parent may have held the locks. The child
// has the devices of its parent. Its memory is not shared with the daemon. in_command: a signal handler has
// forked, which has interrupted a command; then this thread itself holds the lock of a device.
void keep_devices(int in_command)
{
	unused = NULL;
	pthread_mutex_init(&table_mu, NULL);
	for (struct device *d = all; d; d = d->next) {
		if (!in_command) pthread_mutex_init(&d->mu, NULL);
		d->shares = 0;
		if (!d->serial) continue;
		d->pid = 0; // also where this process has the number that the parent had, in another namespace or later
		keep_private(d->sock);
		keep_private(d->wake);
		keep_private(d->first);
	}
}

// verbs_ioctl executes the one ioctl of a device that is served: libibverbs asks for a descriptor for
// asynchronous events when it imports a device, which is open already. It gets a copy of the one that
// the device has: an event is read from either of them.
int verbs_ioctl(struct device *d, void *arg)
{
	struct ib_uverbs_ioctl_hdr *h = arg;
	if (!h || h->object_id != UVERBS_OBJECT_ASYNC_EVENT || h->method_id != UVERBS_METHOD_ASYNC_EVENT_ALLOC || h->num_attrs != 1) return errno = ENOTTY, -1;
	int cancel, from = -1, fd = -1;
	if (!inherit(d) || !enter(d, &cancel)) return -1;
	errno = EIO; // the program has closed its descriptor of events
	if (d->async >= 0 && ends[d->async] == end_of(d, NO_CHANNEL)) fd = (int)syscall(SYS_fcntl, from = d->async, F_DUPFD_CLOEXEC, 0);
	leave(d, cancel);
	if (fd >= MAX_FDS) return real_close(fd), errno = EMFILE, -1;
	if (fd < 0) return -1;
	copy_device(from, fd);
	h->attrs[0].data_s64 = fd;
	h->attrs[0].flags |= UVERBS_ATTR_F_VALID_OUTPUT;
	return 0;
}

// device_lost is called when a read returns 0. The descriptor of asynchronous events ends with the
// daemon: then the program reads one event that says that the device has failed.
ssize_t device_lost(int fd, void *b, size_t n)
{
	struct ib_uverbs_async_event_desc ev = { .event_type = EVENT_DEVICE_FATAL };
	uint8_t before = 0;
	if (fd < 0 || fd >= MAX_FDS || n < sizeof ev || !ends[fd] || (uint32_t)ends[fd] != NO_CHANNEL) return 0;
	if (!atomic_compare_exchange_strong(&lost[fd], &before, 1)) return 0;
	memcpy(b, &ev, sizeof ev);
	return sizeof ev;
}
