package switch_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

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
	// Each frame has left, or is counted as dropped: on a busy machine the servers answer late, and too
	// many frames wait for a WRITE.
	accounted := func() {
		GinkgoHelper()
		Expect(counter("loaded") + counter("lost")).To(Equal(counter("stored")))
		Expect(counter("sent") + counter("lost") + counter("full") + counter("blocked")).To(Equal(counter("frames")))
	}

	It("keeps the packets to a slow port in the memory of a server, while another rule works on the same traffic", func() {
		Expect(rack.OK("switch", "buffers")).To(ContainSubstring("switch rules add server=cn0 action=buffer"))
		rack.OK("switch", "rules", "add", "id=slow", "server=ms0", "action=buffer", "ring=ms1", "rate=100Mbit", "high=4", "low=2", "entries=4000")
		Eventually(queues, "30s").Should(ConsistOf(HaveField("Ring", ConsistOf(HaveField("Up", true)))))
		rack.Perf("write_bw", "--size", "64KiB", "--iters", "50", "--verify")
		Expect(counter("stored")).To(BeNumerically(">", 100))
		Eventually(func() int { return counter("waiting") + counter("remote") }, "30s").Should(BeZero())
		Expect(counter("lost")).To(BeZero())
		accounted()
		Expect(rack.OK("switch", "buffers")).To(MatchRegexp(`slow +hardened +100Mbit +0 of 4 +0 \(0 of 4000\) +\d+ +\d+ +0 +\d+ +ms1`))
		Expect(rack.OK("switch", "tables")).To(ContainSubstring("ring entries"))
		Expect(rack.OK("switch", "budget")).To(ContainSubstring("buffer requests"))
	})

	It("lets TCP of the hosts' kernels finish at the rate of the port", func() {
		const rate = 20e6 // bits a second
		rack.OK("switch", "rules", "remove", "slow")
		rack.OK("switch", "rules", "add", "id=slow", "server=ms0", "action=buffer", "ring=ms1", "rate=20Mbit", "high=4", "low=2", "entries=4000")
		Eventually(queues, "30s").Should(ConsistOf(HaveField("Ring", ConsistOf(HaveField("Up", true)))))
		stored := counter("stored")
		echo, _ := inHost(rack, "ms0", "tcp-echo 0.0.0.0:"+natPort)
		Eventually(echo, "30s").Should(gbytes.Say("listening"))
		began := time.Now()
		out, ended := inHost(rack, "cn0", fmt.Sprintf("tcp-send %s:%s", rack.Host("ms0").IPv4, natPort))
		var err error
		Eventually(ended, "90s").Should(Receive(&err))
		took := time.Since(began).Seconds()
		Expect(err).NotTo(HaveOccurred(), string(out.Contents()))
		Expect(string(out.Contents())).To(ContainSubstring("all bytes came back"))
		// All bytes pass the port, and TCP does not wait again and again for retransmissions of what the
		// port has dropped. On an idle machine it takes little longer than the port; a busy one may need
		// several times as long.
		Expect(took).To(And(BeNumerically(">", natBytes*8/rate), BeNumerically("<", 15*natBytes*8/rate)))
		Expect(counter("stored")).To(BeNumerically(">", stored+10))
		Eventually(func() int { return counter("waiting") + counter("remote") }, "30s").Should(BeZero())
		accounted()
	})

	It("goes on when the memory link loses packets, and counts what was lost", func() {
		rack.OK("inject", "loss", "1%", "--class", "roce", "--link", "ms1", "--dir", "both")
		rack.Perf("write_bw", "--size", "64KiB", "--iters", "20", "--verify") // NICs send again what the ring loses
		rack.OK("heal")
		Eventually(func() int { return counter("waiting") + counter("remote") }, "30s").Should(BeZero())
		accounted()
	})

	It("leaves nothing behind when it is removed", func() {
		rack.OK("switch", "rules", "remove", "slow")
		Eventually(queues, "30s").Should(BeEmpty())
		rack.Perf("write_bw", "--size", "64KiB", "--iters", "50", "--verify")
	})
})
