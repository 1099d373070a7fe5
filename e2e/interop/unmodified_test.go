package interop_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/e2e/interop/ask"
)

// duo is a program that runs twice: on cn0 over our NIC, and in the guest over rxe, each time as
// its distribution has built it. In its arguments GID stands for the index of the IPv4 address in
// the table of the side.
type duo struct {
	program string
	// said is what the client prints; both must end with 0, too.
	said string
}

// A side runs programs of one NIC.
type side struct {
	name, gid, addr string
	// begin starts a program; stop ends it without waiting.
	begin func(args []string) (ended <-chan ask.Answer, stop func())
	// listening reports whether a program listens by the connection manager.
	listening func() bool
}

// ourSide is cn0, theirSide the guest.
func ourSide() side {
	return side{"ours", "0", ourAddrs[0].String(), func(args []string) (<-chan ask.Answer, func()) {
		ended := make(chan ask.Answer, 1)
		go func() {
			defer GinkgoRecover()
			r := rack.Run(append([]string{"exec", "cn0", "--", "timeout", "110"}, args...)...)
			ended <- ask.Answer{Code: r.Code, Output: r.Stdout + r.Stderr}
		}()
		return ended, func() { rack.Run("exec", "cn0", "--", "pkill", args[0]) }
	}, func() bool { return strings.Contains(rack.OK("status", "-o", "json"), `"listeners":`) }}
}

func theirSide() side {
	return side{"rxe", "1", guestIPv4.String(), func(args []string) (<-chan ask.Answer, func()) {
		finish, signal := linux.begin(args...)
		ended := make(chan ask.Answer, 1)
		go func() { ended <- finish(toolLimit) }()
		return ended, func() { signal(unix.SIGKILL) }
	}, func() bool {
		return strings.Contains(linux.do(answerLimit, "rdma", "resource", "show", "cm_id"), "state LISTEN")
	}}
}

// early matches what a client says whose server does not listen at its TCP port yet.
var early = regexp.MustCompile(`ouldn't connect`)

// met reports whether the two sides meet by the connection manager. The server must listen before
// the client begins then: a request that is refused may be repeated on the wire and accepted
// afterwards, for a program that has ended.
func (d duo) met() bool {
	return !strings.HasPrefix(d.program, "ib") || strings.Contains(d.program, " -R")
}

// server and client return the arguments of both.
func (d duo) server(on side) []string {
	if d.name() == "rping" {
		return append(d.args(on), "-s")
	}
	return d.args(on)
}

func (d duo) client(on, server side) []string {
	switch {
	case d.name() == "rping":
		return append(d.args(on), "-c", "-a", server.addr)
	case strings.HasPrefix(d.program, "ib"):
		return append(d.args(on), server.addr)
	}
	return append(d.args(on), "-s", server.addr)
}

func (d duo) name() string { return strings.Fields(d.program)[0] }

func (d duo) args(on side) []string {
	return strings.Fields(strings.ReplaceAll(d.program, "GID", on.gid))
}

// tries is how often a run may fail for a reason that is not the NICs'.
const tries = 8

// slow is what ibv_rc_pingpong and its variants say if the guest has had no processor for 0.5 s: they
// have a timeout of 67 ms, seven retries and no option for either.
const slow = "Failed status transport retry counter exceeded"

// again reports whether a run failed for a reason that is not the NICs': the clock of the guest cannot
// be measured, see unclocked, the client was too early, or the guest was too slow.
func (d duo) again(said string) bool {
	switch {
	case strings.Contains(said, unclocked):
		return true
	case strings.HasPrefix(d.name(), "ibv_"):
		return strings.Contains(said, slow)
	}
	return strings.HasPrefix(d.name(), "ib_") && strings.Contains(said, fixture.PerftestTooEarly)
}

// run runs the program with the server on one side, again as long as d.again says so.
func (d duo) run(server, client side) {
	GinkgoHelper()
	var s, c ask.Answer
	for range tries {
		s, c = d.attempt(server, client)
		if !d.again(s.Output + c.Output) {
			break
		}
		GinkgoWriter.Println("again:", s.Output, c.Output)
	}
	GinkgoWriter.Printf("server, %s: %s(exit %d)\nclient, %s: %s(exit %d)\n", server.name, s.Output, s.Code, client.name, c.Output, c.Code)
	both := fmt.Sprintf("server, %s: %s\nclient, %s: %s", server.name, s.Output, client.name, c.Output)
	Expect(c.Code).To(BeZero(), both)
	Expect(s.Code).To(BeZero(), both)
	Expect(c.Output).To(ContainSubstring(d.said), both)
	Expect(s.Output+c.Output).NotTo(ContainSubstring("invalid data"), both)
}

// attempt runs server and client until both have ended. The client is started again if it ended
// because the server did not listen at its TCP port yet. The server is ended if the client has
// failed.
func (d duo) attempt(server, client side) (s, c ask.Answer) {
	GinkgoHelper()
	if d.met() { // listeners of earlier programs are gone
		Eventually(server.listening).WithTimeout(programLimit).WithPolling(listenPoll).Should(BeFalse())
	}
	ended, stop := server.begin(d.server(server))
	stop = sync.OnceFunc(stop)
	defer stop()
	if d.met() {
		Eventually(server.listening).WithTimeout(programLimit).WithPolling(listenPoll).Should(BeTrue())
	}
	over := false
	Eventually(func() error {
		done, leave := client.begin(d.client(client, server))
		select {
		case c = <-done:
		case s = <-ended:
			over = true
			if s.Code != 0 { // a client that polls would not notice
				leave()
			}
			c = <-done
		}
		if c.Code != 0 && early.MatchString(c.Output) && !over {
			return fmt.Errorf("too early: %s", c.Output)
		}
		return nil
	}).WithTimeout(toolLimit).WithPolling(listenPoll).Should(Succeed())
	if !over {
		if c.Code != 0 {
			stop()
		}
		Eventually(ended).WithTimeout(toolLimit + 2*ask.KillLimit).Should(Receive(&s))
	}
	return s, c
}

// listenPoll is the time between two looks whether a server listens.
const listenPoll = 100 * time.Millisecond

// pingOf is the last line of data of rping's client, without its end.
const pingOf = "ping data: rdma-ping-9: JKLMNOPQRSTUVWXYZ"

// duos are the programs; they and the libraries below them are the same on both sides, but for the
// shim below ours. The guest's emulated processors are slow: -u 18 (1 s) is a timeout that it keeps.
var duos = []duo{
	{"ibv_rc_pingpong -g GID -c -e -n 100", "100 iters in"},
	{"ibv_uc_pingpong -g GID -c -e -n 100", "100 iters in"},
	{"ibv_ud_pingpong -g GID -c -e -s 1000 -n 100", "100 iters in"},
	{"ibv_srq_pingpong -g GID -c -e -n 100", "100 iters in"},
	{"ib_write_bw -d rxe0 -x GID -F -u 18 -n 100 -s 16384", "#bytes"},
	{"ib_write_bw -R -d rxe0 -F -n 100 -s 4096", "#bytes"},
	{"ib_read_bw -d rxe0 -x GID -F -u 18 -n 100 -s 16384", "#bytes"},
	{"ib_atomic_bw -d rxe0 -x GID -F -u 18 -n 100", "#bytes"},
	{"ib_send_lat -d rxe0 -x GID -F -u 18 -n 50 -s 64", "#bytes"},
	{"ib_write_lat -d rxe0 -x GID -F -u 18 -n 50 -s 64", "#bytes"},
	{"rping -v -V -C 10", pingOf},
	{"ucmatose -C 20", "return status 0"},
	{"udaddy -C 20", "return status 0"},
	{"rstream -S 1024 -C 20 -I 2 -T v", "custom"},
}

// Some of the programs give each of their steps two seconds, see rping of Linux.
var _ = Describe("the same unmodified program", FlakeAttempts(3), func() {
	BeforeEach(func() {
		for _, p := range []string{"ibv_rc_pingpong", "ib_write_bw", "rping"} {
			if _, err := exec.LookPath(p); err != nil {
				Skip(p + " is not installed: apt-get install ibverbs-utils ibverbs-providers perftest rdmacm-utils")
			}
		}
	})
	BeforeEach(watchICRCs)

	for _, d := range duos {
		options := strings.NewReplacer(" -d rxe0", "", " -x GID", "", " -g GID", "", " -F", "", " -u 18", "").Replace(d.program)
		It("runs over our NIC and over rxe: "+options, func() {
			By("with the server over rxe")
			d.run(theirSide(), ourSide())
			By("with the server over our NIC")
			d.run(ourSide(), theirSide())
			passed(d.name(), "client and server", "`"+options+"`, against itself over our NIC")
		})
	}
})
