package onerma_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

const slowFile = `
onerma: {rtt: 20ms, dispatch: 40ms, timeout: 80ms, window: 96KiB}
` + hosts

var _ = Describe("figures of the paper 1RMA in slow motion", func() {
	It("are measured on links that are slow meanwhile", func() {
		rack := fixture.Up(slowFile)
		out := rack.OK("experiment", "onerma-figures", "--on", "rack", "--quick", "--figures", "fig16")
		for _, row := range []string{`goodput, % of the line rate +\d+\.\d +`, `shed, DISPATCH_TIMEOUT +\d+\.\d +`, `window of the rack file, KB +96\.0 +96\.0 +96\.0\n`} {
			Expect(out).To(MatchRegexp(`(?m)^`+row), out)
		}
		Expect(out).NotTo(ContainSubstring("figure rtt"), "the round trip is that of the rack file")
		Expect(rack.Faults()).To(BeEmpty(), "the links are as before")

		stop := rack.Start("experiment", "onerma-figures", "--on", "rack", "--figures", "fig15", "-q")
		Eventually(func() int { return len(rack.Faults()) }, fixture.Patience).Should(Equal(6), "a rate and a delay for each link")
		stop()
		Expect(rack.Faults()).To(BeEmpty(), "after an interrupt")

		rack.OK("inject", "delay", "1ms", "--link", "cn0")
		res := rack.Run("experiment", "onerma-figures", "--on", "rack", "--quick", "--figures", "fig15")
		Expect(res).To(fixture.HaveExited(1))
		Expect(res.Stderr).To(ContainSubstring("end them by `rdmalab heal`"))
		Expect(rack.Faults()).To(HaveLen(1))
	})

	It("need the parameters of a rack file", func() {
		rack := fixture.Up(rackFile)
		res := rack.Run("experiment", "onerma-figures", "--on", "rack", "--quick", "--figures", "fig15")
		Expect(res).To(fixture.HaveExited(1))
		Expect(res.Stderr).To(ContainSubstring("use topo/racks/onerma-slow.yaml"))
	})
})
