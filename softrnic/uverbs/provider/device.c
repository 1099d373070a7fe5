// The provider's registration with libibverbs, and the device: open, query, close.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "provider.h"

const struct layout *layout;
size_t qp_ex_size;

// Functions of libibverbs that no header declares.
static void *(*init_and_alloc)(struct ibv_device *, int fd, size_t size, struct verbs_context *offset, uint32_t driver);
static void (*uninit)(struct verbs_context *);
void (*verbs_set_operations)(struct verbs_context *, const void *);

enum { DRIVER_RXE = 14 }; // enum rdma_driver_id

void wait_for(struct lock *l)
{
	do sched_yield();
	while (atomic_exchange_explicit(&l->held, 1, memory_order_acquire));
}

// ---- commands

// send_command writes a command to the device. The space for its answer follows the header in the
// commands that have an answer. It returns 0 or an errno.
int send_command(struct ibv_context *c, uint32_t op, void *cmd, size_t n, void *answer, size_t most)
{
	WITH_HEAD(uint64_t) *h = cmd;
	h->head = (struct ib_uverbs_cmd_hdr){ op, (uint16_t)(n / 4), (uint16_t)(most / 4) };
	if (most) h->c = (uintptr_t)answer;
	return write(c->cmd_fd, cmd, n) == (ssize_t)n ? 0 : errno;
}

// send_extended writes an extended command, which names the space for its answer in a header of its
// own.
int send_extended(struct ibv_context *c, uint32_t op, void *cmd, size_t n, void *answer, size_t most)
{
	WITH_HEADS(uint64_t) *h = cmd;
	size_t body = n - sizeof h->head - sizeof h->ex;
	h->head = (struct ib_uverbs_cmd_hdr){ op | IB_USER_VERBS_CMD_FLAG_EXTENDED, (uint16_t)(body / 8), (uint16_t)(most / 8) };
	h->ex = (struct ib_uverbs_ex_cmd_hdr){ .response = (uintptr_t)answer };
	return write(c->cmd_fd, cmd, n) == (ssize_t)n ? 0 : errno;
}

// ---- rings

int map_ring(struct ring *r, int fd, const struct mminfo *at, size_t entry)
{
	struct rxe_queue_buf *q = mmap(NULL, at->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)at->offset);
	if (q == MAP_FAILED) return errno;
	*r = (struct ring){ q, at->size, q->index_mask, q->log2_elem_size };
	if (r->shift < 31 && 1ul << r->shift >= entry && sizeof *q + ((r->mask + 1ul) << r->shift) <= at->size) return 0;
	unmap_ring(r);
	return EIO; // the daemon is of another version
}

void unmap_ring(struct ring *r)
{
	if (r->q) munmap(r->q, r->size);
	r->q = NULL;
}

void wait_for_events(pthread_mutex_t *mu, pthread_cond_t *cond, const uint32_t *done, uint32_t reported)
{
	pthread_mutex_lock(mu);
	while (*(volatile const uint32_t *)done != reported) pthread_cond_wait(cond, mu);
	pthread_mutex_unlock(mu);
}

// ---- the device

// set_operations gives libibverbs the functions of this provider, in the places that the version of
// libibverbs has for them.
static void set_operations(struct verbs_context *v)
{
	static const struct { int since; void *f; } ops[] = {
#define YES(name) { 36, (void *)name },
#define NO(since) { since, NULL },
		OPERATIONS(YES, NO)
	};
	void *table[MAX_OPERATIONS] = { NULL };
	int n = 0;
	for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
		if (ops[i].since <= layout->since) table[n++] = ops[i].f;
	verbs_set_operations(v, table);
}

// theirs returns the verbs context as libibverbs sees it: a newer version has fields before it.
static struct verbs_context *theirs(struct open_device *d) { return (void *)((uint8_t *)&d->verbs + sizeof d->verbs - layout->context); }

static struct open_device *new_device(struct ibv_device *device, int cmd_fd)
{
	size_t at = offsetof(struct open_device, verbs) + sizeof(struct verbs_context) - layout->context;
	struct open_device *d = init_and_alloc(device, cmd_fd, sizeof *d, (void *)at, DRIVER_RXE);
	if (!d || d->verbs.sz == layout->context) return d;
	fprintf(stderr, "rdmalab: struct verbs_context of this libibverbs has %zu bytes, and this rdmalab knows %zu; use --provider rxe\n", d->verbs.sz, layout->context);
	return NULL; // what is where is not known, so nothing is freed
}

static struct verbs_context *open_it(struct ibv_device *device, int cmd_fd, void *data)
{
	(void)data;
	struct open_device *d = new_device(device, cmd_fd);
	if (!d) return NULL;
	WITH_HEAD(struct ib_uverbs_get_context) cmd = { 0 };
	struct ib_uverbs_get_context_resp got = { 0 };
	struct ibv_context *c = &d->verbs.context;
	int error = send_command(c, IB_USER_VERBS_CMD_GET_CONTEXT, &cmd, sizeof cmd, &got, sizeof got);
	if (error) {
		uninit(theirs(d));
		return fail(d, error);
	}
	c->async_fd = (int)got.async_fd;
	c->num_comp_vectors = (int)got.num_comp_vectors;
	set_operations(theirs(d));
	return theirs(d);
}

// import_it makes a second context of a device that this process has opened: cmd_fd is a copy of the
// first one's descriptor. libibverbs then asks for a descriptor for asynchronous events.
static struct verbs_context *import_it(struct ibv_device *device, int cmd_fd)
{
	struct open_device *d = new_device(device, cmd_fd);
	if (!d) return NULL;
	d->verbs.context.num_comp_vectors = 1;
	set_operations(theirs(d));
	return theirs(d);
}

void free_context(struct ibv_context *c)
{
	struct open_device *d = device_of(c);
	uninit(theirs(d));
	free(d);
}

static void copy_limits(struct ibv_device_attr *a, const struct ib_uverbs_query_device_resp *r)
{
	snprintf(a->fw_ver, sizeof a->fw_ver, "%u.%u.%u", (unsigned)(r->fw_ver >> 32 & 0xffff), (unsigned)(r->fw_ver >> 16 & 0xffff), (unsigned)(r->fw_ver & 0xffff));
#define COPY(name) a->name = (__typeof__(a->name))r->name
	COPY(node_guid), COPY(sys_image_guid), COPY(max_mr_size), COPY(page_size_cap), COPY(vendor_id), COPY(vendor_part_id), COPY(hw_ver);
	COPY(max_qp), COPY(max_qp_wr), COPY(device_cap_flags), COPY(max_sge), COPY(max_sge_rd), COPY(max_cq), COPY(max_cqe), COPY(max_mr);
	COPY(max_pd), COPY(max_qp_rd_atom), COPY(max_ee_rd_atom), COPY(max_res_rd_atom), COPY(max_qp_init_rd_atom), COPY(max_ee_init_rd_atom);
	COPY(atomic_cap), COPY(max_ee), COPY(max_rdd), COPY(max_mw), COPY(max_raw_ipv6_qp), COPY(max_raw_ethy_qp), COPY(max_mcast_grp);
	COPY(max_mcast_qp_attach), COPY(max_total_mcast_qp_attach), COPY(max_ah), COPY(max_fmr), COPY(max_map_per_fmr), COPY(max_srq);
	COPY(max_srq_wr), COPY(max_srq_sge), COPY(max_pkeys), COPY(local_ca_ack_delay), COPY(phys_port_cnt);
#undef COPY
}

// query_device_ex fills in as much of *a as the caller has room for, size bytes: a program that was
// built for an older version has a shorter struct, and ibv_query_device passes the beginning alone.
int query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in, struct ibv_device_attr_ex *a, size_t size)
{
	if ((in && in->comp_mask) || size < sizeof a->orig_attr) return EINVAL;
	WITH_HEADS(struct ib_uverbs_ex_query_device) cmd = { 0 };
	struct ib_uverbs_ex_query_device_resp r = { 0 };
	WITH_HEAD(uint64_t) more = { 0 };
	struct { uint64_t max_dm; } limits = { 0 };
	int error = send_extended(c, IB_USER_VERBS_EX_CMD_QUERY_DEVICE, &cmd, sizeof cmd, &r, sizeof r);
	if (!error) error = send_command(c, CMD_QUERY_LIMITS, &more, sizeof more, &limits, sizeof limits);
	if (error) return error;
	struct ibv_device_attr_ex all_of_it = { 0 };
	copy_limits(&all_of_it.orig_attr, &r.base);
	all_of_it.orig_attr.device_cap_flags |= IBV_DEVICE_XRC; // the provider of rxe has none, so the daemon does not say it
	all_of_it.device_cap_flags_ex = r.device_cap_flags_ex | IBV_DEVICE_XRC;
	all_of_it.completion_timestamp_mask = ~0ull, all_of_it.hca_core_clock = 1000000; // kHz: timestamps are in nanoseconds
	const uint32_t messages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV, writes = messages | IBV_ODP_SUPPORT_WRITE;
	all_of_it.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT; // no memory of a program is pinned
	enum { FLUSH = 1 << 6, ATOMIC_WRITE = 1 << 7 }; // of ibv_odp_transport_cap_bits, which older headers do not have
	all_of_it.odp_caps.per_transport_caps.rc_odp_caps = writes | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
	all_of_it.xrc_odp_caps = all_of_it.odp_caps.per_transport_caps.rc_odp_caps;
	all_of_it.odp_caps.per_transport_caps.rc_odp_caps |= FLUSH | ATOMIC_WRITE;
	all_of_it.odp_caps.per_transport_caps.uc_odp_caps = writes;
	all_of_it.odp_caps.per_transport_caps.ud_odp_caps = messages | IBV_ODP_SUPPORT_SRQ_RECV;
	all_of_it.cq_mod_caps.max_cq_count = all_of_it.cq_mod_caps.max_cq_period = UINT16_MAX;
	all_of_it.max_dm_size = limits.max_dm;
	all_of_it.phys_port_cnt_ex = r.base.phys_port_cnt;
	memset(a, 0, size);
	memcpy(a, &all_of_it, size < sizeof all_of_it ? size : sizeof all_of_it);
	return 0;
}

int query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a)
{
	WITH_HEAD(struct ib_uverbs_query_port) cmd = { .c.port_num = port };
	struct ib_uverbs_query_port_resp r = { 0 };
	int error = send_command(c, IB_USER_VERBS_CMD_QUERY_PORT, &cmd, sizeof cmd, &r, sizeof r);
	if (error) return error;
#define COPY(name) a->name = (__typeof__(a->name))r.name
	COPY(state), COPY(max_mtu), COPY(active_mtu), COPY(gid_tbl_len), COPY(port_cap_flags), COPY(max_msg_sz), COPY(bad_pkey_cntr);
	COPY(qkey_viol_cntr), COPY(pkey_tbl_len), COPY(lid), COPY(sm_lid), COPY(lmc), COPY(max_vl_num), COPY(sm_sl), COPY(subnet_timeout);
	COPY(init_type_reply), COPY(active_width), COPY(active_speed), COPY(phys_state), COPY(link_layer), COPY(flags);
#undef COPY
	return 0;
}

// read_clock reads the clock of timestamps: the daemon is on the same machine and reads it, too.
void read_clock(struct timespec *t) { clock_gettime(CLOCK_MONOTONIC, t); }

int query_rt_values(struct ibv_context *c, struct ibv_values_ex *v)
{
	(void)c;
	if (v->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK) return EOPNOTSUPP;
	if (v->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) read_clock(&v->raw_clock);
	return 0;
}

// ---- registration

static struct private_device *make_device(void *found)
{
	(void)found;
	return calloc(1, sizeof(struct private_device) + 256);
}

static void end_device(struct private_device *d) { free(d); }

// The names are those that the rxe provider takes as well: this one comes first, because libibverbs
// loads it first. Without it, that of rxe serves the same device.
static const struct private_match matches[] = { { .by.modalias = "rdma_device:*Nrxe*", .kind = MATCH_MODALIAS }, { .kind = 0 } };

static const struct private_driver driver = {
	.name = "rdmalab", .least = 2, .most = 2, .matches = matches, .open = open_it, .import = import_it, .make = make_device, .end = end_device,
};

// find_layout returns the layout of a libibverbs, or NULL if this provider does not know it.
static const struct layout *find_layout(void *lib, void **register_driver)
{
	static const struct layout known[] = { LAYOUTS };
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		char name[64];
		snprintf(name, sizeof name, "verbs_register_driver_%d", known[i].number);
		*register_driver = dlsym(lib, name);
		if (*register_driver && dlsym(lib, known[i].has)) return &known[i];
	}
	return NULL;
}

// find_qp_ex returns the size of struct ibv_qp_ex in a libibverbs: ibv_qp_to_qp_ex looks for the bit
// QP_HAS_EX behind it. It returns 0 if it finds none.
static size_t find_qp_ex(struct ibv_qp_ex *(*to_ex)(struct ibv_qp *))
{
	for (size_t at = sizeof(struct ibv_qp); at + sizeof(uint32_t) <= ROOM_QP_EX; at += sizeof(void *)) {
		struct pair q = { 0 };
		*(uint32_t *)(q.room + at) = QP_HAS_EX;
		if (to_ex(&q.qp)) return at;
	}
	return 0;
}

__attribute__((constructor)) static void register_provider(void)
{
	// libibverbs has loaded this library, but it need not be in the scope of global symbols.
	void *lib = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD), *register_driver;
	if (!lib || !(layout = find_layout(lib, &register_driver))) return;
	struct ibv_qp_ex *(*to_ex)(struct ibv_qp *) = (__typeof__(to_ex))dlsym(lib, "ibv_qp_to_qp_ex");
	init_and_alloc = (__typeof__(init_and_alloc))dlsym(lib, "_verbs_init_and_alloc_context");
	uninit = (__typeof__(uninit))dlsym(lib, "verbs_uninit_context");
	verbs_set_operations = (__typeof__(verbs_set_operations))dlsym(lib, "verbs_set_ops");
	if (!init_and_alloc || !uninit || !verbs_set_operations || !to_ex || !(qp_ex_size = find_qp_ex(to_ex))) return;
	((void (*)(const struct private_driver *))register_driver)(&driver);
}
