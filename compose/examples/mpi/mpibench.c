// A small program over MPI: latency and bandwidth between ranks 0 and 1, and a sum over all ranks.
// Each message is checked. It knows nothing of RDMA: UCX below MPI finds the NIC.
//
//	mpicc -O2 -o mpibench mpibench.c
//	mpirun … mpibench [ROUNDS]
//
// The latency is that of ROUNDS round trips (200), after half as many in which the ranks connect.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 8, LARGE = 1 << 20, WINDOW = 8, REPEATS = 8, NUMBERS = 1000 };

static int rank, ranks, rounds = 200;

static void fail(const char *what)
{
	fprintf(stderr, "rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

// fill writes what round i sends, and check compares.
static void fill(unsigned char *b, int n, int i)
{
	for (int k = 0; k < n; k++) b[k] = (unsigned char)(k * 7 + i);
}

static void check(const unsigned char *b, int n, int i)
{
	for (int k = 0; k < n; k++)
		if (b[k] != (unsigned char)(k * 7 + i)) fail("the received bytes are others");
}

// latency sends a small message to and fro.
static void latency(void)
{
	unsigned char b[SMALL];
	double begin = 0;
	for (int i = -rounds / 2; i < rounds && rank < 2; i++) {
		if (i == 0) begin = MPI_Wtime();
		if (rank == 0) {
			fill(b, SMALL, i);
			MPI_Send(b, SMALL, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		}
		MPI_Recv(b, SMALL, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		check(b, SMALL, i);
		if (rank == 1) MPI_Send(b, SMALL, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	}
	if (rank == 0) printf("latency: %d bytes in %.2f us\n", SMALL, (MPI_Wtime() - begin) * 1e6 / (2 * rounds));
}

// bandwidth sends large messages one way, some at a time.
static void bandwidth(void)
{
	unsigned char *b = malloc((size_t)WINDOW * LARGE);
	MPI_Request pending[WINDOW];
	char done = 1;
	if (!b) fail("no memory");
	for (int i = 0; i < WINDOW && rank == 0; i++) fill(b + (size_t)i * LARGE, LARGE, i);
	double begin = MPI_Wtime();
	for (int r = 0; r < REPEATS && rank < 2; r++) {
		if (rank == 1) memset(b, 0xff, (size_t)WINDOW * LARGE);
		for (int i = 0; i < WINDOW; i++) {
			unsigned char *at = b + (size_t)i * LARGE;
			if (rank == 0) MPI_Isend(at, LARGE, MPI_BYTE, 1, i, MPI_COMM_WORLD, &pending[i]);
			else MPI_Irecv(at, LARGE, MPI_BYTE, 0, i, MPI_COMM_WORLD, &pending[i]);
		}
		MPI_Waitall(WINDOW, pending, MPI_STATUSES_IGNORE);
		for (int i = 0; i < WINDOW && rank == 1; i++) check(b + (size_t)i * LARGE, LARGE, i);
		if (rank == 1) MPI_Send(&done, 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
		else MPI_Recv(&done, 1, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	if (rank == 0) printf("bandwidth: %.2f MB/s\n", (double)REPEATS * WINDOW * LARGE / 1e6 / (MPI_Wtime() - begin));
	free(b);
}

// allreduce adds numbers of all ranks.
static void allreduce(void)
{
	long long mine[NUMBERS], sum[NUMBERS];
	double begin = MPI_Wtime();
	for (int i = 0; i < rounds / 10; i++) {
		for (int k = 0; k < NUMBERS; k++) mine[k] = (long long)rank * k + i;
		MPI_Allreduce(mine, sum, NUMBERS, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
		for (int k = 0; k < NUMBERS; k++)
			if (sum[k] != (long long)ranks * (ranks - 1) / 2 * k + (long long)ranks * i) fail("a sum is wrong");
	}
	if (rank == 0) printf("allreduce: %d numbers of %d ranks in %.2f us\n", NUMBERS, ranks, (MPI_Wtime() - begin) * 1e6 / (rounds / 10));
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks < 2) fail("at least 2 ranks");
	if (argc > 1) rounds = atoi(argv[1]);
	if (argc > 2 || rounds < 10 || rounds > 10000000) fail("usage: mpibench [ROUNDS], 10 to 10000000");
	latency();
	MPI_Barrier(MPI_COMM_WORLD);
	bandwidth();
	MPI_Barrier(MPI_COMM_WORLD);
	allreduce();
	MPI_Finalize();
	return 0;
}
