package ucma

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// device returns the node GUID that a query of identifier 0 says, the number of paths and the source.
func (n *nic) device() (has bool, paths uint32, src netip.Addr) {
	n.t.Helper()
	r, ok := decode[route](n.do(Command{Op: QueryRoute, Args: encode(query{})}).Data)
	if !ok {
		n.t.Fatal("no route")
	}
	from, _ := r.Src.parse()
	return r.NodeGUID != [8]byte{}, r.NumPaths, from.Addr()
}

// lonely is a NIC with an IPv4 and an IPv6 address, and a program with identifier 0.
func lonely(t *testing.T) *nic {
	t.Helper()
	n := newNIC(t)
	n.m.cfg.Device.GIDs = append(n.m.cfg.Device.GIDs, verbs.GIDOf(netip.MustParseAddr("fd00:77::1")))
	if _, err := n.m.OpenChannel(); err != nil {
		t.Fatal(err)
	}
	n.do(Command{Op: CreateID, Args: encode(createID{UID: 1, Space: spaceTCP})})
	return n
}

func at(s string) address { return addressOf(netip.AddrPortFrom(netip.MustParseAddr(s), 7)) }

// An identifier may be bound to addresses of the NIC, to any address and to loopback addresses; it
// then has a device, or none yet. It keeps the address (rdma_bind_addr_dst, cma_any_addr).
func TestBind(t *testing.T) {
	for s, c := range map[string]struct {
		want   error
		device bool
	}{
		"127.0.0.1": {nil, false}, "127.0.0.2": {nil, false}, "127.255.255.254": {nil, false}, "0.0.0.0": {nil, false}, "::": {nil, false}, "::1": {nil, false},
		"10.77.0.1": {nil, true}, "fd00:77::1": {nil, true},
		"10.77.0.9": {unix.EADDRNOTAVAIL, false}, "128.0.0.1": {unix.EADDRNOTAVAIL, false}, "::2": {unix.EADDRNOTAVAIL, false}, "fe80::1": {unix.EADDRNOTAVAIL, false},
	} {
		n := lonely(t)
		_, err := n.execute(Command{Op: BindIP, Args: encode(bindIP{Addr: at(s)})})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", s, err, c.want)
		}
		if err != nil {
			continue
		}
		if has, _, src := n.device(); has != c.device || src.String() != s {
			t.Errorf("%s: device %v, source %v", s, has, src)
		}
		n.do(Command{Op: Listen, Args: encode(listen{})})
		if has, _, src := n.device(); has != c.device || src.String() != s {
			t.Errorf("%s listens: device %v, source %v", s, has, src)
		}
	}
}

// A listener at a loopback address gets the requests to all addresses of its family
// (cma_match_private_data).
func TestListenerAtLoopback(t *testing.T) {
	for s, c := range map[string]struct{ only, four, six bool }{
		"127.0.0.1": {false, true, false}, "::1": {false, true, true}, "10.77.0.1": {false, true, false}, "0.0.0.0": {false, true, false}, "::": {false, true, true},
	} {
		n := lonely(t)
		n.do(Command{Op: BindIP, Args: encode(bindIP{Addr: at(s)})})
		p := n.m.nic.ids[0].accepts()
		takes := func(a string) bool { return !p.IsValid() || p.Contains(netip.MustParseAddr(a)) }
		if takes("10.77.0.1") != c.four || takes("fd00:77::1") != c.six || takes("127.0.0.1") != (c.four && s != "10.77.0.1") {
			t.Errorf("%s accepts at %v", s, p)
		}
	}
}

// A loopback address or any address as a peer finds the device, and no route: RoCE has none for them
// (cma_resolve_loopback, cma_iboe_set_path_rec_l2_fields). An identifier that is bound to loopback
// reaches no peer.
func TestResolveLoopback(t *testing.T) {
	const resolved, failed = addrResolved, addrError
	for _, c := range []struct {
		src, dst string // src "" means none
		err      error
		event    uint32
		status   int32
		from     string // source after that
	}{
		{"", "127.0.0.1", nil, resolved, 0, "127.0.0.1"},
		{"", "127.0.0.9", nil, resolved, 0, "127.0.0.1"},
		{"", "0.0.0.0", nil, resolved, 0, "127.0.0.1"},
		{"", "::1", nil, resolved, 0, "::1"},
		{"", "::", nil, resolved, 0, "::1"},
		{"0.0.0.0", "127.0.0.1", nil, resolved, 0, "127.0.0.1"},
		{"127.0.0.5", "0.0.0.0", nil, resolved, 0, "127.0.0.1"},
		{"10.77.0.1", "127.0.0.1", nil, resolved, 0, "10.77.0.1"},
		{"10.77.0.1", "0.0.0.0", nil, resolved, 0, "10.77.0.1"},
		{"fd00:77::1", "::1", nil, resolved, 0, "fd00:77::1"},
		{"127.0.0.1", "10.77.0.1", nil, failed, -int32(unix.ENODEV), "127.0.0.1"},
		{"127.0.0.1", "10.77.0.2", unix.EINVAL, 0, 0, "127.0.0.1"},
		{"::1", "fd00:77::2", nil, failed, -int32(unix.ENODEV), "::1"},
		{"10.77.0.1", "::1", unix.EINVAL, 0, 0, "10.77.0.1"},
		{"::", "127.0.0.1", unix.EINVAL, 0, 0, "::"},
		{"0.0.0.0", "fd00:77::2", unix.EINVAL, 0, 0, "0.0.0.0"},
	} {
		for _, bound := range []bool{false, true} {
			n := lonely(t)
			args := resolveIP{Dst: at(c.dst)}
			if c.src != "" && bound {
				n.do(Command{Op: BindIP, Args: encode(bindIP{Addr: at(c.src)})})
			} else if c.src != "" {
				args.Src = at(c.src)
			}
			if _, err := n.execute(Command{Op: ResolveIP, Args: encode(args)}); !errors.Is(err, c.err) {
				t.Errorf("from %q to %s: %v, want %v", c.src, c.dst, err, c.err)
			}
			n.check()
			if c.err == nil {
				ev, ok := decode[event](n.do(Command{Op: GetEvent}).Data)
				if !ok || ev.Kind != c.event || int32(ev.Status) != c.status {
					t.Errorf("from %q to %s: event %d, status %d; want %d, %d", c.src, c.dst, ev.Kind, int32(ev.Status), c.event, c.status)
				}
			}
			found := c.err == nil && c.event == resolved
			has, paths, src := n.device()
			if src.String() != c.from || paths != 0 || found && !has {
				t.Errorf("from %q to %s: source %v, device %v, %d paths", c.src, c.dst, src, has, paths)
			}
			want := unix.EINVAL
			if found {
				want = unix.ENODEV
			}
			for range 2 {
				if _, err := n.execute(Command{Op: ResolveRoute, Args: encode(resolveRoute{})}); !errors.Is(err, want) {
					t.Errorf("from %q to %s: route %v, want %v", c.src, c.dst, err, want)
				}
			}
			n.do(Command{Op: DestroyID, Args: encode(destroyID{})})
		}
	}
}
