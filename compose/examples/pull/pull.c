// A small program over librdmacm and libibverbs: a client copies the file of a server, block by block.
// The server has one buffer. It reads the next block into the buffer and announces it by a SEND ("ready");
// the client fetches the block by an RDMA READ and gives the buffer back by an empty SEND ("done").
//
// It has a bug, which shows only where packets are lost: docs/guide/find-a-bug.md finds it.
//
//	gcc -O2 -o pull pull.c -lrdmacm -libverbs
//	pull FILE             the server: serves one client
//	pull ADDRESS OUTPUT   the client
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096 };

#define PORT "7471"

// ready says where a block is; a length of 0 says that the file has ended.
struct ready {
	uint64_t address;
	uint32_t rkey, length;
};

static char block[BLOCK];
static struct ready ready;

static void check(int ok, const char *what)
{
	if (ok) return;
	perror(what);
	exit(1);
}

static void must_be_success(const struct ibv_wc *wc, const char *what)
{
	if (wc->status == IBV_WC_SUCCESS) return;
	fprintf(stderr, "%s: %s\n", what, ibv_wc_status_str(wc->status));
	exit(1);
}

// sent waits for the completion of the only signalled request in flight.
static void sent(struct rdma_cm_id *id)
{
	struct ibv_wc wc;
	check(rdma_get_send_comp(id, &wc) == 1, "the completion of a request");
	must_be_success(&wc, "a request");
}

// received waits for the next message.
static void received(struct rdma_cm_id *id)
{
	struct ibv_wc wc;
	check(rdma_get_recv_comp(id, &wc) == 1, "the completion of a receive");
	must_be_success(&wc, "a receive");
}

// give_back says "done": the server may fill its buffer again.
static void give_back(struct rdma_cm_id *id)
{
	check(rdma_post_sendv(id, NULL, NULL, 0, 0) == 0, "post SEND");
}

// endpoint makes an endpoint that connects to an address, or listens if there is none.
static struct rdma_cm_id *endpoint(const char *address)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = address ? 0 : RAI_PASSIVE }, *info;
	struct ibv_qp_init_attr attr = { .cap = { 4, 4, 1, 1, 0 } };
	struct rdma_cm_id *id;
	check(rdma_getaddrinfo(address, PORT, &hints, &info) == 0, "rdma_getaddrinfo");
	check(rdma_create_ep(&id, info, NULL, &attr) == 0, "rdma_create_ep");
	rdma_freeaddrinfo(info);
	return id;
}

static struct rdma_conn_param terms = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };

static void serve(const char *name)
{
	struct rdma_cm_id *listener = endpoint(NULL), *id;
	FILE *file = fopen(name, "r");
	check(file != NULL, name);
	check(rdma_listen(listener, 1) == 0, "rdma_listen");
	check(rdma_get_request(listener, &id) == 0, "rdma_get_request");
	struct ibv_mr *data = rdma_reg_read(id, block, BLOCK), *messages = rdma_reg_msgs(id, &ready, sizeof ready);
	check(data && messages, "registration");
	check(rdma_post_recvv(id, NULL, NULL, 0) == 0, "post receive");
	check(rdma_accept(id, &terms) == 0, "rdma_accept");
	for (;;) {
		ready = (struct ready){ (uintptr_t)block, data->rkey, (uint32_t)fread(block, 1, BLOCK, file) };
		check(rdma_post_send(id, NULL, &ready, sizeof ready, messages, IBV_SEND_SIGNALED) == 0, "post SEND");
		if (ready.length == 0) break;
		sent(id);
		received(id); // "done"
		check(rdma_post_recvv(id, NULL, NULL, 0) == 0, "post receive");
	}
	// The client disconnects when it has received this. It may be gone before the SEND completes, if its ACK is lost.
	struct rdma_cm_event *event;
	check(rdma_get_cm_event(id->channel, &event) == 0, "the end of the connection");
	rdma_ack_cm_event(event);
}

static void fetch(const char *address, const char *name)
{
	struct rdma_cm_id *id = endpoint(address);
	FILE *file = fopen(name, "w");
	check(file != NULL, name);
	struct ibv_mr *data = rdma_reg_msgs(id, block, BLOCK), *messages = rdma_reg_msgs(id, &ready, sizeof ready);
	check(data && messages, "registration");
	check(rdma_post_recv(id, NULL, &ready, sizeof ready, messages) == 0, "post receive");
	check(rdma_connect(id, &terms) == 0, "rdma_connect");
	int blocks = 0;
	for (;; blocks++) {
		received(id); // "ready"
		struct ready next = ready;
		check(rdma_post_recv(id, NULL, &ready, sizeof ready, messages) == 0, "post receive");
		if (next.length == 0) break;
		check(rdma_post_read(id, NULL, block, next.length, data, IBV_SEND_SIGNALED, next.address, next.rkey) == 0, "post READ");
		give_back(id); // the server's NIC executes requests in order: it has read the block when "done" arrives
		sent(id);
		check(fwrite(block, 1, next.length, file) == next.length, name);
	}
	check(fclose(file) == 0, name);
	rdma_disconnect(id);
	printf("%d blocks\n", blocks);
}

int main(int argc, char **argv)
{
	if (argc == 2) serve(argv[1]);
	else if (argc == 3) fetch(argv[1], argv[2]);
	else return fprintf(stderr, "usage: pull FILE | pull ADDRESS OUTPUT\n"), 2;
	return 0;
}
