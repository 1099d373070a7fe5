package onerma_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// narrow is a rack whose windows have room for one operation, with time-outs that a busy machine does
// not reach by itself.
const narrow = `
onerma: {rtt: 10ms, dispatch: 200ms, timeout: 1s, window: 4KiB}
` + hosts

// A data message that is lost holds the window of its receiver until the time-out, which is longer than
// the dispatch time-out. So what the operations behind it end with does not depend on the machine.
var _ = Describe("1RMA NICs whose window is held by a lost message", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(narrow) })

	It("end READs that wait for their own window as DISPATCH_TIMEOUT, and try them again", func() {
		Eventually(func(g Gomega) {
			defer rack.OK("heal")
			rack.OK("inject", "drop", "--class", "onerma_data", "--dir", "down", "--once", "--link", "cn0")
			p := rack.Perf("onerma_read_bw", "--size", "4KiB", "--iters", "64", "--tx-depth", "64", "--verify")
			g.Expect(p.Verified).To(Equal(uint64(64 * 4096)))
			g.Expect(rack.Faults()).To(HaveExactElements(HaveField("Hits", uint64(1))))
			g.Expect(p.Counters["onerma_ended_timeout"]).To(BeNumerically(">=", 1), "the READ whose data was lost")
			g.Expect(p.Counters["onerma_ended_dispatch_timeout"]).To(BeNumerically(">=", 1), "those that waited behind it")
		}, fixture.Patience).Should(Succeed())
	})

	It("refuse WRITEs by NACK when more bytes wait than the target's threshold, and they are tried again", func() {
		Eventually(func(g Gomega) {
			defer rack.OK("heal")
			refused := rack.Counters("ms0")["onerma_nacks_sent"]
			rack.OK("inject", "drop", "--class", "onerma_data", "--dir", "up", "--once", "--link", "cn0")
			p := rack.Perf("onerma_write_bw", "--size", "4KiB", "--iters", "64", "--tx-depth", "64", "--verify")
			g.Expect(p.Verified).To(Equal(uint64(64 * 4096)))
			g.Expect(p.Counters["onerma_ended_nack"]).To(BeNumerically(">=", 1), "64 WRITEs, and 16 may wait")
			g.Expect(rack.Counters("ms0")["onerma_nacks_sent"]).To(BeNumerically(">", refused))
		}, fixture.Patience).Should(Succeed())
	})
})
