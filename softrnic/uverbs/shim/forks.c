// ibv_fork_init. Registered memory needs no care in a program that forks: the daemon finds it by the
// process, so ibv_is_fork_initialized says IBV_FORK_UNNEEDED. libibverbs before version 45 marks the pages
// of regions as MADV_DONTFORK all the same, and a child that touches anything on these pages is killed.
// Later versions ask first, as here.
#define _GNU_SOURCE
#include "shim.h"

#define ENV_MADVISE "RDMAV_USE_MADVISE" // read by libibverbs: the program wants the marks

// is_on is how libibverbs understands a variable that is a choice.
static int is_on(const char *name)
{
	const char *v = getenv(name);
	return v && *v && strcmp(v, "0");
}

int ibv_fork_init(void)
{
	if (getenv(ENV_SOCKET) && !is_on(ENV_MADVISE)) return 0;
	void *lib = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
	int (*next)(void) = (int (*)(void))dlsym(lib ? lib : RTLD_NEXT, "ibv_fork_init");
	return next ? next() : ENOSYS;
}
