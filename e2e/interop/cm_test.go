package interop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"os/exec"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/e2e/interop/ask"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// pingLimit is how long rping may take in the guest.
const pingLimit = 40 * time.Second

// pingEnd is our end of rping while it runs.
type pingEnd struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr ask.Output
	stop   func()
}

// startPinger starts our end of rping inside cn0, with a NIC of its own.
func startPinger(p rpingPlan) *pingEnd {
	GinkgoHelper()
	p.plan = nicPlan()
	return startEnd("rping", p)
}

// startSpeaker starts another of our ends.
func startSpeaker(p speakerPlan) *pingEnd {
	GinkgoHelper()
	p.plan = nicPlan()
	if p.Port == "" {
		p.Port = anyPort
	}
	return startEnd("speaker", p)
}

// nicPlan describes a NIC in cn0 that knows the guest.
func nicPlan() plan {
	return plan{
		Ifname: spec.HostIfname, Addrs: ourAddrs[:2], PeerMAC: guestMAC, Peers: []netip.Addr{guestIPv4, guestIPv6},
		Seed: uint64(GinkgoRandomSeed()),
	}
}

// endLimit bounds the life of an end.
const endLimit = 5 * time.Minute

func startEnd(peer string, plan any) *pingEnd {
	GinkgoHelper()
	in, err := json.Marshal(plan)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	e := &pingEnd{cmd: exec.CommandContext(ctx, fixture.Binary(), peerArgs(rack, "cn0", peer)...)}
	e.cmd.Cancel = func() error { return e.cmd.Process.Signal(unix.SIGTERM) } // which is passed on into the host
	e.cmd.WaitDelay = 10 * time.Second
	// An end that a failed spec leaves would answer for the address of the next one.
	e.stop = func() {
		cancel()
		_ = e.cmd.Wait() // it may have been waited for
	}
	DeferCleanup(e.stop)
	e.cmd.Stderr = &e.stderr
	e.stdin, err = e.cmd.StdinPipe()
	Expect(err).NotTo(HaveOccurred())
	out, err := e.cmd.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	e.stdout = bufio.NewReader(out)
	Expect(e.cmd.Start()).To(Succeed())
	_, err = e.stdin.Write(append(in, '\n'))
	Expect(err).NotTo(HaveOccurred())
	return e
}

// finishes expects the last lines.
func (e *pingEnd) finishes(lines ...string) {
	GinkgoHelper()
	for _, l := range lines {
		e.says(l)
	}
	rest, err := io.ReadAll(e.stdout)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(rest)).To(BeEmpty())
	Expect(e.cmd.Wait()).To(Succeed(), e.stderr.String())
}

// says expects a line.
func (e *pingEnd) says(line string) {
	GinkgoHelper()
	got, err := e.stdout.ReadString('\n')
	if err != nil {
		_ = e.cmd.Wait()
	}
	Expect(got).To(Equal(line+"\n"), e.stderr.String())
}

func (e *pingEnd) ends(pings int) {
	GinkgoHelper()
	e.finishes(strconv.Itoa(pings) + " pings")
}

// aloneOnCn0 leaves queue pair 1 of cn0 to our end until the spec is over.
func aloneOnCn0() {
	GinkgoHelper()
	rack.OK("crash", "cn0", "--nic")
	DeferCleanup(func() { rack.OK("restart", "cn0", "--nic") })
}

// rping gives each of its steps two seconds and cannot be told to wait longer; the virtual machine
// may stand still for as long where it is emulated and other programs have the processors. A spec
// is tried again; the report says so.
var _ = Describe("rping of Linux", FlakeAttempts(3), func() {
	BeforeEach(watchICRCs)
	BeforeEach(aloneOnCn0)

	const pings = 20

	It("connects to ours, is answered, and leaves", func() {
		for _, to := range ourAddrs[:2] {
			e := startPinger(rpingPlan{})
			e.says("listening")
			guest := linux.start("rping", "-c", "-a", to.String(), "-C", strconv.Itoa(pings), "-v", "-V")(pingLimit)
			GinkgoWriter.Printf("guest: %s(exit %d)\n", guest.Output, guest.Code)
			Expect(guest.Code).To(BeZero(), guest.Output)
			e.ends(pings)
		}
		passed("rping", "client", "20 pings, IPv4 and IPv6; rxe leaves")
	})

	It("serves ours", func() {
		finish := linux.start("rping", "-s", "-a", guestIPv4.String(), "-C", strconv.Itoa(pings), "-v")
		// A request that was refused before rping listens may be repeated on the wire and accepted afterwards, for a
		// program that has gone: there is one dial, and it comes when rping listens.
		Eventually(func() string {
			return linux.do(pingLimit, "rdma", "resource", "show", "cm_id")
		}).WithTimeout(pingLimit).Should(ContainSubstring("state LISTEN"))
		e := startPinger(rpingPlan{To: guestIPv4, Count: pings})
		e.ends(pings)
		guest := finish(pingLimit)
		GinkgoWriter.Printf("guest: %s(exit %d)\n", guest.Output, guest.Code)
		Expect(guest.Output).To(ContainSubstring("server DISCONNECT EVENT"))
		passed("rping", "server", "20 pings; ours leaves")
	})

	It("learns that ours has left", func() {
		e := startPinger(rpingPlan{Leave: 3})
		e.says("listening")
		guest := linux.start("rping", "-c", "-a", ourAddrs[0].String(), "-C", strconv.Itoa(pings), "-v")(pingLimit)
		GinkgoWriter.Printf("guest: %s(exit %d)\nours: %s\n", guest.Output, guest.Code, e.stderr.String())
		Expect(guest.Output).To(ContainSubstring("client DISCONNECT EVENT"))
		e.ends(3)
		passed("rping", "client", "3 pings; ours leaves within the work of rxe")
	})

	It("is dialed where nobody listens", func() {
		e := startPinger(rpingPlan{To: guestIPv4, Count: 1})
		Expect(e.cmd.Wait()).NotTo(Succeed())
		Expect(e.stderr.String()).To(ContainSubstring(rdmacm.ErrRejected.Error()))
		passed("none", "server", "a dial to a service without a listener is rejected")
	})
})
