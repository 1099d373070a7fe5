package interop_test

import (
	"io"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/interop/image"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// tell writes a word to the standard input of our end.
func (e *pingEnd) tell(word string) {
	GinkgoHelper()
	_, err := io.WriteString(e.stdin, word+"\n")
	Expect(err).NotTo(HaveOccurred())
}

// dies crashes our end.
func (e *pingEnd) dies() {
	GinkgoHelper()
	e.tell("die")
	Expect(e.cmd.Wait()).NotTo(Succeed())
}

// line returns the next line of our end's output.
func (e *pingEnd) line() string {
	GinkgoHelper()
	got, err := e.stdout.ReadString('\n')
	Expect(err).NotTo(HaveOccurred(), "%s%s", got, e.stderr.String())
	return strings.TrimSuffix(got, "\n")
}

// rpingTo are the arguments of an rping client that runs until it is stopped.
func rpingTo(to netip.Addr, more ...string) []string {
	return append([]string{"rping", "-c", "-a", to.String(), "-C", "100000000"}, more...)
}

var _ = Describe("the end of", func() {
	BeforeEach(watchICRCs)
	BeforeEach(aloneOnCn0)

	It("rping of Linux during a transfer disconnects our end", func() {
		e := startPinger(rpingPlan{Report: 5})
		e.says("listening")
		finish, signal := linux.begin(rpingTo(ourAddrs[0])...)
		e.says("busy")
		signal(unix.SIGKILL)
		finish(programLimit)
		Expect(e.line()).To(MatchRegexp(`^\d+ pings$`)) // and the spec has waited for its disconnection
		e.finishes()
		died("its process is killed", "rping, a client", "transfer", "flushed, disconnected")
	})

	It("a server of Linux during our WRITEs disconnects our end", func() {
		finish, signal := linux.begin("rping", "-s", "-a", guestIPv4.String(), "-p", "7000")
		// A request that is refused before rping listens may be repeated on the wire and accepted
		// afterwards, for a program that has ended; rping takes no other one then.
		Eventually(func() string { return linux.do(answerLimit, "rdma", "resource", "show", "cm_id") }).
			WithTimeout(programLimit).Should(ContainSubstring(":7000"))
		e := startSpeaker(speakerPlan{Part: "flood", To: guestIPv4, Port: "7000"})
		e.says("pouring")
		signal(unix.SIGKILL)
		finish(programLimit)
		e.finishes("transfer: "+errEnded.Error(), "disconnect: had ended, ERR", "clean")
		died("its process is killed", "rping, a server", "transfer", "flushed, disconnected")
	})

	It("rping of Linux during the handshake leaves our end without a connection", func() {
		e := startSpeaker(speakerPlan{Part: "hold"})
		e.says("listening")
		finish, signal := linux.begin(rpingTo(ourAddrs[0], "-p", anyPort)...)
		e.says("asked")
		signal(unix.SIGKILL)
		finish(programLimit)
		e.tell("accept")
		Expect(e.line()).To(MatchRegexp(`^accept: (timed out|rejected), ERR$`))
		e.finishes("clean")
		died("its process is killed", "rping, a client", "handshake", "rejected")
	})

	It("a server of Linux during the handshake ends our dial with a rejection", func() {
		finish, signal := linux.begin("rping", "-s", "-a", guestIPv4.String(), "-p", "7001")
		Eventually(func() string { return linux.do(answerLimit, "rdma", "resource", "show", "cm_id") }).
			WithTimeout(programLimit).Should(ContainSubstring(":7001"))
		signal(unix.SIGSTOP) // the kernel accepts the request, and no program answers it
		e := startSpeaker(speakerPlan{Part: "dial", To: guestIPv4, Port: "7001"})
		e.says("dialing")
		// The request has arrived when there is a second identifier beside the listener's.
		Eventually(func() int {
			return strings.Count(linux.do(answerLimit, "rdma", "resource", "show", "cm_id"), ":7001")
		}).WithTimeout(programLimit).Should(BeNumerically(">=", 2))
		signal(unix.SIGKILL)
		finish(programLimit)
		e.finishes("dial: rejected, RESET", "clean")
		died("its process is killed", "rping, a server", "handshake", "rejected")
	})

	It("our end during the handshake or a transfer does not disturb the next connection", func() {
		e := startSpeaker(speakerPlan{Part: "hold", Port: rpingPort})
		e.says("listening")
		finish, signal := linux.begin(rpingTo(ourAddrs[0])...)
		e.says("asked")
		e.dies()
		// The program that is started next gets the request when it is repeated, and answers it.
		e = startPinger(rpingPlan{Report: 5})
		e.says("listening")
		e.says("busy")
		died("ours is killed", "rping, a client", "handshake", "the next one on the same NIC takes the request")
		e.dies()
		signal(unix.SIGKILL) // a program that waits for a message is not informed
		finish(programLimit)

		e = startPinger(rpingPlan{})
		e.says("listening")
		Expect(linux.start("rping", "-c", "-a", ourAddrs[0].String(), "-C", "3")(pingLimit).Code).To(BeZero())
		e.ends(3)
		died("ours is killed", "rping, a client", "transfer", "the next one on the same NIC is free")
	})

	It("the virtual machine leaves no state at our NIC", func() {
		mac := wire.MAC{0x02, 0x73, 0, 0, 0, 0xc9}
		other := netip.MustParseAddr("10.77.0.201")
		vm := bootGuest(rack, "vm1", image.Machine{Kernel: kernelFiles.Kernel, Initrd: kernelFiles.Initrd, Links: []wire.MAC{mac}, MTU: 4200, Addrs: []string{other.String() + "/24"}})
		vm.do(answerLimit, "ip", "neigh", "replace", ourAddrs[0].String(), "lladdr", rack.Host("cn0").MAC, "dev", "eth0", "nud", "permanent")
		vm.start("rping", "-s", "-a", other.String())
		Eventually(func() string { return vm.do(answerLimit, "rdma", "resource", "show", "cm_id") }).
			WithTimeout(programLimit).Should(ContainSubstring(":" + rpingPort))
		p := speakerPlan{Part: "survivor", To: other, Port: anyPort}
		p.plan = nicPlan()
		p.PeerMAC, p.Peers = mac, []netip.Addr{other}
		e := startEnd("speaker", p)
		e.says("listening")
		vm.start(rpingTo(ourAddrs[0], "-p", anyPort)...)
		e.says("asked")
		e.says("pouring")
		vm.kill()
		e.finishes("transfer: completion transport retry counter exceeded", "disconnect: done, ERR", "accept: timed out, ERR", "dial: timed out, RESET", "clean")
		died("its machine is killed", "rxe", "handshake", "timed out")
		died("its machine is killed", "rxe", "transfer", "transport retry counter exceeded, disconnected")
	})
})

var _ = Describe("many connections", func() {
	BeforeEach(watchICRCs)
	BeforeEach(aloneOnCn0)

	const each, rounds, few = 100, 5, 10

	It("that the guest makes and ends leave no state", func() {
		for range rounds {
			serveOurs(speakerPlan{Part: "cycles", Count: each}, []string{"cmtime", "-s", ourAddrs[0].String(), "-c", strconv.Itoa(each), "-p", anyPort},
				strconv.Itoa(each)+" connections")
		}
		passed("cmtime", "client", strconv.Itoa(each*rounds)+" connections made and ended, nothing left")
	})

	It("that the guest makes and ends over a lossy link leave no state", func() {
		spoilLink()
		serveOurs(speakerPlan{Part: "cycles", Count: few}, []string{"cmtime", "-s", ourAddrs[0].String(), "-c", strconv.Itoa(few), "-p", anyPort},
			strconv.Itoa(few)+" connections")
		passed("cmtime", "client", strconv.Itoa(few)+" connections made and ended over a lossy link, nothing left")
	})

	It("that our NIC makes and ends leave no state", func() {
		finish, signal := linux.begin("rping", "-s", "-P", "-a", guestIPv4.String(), "-p", "7002")
		Eventually(func() string { return linux.do(answerLimit, "rdma", "resource", "show", "cm_id") }).
			WithTimeout(programLimit).Should(ContainSubstring(":7002"))
		e := startSpeaker(speakerPlan{Part: "dial cycles", To: guestIPv4, Port: "7002", Count: each * rounds})
		e.finishes(strconv.Itoa(each*rounds)+" connections", "clean")
		// The guest has no connection left, either.
		Eventually(func() []string {
			return regexp.MustCompile(`state CONNECT`).FindAllString(linux.do(answerLimit, "rdma", "resource", "show", "cm_id"), -1)
		}).WithTimeout(programLimit).Should(BeEmpty())
		signal(unix.SIGKILL)
		finish(programLimit)
		passed("rping -s -P", "server", strconv.Itoa(each*rounds)+" connections made and ended by ours, nothing left")
	})
})
