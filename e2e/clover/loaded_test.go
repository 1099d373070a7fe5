package clover_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// program returns the name of the program that the switch runs, as the switch reports it.
func program(rack *fixture.Rack) string {
	GinkgoHelper()
	var p struct{ Name string }
	rack.JSON(&p, "switch", "program")
	return p.Name
}

var _ = Describe("a workload with --steer, on a rack whose switch only forwards", func() {
	It("makes the switch steer for as long as it runs", func() {
		rack := fixture.Up(fixture.OneSwitch(strings.Replace(rackFile, "switch: {program: swordbox}", "", 1)))
		var r struct{ Ops, Failed, Wrong, NotFound uint64 }
		ended := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(ended)
			rack.JSON(&r, "run", "ycsb", "--keys", "64", "--value-size", "104", "--clients", "8", "--steer", "both", "--warmup", "100ms", "--duration", "3s", "-q")
		}()
		Eventually(func() uint64 { // a switch without the steering program has no such counters
			if program(rack) != "swordbox" {
				return 0
			}
			return rack.SwitchCounters()["steer"]["nodes"]
		}, fixture.Patience, "50ms").Should(BeNumerically(">", 0))
		Eventually(ended, fixture.Patience).Should(BeClosed())
		Expect(r.Ops).To(BeNumerically(">", 20))
		Expect(r.Failed + r.Wrong + r.NotFound).To(BeZero())
		Expect(program(rack)).To(Equal("forward"))

		By("and restores the former program when it is interrupted")
		stop := rack.Start("run", "ycsb", "--no-load", "--keys", "64", "--value-size", "104", "--clients", "8", "--steer", "write", "--duration", "5m")
		Eventually(func() string { return program(rack) }, fixture.Patience, "50ms").Should(Equal("swordbox"))
		Expect(stop()).NotTo(fixture.HaveExited(0))
		Expect(program(rack)).To(Equal("forward"))
	})
})
