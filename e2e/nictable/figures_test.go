package nictable_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("the figures of the paper RedN", func() {
	It("are measured on a rack by the programs that the simulator runs", func() {
		rack := fixture.Up(fixture.OneSwitch(fixture.Small))
		out := ""
		for _, figures := range []string{"table2", "8", "11", "entries"} { // a command for each: it has a limit, and the machine may be busy
			out += rack.OK("experiment", "redn-figures", "--on", "rack", "--quick", "--figures", figures)
		}
		Expect(out).To(MatchRegexp(`\nwhile recycled +3 \(3\) +2 \(2\) +4 \(4\)`), out)
		Expect(out).To(MatchRegexp(`\nRedN +52\.0 +52\.0 +52\.0 +52\.0 \(50\)`), out)
		Expect(out).To(MatchRegexp(`\nRedN, break +11\.0 +14\.0 +20\.0 +32\.0 \(30\)`), out)
		Expect(out).To(MatchRegexp(`\ntwo-sided, polling +[1-9]`), out)
		Expect(out).NotTo(ContainSubstring("not measured"))
	})
})
