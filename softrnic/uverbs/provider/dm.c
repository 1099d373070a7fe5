// Device memory: memory of the NIC. A program copies to and from it by functions, and work requests
// reach it by regions.
#define _GNU_SOURCE
#include "provider.h"

enum { MOST_BYTES = 3584 }; // of device memory that a command copies; the whole command has at most 4096

struct place { uint64_t response; uint32_t handle, length; uint64_t offset; };

static int copy_to(struct ibv_dm *dm, uint64_t offset, const void *from, size_t length)
{
	const uint8_t *b = from;
	struct { struct ib_uverbs_cmd_hdr head; struct place c; uint8_t data[MOST_BYTES]; } cmd = { 0 };
	for (size_t n; length > 0; b += n, offset += n, length -= n) {
		n = length < MOST_BYTES ? length : MOST_BYTES;
		cmd.c = (struct place){ 0, dm->handle, (uint32_t)n, offset };
		memcpy(cmd.data, b, n);
		int error = send_command(dm->context, CMD_TO_DM, &cmd, offsetof(__typeof__(cmd), data) + ((n + 3) & ~3ul), NULL, 0);
		if (error) return error;
	}
	return 0;
}

static int copy_from(void *to, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	uint8_t *b = to;
	uint8_t got[MOST_BYTES];
	for (size_t n; length > 0; b += n, offset += n, length -= n) {
		n = length < MOST_BYTES ? length : MOST_BYTES;
		WITH_HEAD(struct place) cmd = { .c = { 0, dm->handle, (uint32_t)n, offset } };
		int error = send_command(dm->context, CMD_FROM_DM, &cmd, sizeof cmd, got, (n + 3) & ~3ul);
		if (error) return error;
		memcpy(b, got, n);
	}
	return 0;
}

static struct ibv_dm *new_memory(struct ibv_context *c, struct memory *m, uint32_t handle, uint64_t length)
{
	*m = (struct memory){ { .context = c, .memcpy_to_dm = copy_to, .memcpy_from_dm = copy_from, .handle = handle }, length };
	return &m->dm;
}

struct ibv_dm *alloc_dm(struct ibv_context *c, struct ibv_alloc_dm_attr *a)
{
	if (a->comp_mask) return errno = EINVAL, NULL;
	struct memory *m = calloc(1, sizeof *m);
	if (!m) return NULL;
	WITH_HEAD(struct { uint64_t response, length; uint32_t align, reserved; }) cmd = { .c = { .length = a->length, .align = a->log_align_req } };
	struct { uint32_t handle, reserved; } got = { 0 };
	int error = send_command(c, CMD_ALLOC_DM, &cmd, sizeof cmd, &got, sizeof got);
	return error ? fail(m, error) : new_memory(c, m, got.handle, a->length);
}

int free_dm(struct ibv_dm *dm)
{
	WITH_HEAD(struct { uint64_t response; uint32_t handle, reserved; }) cmd = { .c.handle = dm->handle };
	int error = send_command(dm->context, CMD_FREE_DM, &cmd, sizeof cmd, NULL, 0);
	if (!error) free(dm);
	return error;
}

struct ibv_dm *import_dm(struct ibv_context *c, uint32_t handle)
{
	struct memory *m = calloc(1, sizeof *m);
	if (!m) return NULL;
	WITH_HEAD(struct { uint64_t response; uint32_t handle, reserved; }) cmd = { .c.handle = handle };
	struct { uint64_t length; } got = { 0 };
	int error = send_command(c, CMD_QUERY_DM, &cmd, sizeof cmd, &got, sizeof got);
	return error ? fail(m, error) : new_memory(c, m, handle, got.length);
}

void unimport_dm(struct ibv_dm *dm) { free(dm); }

// reg_dm_mr registers a part of device memory. Its addresses begin at 0, and the program must say so.
struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access)
{
	struct region *r = calloc(1, sizeof *r);
	if (!r) return NULL;
	WITH_HEAD(struct { uint64_t response, offset, length; uint32_t pd, dm, access, reserved; }) cmd = {
		.c = { .offset = offset, .length = length, .pd = pd->handle, .dm = dm->handle, .access = access },
	};
	struct ib_uverbs_reg_mr_resp got = { 0 };
	int error = send_command(pd->context, CMD_REG_DM, &cmd, sizeof cmd, &got, sizeof got);
	if (error) return fail(r, error);
	r->mr = (struct private_mr){
		{ .context = pd->context, .pd = pd, .length = length, .handle = got.mr_handle, .lkey = got.lkey, .rkey = got.rkey }, KIND_DEVICE, (int)access,
	};
	return &r->mr.mr;
}
