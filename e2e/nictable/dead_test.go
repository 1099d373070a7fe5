package nictable_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("the server of the NIC's table", func() {
	It("dies, and no GET fails; the next process takes the table over", func() {
		rack := fixture.Up(rackFile)
		rack.OK("nictable", "start")
		rack.OK("nictable", "load", "--keys", "200")
		answers := func() uint64 { return rack.Counters("md0")["ring_entries"] }
		began := answers()
		ended := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			ended <- rack.Run("run", "ycsb", "--store", "nictable", "--workload", "c", "--keys", "200", "--no-load", "--clients", "4", "--ops", "60000", "-q")
		}()
		Eventually(answers).Should(BeNumerically(">", began+1000))
		rack.OK("crash", "md0", "--app")
		dead := answers()
		Eventually(answers).Should(BeNumerically(">", dead+20_000), "GETs without a process")
		Expect(rack.Run("nictable", "put", "7", "x", "--patience", "1s")).NotTo(fixture.HaveExited(0))
		rack.OK("restart", "md0", "--app")
		Expect(rack.OK("nictable", "start")).To(HavePrefix("took over a table of 200 keys"))
		rack.OK("nictable", "get", "7")
		var res fixture.Result
		Eventually(ended).Should(Receive(&res))
		Expect(res).To(fixture.HaveExited(0))
		Expect(res.Stdout).To(ContainSubstring("nictable, workload c"))
		Expect(res.Stdout).NotTo(ContainSubstring("failed"))
	})
})
