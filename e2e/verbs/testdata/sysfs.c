// Finds RDMA devices as programs do that read /sys themselves, and nothing else: no libibverbs, no netlink. It is linked statically, so
// that no library can be preloaded. It prints, for each device: name, ports, state, link layer, interface, GIDs with their types. The
// argument is the folder of sysfs.
#include <dirent.h>
#include <stdio.h>
#include <string.h>

// line reads the first line of a file of the device.
static const char *line(const char *root, const char *rest)
{
	static char text[4][256];
	static int next;
	char path[1024], *b = text[next++ % 4];
	snprintf(path, sizeof path, "%s/%s", root, rest);
	FILE *f = fopen(path, "r");
	b[0] = 0;
	if (f && !fgets(b, 256, f)) b[0] = 0;
	if (f) fclose(f);
	b[strcspn(b, "\n")] = 0;
	return b;
}

static void gids(const char *port)
{
	char name[64];
	for (int i = 0; i < 16; i++) {
		snprintf(name, sizeof name, "gids/%d", i);
		const char *gid = line(port, name);
		if (!*gid || !strcmp(gid, "0000:0000:0000:0000:0000:0000:0000:0000")) continue;
		snprintf(name, sizeof name, "gid_attrs/types/%d", i);
		const char *type = line(port, name);
		snprintf(name, sizeof name, "gid_attrs/ndevs/%d", i);
		printf("gid %d %s %s %s\n", i, gid, type, line(port, name));
	}
}

int main(int argc, char **argv)
{
	char root[256], device[600], port[700];
	int found = 0;
	snprintf(root, sizeof root, "%s/class/infiniband", argc > 1 ? argv[1] : "/sys");
	DIR *d = opendir(root);
	for (struct dirent *e; d && (e = readdir(d));) {
		if (e->d_name[0] == '.') continue;
		snprintf(device, sizeof device, "%s/%s", root, e->d_name);
		printf("device %s node_type %s parent %s\n", e->d_name, line(device, "node_type"), line(device, "parent"));
		snprintf(port, sizeof port, "%s/ports/1", device);
		printf("port 1 %s, %s, %s, %s\n", line(port, "state"), line(port, "phys_state"), line(port, "link_layer"), line(port, "rate"));
		gids(port);
		found++;
	}
	return !found;
}
