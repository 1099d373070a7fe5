package nl

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair makes two namespaces, which are removed after the test. It skips the test if that needs
// root.
func pair(t *testing.T) (a, b string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root; run the test with sudo")
	}
	dir := t.TempDir()
	a, b = filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, p := range []string{a, b} {
		if err := Create(p); errors.Is(err, ErrPrivilege) {
			t.Skipf("network namespaces cannot be made here: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(Remove(p), Remove(p)); err != nil {
				t.Errorf("remove twice: %v", err)
			}
		})
	}
	return a, b
}

func TestCreateDo(t *testing.T) {
	a, b := pair(t)
	_, own, err := ID(threadNetns)
	if err != nil {
		t.Fatal(err)
	}
	_, ida, _ := ID(a)
	_, idb, _ := ID(b)
	if ida == idb || ida == own {
		t.Fatalf("namespaces are not distinct: %d %d, own %d", ida, idb, own)
	}
	boom := errors.New("boom")
	err = Do(a, func() error {
		if _, in, _ := ID(threadNetns); in != ida {
			t.Errorf("inside namespace %d, want %d", in, ida)
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Errorf("Do returned %v, want the function's error", err)
	}
	if _, now, _ := ID(threadNetns); now != own {
		t.Errorf("left in namespace %d, want %d", now, own)
	}
	if err := Create(a); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second Create: %v, want that it exists", err)
	}
	if l, err := LinkByName(a, "lo"); err != nil || !l.Up {
		t.Errorf("loopback %+v, %v; want up", l, err)
	}
}

func TestDoWithoutNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root; run the test with sudo")
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{plain, plain + "-missing"} {
		if err := Do(path, func() error { return nil }); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Do(%s) = %v, want fs.ErrNotExist", path, err)
		}
	}
}

func TestConnect(t *testing.T) {
	a, b := pair(t)
	if err := DisableIPv6(a); err != nil {
		t.Fatal(err)
	}
	addrs := []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24"), netip.MustParsePrefix("fd00:9::2/64")}
	host := End{Netns: b, Name: "rack0", MAC: wire.MAC{2, 0x72, 0, 0, 0, 2}, Alias: "rdmalab/nltest/h", Addrs: addrs, NoTSO: true}
	port := End{Netns: a, Name: "port-of-15bytes", Alias: "rdmalab/nltest/h"}
	if err := Connect(port, host, 4200); err != nil {
		t.Fatal(err)
	}
	l, err := LinkByName(b, "rack0")
	if err != nil {
		t.Fatal(err)
	}
	want := Link{Name: "rack0", Index: l.Index, MAC: host.MAC, MTU: 4200, Alias: host.Alias, Up: true, Carrier: true}
	if l != want {
		t.Errorf("host end %+v, want %+v", l, want)
	}
	got, err := Addrs(b, "rack0")
	if err != nil || !slices.Equal(got, addrs) {
		t.Errorf("addresses %v, %v; want %v (and no link-local one)", got, err, addrs)
	}
	if links, err := Links(a); err != nil || len(links) != 2 {
		t.Errorf("switch side has %+v, %v; want lo and the port", links, err)
	}
	if err := Connect(port, End{Netns: b, Name: "rack1"}, 4200); !errors.Is(err, unix.EEXIST) {
		t.Errorf("second link of that name: %v, want EEXIST", err)
	}
	if _, err := LinkByName(b, "rack1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rack1 after the refused link: %v, want none", err)
	}
}

func TestUpDownKeepsAddresses(t *testing.T) {
	a, b := pair(t)
	addrs := []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24"), netip.MustParsePrefix("fd00:9::2/64")}
	host := End{Netns: b, Name: "rack0", Addrs: addrs}
	if err := Connect(End{Netns: a, Name: "p0"}, host, 1500); err != nil {
		t.Fatal(err)
	}
	if err := SetUp(a, "p0", false); err != nil {
		t.Fatal(err)
	}
	if l, err := LinkByName(b, "rack0"); err != nil || l.Carrier || !l.Up {
		t.Errorf("other end %+v, %v; want up without carrier", l, err)
	}
	for _, up := range []bool{false, true} {
		if err := SetUp(b, "rack0", up); err != nil {
			t.Fatal(err)
		}
	}
	if err := Configure(host); err != nil { // as the restart of a host does
		t.Fatal(err)
	}
	if got, err := Addrs(b, "rack0"); err != nil || !slices.Equal(got, addrs) {
		t.Errorf("addresses %v, %v; want %v", got, err, addrs)
	}
	if err := errors.Join(DeleteLink(a, "p0"), DeleteLink(a, "p0")); err != nil {
		t.Errorf("delete twice: %v", err)
	}
}

// Watch says when it has begun, and then reports changes of MTU and addresses, which ReadPort returns.
func TestWatch(t *testing.T) {
	a, b := pair(t)
	if err := Connect(End{Netns: a, Name: "p0"}, End{Netns: b, Name: "rack0"}, 4200); err != nil {
		t.Fatal(err)
	}
	err := Do(b, func() error {
		stop, seen, ended := make(chan struct{}), make(chan struct{}, 64), make(chan error, 1)
		go func() { ended <- Watch(b, stop, func() { seen <- struct{}{} }) }()
		// A change may be reported more than once, so each step waits for its own effect.
		until := func(what string, ok func(Port) bool) {
			for deadline := time.After(5 * time.Second); ; {
				select {
				case <-seen:
				case <-deadline:
					t.Errorf("%s: not reported", what)
					return
				}
				if p, err := ReadPort(b, "rack0"); err != nil {
					t.Error(err)
				} else if ok(p) {
					return
				}
			}
		}
		l, err := byName("rack0")
		if err != nil {
			return err
		}
		until("the begin", func(p Port) bool { return p.MTU == 4200 })
		if err := netlink.LinkSetMTU(l, 1500); err != nil {
			return err
		}
		until("an MTU", func(p Port) bool { return p.MTU == 1500 })
		if err := netlink.AddrAdd(l, addr(netip.MustParsePrefix("10.9.0.7/24"))); err != nil {
			return err
		}
		until("an address", func(p Port) bool { return slices.Contains(p.Addrs, netip.MustParseAddr("10.9.0.7")) })
		close(stop)
		return <-ended
	})
	if err != nil {
		t.Fatal(err)
	}
}

// setNeighbour adds a permanent neighbour, so that the kernel sends no ARP request for it.
func setNeighbour(netns, ifname string, ip netip.Addr, mac wire.MAC) error {
	return Do(netns, func() error {
		l, err := byName(ifname)
		if err != nil {
			return err
		}
		n := &netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: ip.AsSlice(), HardwareAddr: mac[:]}
		return opError(netlink.NeighSet(n), "interface %s: set neighbour %v", ifname, ip)
	})
}

func TestNeighbour(t *testing.T) {
	a, b := pair(t)
	if err := Connect(End{Netns: a, Name: "p0"}, End{Netns: b, Name: "rack0", Addrs: []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24")}}, 1500); err != nil {
		t.Fatal(err)
	}
	ip, mac := netip.MustParseAddr("10.9.0.3"), wire.MAC{2, 1, 2, 3, 4, 5}
	if _, ok, err := Neighbour(b, "rack0", ip); ok || err != nil {
		t.Errorf("neighbour before it is set: %v, %v", ok, err)
	}
	if err := setNeighbour(b, "rack0", ip, mac); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := Neighbour(b, "rack0", ip); got != mac || !ok || err != nil {
		t.Errorf("neighbour %v %v %v, want %v", got, ok, err, mac)
	}
}

func TestOffload(t *testing.T) {
	a, b := pair(t)
	if err := Connect(End{Netns: a, Name: "p0"}, End{Netns: b, Name: "rack0"}, 1500); err != nil {
		t.Fatal(err)
	}
	set := func(name string, feature uint32, on bool) error {
		return Do(b, func() error { return setOffload(name, feature, on) })
	}
	for _, o := range []uint32{unix.ETHTOOL_STSO, unix.ETHTOOL_SGSO, unix.ETHTOOL_SGRO, unix.ETHTOOL_STXCSUM} {
		if err := errors.Join(set("rack0", o, false), set("rack0", o, true)); err != nil {
			t.Errorf("offload %#x: %v", o, err)
		}
	}
	if err := set("nope", unix.ETHTOOL_STSO, false); !errors.Is(err, unix.ENODEV) {
		t.Errorf("offload of a missing interface: %v, want ENODEV", err)
	}
}

// A Looker sees an interface that comes, loses its carrier and goes.
func TestLooker(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a, b := pair(t)
	must(Connect(End{Netns: a, Name: "x"}, End{Netns: b, Name: "y"}, 1500))
	l, err := NewLooker(a, "x")
	must(err)
	defer func() { must(l.Close()) }()
	expect := func(up, carrier bool) {
		t.Helper()
		got, err := l.Look()
		must(err)
		want, err := LinkByName(a, "x")
		must(err)
		if got != want || got.Up != up || got.Carrier != carrier {
			t.Errorf("%+v, want %+v", got, want)
		}
		passes, err := l.Passes()
		must(err)
		if passes != (up && carrier) {
			t.Errorf("passes: %v", passes)
		}
	}
	expect(true, true)
	must(SetUp(b, "y", false))
	expect(true, false)
	must(SetUp(a, "x", false))
	expect(false, false)
	must(DeleteLink(a, "x"))
	if _, err := l.Look(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed interface: %v", err)
	}
	if _, err := l.Passes(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed interface: %v", err)
	}
}
