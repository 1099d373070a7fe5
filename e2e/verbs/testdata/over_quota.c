// What a program is refused: three protection domains more than its quota allows, and a completion queue that is too deep.
#include "pair.h"

int main(void)
{
	open_first();
	int n = 1;
	while (ibv_alloc_pd(ctx)) OK(++n <= 100000);
	expect(errno == ENOMEM, "%d protection domains, then %s", n, strerror(errno));
	expect(!ibv_alloc_pd(ctx) && !ibv_alloc_pd(ctx), "a refused object is made");
	errno = 0;
	expect(!ibv_create_cq(ctx, 4194304, NULL, NULL, 0) && errno == EINVAL, "a CQ that is too deep: %s", strerror(errno));
	printf("%d wrong\n", wrong);
	return !!wrong;
}
