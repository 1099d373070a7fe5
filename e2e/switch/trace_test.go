package switch_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/swordbox/packettrace"
	"github.com/rdmalab/rdmalab/swordbox/tracestore"
)

var _ = Describe("A rule of action trace", Ordered, func() {
	var rack *fixture.Rack

	BeforeAll(func() { rack = fixture.Up(boxed) })

	counter := func(name string) int { return int(rack.SwitchCounters()["trace"][name]) }

	It("puts the packets of a host into the memory of a server, also when its link loses packets, and the ring says what was sent", func() {
		rack.OK("switch", "rules", "add", "id=trace0", "server=cn0", "action=trace", "store=ms1", "at=0x1000", "records=1024", "cap=1Gbit", "dscp=46")
		up := func() bool {
			var list []tracestore.Ring
			rack.JSON(&list, "switch", "traces")
			return len(list) == 1 && list[0].Servers[0].Up
		}
		Eventually(up, "30s").Should(BeTrue())
		rack.OK("inject", "loss", "5%", "--class", "roce", "--link", "ms1", "--dir", "both")
		rack.Perf("write_lat", "--iters", "400")
		rack.OK("exec", "cn0", "--", "/bin/bash", "-c", "for i in {1..30}; do echo traced > /dev/udp/"+rack.Host("ms0").IPv4+"/9; done")
		rack.OK("heal")
		Eventually(func() int { return counter("waiting") + counter("in_flight") }, "30s").Should(BeZero())
		Expect(counter("records")).To(Equal(counter("stored") + counter("uncertain") + counter("dropped")))
		Expect(counter("stored")).To(BeNumerically(">=", 430))

		var report packettrace.Report
		rack.JSON(&report, "switch", "traced", "-n", "0")
		Expect(report.Records).To(BeNumerically(">=", 430))
		Expect(report.Missing).To(BeZero())
		packets, numbered := uint64(0), uint64(0)
		for _, f := range report.Flows {
			if f.Key.DstPort == 9 {
				packets += f.Packets
			}
			numbered += f.Numbered
		}
		Expect(packets).To(BeNumerically(">=", 30))
		Expect(numbered).To(BeNumerically(">=", 400))
	})

	It("says which packets were sent again, and refuses a rule that does not record", func() {
		rack.OK("inject", "drop", "--opcode", "RC_WRITE_ONLY", "--psn-offset", "5", "--once", "--link", "ms0", "--dir", "down")
		rack.Perf("write_lat", "--iters", "50")
		rack.OK("heal")
		Eventually(func() uint64 {
			var report packettrace.Report
			rack.JSON(&report, "switch", "traced", "trace0", "-n", "0")
			sum := uint64(0)
			for _, f := range report.Flows {
				sum += f.Again
			}
			return sum
		}, "30s").Should(BeNumerically(">=", 1))
		Expect(rack.Run("switch", "traced", "locks").Code).NotTo(BeZero())
	})
})
