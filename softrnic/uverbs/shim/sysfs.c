// Files of the NIC in /sys, for programs that read them themselves: their paths lead into the tree that the
// daemon writes. On hosts in namespaces they are in /sys as well; in a container of a user's own only so.
#define _GNU_SOURCE
#include <dirent.h>

#include "shim.h"

#define ROOT "/sys"

#define SYSCALLS(f) f(fopen) f(fopen64) f(opendir) f(scandir) f(scandir64) f(readlink) f(realpath) f(statx)
SYSCALLS(DECLARE)
__attribute__((constructor)) static void find_sysfs(void) { SYSCALLS(FIND) }

// folders are those of the tree; behind a name may be the rest of the name of another one (infiniband_verbs).
static const char *const folders[] = { ROOT "/class/infiniband", ROOT "/devices/virtual/infiniband", ROOT "/class/misc/rdma_cm" };

// redirect returns the path in the tree for a path of the NIC in /sys, in b, and any other path as it is.
const char *redirect(const char *path, char b[MAX_PATH])
{
	const char *tree;
	size_t n, rest;
	if (!path || strncmp(path, ROOT "/", sizeof ROOT)) return path;
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
		size_t k = strlen(folders[i]);
		if (strncmp(path, folders[i], k) || (path[k] && path[k] != '/' && path[k] != '_')) continue;
		if (!getenv(ENV_SOCKET) || !(tree = getenv(ENV_TREE))) return path;
		n = strlen(tree), rest = strlen(path) + 1 - (sizeof ROOT - 1);
		if (n + rest > MAX_PATH) return path;
		memcpy(b, tree, n);
		memcpy(b + n, path + sizeof ROOT - 1, rest);
		return b;
	}
	return path;
}

// only_reads is true for a mode of fopen that changes nothing.
static int only_reads(const char *mode) { return mode && mode[0] == 'r' && !strchr(mode, '+'); }

FILE *fopen(const char *path, const char *mode)
{
	char b[MAX_PATH];
	NEXT(fopen);
	return next_fopen(only_reads(mode) ? redirect(path, b) : path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
	char b[MAX_PATH];
	NEXT(fopen64);
	return next_fopen64 ? next_fopen64(only_reads(mode) ? redirect(path, b) : path, mode) : fopen(path, mode);
}

DIR *opendir(const char *path)
{
	char b[MAX_PATH];
	NEXT(opendir);
	return next_opendir(redirect(path, b));
}

int scandir(const char *path, struct dirent ***list, int (*select)(const struct dirent *), int (*compare)(const struct dirent **, const struct dirent **))
{
	char b[MAX_PATH];
	NEXT(scandir);
	return next_scandir(redirect(path, b), list, select, compare);
}

int scandir64(const char *path, struct dirent64 ***list, int (*select)(const struct dirent64 *), int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
	char b[MAX_PATH];
	NEXT(scandir64);
	return next_scandir64 ? next_scandir64(redirect(path, b), list, select, compare) : (errno = ENOSYS, -1);
}

int statx(int dir, const char *path, int flags, unsigned mask, struct statx *to)
{
	char b[MAX_PATH];
	NEXT(statx);
	const char *at = redirect(path, b);
	return next_statx ? next_statx(dir, at, flags, mask, to) : (int)syscall(SYS_statx, dir, at, flags, mask, to);
}

ssize_t readlink(const char *path, char *to, size_t n)
{
	char b[MAX_PATH];
	NEXT(readlink);
	return next_readlink(redirect(path, b), to, n);
}

// realpath of a file of the NIC is a path in /sys again, from whose folders programs learn where a device is.
char *realpath(const char *path, char *to)
{
	char b[MAX_PATH], root[PATH_MAX];
	NEXT(realpath);
	const char *at = redirect(path, b);
	char *got = next_realpath(at, to);
	if (!got || at == path || !next_realpath(getenv(ENV_TREE), root)) return got;
	size_t n = strlen(root);
	if (n < sizeof ROOT - 1 || strncmp(got, root, n)) return got;
	memmove(got + sizeof ROOT - 1, got + n, strlen(got + n) + 1);
	memcpy(got, ROOT, sizeof ROOT - 1);
	return got;
}
