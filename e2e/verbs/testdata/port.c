// Prints the state of the port whenever it changes, and each asynchronous event with what two files of the port hold at once
// after it, for as many seconds as the argument says.
#include <arpa/inet.h>
#include <fcntl.h>
#include <time.h>

#include "pair.h"

// describe writes the port's state, MTU in bytes, speed and addresses with their indexes.
static void describe(char *text, size_t size)
{
	struct ibv_port_attr p;
	OK(!ibv_query_port(ctx, 1, &p));
	int n = snprintf(text, size, "%s, mtu %d, speed %d x %d,", ibv_port_state_str(p.state), 128 << p.active_mtu, p.active_speed, p.active_width);
	for (int i = 0; i < p.gid_tbl_len; i++) {
		union ibv_gid g;
		char a[INET6_ADDRSTRLEN];
		if (ibv_query_gid(ctx, 1, i, &g) || (!g.global.interface_id && !g.global.subnet_prefix)) continue;
		n += snprintf(text + n, size - n, " %d=%s", i, inet_ntop(AF_INET6, &g, a, sizeof a));
	}
}

// content returns the first line of a file of the port, "none" if there is no file.
static const char *content(const char *name)
{
	static char line[128];
	char path[512];
	snprintf(path, sizeof path, "%s/class/infiniband/%s/ports/1/%s", getenv("SYSFS_PATH"), ibv_get_device_name(ctx->device), name);
	FILE *f = fopen(path, "r");
	if (!f || !fgets(line, sizeof line, f)) strcpy(line, "none");
	if (f) fclose(f);
	line[strcspn(line, "\n")] = 0;
	return line;
}

int main(int argc, char **argv)
{
	static char now[4096], was[4096];
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
	open_first();
	setvbuf(stdout, NULL, _IOLBF, 0);
	OK(!fcntl(ctx->async_fd, F_SETFL, fcntl(ctx->async_fd, F_GETFL) | O_NONBLOCK));
	while (time(NULL) < end) {
		struct pollfd p = { .fd = ctx->async_fd, .events = POLLIN };
		struct ibv_async_event e;
		if (poll(&p, 1, 20) == 1 && !ibv_get_async_event(ctx, &e)) {
			printf("event %d of port %d", e.event_type, e.element.port_num);
			printf(", state %s", content("state"));
			printf(", GID 3 %s\n", content("gids/3"));
			ibv_ack_async_event(&e);
		}
		describe(now, sizeof now);
		if (strcmp(now, was)) printf("%s\n", now);
		strcpy(was, now);
	}
	return 0;
}
