// The bells of queue pairs: a program posts a send into the ring and rings the bell; then the
// daemon reads the ring.
#define _GNU_SOURCE
#include "shim.h"

// Offsets in the control page.
enum { OFF_ASLEEP = 0, OFF_ASKS = 24, OFF_SUMMARY = 128, OFF_BELLS = 192 };

enum { STATE_RTS = 3 }; // enum ibv_qp_state

// ring rings the bell of a queue pair, and wakes the daemon if it sleeps.
void ring(struct device *d, uint32_t bell)
{
	_Atomic uint64_t *bells = (_Atomic uint64_t *)(d->page + OFF_BELLS), *summary = (_Atomic uint64_t *)(d->page + OFF_SUMMARY);
	atomic_fetch_or(&bells[bell / 64], 1ull << bell % 64);
	atomic_fetch_or(summary, 1ull << bell / 64);
	if (!atomic_load((_Atomic uint64_t *)(d->page + OFF_ASLEEP))) return;
	int wake;
	do (void)!syscall(SYS_sendto, wake = d->wake, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	while (wake != d->wake); // move_device has moved the socket to another number: send again
}

// takes_sends reports whether a queue pair is known to take send work requests. If it is not, the
// daemon is asked by the command POST_SEND, because a queue pair goes to ERROR by itself, too.
// It is asked for every post, too, while an injected fault may refuse posts.
int takes_sends(const struct device *d, uint32_t bell)
{
	return (d->sends[bell / 64] >> bell % 64 & 1) != 0 && !atomic_load_explicit((_Atomic uint64_t *)(d->page + OFF_ASKS), memory_order_relaxed);
}

// note_state is called when a command has succeeded. It records whether the queue pair that the
// command has made, modified or posted to takes send work requests: in RTS and in later states.
void note_state(struct device *d, const uint8_t *b, size_t n, uint32_t op, int ex, const struct answer *a, size_t got)
{
	const struct ib_uverbs_modify_qp *m = (const void *)(b + sizeof(struct ib_uverbs_cmd_hdr) + (ex ? sizeof(struct ib_uverbs_ex_cmd_hdr) : 0));
	uint32_t bell;
	int sends = 0;
	if (op == IB_USER_VERBS_CMD_CREATE_QP && got >= sizeof bell) {
		memcpy(&bell, a->data, sizeof bell);
	} else if (op == IB_USER_VERBS_CMD_MODIFY_QP && (const uint8_t *)(m + 1) <= b + n && m->attr_mask & 1) {
		bell = m->qp_handle, sends = m->qp_state >= STATE_RTS;
	} else if (op == IB_USER_VERBS_CMD_POST_SEND && !ex) {
		bell = ((const struct ib_uverbs_post_send *)(b + sizeof(struct ib_uverbs_cmd_hdr)))->qp_handle, sends = 1;
	} else {
		return;
	}
	if (bell >= MAX_BELLS) return;
	if (sends) d->sends[bell / 64] |= 1ull << bell % 64;
	else d->sends[bell / 64] &= ~(1ull << bell % 64);
}
