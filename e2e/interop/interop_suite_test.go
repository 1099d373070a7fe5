// Package interop tests the NIC against that of Linux: a virtual machine boots a stock kernel with
// the soft-RoCE driver rdma_rxe and joins a rack as a second station behind the link of one host.
// Every operation crosses the rack's switch in both directions, and the completions and memory of
// both ends are compared.
package interop_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/e2e/interop/ask"
	"github.com/rdmalab/rdmalab/e2e/interop/image"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// peerVariable is set in the environment of a test binary that runs inside a host of the rack.
const peerVariable = "RDMALAB_E2E_INTEROP"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(peerVariable) {
	case "vm":
		err = virtualMachine(os.Stdin)
	case "station":
		err = station(os.Stdin, os.Stdout)
	case "rping":
		err = rping(os.Stdin, os.Stdout)
	case "speaker":
		err = speak(os.Stdin, os.Stdout)
	default:
		fixture.Main(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

// peerArgs are the arguments of rdmalab exec that run a peer of the test binary inside a host.
func peerArgs(r *fixture.Rack, host, peer string) []string {
	return []string{"--rack", r.Name, "exec", host, "--", "/usr/bin/env", peerVariable + "=" + peer, os.Args[0]}
}

func TestInterop(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "interop", Label("interop"))
}

// The rack of the suite: our NIC is on cn0; the guest shares the link of vm0, and a second guest,
// which specs kill, that of vm1.
const rackFile = `
subnet: 10.77.0.0/24
subnet6: fd00:77::/64
mtu: 4200
hosts:
  - {name: cn0, role: compute}
  - {name: vm0, role: compute}
  - {name: vm1, role: compute}
`

// The guest's addresses in the rack.
var (
	guestMAC   = wire.MAC{0x02, 0x73, 0, 0, 0, 0xc8}
	guestIPv4  = netip.MustParseAddr("10.77.0.200")
	guestIPv6  = netip.MustParseAddr("fd00:77::c8")
	guestAddrs = []string{guestIPv4.String() + "/24", guestIPv6.String() + "/64"}
	// guestGIDs are the guest's addresses in the order of its GID table.
	guestGIDs = []netip.Addr{linkLocal(guestMAC), guestIPv4, guestIPv6}
)

var (
	rack  *fixture.Rack
	linux *guest
	// kernelFiles are the kernel and image for a second machine.
	kernelFiles *image.Image
	// ourAddrs are the addresses of our NIC: IPv4, IPv6, link-local.
	ourAddrs []netip.Addr
)

var _ = BeforeSuite(func() {
	fixture.Build()
	img := buildImage()
	kernel, kernelFiles = img.Version, img
	rack = fixture.Up(rackFile + switchSection())
	linux = bootGuest(rack, "vm0", image.Machine{Kernel: img.Kernel, Initrd: img.Initrd, Links: []wire.MAC{guestMAC}, MTU: 4200, Addrs: guestAddrs})
	for i := range ask.VerbsPorts { // the virtual machines take longer to start than the hosts
		c, err := net.Dial("unix", filepath.Join(linux.dir, fmt.Sprintf("verbs%d", i)))
		Expect(err).NotTo(HaveOccurred())
		Expect(newTheirs(c).call("close", struct{}{}, bootLimit, &struct{}{})).To(Succeed())
		Expect(c.Close()).To(Succeed())
	}
	cn0 := rack.Host("cn0")
	mac, err := wire.ParseMAC(cn0.MAC)
	Expect(err).NotTo(HaveOccurred())
	ourAddrs = []netip.Addr{netip.MustParseAddr(cn0.IPv4), netip.MustParseAddr(cn0.IPv6), linkLocal(mac)}
	for _, a := range ourAddrs {
		// The kernels of a rack's hosts have no link-local addresses, and cannot ask for neighbours
		// without one.
		linux.do(answerLimit, "ip", "neigh", "replace", a.String(), "lladdr", mac.String(), "dev", "eth0", "nud", "permanent")
	}
})

// If the switch does more than forward, its counters are part of each failure.
var _ = JustAfterEach(func() {
	if CurrentSpecReport().Failed() && fixture.Through() != fixture.Forward {
		AddReportEntry("connections", rack.Run("switch", "connections", "--all").String())
		AddReportEntry("counters", rack.Run("switch", "counters").String())
	}
})

// linkLocal returns the link-local address that the kernel derives from an interface's MAC address.
func linkLocal(mac wire.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}
