package interop_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/e2e/interop/ask"
)

// toolLimit is how long one program may take. The connection manager of Linux repeats a request
// only after 4.3 s.
const toolLimit = 2 * time.Minute

// lonelyLimit is how long a program in the guest may take to end when our end has failed: it may
// wait for messages that never come.
const lonelyLimit = 10 * time.Second

// tool runs a program in the guest with our program as the other end, in both roles, with several
// messages each.
func tool(theirs, ours []string, byOptions ...string) {
	GinkgoHelper()
	By("the guest's program as the server")
	measured(func() (fixture.Result, ask.Answer) {
		finish := linux.start(theirs...)
		ourRun := rack.Run(append(ours, byOptions...)...)
		if ourRun.Code != 0 {
			return ourRun, finish(lonelyLimit)
		}
		return ourRun, finish(toolLimit)
	})

	By("the guest's program as the client")
	measured(func() (ourRun fixture.Result, theirRun ask.Answer) {
		server := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			server <- rack.Run(ours...)
		}()
		theirRun = linux.patiently(append(theirs, ourAddrs[0].String())...)
		Eventually(server).WithTimeout(toolLimit).Should(Receive(&ourRun))
		return ourRun, theirRun
	})
}

// unclocked is the message of perftest when it cannot measure the rate of the processor's counter,
// which an emulated processor may not keep while its machine is busy. clockTries is how often a run
// may fail with it.
const (
	unclocked  = "Correlation coefficient r^2"
	clockTries = 4
)

// exhausted is what ends say of a connection whose retries are used up. ibv_rc_pingpong has no option
// for its timeout, and gives up after half a second, for which an emulated machine on a busy one may
// not run. The whole is run again then, over a new connection.
const exhausted = "transport retry counter exceeded"

// measured runs both ends and expects their results to agree.
func measured(run func() (fixture.Result, ask.Answer)) {
	GinkgoHelper()
	ours, theirs := run()
	for try := 1; try < clockTries && again(ours, theirs); try++ {
		GinkgoWriter.Println("again:", theirs.Output)
		ours, theirs = run()
	}
	agree(ours, theirs)
}

// again reports whether a run must be repeated: the emulated processor kept no time, or it did not run
// while a program without an option for timeouts waited for it.
func again(ours fixture.Result, theirs ask.Answer) bool {
	starved := slices.Contains(ours.Args, "pingpong") && strings.Contains(ours.Stderr+theirs.Output, exhausted)
	return starved || strings.Contains(theirs.Output, unclocked)
}

func agree(ours fixture.Result, theirs ask.Answer) {
	GinkgoHelper()
	GinkgoWriter.Printf("guest: %s(exit %d)\n", theirs.Output, theirs.Code)
	Expect(ours).To(fixture.HaveExited(0), theirs.Output)
	Expect(theirs.Code).To(BeZero(), theirs.Output)
}

// patiently runs a client in the guest, and repeats that while the server does not listen yet.
func (g *guest) patiently(args ...string) (a ask.Answer) {
	GinkgoHelper()
	Eventually(func() bool {
		a = g.start(args...)(toolLimit)
		return a.Code == 0 || !strings.Contains(a.Output, "Couldn't connect")
	}).Should(BeTrue())
	return a
}

// cleanLink is the word for a link without faults in the list of what has passed.
const cleanLink = "clean"

var _ = Describe("the tools of Linux", func() {
	BeforeEach(watchICRCs)

	pingpong := func(typ string, size, iters, mtu int) {
		s, n, m := strconv.Itoa(size), strconv.Itoa(iters), strconv.Itoa(mtu)
		theirs := []string{"ibv_" + typ + "_pingpong", "-g", "1", "-s", s, "-n", n}
		ours := []string{"pingpong", typ, "--on", "cn0", "--size", s, "--iters", n, "--mtu", m}
		if typ != "ud" {
			theirs = append(theirs, "-m", m)
		}
		tool(theirs, ours, guestIPv4.String())
		passed("ibv_"+typ+"_pingpong", "client and server", fmt.Sprintf("%d messages of %d bytes each way, MTU %d", iters, size, mtu))
	}
	DescribeTable("run ping-pong with our NIC", pingpong,
		Entry("rc", "rc", 4096, 100, 1024),
		Entry("rc, odd size and small packets", "rc", 10001, 50, 256),
		Entry("uc", "uc", 4096, 100, 1024),
		Entry("ud", "ud", 1000, 100, 1024),
		Entry("srq", "srq", 4096, 300, 1024),
	)

	// An emulated machine on a busy one may not run for a second, which ends a connection with the
	// usual timeouts (8 of 134 ms). Where no packet is lost, both ends wait 8 times 1.07 s. Over a
	// lossy link each lost answer costs a timeout, so the usual ones stay.
	const patience = "18"
	perftest := func(test string, size, iters int, link string) {
		s, n := strconv.Itoa(size), strconv.Itoa(iters)
		theirs := []string{"ib_" + test, "-d", "rxe0", "-x", "1", "-n", n}
		ours := []string{"perf", test, "--peer", "perftest", "--from", "cn0", "--iters", n}
		if link == cleanLink {
			theirs, ours = append(theirs, "-u", patience), append(ours, "--timeout", patience)
		}
		if !strings.HasPrefix(test, "atomic") {
			theirs, ours = append(theirs, "-s", s), append(ours, "--size", s)
		}
		tool(theirs, ours, "--to", guestIPv4.String())
		passed("ib_"+test, "client and server", fmt.Sprintf("%d messages of %d bytes, %s link", iters, size, link))
	}
	DescribeTable("run perftest with our NIC, in both roles", func(test string, size, iters int) { perftest(test, size, iters, cleanLink) },
		Entry("write_bw", "write_bw", 4096, 200),
		Entry("write_bw 64 KiB", "write_bw", 65536, 50),
		Entry("read_bw", "read_bw", 8192, 200),
		Entry("send_bw", "send_bw", 4096, 200),
		Entry("atomic_bw", "atomic_bw", 8, 200),
		Entry("write_lat", "write_lat", 64, 100),
		Entry("read_lat", "read_lat", 64, 100),
		Entry("send_lat", "send_lat", 64, 100),
		Entry("atomic_lat", "atomic_lat", 8, 100),
	)

	// This is not ping-pong: an end that has all its completions ends at once, and cannot answer a
	// last message whose acknowledgement was lost.
	DescribeTable("run perftest over a lossy link", func(test string, size, iters int) {
		spoilLink()
		perftest(test, size, iters, "lossy")
	},
		Entry("write_bw", "write_bw", 16384, 50),
		Entry("read_bw", "read_bw", 16384, 50),
		Entry("send_bw", "send_bw", 16384, 50),
		Entry("atomic_bw", "atomic_bw", 8, 100),
	)
})
