// Completion channels are files: a program may have thousands, each wakes those that wait for its queue and nobody else, and when they are
// closed there are as many again. brpc makes 1,024 at its start, each with a queue pair and two completion queues.
#include "pair.h"
#include <sys/resource.h>

enum { MANY = 1024 };

static struct { struct ibv_comp_channel *channel; struct ibv_cq *send, *recv; struct ibv_qp *qp; } all[MANY];

int main(void)
{
	struct rlimit files;
	OK(!getrlimit(RLIMIT_NOFILE, &files));
	files.rlim_cur = files.rlim_max;
	OK(!setrlimit(RLIMIT_NOFILE, &files));
	open_first();
	static char buf[64];
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof buf, IBV_ACCESS_LOCAL_WRITE);
	OK(mr);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < MANY; i++) {
			OK(all[i].channel = ibv_create_comp_channel(ctx));
			OK(all[i].send = ibv_create_cq(ctx, 128, NULL, all[i].channel, 0));
			OK(all[i].recv = ibv_create_cq(ctx, 128, NULL, all[i].channel, 0));
			struct ibv_qp_init_attr a = { .send_cq = all[i].send, .recv_cq = all[i].recv, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 128, 128, 1, 1, 0 } };
			OK(all[i].qp = ibv_create_qp(pd, &a));
			OK(!ibv_req_notify_cq(all[i].recv, 0));
		}
		for (int i = 0; i < MANY; i += MANY / 4) {
			int j = i + MANY / 4 - 1;
			join(all[i].qp, all[j].qp);
			struct ibv_sge s = { (uintptr_t)buf, 8, mr->lkey };
			struct ibv_recv_wr r = { .wr_id = 7, .sg_list = &s, .num_sge = 1 }, *br;
			struct ibv_send_wr w = { .wr_id = 8, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND }, *bw;
			OK(!ibv_post_recv(all[j].qp, &r, &br) && !ibv_post_send(all[i].qp, &w, &bw));
			struct pollfd p = { .fd = all[j].channel->fd, .events = POLLIN };
			OK(poll(&p, 1, 60000) == 1);
			struct ibv_cq *cq;
			void *of;
			OK(!ibv_get_cq_event(all[j].channel, &cq, &of));
			expect(cq == all[j].recv, "the event is of another queue");
			ibv_ack_cq_events(cq, 1);
			expect(next(all[j].recv).status == IBV_WC_SUCCESS && next(all[i].send).status == IBV_WC_SUCCESS, "round %d, pair %d: no success", round, i);
		}
		for (int i = 0; i < MANY; i++) {
			struct pollfd p = { .fd = all[i].channel->fd, .events = POLLIN };
			expect(poll(&p, 1, 0) == 0, "channel %d has an event", i);
			OK(!ibv_destroy_qp(all[i].qp) && !ibv_destroy_cq(all[i].send) && !ibv_destroy_cq(all[i].recv) && !ibv_destroy_comp_channel(all[i].channel));
		}
	}
	printf("%d wrong\n", wrong);
	return !!wrong;
}
