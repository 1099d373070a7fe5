package switch_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/swordbox/statestore"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
)

var _ = Describe("A rule of action measure", Ordered, func() {
	var rack *fixture.Rack

	BeforeAll(func() { rack = fixture.Up(boxed) })

	counter := func(name string) int { return int(rack.SwitchCounters()["count"][name]) }

	It("finds the heavy flows of RDMA and of other protocols from the memory of a server, also when its link loses packets", func() {
		rack.OK("switch", "rules", "add", "id=tele0", "server=cn0", "action=measure", "store=ms1", "at=0x1000", "depth=4")
		rack.OK("switch", "rules", "add", "id=tele1", "server=cn1", "action=measure", "store=ms1", "at=0x1000", "depth=4")
		up := func() (list []statestore.Store) {
			rack.JSON(&list, "switch", "counted")
			return list
		}
		Eventually(up, "30s").Should(ContainElement(HaveField("State", "up")))
		rack.OK("inject", "loss", "5%", "--class", "roce", "--link", "ms1", "--dir", "both")
		rack.Perf("write_lat", "--iters", "400")
		rack.OK("exec", "cn1", "--", "/bin/bash", "-c", "for i in {1..30}; do echo measured > /dev/udp/"+rack.Host("ms0").IPv4+"/9; done")
		rack.OK("heal")
		Eventually(func() int { return counter("pending") + counter("in_flight") }, "30s").Should(BeZero())
		Expect(counter("uncertain") + counter("dropped")).To(BeZero())
		Expect(counter("packets")).To(BeNumerically(">=", 430))

		var report telemetry.Report
		rack.JSON(&report, "switch", "heavy", "tele0", "--on", "ms0", "-n", "0")
		Expect(report.Total).To(BeNumerically("==", counter("packets")))
		Expect(report.List[0].Key.DstPort).To(BeEquivalentTo(4791))
		Expect(report.List[0].AtMost).To(BeNumerically(">=", 400))
		var others uint64
		for _, h := range report.List {
			if h.Key.DstPort == 9 {
				others += h.AtMost
			}
		}
		Expect(others).To(BeNumerically(">=", 30))
		Expect(rack.OK("switch", "heavy", "tele1", "--on", "ms0")).To(MatchRegexp(`cn0:\d+ > ms0:4791 udp +\d+ +\d+ +\d`))
	})

	It("shows what was counted within a time alone", func() {
		var report telemetry.Report
		rack.JSON(&report, "switch", "heavy", "tele0", "--on", "ms0", "--for", "100ms")
		Expect(report.List[0].AtMost).To(BeNumerically("<", 400))
		Expect(strings.Count(rack.OK("switch", "flows", "-n", "1"), "\n")).To(Equal(2))
		Expect(rack.Run("switch", "heavy", "locks", "--on", "ms0").Code).NotTo(BeZero())
	})
})
