package nl

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// A device is described by what decides whether it can be a port, and set up and down by its number.
func TestDevice(t *testing.T) {
	a, b := pair(t)
	if err := Connect(End{Netns: a, Name: "near"}, End{Netns: b, Name: "far"}, 1500); err != nil {
		t.Fatal(err)
	}
	if d, err := DeviceByName(a, "lo", nil); err != nil || !d.Loopback || d.Ethernet {
		t.Errorf("lo: %+v, %v", d, err)
	}
	d, err := DeviceByName(a, "near", nil)
	if err != nil || d.Loopback || !d.Ethernet || d.Master != "" || d.Default || d.MTU != 1500 || !d.Up {
		t.Errorf("near: %+v, %v", d, err)
	}
	if _, err := DeviceByName(a, "far", nil); err == nil || !strings.Contains(err.Error(), "there are lo, near") {
		t.Errorf("a device that is elsewhere: %v", err)
	}
	if err := SetUpIndex(a, d.Index, false); err != nil {
		t.Fatal(err)
	}
	if d, err := DeviceByName(a, "near", nil); err != nil || d.Up {
		t.Errorf("set down: %+v, %v", d, err)
	}
	if err := errors.Join(SetUpIndex(a, d.Index, true), Configure(End{Netns: a, Name: "near", Addrs: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24")}})); err != nil {
		t.Fatal(err)
	}
	if err := SetUpIndex(a, 1<<20, true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no device has this number: %v", err)
	}
	for _, dst := range []string{"0.0.0.0/0", "::/0", "10.8.0.0/16"} {
		_, n, _ := net.ParseCIDR(dst)
		route := &netlink.Route{LinkIndex: d.Index, Dst: n}
		if err := Do(a, func() error { return netlink.RouteAdd(route) }); err != nil {
			t.Logf("route to %s: %v", dst, err) // a kernel without IPv6
			continue
		}
		if d, err := DeviceByName(a, "near", nil); err != nil || d.Default != strings.HasSuffix(dst, "/0") {
			t.Errorf("with a route to %s: %+v, %v", dst, d, err)
		}
		if d, err := DeviceByName(a, "lo", nil); err != nil || d.Default {
			t.Errorf("with a route of another device: %+v, %v", d, err)
		}
		if err := Do(a, func() error { return netlink.RouteDel(route) }); err != nil {
			t.Fatal(err)
		}
	}
	need := []netip.Addr{netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("10.77.0.9")}
	if d, err := DeviceByName(a, "near", need); err != nil || !slices.Equal(d.Carries, need[:1]) {
		t.Errorf("reached by it: %v, %v", d.Carries, err)
	}
	if d, err := DeviceByName(a, "lo", need); err != nil || d.Carries != nil {
		t.Errorf("reached by another device: %v, %v", d.Carries, err)
	}
	// What goes out of an interface above it goes out of it, too.
	err = Do(a, func() error {
		upper := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "upper", ParentIndex: d.Index}, Mode: netlink.MACVLAN_MODE_PRIVATE}
		if err := netlink.LinkAdd(upper); err != nil {
			return err
		}
		_, all, _ := net.ParseCIDR("0.0.0.0/0")
		return errors.Join(netlink.LinkSetUp(upper), netlink.RouteAdd(&netlink.Route{LinkIndex: upper.Index, Dst: all}))
	})
	if err != nil {
		t.Logf("an interface above it: %v", err) // a kernel without macvlan
	} else if d, err := DeviceByName(a, "near", nil); err != nil || !d.Default {
		t.Errorf("with a default route out of an interface above it: %+v, %v", d, err)
	}
	if err == nil {
		if err := DeleteLink(a, "upper"); err != nil {
			t.Fatal(err)
		}
	}
	if err := Do(a, func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br"}}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		near, err := netlink.LinkByName("near")
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(near, bridge)
	}); err != nil {
		t.Skip("no bridge: ", err)
	}
	if d, err := DeviceByName(a, "near", nil); err != nil || d.Master != "br" {
		t.Errorf("in a bridge: %+v, %v", d, err)
	}
}

// The kernel asks for an address, and then knows it.
func TestSolicit(t *testing.T) {
	a, b := pair(t)
	near := End{Netns: a, Name: "near", Addrs: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24")}}
	far := End{Netns: b, Name: "far", Addrs: []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24")}}
	if err := Connect(near, far, 1500); err != nil {
		t.Fatal(err)
	}
	to := netip.MustParseAddr("10.9.0.2")
	if _, ok, err := Neighbour(a, "near", to); ok || err != nil {
		t.Fatalf("known before: %v, %v", ok, err)
	}
	if err := Solicit(a, to); err != nil {
		t.Fatal(err)
	}
	other, err := LinkByName(b, "far")
	if err != nil {
		t.Fatal(err)
	}
	for deadline := t.Context(); ; {
		mac, ok, err := Neighbour(a, "near", to)
		if err != nil || deadline.Err() != nil {
			t.Fatal(err, deadline.Err())
		}
		if ok {
			if mac != other.MAC {
				t.Errorf("%v has %v, want %v", to, mac, other.MAC)
			}
			break
		}
	}
	if err := Solicit(a, netip.MustParseAddr("10.200.0.1")); err == nil {
		t.Error("no route leads there")
	}
	for _, none := range []string{"224.0.0.1", "127.0.0.1", "0.0.0.0", "fe80::1"} {
		if err := Solicit(a, netip.MustParseAddr(none)); err != nil {
			t.Errorf("%s: %v", none, err)
		}
	}
}
