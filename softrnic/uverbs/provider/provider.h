// Declarations for the parts of the provider for libibverbs: device.c registers the provider, opens
// and queries the device, memory.c has domains, regions and windows, dm.c device memory, cq.c
// completion queues, qp.c queue pairs, post.c work requests, ex.c work requests by ibv_wr_*, srq.c
// receives and shared receive queues, xrc.c extended reliable connections, ah.c address handles.
//
// The provider executes nothing: it writes commands to the device and entries into rings, both in
// the form of the kernel's rxe driver, and the preloaded library (folder shim) takes the kernel's place.
// So it is linked against nothing but libc, and looks up the few functions of libibverbs that it
// needs when it is loaded.
#ifndef RDMALAB_PROVIDER_H
#define RDMALAB_PROVIDER_H
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

#include "private.h"

#pragma GCC visibility push(hidden)

// Commands of this provider, which no kernel has; see package softrnic/uverbs.
#define OWN_PROVIDER (1u << 31) // access bit by which the daemon knows this provider

// SRQN is the offset, in an entry of a send ring, of the number of the peer's shared receive queue, which the
// rxe driver does not have.
enum { SRQN = 72 };

// BY_OWN_PROVIDER is in a reserved byte of the command that makes a queue pair: the provider of rxe knows none of XRC.
enum { BY_OWN_PROVIDER = 1 };

enum {
	CMD_ALLOC_DM = 0x7fff0080, CMD_FREE_DM = 0x7fff0081, CMD_TO_DM = 0x7fff0082, CMD_FROM_DM = 0x7fff0083,
	CMD_REG_DM = 0x7fff0084, CMD_QUERY_DM = 0x7fff0085, CMD_QUERY_MR = 0x7fff0086, CMD_QUERY_LIMITS = 0x7fff0087,
};

// lock guards a ring. A queue that only one thread uses has none.
struct lock { _Atomic int held; int none; };
void wait_for(struct lock *l);
static inline void lock(struct lock *l)
{
	if (!l->none && atomic_exchange_explicit(&l->held, 1, memory_order_acquire)) wait_for(l);
}
static inline void unlock(struct lock *l)
{
	if (!l->none) atomic_store_explicit(&l->held, 0, memory_order_release);
}

// open_device is an open device. libibverbs of a newer version has a larger struct verbs_context,
// which begins in `grown`.
struct open_device {
	uint8_t grown[512];
	struct verbs_context verbs;
};
static inline struct open_device *device_of(struct ibv_context *c) { return (void *)((uint8_t *)c - offsetof(struct open_device, verbs.context)); }

// ring is a ring of entries that is shared with the daemon. mask and shift are copies, so that an
// index is always inside the ring.
struct ring {
	struct rxe_queue_buf *q;
	size_t size; // bytes that are mapped
	uint32_t mask, shift;
};
int map_ring(struct ring *r, int fd, const struct mminfo *at, size_t entry);
void unmap_ring(struct ring *r);
static inline uint32_t producer(const struct ring *r) { return atomic_load_explicit((_Atomic uint32_t *)&r->q->producer_index, memory_order_acquire) & r->mask; }
static inline uint32_t consumer(const struct ring *r) { return atomic_load_explicit((_Atomic uint32_t *)&r->q->consumer_index, memory_order_acquire) & r->mask; }
static inline void set_producer(const struct ring *r, uint32_t i) { atomic_store_explicit((_Atomic uint32_t *)&r->q->producer_index, i & r->mask, memory_order_release); }
static inline void set_consumer(const struct ring *r, uint32_t i) { atomic_store_explicit((_Atomic uint32_t *)&r->q->consumer_index, i & r->mask, memory_order_release); }
static inline void *entry(const struct ring *r, uint32_t i) { return r->q->data + ((size_t)(i & r->mask) << r->shift); }

// domain is a protection domain, or a parent domain of one.
struct domain {
	struct ibv_pd pd;
	struct domain *of;  // a parent domain: the domain in it
	_Atomic int parents; // number of parent domains
	int one_thread;     // its queues are used by one thread
	int imported;
};

struct region {
	struct private_mr mr;
	void *mapped; // of a dma-buf: where the provider has mapped it
	size_t length;
};

struct memory { // device memory
	struct ibv_dm dm;
	uint64_t length;
};

struct address { struct ibv_ah ah; uint32_t number; };

struct completions {
	union { struct ibv_cq cq; struct ibv_cq_ex ex; uint8_t room[sizeof(struct ibv_cq_ex) + 64]; };
	struct ring ring;
	struct lock lock;
	// Of the extended interface: the current completion, its index, and its queue pair.
	const struct ib_uverbs_wc *now;
	uint32_t at, qp_num;
};

struct receives {
	struct ring ring;
	struct lock lock;
	uint32_t most; // pieces of an entry
};

struct shared_receives {
	struct ibv_srq srq;
	struct receives receives;
	uint32_t number;
};

struct xrc_domain {
	struct ibv_xrcd xrcd;
	uint32_t handle;
};

// pair is a queue pair. One of type XRC_SEND has no ring of receives, and one of type XRC_RECV no ring at all.
struct pair {
	union { struct ibv_qp qp; struct ibv_qp_ex ex; uint8_t room[ROOM_QP_EX]; };
	struct ring ring; // of sends
	struct lock lock;
	uint32_t sges, inlined; // most pieces, and bytes of inline data, of a send
	struct receives receives;
	// Between wr_start and wr_complete: the index of the next entry, the entry that is being written,
	// and the first error.
	uint32_t at;
	struct rxe_send_wqe *now;
	int error;
};

// WITH_HEAD declares a command with its header, WITH_HEADS an extended command with its two headers, as
// libibverbs writes them.
int send_command(struct ibv_context *c, uint32_t op, void *cmd, size_t n, void *answer, size_t most);
int send_extended(struct ibv_context *c, uint32_t op, void *cmd, size_t n, void *answer, size_t most);
#define WITH_HEAD(...) struct { struct ib_uverbs_cmd_hdr head; __VA_ARGS__ c; }
#define WITH_HEADS(...) struct { struct ib_uverbs_cmd_hdr head; struct ib_uverbs_ex_cmd_hdr ex; __VA_ARGS__ c; }

// fail frees an object that could not be made, and returns NULL with errno.
static inline void *fail(void *object, int error)
{
	free(object);
	errno = error;
	return NULL;
}

// wait_for_events waits until the program has acknowledged all events of an object that has ended.
void wait_for_events(pthread_mutex_t *mu, pthread_cond_t *cond, const uint32_t *done, uint32_t reported);

extern const struct layout *layout;
extern size_t qp_ex_size; // of libibverbs
extern void (*verbs_set_operations)(struct verbs_context *, const void *);

void fill_pair(struct pair *q, struct ibv_context *c, const struct ibv_qp_init_attr_ex *a, const struct ib_uverbs_create_qp_resp *got);
struct ibv_srq *new_srq(uint32_t op, void *cmd, size_t n, struct shared_receives *s, struct ibv_pd *pd, struct ibv_srq_attr *a);
struct ibv_srq *create_xrc_srq(struct ibv_srq_init_attr_ex *a);
struct pair *create_target(struct ibv_context *c, const struct ibv_qp_init_attr_ex *a);
void forget_completions(struct ibv_cq *cq, uint32_t qp_num);
int complete_post(struct pair *q, uint32_t first, uint32_t end, uint32_t *taken);
void set_extended(struct pair *q, uint64_t operations);
uint64_t extended_of(enum ibv_qp_type type);
int post_list(struct receives *r, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void read_clock(struct timespec *t);

// The functions of the provider, one for each YES of OPERATIONS.
int advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list, uint32_t n);
struct ibv_dm *alloc_dm(struct ibv_context *c, struct ibv_alloc_dm_attr *a);
struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
struct ibv_pd *alloc_parent_domain(struct ibv_context *c, struct ibv_parent_domain_init_attr *a);
struct ibv_pd *alloc_pd(struct ibv_context *c);
struct ibv_td *alloc_td(struct ibv_context *c, struct ibv_td_init_attr *a);
int attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *b);
int close_xrcd(struct ibv_xrcd *x);
struct ibv_ah *create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a);
struct ibv_cq *create_cq(struct ibv_context *c, int cqe, struct ibv_comp_channel *channel, int vector);
struct ibv_cq_ex *create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *a);
struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a);
struct ibv_qp *create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *a);
struct ibv_srq *create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a);
struct ibv_srq *create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *a);
int dealloc_mw(struct ibv_mw *mw);
int dealloc_pd(struct ibv_pd *pd);
int dealloc_td(struct ibv_td *td);
int dereg_mr(struct private_mr *m);
int destroy_ah(struct ibv_ah *ah);
int destroy_cq(struct ibv_cq *cq);
int destroy_qp(struct ibv_qp *qp);
int destroy_srq(struct ibv_srq *srq);
int detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
void free_context(struct ibv_context *c);
int free_dm(struct ibv_dm *dm);
int get_srq_num(struct ibv_srq *srq, uint32_t *number);
struct ibv_dm *import_dm(struct ibv_context *c, uint32_t handle);
struct ibv_mr *import_mr(struct ibv_pd *pd, uint32_t handle);
struct ibv_pd *import_pd(struct ibv_context *c, uint32_t handle);
int modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *a);
int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask);
int modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *a, int mask);
struct ibv_qp *open_qp(struct ibv_context *c, struct ibv_qp_open_attr *a);
struct ibv_xrcd *open_xrcd(struct ibv_context *c, struct ibv_xrcd_init_attr *a);
int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in, struct ibv_device_attr_ex *a, size_t size);
int query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a);
int query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init);
int query_rt_values(struct ibv_context *c, struct ibv_values_ex *v);
int query_srq(struct ibv_srq *srq, struct ibv_srq_attr *a);
struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access);
struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access);
struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t va, int access);
int req_notify_cq(struct ibv_cq *cq, int solicited);
int rereg_mr(struct private_mr *m, int flags, struct ibv_pd *pd, void *addr, size_t length, int access);
int resize_cq(struct ibv_cq *cq, int cqe);
void unimport_dm(struct ibv_dm *dm);
void unimport_mr(struct ibv_mr *mr);
void unimport_pd(struct ibv_pd *pd);

#pragma GCC visibility pop
#endif
