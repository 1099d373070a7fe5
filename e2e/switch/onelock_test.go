package switch_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/experiment"
)

var _ = Describe("one lock for all clients", func() {
	It("is taken and released in host memory and on the NIC, and the switch replaces its CAS", func() {
		rack := fixture.Up(fixture.Small + queued)
		var r experiment.Report
		rack.JSON(&r, "experiment", "one-lock", "--on", "rack", "--to", "ms0", "--series", "as-is,as-is-device", "--clients", "1,12")
		Expect(r.Rows).To(HaveLen(4))
		for i, w := range r.Rows {
			name := w.Cell("series").Text
			Expect(w.Cell("acquiredMops").Value).To(BeNumerically(">", 0), name)
			Expect(w.Cell("mops").Value).To(BeNumerically(">=", w.Cell("acquiredMops").Value), name)
			Expect(w.Cell("p99us").Value).To(BeNumerically(">=", w.Cell("p50us").Value), name)
			if i%2 == 0 { // the share grows with the number of CAS, which a busy machine bounds
				Expect(w.Cell("replaced").Value).To(BeNumerically(">", 0), name)
			}
		}
	})

	It("gets the rules of an experiment in the switch, which restores the former ones afterwards", func() {
		rack := fixture.Up(fixture.Small + queued)
		before := rack.OK("switch", "rules")
		var r experiment.Report
		rack.JSON(&r, "experiment", "one-lock", "--on", "rack", "--series", "host,switch", "--clients", "4")
		Expect(r.Rows).To(HaveLen(2))
		Expect(r.Rows[0].Cell("replaced").Value).To(BeZero())
		Expect(r.Rows[1].Cell("replaced").Value).To(BeNumerically(">", 0))
		Expect(rack.OK("switch", "rules")).To(Equal(before))
	})

	// Published rules send all requests on the connection of one client. Its host must not end the connection
	// before the clients of the other hosts have ended (hole 4).
	It("is measured with published rules although hosts end at different times", func() {
		rack := fixture.Up(fixture.Small)
		for _, line := range [][]string{{"one-lock", "--span", "300ms"}, {"cas-one-word", "--iters", "4000"}} {
			var r experiment.Report
			rack.JSON(&r, append(append([]string{"experiment"}, line...), "--on", "rack", "--series", "published", "--clients", "2,8")...)
			Expect(r.Rows).To(HaveLen(2), "%v", line)
			for _, w := range r.Rows {
				Expect(w.Cell("replaced").Value).To(BeNumerically(">", 0), "%v", line)
			}
		}
	})

	It("is refused with wrong numbers of clients or wrong places, and the error names the mistake", func() {
		rack := fixture.Up(fixture.Small)
		for _, bad := range [][]string{{"--clients", "0"}, {"--clients", "100000"}, {"--series", "moon"}, {"--to", "ms99"}} {
			res := rack.Run(append([]string{"experiment", "one-lock", "--on", "rack"}, bad...)...)
			Expect(res.Code).NotTo(BeZero(), "%v", bad)
			Expect(res.Stderr).To(ContainSubstring(bad[1]))
		}
	})
})
