package afpacket

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Names of the ends of the virtual cable that newCable makes.
const (
	endA = "vea"
	endB = "veb"
)

// newCable moves the test's goroutine into a fresh network namespace with a veth pair, both ends
// up. The thread is never unlocked, so it and the namespace end with the goroutine.
func newCable(tb testing.TB, mtu uint32) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("needs root for a network namespace of its own")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		if errors.Is(err, unix.EPERM) {
			tb.Skip("needs CAP_SYS_ADMIN for a network namespace of its own")
		}
		tb.Fatal(err)
	}
	quiet(tb)
	addVeth(tb, endA, endB, mtu, -1)
	setUp(tb, endA, true)
	setUp(tb, endB, true)
}

// quiet disables IPv6 discovery in this thread's namespace, whose packets would be among the test's
// frames.
func quiet(tb testing.TB) {
	tb.Helper()
	err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		tb.Fatal(err)
	}
}

// addVeth creates a veth pair in this thread's namespace with its peer in the namespace peerNS (-1:
// here as well).
func addVeth(tb testing.TB, name, peer string, mtu uint32, peerNS int) {
	tb.Helper()
	peerAttrs := append(attr(unix.IFLA_IFNAME, append([]byte(peer), 0)), attr(unix.IFLA_MTU, u32(mtu))...)
	if peerNS >= 0 {
		peerAttrs = append(peerAttrs, attr(unix.IFLA_NET_NS_FD, u32(uint32(peerNS)))...)
	}
	const vethInfoPeer = 1
	data := attr(vethInfoPeer, append(make([]byte, unix.SizeofIfInfomsg), peerAttrs...))
	info := append(attr(unix.IFLA_INFO_KIND, []byte("veth")), attr(unix.IFLA_INFO_DATA, data)...)
	body := make([]byte, unix.SizeofIfInfomsg)
	body = append(body, attr(unix.IFLA_IFNAME, append([]byte(name), 0))...)
	body = append(body, attr(unix.IFLA_MTU, u32(mtu))...)
	body = append(body, attr(unix.IFLA_LINKINFO, info)...)
	if err := request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, body); err != nil {
		tb.Fatalf("create veth %s: %v", name, err)
	}
}

// delLink removes an interface.
func delLink(tb testing.TB, name string) {
	tb.Helper()
	body := append(make([]byte, unix.SizeofIfInfomsg), attr(unix.IFLA_IFNAME, append([]byte(name), 0))...)
	if err := request(unix.RTM_DELLINK, 0, body); err != nil {
		tb.Fatalf("delete %s: %v", name, err)
	}
}

func request(kind uint16, flags uint16, body []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	msg := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(body))
	binary.NativeEndian.PutUint32(msg, uint32(unix.SizeofNlMsghdr+len(body)))
	binary.NativeEndian.PutUint16(msg[4:], kind)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	if err := unix.Sendto(fd, append(msg, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 {
		return errors.New("short netlink answer")
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

func attr(kind uint16, value []byte) []byte {
	n := unix.SizeofNlAttr + len(value)
	b := make([]byte, (n+3)&^3)
	binary.NativeEndian.PutUint16(b, uint16(n))
	binary.NativeEndian.PutUint16(b[2:], kind)
	copy(b[unix.SizeofNlAttr:], value)
	return b
}

func u32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// setUp sets an interface up or down.
func setUp(tb testing.TB, name string, up bool) {
	tb.Helper()
	ioctl(tb, name, unix.SIOCGIFFLAGS, func(*unix.Ifreq) {}, func(r *unix.Ifreq) {
		flags := r.Uint16() &^ unix.IFF_UP
		if up {
			flags |= unix.IFF_UP
		}
		ioctl(tb, name, unix.SIOCSIFFLAGS, func(r *unix.Ifreq) { r.SetUint16(flags) }, func(*unix.Ifreq) {})
	})
}

// setAddr gives an interface an IPv4 address with a /24 mask.
func setAddr(tb testing.TB, name string, addr [4]byte) {
	tb.Helper()
	ioctl(tb, name, unix.SIOCSIFADDR, func(r *unix.Ifreq) { _ = r.SetInet4Addr(addr[:]) }, func(*unix.Ifreq) {})
	ioctl(tb, name, unix.SIOCSIFNETMASK, func(r *unix.Ifreq) { _ = r.SetInet4Addr([]byte{255, 255, 255, 0}) }, func(*unix.Ifreq) {})
}

func ioctl(tb testing.TB, name string, op uint, before, after func(*unix.Ifreq)) {
	tb.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq(name)
	if err != nil {
		tb.Fatal(err)
	}
	before(r)
	if err := unix.IoctlIfreq(fd, op, r); err != nil {
		tb.Fatalf("%s: ioctl %#x: %v", name, op, err)
	}
	after(r)
}
