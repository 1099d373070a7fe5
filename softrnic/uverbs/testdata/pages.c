// A program with pages that somebody must provide. Its first argument says who that is: "served", a
// file system, which answers; "hung", a file system that never answers a read; "later",
// the same, but the program maps the file when SIGUSR1 arrives, over ordinary pages, and prints a
// line then; "faults", the program itself by userfaultfd, which never does. The second argument is a file to mount the file
// system on. The file system is served by this process, and the program is its child; it prints its
// process and the address of the pages, behind which ordinary ones follow. Both stay until they are
// killed. The status is 77 if the machine does not allow it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) fail(__LINE__, #x); } while (0)

static void fail(int line, const char *what)
{
	fprintf(stderr, "line %d: %s: %s\n", line, what, strerror(errno));
	_exit(errno == EPERM || errno == ENODEV || errno == ENOENT ? 77 : 1);
}

enum { length = 1 << 20 };

static const char *kind, *path;

// The pages, and the ordinary ones behind them.
static void tell(char *at)
{
	CHECK(mprotect(at + length, length, PROT_READ | PROT_WRITE) == 0);
	printf("%d %lx\n", getpid(), (unsigned long)at);
	fflush(stdout);
}

static char *room(void)
{
	char *at = mmap(NULL, 2 * length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

static void map(void)
{
	int later = strcmp(kind, "later") == 0, got;
	sigset_t set;
	CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGUSR1) == 0);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;
	// Before it has asked, the kernel knows no length.
	CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size == length);
	char *at = room();
	if (later) {
		CHECK(mprotect(at, 2 * length, PROT_READ | PROT_WRITE) == 0);
		tell(at);
		CHECK(sigwait(&set, &got) == 0);
	}
	CHECK(mmap(at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at);
	CHECK(close(fd) == 0);
	tell(at);
	for (;;)
		pause();
}

static void answer(int dev, unsigned long unique, int error, const void *body, size_t n)
{
	struct fuse_out_header h = {.len = sizeof h + n, .error = error, .unique = unique};
	struct iovec v[] = {{&h, sizeof h}, {(void *)body, n}};
	CHECK(writev(dev, v, 2) == h.len || errno == ENOENT); // the request was given up
}

// The program. It has no descriptor of the file system, whose end is that of the serving process.
static void child(int dev)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid > 0)
		return;
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && close(dev) == 0);
	map();
}

static void serve(int reads)
{
	static char request[1 << 20], bytes[1 << 20];
	char options[100];
	int dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	CHECK(dev >= 0);
	CHECK(unshare(CLONE_NEWNS) == 0);
	CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	sprintf(options, "fd=%d,rootmode=100600,user_id=%d,group_id=%d", dev, getuid(), getgid());
	CHECK(mount("pages", path, "fuse", MS_NOSUID | MS_NODEV, options) == 0);
	child(dev);
	memset(bytes, 's', sizeof bytes);
	for (;;) {
		struct fuse_in_header *h = (void *)request;
		CHECK(read(dev, request, sizeof request) >= (ssize_t)sizeof *h);
		switch (h->opcode) {
		case FUSE_INIT: {
			struct fuse_init_out out = {.major = 7, .minor = 31, .max_readahead = 4096, .max_write = 4096};
			answer(dev, h->unique, 0, &out, sizeof out);
			break;
		}
		case FUSE_GETATTR: {
			struct fuse_attr_out out = {
				.attr_valid = 3600,
				.attr = {.ino = 1, .size = length, .mode = S_IFREG | 0600, .nlink = 1, .uid = getuid(), .gid = getgid()},
			};
			answer(dev, h->unique, 0, &out, sizeof out);
			break;
		}
		case FUSE_OPEN: {
			struct fuse_open_out out = {0};
			answer(dev, h->unique, 0, &out, sizeof out);
			break;
		}
		case FUSE_READ:
			if (reads)
				answer(dev, h->unique, 0, bytes, ((struct fuse_read_in *)(h + 1))->size);
			break;
		case FUSE_WRITE: {
			struct fuse_write_out out = {.size = ((struct fuse_write_in *)(h + 1))->size};
			answer(dev, h->unique, 0, &out, sizeof out);
			break;
		}
		case FUSE_FORGET:
			break;
		default:
			answer(dev, h->unique, -ENOSYS, NULL, 0);
		}
	}
}

static void fault(void)
{
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	CHECK(fd >= 0);
	struct uffdio_api api = {.api = UFFD_API};
	CHECK(ioctl(fd, UFFDIO_API, &api) == 0);
	char *at = room();
	CHECK(mprotect(at, length, PROT_READ | PROT_WRITE) == 0);
	struct uffdio_register r = {
		.range = {(unsigned long)at, length}, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	CHECK(ioctl(fd, UFFDIO_REGISTER, &r) == 0);
	tell(at);
	pause();
}

int main(int argc, char **argv)
{
	CHECK(argc == 3 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	kind = argv[1];
	path = argv[2];
	if (strcmp(kind, "faults") == 0)
		fault();
	else
		serve(strcmp(kind, "served") == 0);
	return 1;
}
