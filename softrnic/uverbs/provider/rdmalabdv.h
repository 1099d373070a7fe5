// What the NIC of rdmalab has beyond libibverbs, for programs in C: masked atomics. Copy this file or put
// its folder into the include path; there is nothing to link. It works with rdmalab's own provider
// (rdmalab exec --provider own); that of rxe fails the queue pair.
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
#ifndef RDMALABDV_H
#define RDMALABDV_H
#include <infiniband/verbs.h>

#define RDMALABDV_MAGIC 0x72646d61u

enum rdmalabdv_operation { RDMALABDV_MASKED_CMP_SWAP = 28, RDMALABDV_MASKED_FETCH_ADD = 29 };

// rdmalabdv_send_wr is a work request whose wr.opcode is IBV_WR_DRIVER1. It may be in a list with others.
struct rdmalabdv_send_wr {
	struct ibv_send_wr wr;
	uint32_t magic;     // RDMALABDV_MAGIC
	uint32_t operation; // enum rdmalabdv_operation
	uint64_t compare_mask, swap_mask;
};
#endif
