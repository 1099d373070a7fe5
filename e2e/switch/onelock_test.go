package switch_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/topo/treeload"
)

var _ = Describe("one lock that all want", func() {
	It("is taken and released in host memory and on the NIC, and the switch replaces its CAS", func() {
		rack := fixture.Up(fixture.Small + queued)
		var list []treeload.LockSeries
		rack.JSON(&list, "sherman", "locks", "--to", "ms0", "--clients", "1,12", "--span", "1s")
		Expect(list).To(HaveLen(2))
		for _, s := range list {
			Expect(s.Points).To(HaveLen(2))
			for _, p := range s.Points {
				Expect(p.Acquired).To(BeNumerically(">", 0), s.Name)
				Expect(p.Attempts).To(BeNumerically(">=", p.Acquired), s.Name)
				Expect(p.P99).To(BeNumerically(">=", p.P50), s.Name)
			}
			Expect(s.Points[0].Replaced).To(BeNumerically(">", 0.5), s.Name)
		}
	})

	It("says what is wrong with the numbers of clients and the places", func() {
		rack := fixture.Up(fixture.Small)
		for _, bad := range [][]string{{"--clients", "0"}, {"--clients", "100000"}, {"--places", "moon"}, {"--to", "nobody"}} {
			res := rack.Run(append([]string{"sherman", "locks"}, bad...)...)
			Expect(res.Code).NotTo(BeZero(), "%v", bad)
			Expect(res.Stderr).To(ContainSubstring(bad[1]))
		}
	})
})
