// Protection domains, parent and thread domains, regions and memory windows.
#define _GNU_SOURCE
#include "provider.h"

// ---- domains

struct ibv_pd *alloc_pd(struct ibv_context *c)
{
	struct domain *p = calloc(1, sizeof *p);
	if (!p) return NULL;
	WITH_HEAD(struct ib_uverbs_alloc_pd) cmd = { 0 };
	struct ib_uverbs_alloc_pd_resp got = { 0 };
	int error = send_command(c, IB_USER_VERBS_CMD_ALLOC_PD, &cmd, sizeof cmd, &got, sizeof got);
	if (error) return fail(p, error);
	p->pd.context = c;
	p->pd.handle = got.pd_handle;
	return &p->pd;
}

int dealloc_pd(struct ibv_pd *pd)
{
	struct domain *p = (void *)pd;
	if (p->parents) return EBUSY;
	if (p->of) {
		p->of->parents--;
	} else if (!p->imported) {
		WITH_HEAD(struct ib_uverbs_dealloc_pd) cmd = { .c.pd_handle = pd->handle };
		int error = send_command(pd->context, IB_USER_VERBS_CMD_DEALLOC_PD, &cmd, sizeof cmd, NULL, 0);
		if (error) return error;
	}
	free(p);
	return 0;
}

struct ibv_pd *import_pd(struct ibv_context *c, uint32_t handle)
{
	struct domain *p = calloc(1, sizeof *p);
	if (!p) return NULL;
	p->pd.context = c;
	p->pd.handle = handle;
	p->imported = 1;
	return &p->pd;
}

void unimport_pd(struct ibv_pd *pd) { free(pd); }

// A thread domain says that one thread uses the objects in it.
struct ibv_td *alloc_td(struct ibv_context *c, struct ibv_td_init_attr *a)
{
	if (a->comp_mask) return errno = EINVAL, NULL;
	struct ibv_td *t = calloc(1, sizeof *t);
	if (t) t->context = c;
	return t;
}

int dealloc_td(struct ibv_td *td)
{
	free(td);
	return 0;
}

// alloc_parent_domain makes a domain that stands for another one. The program's allocators are not
// called: what they could allocate, the rings, is memory of the daemon.
struct ibv_pd *alloc_parent_domain(struct ibv_context *c, struct ibv_parent_domain_init_attr *a)
{
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	if (!a->pd) return errno = EINVAL, NULL;
	if (a->comp_mask & ~known) return errno = EOPNOTSUPP, NULL;
	struct domain *p = calloc(1, sizeof *p), *of = (void *)a->pd;
	if (!p) return NULL;
	p->of = of->of ? of->of : of;
	p->of->parents++;
	p->one_thread = a->td != NULL;
	p->pd.context = c;
	p->pd.handle = a->pd->handle;
	return &p->pd;
}

// ---- regions

struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t va, int access)
{
	struct region *r = calloc(1, sizeof *r);
	if (!r) return NULL;
	WITH_HEAD(struct ib_uverbs_reg_mr) cmd = {
		.c = { .start = (uintptr_t)addr, .length = length, .hca_va = va, .pd_handle = pd->handle, .access_flags = (uint32_t)access | OWN_PROVIDER },
	};
	struct ib_uverbs_reg_mr_resp got = { 0 };
	int error = send_command(pd->context, IB_USER_VERBS_CMD_REG_MR, &cmd, sizeof cmd, &got, sizeof got);
	if (error) return fail(r, error);
	r->mr = (struct private_mr){ { .context = pd->context, .handle = got.mr_handle, .lkey = got.lkey, .rkey = got.rkey }, KIND_MEMORY, access };
	return &r->mr.mr;
}

// rereg_mr changes a region. A region with other memory or another domain gets other keys.
int rereg_mr(struct private_mr *m, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	if ((flags & IBV_REREG_MR_CHANGE_PD) && !pd) return errno = EINVAL;
	WITH_HEAD(struct ib_uverbs_rereg_mr) cmd = {
		.c = { .mr_handle = m->mr.handle, .flags = (uint32_t)flags, .start = (uintptr_t)addr, .length = length, .hca_va = (uintptr_t)addr,
		       .pd_handle = pd ? pd->handle : 0, .access_flags = (uint32_t)access | OWN_PROVIDER },
	};
	struct ib_uverbs_rereg_mr_resp got = { 0 };
	int error = send_command(m->mr.context, IB_USER_VERBS_CMD_REREG_MR, &cmd, sizeof cmd, &got, sizeof got);
	if (error) return errno = error;
	m->mr.lkey = got.lkey, m->mr.rkey = got.rkey;
	if (flags & IBV_REREG_MR_CHANGE_ACCESS) m->access = access;
	return 0;
}

int dereg_mr(struct private_mr *m)
{
	WITH_HEAD(struct ib_uverbs_dereg_mr) cmd = { .c.mr_handle = m->mr.handle };
	int error = m->kind == KIND_IMPORTED ? 0 : send_command(m->mr.context, IB_USER_VERBS_CMD_DEREG_MR, &cmd, sizeof cmd, NULL, 0);
	if (error) return error;
	struct region *r = (void *)m;
	if (r->mapped) munmap(r->mapped, r->length);
	free(r);
	return 0;
}

// reg_dmabuf_mr registers memory that a descriptor names. The NIC has no DMA: the memory is mapped into
// the program and registered there, so that anything can be registered that can be mapped: a memory
// file (memfd) in place of a GPU's memory, or a dma-buf of main memory.
struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	const int writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	size_t page = (size_t)sysconf(_SC_PAGESIZE), before = offset % page;
	off_t end = lseek(fd, 0, SEEK_END); // behind the end there would be no memory to access
	if (length == 0 || offset + length < offset || (access & IBV_ACCESS_ON_DEMAND) || (end >= 0 && offset + length > (uint64_t)end)) return errno = EINVAL, NULL;
	void *at = mmap(NULL, before + length, PROT_READ | (access & writes ? PROT_WRITE : 0), MAP_SHARED, fd, (off_t)(offset - before));
	if (at == MAP_FAILED) return NULL;
	struct ibv_mr *mr = reg_mr(pd, (uint8_t *)at + before, length, iova, access);
	if (!mr) {
		int error = errno;
		munmap(at, before + length);
		return errno = error, NULL;
	}
	struct region *r = (void *)((uint8_t *)mr - offsetof(struct region, mr.mr));
	r->mr.kind = KIND_DMABUF;
	r->mapped = at, r->length = before + length;
	return mr;
}

// import_mr returns a region that another context of this device has made. It has no address, because
// the importer need not have mapped the memory.
struct ibv_mr *import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct region *r = calloc(1, sizeof *r);
	if (!r) return NULL;
	WITH_HEAD(struct { uint64_t response; uint32_t handle, reserved; }) cmd = { .c.handle = handle };
	struct { uint64_t length; uint32_t lkey, rkey; } got = { 0 };
	int error = send_command(pd->context, CMD_QUERY_MR, &cmd, sizeof cmd, &got, sizeof got);
	if (error) return fail(r, error);
	r->mr = (struct private_mr){
		{ .context = pd->context, .pd = pd, .length = got.length, .handle = handle, .lkey = got.lkey, .rkey = got.rkey }, KIND_IMPORTED, 0,
	};
	return &r->mr.mr;
}

void unimport_mr(struct ibv_mr *mr) { free((uint8_t *)mr - offsetof(struct region, mr.mr)); }

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

// advise_mr brings pages into memory before the NIC needs them, which it does at once, whether the
// program waits for that or not. Where the kernel has no such advice, the pages come later.
int advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list, uint32_t n)
{
	(void)pd;
	if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH) return EINVAL;
	if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return EOPNOTSUPP;
	for (uint32_t i = 0; i < n && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT; i++) {
		uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = list[i].addr & ~(page - 1), to = (list[i].addr + list[i].length + page - 1) & ~(page - 1);
		int how = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
		if (madvise((void *)from, to - from, how) < 0 && errno != EINVAL) return EFAULT;
	}
	return 0;
}

// ---- memory windows

struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *w = calloc(1, sizeof *w);
	if (!w) return NULL;
	WITH_HEAD(struct ib_uverbs_alloc_mw) cmd = { .c = { .pd_handle = pd->handle, .mw_type = (uint8_t)type } };
	struct ib_uverbs_alloc_mw_resp got = { 0 };
	int error = send_command(pd->context, IB_USER_VERBS_CMD_ALLOC_MW, &cmd, sizeof cmd, &got, sizeof got);
	if (error) return fail(w, error);
	*w = (struct ibv_mw){ .context = pd->context, .pd = pd, .rkey = got.rkey, .handle = got.mw_handle, .type = type };
	return w;
}

int dealloc_mw(struct ibv_mw *mw)
{
	WITH_HEAD(struct ib_uverbs_dealloc_mw) cmd = { .c.mw_handle = mw->handle };
	int error = send_command(mw->context, IB_USER_VERBS_CMD_DEALLOC_MW, &cmd, sizeof cmd, NULL, 0);
	if (!error) free(mw);
	return error;
}

// bind_mw binds a window of type 1. Its next R_Key has another last byte.
int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *b)
{
	if (b->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED) return errno = EINVAL;
	uint32_t key = (mw->rkey & ~0xffu) | ((mw->rkey + 1) & 0xff);
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW, .wr_id = b->wr_id, .send_flags = b->send_flags, .bind_mw = { .mw = mw, .rkey = key, .bind_info = b->bind_info },
	}, *bad;
	int error = post_send(qp, &wr, &bad);
	if (error) return errno = error;
	mw->rkey = key;
	return 0;
}
