package kvcs_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("the figures of the paper 1RMA", func() {
	It("are measured on a rack beside RoCEv2, and leave the rack as it was", func() {
		rack := fixture.Up(fixture.OneSwitch(rackFile))
		out := rack.OK("experiment", "onerma-figures", "--on", "rack", "--quick", "--figures", "fig8,fig9,fig11,fig12,fig14", "--to", "ms1")
		for _, row := range []string{
			`1RMA +[1-9]\d*\.\d +`, `RoCEv2 +[1-9]\d*\.\d +`, // of the unit, in microseconds
			`median +1RMA +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d\n`, `median +RoCEv2 +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d\n`,
			`and a READ +\d+\.\d\d +\d+\.\d\d`, `GETs that fail +0\.0 +0\.0 +0\.0\n`, `1RMA WRITE +\d+\.\d\d +`, `RoCEv2 READ +\d+\.\d\d +`,
		} {
			Expect(out).To(MatchRegexp(`(?m)^`+row), out)
		}
		Expect(out).NotTo(ContainSubstring("\nnot measured\n"), out)
		Expect(rack.OK("status")).To(MatchRegexp(`(?m)^ms1 +up +2 `), "the NIC that crashed has another incarnation")
		Expect(rack.OK("kvcs", "start")).To(HavePrefix("made a table"), "the store was stopped")
	})

	It("need 1RMA NICs", func() {
		rack := fixture.Up(hosts)
		res := rack.Run("experiment", "onerma-figures", "--on", "rack", "--quick")
		Expect(res).To(fixture.HaveExited(1))
		Expect(res.Stderr).To(ContainSubstring("put `onerma: {}` into the rack file"))
	})
})
