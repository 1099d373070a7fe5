// What the NIC of rdmalab has beyond libibverbs, for programs in C: masked atomics, and send rings. Copy
// this file or put its folder into the include path; there is nothing to link.
//
// Masked atomics work with rdmalab's own provider (rdmalab exec --provider own); that of rxe fails the queue
// pair.
//
//	struct rdmalabdv_send_wr w = {
//		.wr = { .opcode = IBV_WR_DRIVER1, .sg_list = &word, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
//		        .wr.atomic = { .remote_addr = at, .rkey = key, .compare_add = 0, .swap = me } },
//		.magic = RDMALABDV_MAGIC, .operation = RDMALABDV_MASKED_CMP_SWAP, .compare_mask = 0xff, .swap_mask = 0xff,
//	}, *next;
//	ibv_post_send(qp, &w.wr, &bad);
//
// The semantics are those of extended atomics of mlx5 with 8 bytes: MASKED_CMP_SWAP compares the bits of
// compare_mask, and if they are equal, swaps those of swap_mask; MASKED_FETCH_ADD adds to fields of the
// word, of which compare_mask has the highest bit each. Completions have the opcodes of the atomics without
// masks.
//
// A send ring is a send queue whose entries lie in registered memory of the program, so that work requests
// can change other work requests before the NIC executes them, and let them wait for completions (RedN, NSDI
// 2022):
//
//	uint32_t number;
//	rdmalabdv_cq_number(requests, &number); // of the completion queue of receives
//	rdmalabdv_use_ring(first, &(struct rdmalabdv_ring){ .addr = at, .lkey = mr->lkey, .blocks = 64 });
//	rdmalabdv_use_ring(second, &(struct rdmalabdv_ring){ ..., .flags = RDMALABDV_RING_MANAGED });
//	... // connect both; the queue pair and its peer may be the same
//	n += rdmalabdv_put(at + 64 * n, &(struct rdmalabdv_entry){ .opcode = RDMALABDV_WAIT, .count = 1, .object = number });
//	n += rdmalabdv_put(at + 64 * n, &(struct rdmalabdv_entry){ .opcode = RDMALABDV_ENABLE, .count = 1, .object = second->qp_num });
//	rdmalabdv_doorbell(first, n);
//
// A WAIT ends when the completion queue has counted `count` completions in all, polled or not. An ENABLE lets
// a managed ring execute its entries in front of index `count`; the doorbell does so for other rings. An
// entry takes 1 to 5 blocks of 64 bytes, its index is that of its first block, and indexes count on when the
// ring wraps. Entries have the layout of mlx5, big-endian; offsets of fields that programs change are below.
// The completion of an entry with RDMALABDV_SIGNALLED has its index as wr_id. ibv_post_send on such a queue
// pair fails it. These calls work with both providers.
#ifndef RDMALABDV_H
#define RDMALABDV_H
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>
#include <unistd.h>

#define RDMALABDV_MAGIC 0x72646d61u

enum rdmalabdv_operation { RDMALABDV_MASKED_CMP_SWAP = 28, RDMALABDV_MASKED_FETCH_ADD = 29 };

// rdmalabdv_send_wr is a work request whose wr.opcode is IBV_WR_DRIVER1. It may be in a list with others.
struct rdmalabdv_send_wr {
	struct ibv_send_wr wr;
	uint32_t magic;     // RDMALABDV_MAGIC
	uint32_t operation; // enum rdmalabdv_operation
	uint64_t compare_mask, swap_mask;
};

// ---- send rings

enum rdmalabdv_ring_flags {
	RDMALABDV_RING_MANAGED = 1 << 0,  // an ENABLE moves the limit, not the doorbell
	RDMALABDV_RING_CHECKED = 1 << 1,  // refuse entries whose opmod, index or number of the queue pair is not right
	RDMALABDV_RING_COUNTS16 = 1 << 2, // WAIT and ENABLE compare the low 16 bits of their counts alone
};

struct rdmalabdv_ring {
	uint64_t addr;   // of the first block, in a region of the queue pair's domain
	uint32_t lkey;
	uint32_t blocks; // of 64 bytes: a power of two up to 32768
	uint32_t flags;  // enum rdmalabdv_ring_flags
	uint32_t prefetch; // blocks that the NIC reads at once; 0: 1 if managed, else 4. What is changed later is not seen
};

enum rdmalabdv_opcode {
	RDMALABDV_NOP = 0x00, RDMALABDV_SEND_INV = 0x01, RDMALABDV_WRITE = 0x08, RDMALABDV_WRITE_IMM = 0x09, RDMALABDV_SEND = 0x0a,
	RDMALABDV_SEND_IMM = 0x0b, RDMALABDV_WAIT = 0x0f, RDMALABDV_READ = 0x10, RDMALABDV_CAS = 0x11, RDMALABDV_ADD = 0x12,
	RDMALABDV_ENABLE = 0x17,
};
enum rdmalabdv_flags { RDMALABDV_SOLICITED = 0x02, RDMALABDV_SIGNALLED = 0x08, RDMALABDV_FENCE = 0x80 };

// Offsets of fields in an entry.
enum { RDMALABDV_OFF_OPCODE = 3, RDMALABDV_OFF_FLAGS = 11, RDMALABDV_OFF_IMM = 12, RDMALABDV_OFF_REMOTE = 16, RDMALABDV_OFF_RKEY = 24,
	RDMALABDV_OFF_COUNT = 24, RDMALABDV_OFF_SWAP_ADD = 32, RDMALABDV_OFF_COMPARE = 40 };
enum { RDMALABDV_BLOCK = 64, RDMALABDV_MAX_SGE = 16 };

// rdmalabdv_entry is an entry before it is written to a ring. A NOP with `becomes` has the segments of that
// operation, and is one when something changes its opcode.
struct rdmalabdv_entry {
	uint8_t opcode, becomes, flags;
	uint16_t index;  // of checked rings, as qpn
	uint32_t qpn;
	uint32_t imm;    // immediate data in the byte order of the host, or the key to invalidate
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t swap_add, compare; // of atomics
	uint32_t count, object;     // of WAIT: completions, number of the queue; of ENABLE: index, number of the queue pair
	const struct ibv_sge *sg_list;
	int num_sge;
};

static inline uint8_t *rdmalabdv_segment_(uint8_t *at, uint64_t a, uint64_t b)
{
	a = htobe64(a), b = htobe64(b);
	memcpy(at, &a, 8), memcpy(at + 8, &b, 8);
	return at + 16;
}

// rdmalabdv_put writes an entry to a ring and returns how many blocks it takes, or 0 if it has too many
// pieces. The blocks are one behind the other: where an entry of several blocks would go beyond the end of
// the ring, fill the rest of the ring with NOPs first.
static inline int rdmalabdv_put(void *at, const struct rdmalabdv_entry *e)
{
	uint8_t b[6 * RDMALABDV_BLOCK] = { 0 }, *p = b + 16;
	int op = e->opcode == RDMALABDV_NOP ? e->becomes : e->opcode, atomic = op == RDMALABDV_CAS || op == RDMALABDV_ADD;
	if (e->num_sge < 0 || e->num_sge > RDMALABDV_MAX_SGE) return 0;
	if (op == RDMALABDV_WAIT || op == RDMALABDV_ENABLE) p = rdmalabdv_segment_(p, 0, (uint64_t)e->count << 32 | e->object);
	if (op == RDMALABDV_WRITE || op == RDMALABDV_WRITE_IMM || op == RDMALABDV_READ || atomic) p = rdmalabdv_segment_(p, e->remote_addr, (uint64_t)e->rkey << 32);
	if (atomic) p = rdmalabdv_segment_(p, e->swap_add, e->compare);
	for (int i = 0; op && op != RDMALABDV_WAIT && op != RDMALABDV_ENABLE && i < e->num_sge; i++)
		p = rdmalabdv_segment_(p, (uint64_t)e->sg_list[i].length << 32 | e->sg_list[i].lkey, e->sg_list[i].addr);
	uint64_t segments = (uint64_t)(p - b) / 16;
	rdmalabdv_segment_(b, (uint64_t)e->index << 40 | (uint64_t)e->opcode << 32 | (uint64_t)(e->qpn & 0xffffff) << 8 | segments, (uint64_t)e->flags << 32 | e->imm);
	int blocks = ((int)segments + 3) / 4;
	memcpy(at, b, (size_t)blocks * RDMALABDV_BLOCK);
	return blocks;
}

// rdmalabdv_command_ writes a command of rdmalab to the device. All functions return 0 or an errno.
static inline int rdmalabdv_command_(struct ibv_context *c, uint32_t op, const void *args, size_t n, void *answer, size_t most)
{
	struct { struct ib_uverbs_cmd_hdr head; uint64_t answer; uint8_t args[64]; } cmd = { .head = { op, (uint16_t)((16 + n) / 4), (uint16_t)(most / 4) }, .answer = (uintptr_t)answer };
	memcpy(cmd.args, args, n);
	return write(c->cmd_fd, &cmd, 16 + n) == (ssize_t)(16 + n) ? 0 : errno;
}

// rdmalabdv_use_ring makes a queue pair of type RC, in RESET or INIT, execute a ring from index 0 on. At most
// max_send_wr entries are in flight. EACCES: the memory is not registered; EBUSY: it has a ring; EOPNOTSUPP:
// this is not a NIC of rdmalab.
static inline int rdmalabdv_use_ring(struct ibv_qp *qp, const struct rdmalabdv_ring *r)
{
	struct { uint64_t addr; uint32_t qp, lkey, blocks, flags, prefetch, reserved; } a = { r->addr, qp->handle, r->lkey, r->blocks, r->flags, r->prefetch, 0 };
	return rdmalabdv_command_(qp->context, 0x7fff0088, &a, sizeof a, NULL, 0);
}

// rdmalabdv_doorbell lets a ring that is not managed execute its entries in front of index limit.
static inline int rdmalabdv_doorbell(struct ibv_qp *qp, uint32_t limit)
{
	uint32_t a[2] = { qp->handle, limit };
	return rdmalabdv_command_(qp->context, 0x7fff0089, a, sizeof a, NULL, 0);
}

// rdmalabdv_cq_number sets the number by which a WAIT names a completion queue.
static inline int rdmalabdv_cq_number(struct ibv_cq *cq, uint32_t *number)
{
	uint32_t a[2] = { cq->handle, 0 }, got[2] = { 0, 0 };
	int error = rdmalabdv_command_(cq->context, 0x7fff008a, a, sizeof a, got, sizeof got);
	*number = got[0];
	return error;
}
#endif
