// What the parts of the library have in common: libc.c has the functions of libc that it replaces,
// device.c what is below libibverbs, manager.c what is below librdmacm, connection.c the messages.
#ifndef RDMALAB_SHIM_H
#define RDMALAB_SHIM_H
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

enum { MAX_FDS = 65536, MAX_BELLS = 4096, MAX_MESSAGE = 8192, MAX_EVENTS = 4096 };
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
	_Atomic uint64_t sends[MAX_BELLS / 64]; // which queue pairs are in a state that sends, by their bells
};

#pragma GCC visibility push(hidden)

// ---- connection.c

void real_close(int fd);
ssize_t recv_fds(int sock, void *b, size_t n, int *fds, int max, int *nfds);
int dial(int (*hello)(int sock));
int hello(int sock);
int hello_manager(int sock);
ssize_t exchange(struct device *d, struct iovec *v, int nv, void *out, size_t max, int *fd);
void watch_forks(void);
int is_own(pid_t pid);
int is_borrowed(void);

// ---- device.c

int open_device(int flags);
struct device *device_of(int fd);
ssize_t command(struct device *d, const uint8_t *b, size_t n);
void close_device(int fd);
ssize_t device_lost(int fd, void *b, size_t n);
int is_copy(int fd, mode_t mode, nlink_t links);

// ---- manager.c

struct event_channel;
int open_event_channel(int flags);
struct event_channel *event_channel_of(int fd);
ssize_t manage(struct event_channel *c, int fd, const uint8_t *b, size_t n);
void close_event_channel(int fd);
void forget_manager(void);

#pragma GCC visibility pop
#endif
