package chaos

import (
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// doomed is a run that must end with an error after the fault, and not before it because the
// machine is busy: its timeout and retry count wait 8 · 268 ms for a silent peer.
var doomed = []string{"perf", "write_lat", "--from", "cn0", "--to", "ms0", "--iters", "100000000", "--timeout", "16", "--retry", "7", "-q"}

// promised is the longest time from the fault to the end of a doomed run: that wait, and time for
// processes to be scheduled.
const promised = 8*268*time.Millisecond + 15*time.Second

// alive checks that a WRITE between two other hosts succeeds.
func alive(rack *fixture.Rack) {
	GinkgoHelper()
	rack.OK("perf", "verify", "--from", "cn1", "--to", "ms1")
}

const four = `
hosts:
  - {name: "cn[0-1]", role: compute}
  - {name: "ms[0-1]", role: memory, memory: 16MiB}
`

// endsBy starts a long run, injects a fault, and expects the run to end with the status in time.
func endsBy(rack *fixture.Rack, status string, f func()) {
	GinkgoHelper()
	before := rack.Counters("cn0")["rdma_sends"]
	ended := make(chan fixture.Result, 1)
	go func() {
		defer GinkgoRecover()
		ended <- rack.Run(doomed...)
	}()
	Eventually(func() uint64 { return rack.Counters("cn0")["rdma_sends"] }, fixture.Patience, "50ms").Should(BeNumerically(">", before+100))
	f()
	var res fixture.Result
	Eventually(ended, promised).Should(Receive(&res))
	Expect(res).To(fixture.HaveExited(1))
	Expect(res.Stderr).To(ContainSubstring(status))
}

const retryExceeded = "transport retry counter exceeded"

var _ = Describe("a host", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(four) })

	It("that crashes loses its NIC; restart brings both back", func() {
		was := rack.Host("ms0")
		endsBy(rack, retryExceeded, func() { rack.OK("crash", "ms0") })
		Expect(rack.State("ms0")()).To(Equal("crashed"))
		alive(rack)
		rack.OK("restart", "ms0")
		Eventually(rack.State("ms0"), fixture.Patience, "50ms").Should(Equal("up"))
		Expect(rack.Host("ms0").IPv4).To(Equal(was.IPv4))
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
	})

	It("whose application crashes keeps its NIC and its memory for connected peers", func() {
		received := func() uint64 { return rack.Counters("ms0")["rx_write_requests"] }
		first := received()
		stop := rack.Start(doomed...)
		Eventually(received, fixture.Patience, "50ms").Should(BeNumerically(">", first+100))
		rack.OK("crash", "ms0", "--app")
		Expect(rack.State("ms0")()).To(Equal("app-crashed"))
		before := received()
		Eventually(received, fixture.Patience, "50ms").Should(BeNumerically(">", before+100))
		Expect(rack.Run("perf", "verify", "--from", "cn1", "--to", "ms0").Stderr).To(ContainSubstring("no service"))
		alive(rack)
		Expect(stop().Stderr).NotTo(ContainSubstring("retry counter"))
		rack.OK("restart", "ms0", "--app")
		rack.OK("perf", "verify", "--from", "cn1", "--to", "ms0")
	})

	It("whose NIC crashes still answers to TCP", func() {
		endsBy(rack, retryExceeded, func() { rack.OK("crash", "ms0", "--nic") })
		Expect(rack.State("ms0")()).To(Equal("nic-down"))
		rack.OK(fixture.PeerCommand("cn0", "ping", rack.Host("ms0").IPv4)...)
		alive(rack)
		rack.OK("restart", "ms0")
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
	})

	It("that hangs answers nothing, and goes on when it is resumed", func() {
		endsBy(rack, retryExceeded, func() { rack.OK("hang", "ms0") })
		Expect(rack.State("ms0")()).To(Equal("hung"))
		alive(rack)
		rack.OK("resume", "ms0")
		Expect(rack.State("ms0")()).To(Equal("up"))
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
	})

	It("whose application hangs keeps its NIC, and its programs go on when they are resumed", func() {
		dir := GinkgoT().TempDir() // a container has none of this name
		stopProgram := rack.Start("exec", "ms0", "--", "/bin/sh", "-c", "mkdir -p "+dir+" && while echo >>"+dir+"/steps; do sleep 0.1; done")
		made := func() int {
			n, _ := strconv.Atoi(strings.TrimSpace(rack.Run("exec", "ms0", "--", "/bin/sh", "-c", "wc -c <"+dir+"/steps").Stdout))
			return n // 0 before the first step
		}
		Eventually(made, fixture.Patience, "50ms").Should(BeNumerically(">", 2))
		received := func() uint64 { return rack.Counters("ms0")["rx_write_requests"] }
		first := received()
		stop := rack.Start(doomed...)
		Eventually(received, fixture.Patience, "50ms").Should(BeNumerically(">", first+100))
		Expect(rack.OK("hang", "ms0", "--app")).To(MatchRegexp(`the services and tests of the daemon and [12] programs on ms0 hang`))
		Expect(rack.State("ms0")()).To(Equal("app-hung"))
		stood, before := made(), received()
		Eventually(received, fixture.Patience, "50ms").Should(BeNumerically(">", before+100))
		Expect(rack.Run("hang", "ms0", "--app").Stderr).To(ContainSubstring("`rdmalab resume ms0 --app` ends it"))
		Expect(rack.Run("resume", "ms0").Stderr).To(ContainSubstring("`rdmalab resume ms0 --app`"))
		alive(rack)
		Expect(made()).To(Equal(stood))
		rack.OK("resume", "ms0", "--app")
		Eventually(made, fixture.Patience, "50ms").Should(BeNumerically(">", stood))
		rack.OK("perf", "verify", "--from", "cn1", "--to", "ms0")
		Expect(rack.Run("resume", "ms0", "--app").Stderr).To(ContainSubstring("do not hang"))
		Expect(stop().Stderr).NotTo(ContainSubstring("retry counter"))
		stopProgram()
		rack.OK("hang", "ms0", "--app", "--for", "200ms")
		Eventually(rack.State("ms0"), fixture.Patience, "50ms").Should(Equal("up"))
		rack.OK("hang", "ms0", "--app")
		rack.OK("crash", "ms0", "--app")
		rack.OK("restart", "ms0", "--app")
		rack.OK("perf", "verify", "--from", "cn1", "--to", "ms0")
	})

	It("that hangs delays no other host, and does not execute later what was asked of it meanwhile", func() {
		rack.OK("hang", "ms0")
		ended := make(chan fixture.Result)
		asked := [][]string{{"counters", "ms0"}, {"crash", "ms0", "--nic"}, {"perf", "verify", "--from", "ms0", "--to", "ms1"}}
		for _, args := range asked {
			go func() {
				defer GinkgoRecover()
				ended <- rack.Run(args...)
			}()
		}
		for range asked {
			var res fixture.Result
			Eventually(ended, time.Minute).Should(Receive(&res))
			Expect(res).To(fixture.HaveExited(1))
			Expect(res.Stderr).To(ContainSubstring("ms0 does not answer"))
		}
		rack.OK("resume", "ms0")
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
		Expect(rack.State("ms0")()).To(Equal("up"))
	})

	It("that hangs with --for is resumed after that time", func() {
		rack.OK("hang", "ms0", "--for", "3s")
		Expect(rack.State("ms0")()).To(Equal("hung"))
		Eventually(rack.State("ms0"), fixture.Patience, "100ms").Should(Equal("up"))
	})
})

var _ = Describe("a link", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(four) })

	It("that goes down cuts one host off, and comes back", func() {
		endsBy(rack, retryExceeded, func() { rack.OK("link", "ms0", "down") })
		Expect(rack.State("ms0")()).To(Equal("link-down"))
		alive(rack)
		rack.OK("link", "ms0", "up")
		Eventually(rack.State("ms0"), fixture.Patience, "50ms").Should(Equal("up"))
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
	})

	It("that is partitioned off is silent for the other side only", func() {
		endsBy(rack, retryExceeded, func() { rack.OK("partition", "cn0", "ms0") })
		alive(rack)
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms1")
		rack.OK("heal", "--all")
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
	})
})

var _ = Describe("the switch", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(four) })

	It("that crashes cuts all hosts off; after restart all of them go on", func() {
		endsBy(rack, retryExceeded, func() { Expect(rack.EachSwitch("crash")).To(HaveEach("crashed")) })
		Expect(rack.EachSwitch("restart")).To(HaveEach("up"))
		alive(rack)
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
	})

	It("that restarts at once loses packets, and retransmission repairs that", func() {
		ended := make(chan fixture.Result, 1)
		counted := rack.Counters("cn0")
		before := counted["rdma_sends"]
		go func() {
			defer GinkgoRecover()
			// ACK timeout code 19 is 2.1 s: eight transmissions take longer than a restart.
			ended <- rack.Run("perf", "write_bw", "--from", "cn0", "--to", "ms0", "--size", "64KiB", "--iters", "20000", "--timeout", "19", "--verify", "-q")
		}()
		Eventually(func() uint64 { return rack.Counters("cn0")["rdma_sends"] }, fixture.Patience, "50ms").Should(BeNumerically(">", before+100))
		rack.EachSwitch("crash")
		rack.EachSwitch("restart")
		var res fixture.Result
		Eventually(ended, "3m").Should(Receive(&res))
		Expect(res).To(fixture.HaveExited(0))
		Expect(rack.Counters("cn0")["roce_retrans_pkts"]).To(BeNumerically(">", counted["roce_retrans_pkts"]), "nothing was lost")
	})
})
