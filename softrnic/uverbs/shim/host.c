// This file finds the host of a program from the name of the preloaded library.
#define _GNU_SOURCE
#include "shim.h"

#define SUFFIX ".so"
#define FOLDER "/providers"
#define DRIVER FOLDER "/librdmalab"

// find_host sets the variables of `rdmalab env` if the library is preloaded by the name HOST.so and
// the socket HOST.verbs is beside it. So a container that mounts the folder of sockets needs only
// LD_PRELOAD.
__attribute__((constructor)) static void find_host(void)
{
	Dl_info info;
	char path[sizeof((struct sockaddr_un *)0)->sun_path];
	if (!dladdr((void *)find_host, &info) || !info.dli_fname) return;
	size_t n = strlen(info.dli_fname), stem = n - (sizeof SUFFIX - 1);
	if (n < sizeof SUFFIX || stem + sizeof ".verbs" > sizeof path || strcmp(info.dli_fname + stem, SUFFIX)) return;
	memcpy(path, info.dli_fname, stem);
	strcpy(path + stem, ".verbs");
	if (syscall(SYS_faccessat, AT_FDCWD, path, F_OK, 0)) return; // the library does not have the name of a host
	setenv(ENV_SOCKET, path, 1);
	strcpy(path + stem, ".sys");
	setenv(ENV_TREE, path, 1);
	// The provider is in a folder beside the sockets; libibverbs puts a suffix behind this name.
	const char *provider = getenv(ENV_PROVIDER);
	char *end = strrchr(path, '/');
	if (!end || (size_t)(end - path) + sizeof DRIVER > sizeof path || (provider && !strcmp(provider, "rxe"))) return;
	strcpy(end, FOLDER);
	if (syscall(SYS_faccessat, AT_FDCWD, path, F_OK, 0)) return; // a rdmalab without provider
	strcpy(end, DRIVER);
	setenv(ENV_DRIVERS, path, 0);
}
