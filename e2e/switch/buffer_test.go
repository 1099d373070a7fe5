package switch_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/swordbox/packetbuffer"
)

var _ = Describe("A rule of action buffer", Ordered, func() {
	var rack *fixture.Rack

	BeforeAll(func() { rack = fixture.Up(boxed) })

	queues := func() (list []packetbuffer.Item) {
		GinkgoHelper()
		rack.JSON(&list, "switch", "buffers")
		return list
	}
	counter := func(name string) int { return int(rack.SwitchCounters()["buffer"][name]) }

	It("keeps the packets to a slow port in the memory of a server, while another rule works on the same traffic", func() {
		Expect(rack.OK("switch", "buffers")).To(ContainSubstring("switch rules add server=cn0 action=buffer"))
		rack.OK("switch", "rules", "add", "id=slow", "server=ms0", "action=buffer", "ring=ms1", "rate=100Mbit", "high=4", "low=2", "entries=4000")
		Eventually(queues, "30s").Should(ConsistOf(HaveField("Ring", ConsistOf(HaveField("Up", true)))))
		rack.Perf("write_bw", "--size", "64KiB", "--iters", "50", "--verify")
		Expect(counter("stored")).To(BeNumerically(">", 100))
		Eventually(func() int { return counter("waiting") + counter("remote") }, "30s").Should(BeZero())
		Expect(counter("loaded")).To(Equal(counter("stored")))
		Expect(counter("frames")).To(Equal(counter("sent")))
		Expect(rack.OK("switch", "buffers")).To(MatchRegexp(`slow +hardened +100Mbit +0 of 4 +0 \(0 of 4000\) +\d+ +\d+ +0 +0 +ms1`))
		Expect(rack.OK("switch", "tables")).To(ContainSubstring("ring entries"))
		Expect(rack.OK("switch", "budget")).To(ContainSubstring("buffer requests"))
	})

	It("goes on when the memory link loses packets, and counts what was lost", func() {
		rack.OK("inject", "loss", "1%", "--class", "roce", "--link", "ms1", "--dir", "both")
		rack.Perf("write_bw", "--size", "64KiB", "--iters", "20", "--verify") // NICs send again what the ring loses
		rack.OK("heal")
		Eventually(func() int { return counter("waiting") + counter("remote") }, "30s").Should(BeZero())
		Expect(counter("loaded") + counter("lost")).To(Equal(counter("stored")))
		Expect(counter("sent") + counter("lost") + counter("full") + counter("blocked")).To(Equal(counter("frames")))
	})

	It("leaves nothing behind when it is removed", func() {
		rack.OK("switch", "rules", "remove", "slow")
		Eventually(queues, "30s").Should(BeEmpty())
		rack.Perf("write_bw", "--size", "64KiB", "--iters", "50", "--verify")
	})
})
