// Which host a program is on, if the name of the library alone says it.
#define _GNU_SOURCE
#include "shim.h"

#define SUFFIX ".so"

// find_host sets the variables of `rdmalab env` if the library is preloaded by the name HOST.so, beside
// the socket HOST.verbs: in a container that has the folder of sockets, anywhere, one variable is enough.
__attribute__((constructor)) static void find_host(void)
{
	Dl_info info;
	char path[sizeof((struct sockaddr_un *)0)->sun_path];
	if (!dladdr((void *)find_host, &info) || !info.dli_fname) return;
	size_t n = strlen(info.dli_fname), stem = n - (sizeof SUFFIX - 1);
	if (n < sizeof SUFFIX || stem + sizeof ".verbs" > sizeof path || strcmp(info.dli_fname + stem, SUFFIX)) return;
	memcpy(path, info.dli_fname, stem);
	strcpy(path + stem, ".verbs");
	if (syscall(SYS_faccessat, AT_FDCWD, path, F_OK, 0)) return; // it has the name of no host
	setenv(ENV_SOCKET, path, 1);
	strcpy(path + stem, ".sys");
	setenv(ENV_TREE, path, 1);
}
