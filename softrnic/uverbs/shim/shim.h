// Declarations for the parts of the library: libc.c, netcalls.c and sysfs.c replace functions of libc, device.c is the
// device below libibverbs, bells.c its doorbells, share.c its shared memory, pace.c the pace of
// polls of its completion queues, manager.c the device below librdmacm, connection.c the messages
// to the daemon, netlink.c the sockets of NETLINK_RDMA; host.c finds the host.
#ifndef RDMALAB_SHIM_H
#define RDMALAB_SHIM_H
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#define ENV_SOCKET "RDMALAB_VERBS"
#define ENV_TREE "SYSFS_PATH" // read by libibverbs
#define ENV_DRIVERS "RDMAV_DRIVERS" // read by libibverbs
#define ENV_PROVIDER "RDMALAB_PROVIDER" // "rxe": the provider of this repository is not loaded
#define ENV_MEMORY "RDMALAB_VERBS_MEMORY" // "shared": registered memory is shared with the daemon
#define DEVICE "/dev/infiniband/uverbs" // and the number of the host's NIC
#define MANAGER "/dev/infiniband/rdma_cm"

// The control page is the beginning of the memory file; see package softrnic/ipc/ring.
enum { CONTROL_LEN = 8192 };

enum { MAX_FDS = 65536, MAX_BELLS = 4096, MAX_MESSAGE = 8192, MAX_EVENTS = 4096, TAG_LEN = 4 };
enum { NO_CHANNEL = 0xffffffff, CMD_REPOST = 0x7fff0000, CMD_SHARE = 0x7fff0003, CMD_UNSHARE = 0x7fff0004 };
enum { CMD_OPEN_CHANNEL = 0x7fff0001, CMD_CLOSE_CHANNEL = 0x7fff0002, MAX_MANAGER_COMMAND = 1024, MAX_OPTION = 1024 };

// The headers of a command and of an answer; see package softrnic/uverbs.
struct prefix { uint32_t channel, reserved; };
struct answer { uint32_t error, drain, channel, number; uint64_t element; uint8_t data[]; };

struct event_channel;

// NEXT finds the original definition of a function. The library's constructors do this before most
// calls, because a signal handler may call the function but must not call dlsym. The library is
// built against glibc, but linked with no libc, and also runs with musl: there it calls no function
// that musl does not have.
#define NEXT(name) \
	if (!next_##name) next_##name = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define DECLARE(name) static __typeof__(&name) next_##name;
#define FIND(name) NEXT(name);

// device is an open device. It is closed with its last descriptor. A device is never freed, but
// reused: another thread may be about to use it when it is closed.
struct device {
	pthread_mutex_t mu; // held during a command and while a descriptor of the device or of its events is closed; see enter
	_Atomic int left;   // 1: a descriptor was closed, and the function end must do the rest of this; see end_left
	void (*end)(struct device *); // ends the device; the caller holds mu
	_Atomic int sock, wake; // -1: closed
	int async;              // the descriptor of asynchronous events that came with an answer; guarded by mu
	uint8_t *page;          // the control page
	_Atomic pid_t pid;      // the process whose connection sock is; in a child of fork that of its parent, until inherit
	int nic;
	_Atomic int first;      // in a child of fork the connection of the process that has opened the device; else -1
	_Atomic uint32_t serial; // distinguishes the uses of a reused struct; 0: the device is closed, or is the manager's
	int copies;             // number of descriptors minus 1
	struct device *next, *next_unused;
	int shares;             // registered memory is shared with the daemon; see share.c
	struct event_channel *closed; // only for the connection of librdmacm: closed channels of which the daemon does not know yet
	_Atomic uint64_t *sends; // by bell: the queue pair takes send work requests; see note_state. Shared with children
	pthread_mutex_t *events_mu; // shared with children; see lock_events
};

// defer_signals blocks all signals of this thread until allow_signals, except those of its own
// faults. The code in between never waits for the daemon, so that the program can be interrupted.
static inline uint64_t defer_signals(void)
{
	uint64_t set = ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) | 1ull << (SIGFPE - 1) | 1ull << (SIGILL - 1) | 1ull << (SIGTRAP - 1));
	uint64_t before = 0;
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, &before, sizeof set);
	return before;
}
static inline void allow_signals(uint64_t before) { syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before); }

// hold locks a table, let_go unlocks it. In between, cancellation is disabled, because a cancelled
// thread would keep the lock. Signals are deferred, because a handler that closes a descriptor
// would wait for the lock, which its own thread holds.
struct held { uint64_t signals; int cancel; };
static inline struct held hold(pthread_mutex_t *mu)
{
	struct held h;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &h.cancel);
	h.signals = defer_signals();
	pthread_mutex_lock(mu);
	return h;
}
static inline void let_go(pthread_mutex_t *mu, struct held h)
{
	pthread_mutex_unlock(mu);
	allow_signals(h.signals);
	pthread_setcancelstate(h.cancel, NULL);
}

#pragma GCC visibility push(hidden)

// ---- connection.c

void real_close(int fd);
ssize_t recv_fds(int sock, void *b, size_t n, int *fds, int max, int *nfds);
int dial(int nic, int (*hello)(int sock, int area), int area);
int has_nic(int nic);
int hello(int sock, int area);
int hello_manager(int sock, int area);
int enter(struct device *d, int *cancel);
void leave(struct device *d, int cancel);
void end_left(struct device *d);
int is_nested(void);
enum { NO_FILE = -1 };
ssize_t exchange(struct device *d, struct iovec *v, int nv, int file, void *out, size_t max, int *fd);
void watch_forks(void);
int is_own(pid_t pid);
int is_borrowed(void);
void keep_private(int fd);
int is_private(int fd);
void release_private(int fd);
void drop_private(int fd);

// ---- device.c

int open_device(int nic, int flags);
struct device *device_of(int fd);
ssize_t command(struct device *d, const uint8_t *b, size_t n);
int verbs_ioctl(struct device *d, void *arg);
void close_device(int fd);
void copy_device(int from, int to);
int move_device(int fd, int to);
void keep_devices(int in_command);
ssize_t device_lost(int fd, void *b, size_t n);

// ---- bells.c

void ring(struct device *d, uint32_t bell);
int takes_sends(const struct device *d, uint32_t bell);
void note_state(struct device *d, const uint8_t *b, size_t n, uint32_t op, int ex, const struct answer *a, size_t got);

// ---- share.c

int shares_memory(void);
int begin_registration(struct device *d, uint64_t start, uint64_t length);
void end_registration(struct device *d);
void end_shares(struct device *d);
void before_fork(void);
void after_fork(void);
void in_forked(void);

// ---- manager.c

int open_event_channel(int flags);
struct event_channel *event_channel_of(int fd);
ssize_t manage(struct event_channel *c, int fd, const uint8_t *b, size_t n);
void close_event_channel(int fd);
void copy_event_channel(int from, int to);
int move_manager(int fd, int to);
void forget_manager(void);

// ---- sysfs.c

enum { MAX_PATH = 512 }; // of the files of a NIC in /sys, with the zero at their end
const char *redirect(const char *path, char b[MAX_PATH]);

// ---- netlink.c

int open_netlink(int flags);
int is_netlink(int fd);
void close_netlink(int fd);
void copy_netlink(int from, int to);
int bind_netlink(int fd, const struct sockaddr *at, socklen_t n);
int name_netlink(int fd, struct sockaddr *to, socklen_t *n);
void fill_peer(void *to, socklen_t *n);

#pragma GCC visibility pop
#endif
