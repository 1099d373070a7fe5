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
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
)

// pingLimit is how long rping may take in the guest.
const pingLimit = 40 * time.Second

// pingEnd is our end of an rping run.
type pingEnd struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr ask.Output
	stop   func()
}

// startPinger starts our end of an rping run inside cn0, with a NIC of its own.
func startPinger(p rpingPlan) *pingEnd {
	GinkgoHelper()
	p.plan = nicPlan()
	return startEnd("rping", p)
}

// startSpeaker starts our end of a program over librdmacm.
func startSpeaker(p speakerPlan) *pingEnd {
	GinkgoHelper()
	p.plan = nicPlan()
	if p.Port == "" {
		p.Port = anyPort
	}
	return startEnd("speaker", p)
}

// nicPlan describes a NIC in cn0 and the guest's addresses.
func nicPlan() plan {
	return plan{
		Ifname: rackfile.HostIfname, Addrs: ourAddrs[:2], PeerMAC: guestMAC, Peers: []netip.Addr{guestIPv4, guestIPv6},
		Seed: uint64(GinkgoRandomSeed()),
	}
}

// endLimit bounds the duration of our end.
const endLimit = 5 * time.Minute

func startEnd(peer string, plan any) *pingEnd {
	GinkgoHelper()
	in, err := json.Marshal(plan)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	e := &pingEnd{cmd: exec.CommandContext(ctx, fixture.Binary(), peerArgs(rack, "cn0", peer)...)}
	e.cmd.Cancel = func() error { return e.cmd.Process.Signal(unix.SIGTERM) } // nsenter passes it on to the program inside the host
	e.cmd.WaitDelay = 10 * time.Second
	// If a failed spec left our end running, it would answer for the address of the next spec.
	e.stop = func() {
		cancel()
		_ = e.cmd.Wait() // the spec may have waited for it already
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

// finishes expects the last lines of output.
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

// says expects a line of output.
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

// aloneOnCn0 stops the NIC daemon of cn0 until the spec is over, so that our end receives the
// datagrams to queue pair 1.
func aloneOnCn0() {
	GinkgoHelper()
	rack.OK("crash", "cn0", "--nic")
	DeferCleanup(func() { rack.OK("restart", "cn0", "--nic") })
}

// rping gives each of its steps two seconds and has no option for a longer time; an emulated
// virtual machine may stop for as long when other programs have the processors. A spec is tried
// again; the report lists the retries.
var _ = Describe("rping of Linux", FlakeAttempts(3), func() {
	BeforeEach(watchICRCs)
	BeforeEach(aloneOnCn0)

	const pings = 20

	It("connects to our server, is answered, and disconnects", func() {
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

	It("serves our client", func() {
		finish := linux.start("rping", "-s", "-a", guestIPv4.String(), "-C", strconv.Itoa(pings), "-v")
		// A request that is refused before rping listens may be repeated on the wire and accepted
		// afterwards, for a program that has ended. So there is one dial, after rping has begun to
		// listen.
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

	It("notices that our end has disconnected", func() {
		e := startPinger(rpingPlan{Leave: 3})
		e.says("listening")
		guest := linux.start("rping", "-c", "-a", ourAddrs[0].String(), "-C", strconv.Itoa(pings), "-v")(pingLimit)
		GinkgoWriter.Printf("guest: %s(exit %d)\nours: %s\n", guest.Output, guest.Code, e.stderr.String())
		Expect(guest.Output).To(ContainSubstring("client DISCONNECT EVENT"))
		e.ends(3)
		passed("rping", "client", "3 pings; ours leaves within the work of rxe")
	})

	It("is refused where no service listens", func() {
		e := startPinger(rpingPlan{To: guestIPv4, Count: 1})
		Expect(e.cmd.Wait()).NotTo(Succeed())
		Expect(e.stderr.String()).To(ContainSubstring(rdmacm.ErrRejected.Error()))
		passed("none", "server", "a dial to a service without a listener is rejected")
	})
})
