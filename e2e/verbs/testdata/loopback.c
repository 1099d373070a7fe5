// Loopback and any address in librdmacm, as the kernel has them for RoCE (cma_any_addr, cma_resolve_loopback): they can be bound, without a
// device; as a peer they find the device, and there is no route to them.
//
//	loopback OWN-IPV4 OWN-IPV6 PEER-IPV4
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wrong;

#define OK(c) do { if (!(c)) { fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #c, strerror(errno)); exit(2); } } while (0)
#define expect(c, ...) do { if (!(c)) { wrong++; printf("wrong: " __VA_ARGS__); printf(" (%s:%d)\n", __FILE__, __LINE__); } } while (0)

static struct sockaddr *address(const char *a, int port)
{
	static struct sockaddr_storage rooms[4];
	static int turn;
	struct sockaddr_storage *s = &rooms[turn++ % 4];
	memset(s, 0, sizeof *s);
	struct sockaddr_in *v4 = (void *)s;
	struct sockaddr_in6 *v6 = (void *)s;
	if (inet_pton(AF_INET, a, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET, v4->sin_port = htons(port);
		return (void *)s;
	}
	OK(inet_pton(AF_INET6, a, &v6->sin6_addr) == 1);
	v6->sin6_family = AF_INET6, v6->sin6_port = htons(port);
	return (void *)s;
}

static struct rdma_event_channel *ec;

static struct rdma_cm_id *fresh(void)
{
	struct rdma_cm_id *id;
	OK(!rdma_create_id(ec, &id, NULL, RDMA_PS_TCP));
	return id;
}

static const char *of(struct rdma_cm_id *id)
{
	static char text[NI_MAXHOST];
	struct sockaddr *s = rdma_get_local_addr(id);
	OK(!getnameinfo(s, s->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6), text, sizeof text, NULL, 0, NI_NUMERICHOST));
	return text;
}

static void bind_to(const char *a, int want, int device)
{
	struct rdma_cm_id *id = fresh();
	errno = 0;
	int e = rdma_bind_addr(id, address(a, 0)) ? errno : 0;
	expect(e == want && !id->verbs == !device, "bind %s: %s, device %d", a, strerror(e), !!id->verbs);
	if (!e) {
		expect(!strcmp(of(id), a) && rdma_get_src_port(id), "bind %s: the address is %s, the port %d", a, of(id), ntohs(rdma_get_src_port(id)));
		expect(!rdma_listen(id, 0), "listen at %s: %s", a, strerror(errno));
	}
	OK(!rdma_destroy_id(id));
}

// resolve resolves an address from `from`, which may be NULL. `want` is the errno of the call, or, if it succeeds, minus that of the event.
static void resolve(const char *from, const char *to, int want, const char *source, int route)
{
	for (int bound = 0; bound < 2; bound++) {
		struct rdma_cm_id *id = fresh();
		struct rdma_cm_event *ev;
		if (from && bound) OK(!rdma_bind_addr(id, address(from, 0)));
		errno = 0;
		int e = rdma_resolve_addr(id, from && !bound ? address(from, 0) : NULL, address(to, 18601), 2000) ? errno : 0;
		if (!e) {
			struct pollfd p = { .fd = ec->fd, .events = POLLIN };
			OK(poll(&p, 1, 20000) == 1 && !rdma_get_cm_event(ec, &ev));
			expect(ev->event == (ev->status ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED), "%s to %s: %s with status %d", from, to, rdma_event_str(ev->event), ev->status);
			e = ev->status;
			OK(!rdma_ack_cm_event(ev));
		}
		expect(e == want, "%s to %s: %d, want %d", from ? from : "nothing", to, e, want);
		if (!e) {
			expect(id->verbs && !strcmp(of(id), source), "%s to %s: device %d, source %s", from ? from : "nothing", to, !!id->verbs, of(id));
			errno = 0;
			int r = rdma_resolve_route(id, 2000) ? errno : 0;
			expect(r == route, "%s to %s: route %s", from ? from : "nothing", to, strerror(r));
			if (!r) OK(!rdma_get_cm_event(ec, &ev) && !rdma_ack_cm_event(ev));
		}
		OK(!rdma_destroy_id(id));
	}
}

int main(int argc, char **argv)
{
	OK(argc == 4 && (ec = rdma_create_event_channel()));
	const char *v4 = argv[1], *v6 = argv[2], *peer = argv[3];
	bind_to("127.0.0.1", 0, 0);
	bind_to("127.0.0.2", 0, 0);
	bind_to("0.0.0.0", 0, 0);
	bind_to("::1", 0, 0);
	bind_to("::", 0, 0);
	bind_to(v4, 0, 1);
	bind_to(v6, 0, 1);
	bind_to(peer, EADDRNOTAVAIL, 0);

	resolve(NULL, "127.0.0.1", 0, "127.0.0.1", ENODEV);
	resolve(NULL, "127.0.0.7", 0, "127.0.0.1", ENODEV);
	resolve(NULL, "0.0.0.0", 0, "127.0.0.1", ENODEV);
	resolve(NULL, "::1", 0, "::1", ENODEV);
	resolve(NULL, "::", 0, "::1", ENODEV);
	resolve("0.0.0.0", "127.0.0.1", 0, "127.0.0.1", ENODEV);
	resolve("127.0.0.1", "127.0.0.1", 0, "127.0.0.1", ENODEV);
	resolve(v4, "127.0.0.1", 0, v4, ENODEV);
	resolve(v4, "0.0.0.0", 0, v4, ENODEV);
	resolve(NULL, v4, 0, v4, 0);
	resolve(v4, peer, 0, v4, 0);
	resolve("0.0.0.0", peer, 0, v4, 0);
	resolve("127.0.0.1", peer, EINVAL, NULL, 0);
	resolve("127.0.0.1", v4, -ENODEV, NULL, 0);
	resolve(v4, "::1", EINVAL, NULL, 0);
	resolve("::", peer, EINVAL, NULL, 0);

	// Loopback is any address also when ports are compared.
	struct rdma_cm_id *a = fresh(), *b = fresh();
	OK(!rdma_bind_addr(a, address("127.0.0.1", 18602)));
	errno = 0;
	expect(rdma_bind_addr(b, address(v4, 18602)) && errno == EADDRNOTAVAIL, "the port of a loopback address beside one of %s: %s", v4, strerror(errno));
	printf("%d wrong\n", wrong);
	return !!wrong;
}
