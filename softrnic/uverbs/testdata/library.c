// Stands for libibverbs: contexts whose completion queue is empty or has completions, as `has` says.
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

int has;
static int one(void *cq, int n, void *wc) { (void)cq, (void)n, (void)wc; return has; }
static int other(void *cq, int n, void *wc) { (void)cq, (void)n, (void)wc; return has; }

// ibv_open_device: device 1 and 2 are of one provider, 3 is of another one, 0 fails.
void *ibv_open_device(size_t device)
{
	if (device == 0) return errno = ENODEV, NULL;
	void **context = calloc(64, sizeof *context);
	context[12] = device == 3 ? other : one;
	return context;
}
