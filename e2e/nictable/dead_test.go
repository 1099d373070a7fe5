package nictable_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// gets starts four clients that read the keys below 200, each so many times, and returns when the NIC
// answers them. answers counts the entries of programs that the NIC has executed; ended gets the result.
func gets(rack *fixture.Rack, each string) (answers func() uint64, ended chan fixture.Result) {
	GinkgoHelper()
	answers = func() uint64 { return rack.Counters("md0")["ring_entries"] }
	began := answers()
	ended = make(chan fixture.Result, 1)
	go func() {
		defer GinkgoRecover()
		ended <- rack.Run("run", "ycsb", "--store", "nictable", "--workload", "c", "--keys", "200", "--no-load", "--clients", "4", "--ops", each, "-q")
	}()
	Eventually(answers).Should(BeNumerically(">", began+1000))
	return answers, ended
}

var _ = Describe("the server of the NIC's table", func() {
	It("dies, and no GET fails; the next process takes the table over", func() {
		rack := fixture.Up(rackFile)
		rack.OK("nictable", "start")
		rack.OK("nictable", "load", "--keys", "200")
		answers, ended := gets(rack, "60000")
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

	It("hangs with the host's processors, and no GET fails; changes wait for it", func() {
		rack := fixture.Up(rackFile)
		rack.OK("nictable", "start")
		rack.OK("nictable", "load", "--keys", "200")
		rack.OK("nictable", "insert", "5000", "w") // the run reads keys below 200
		answers, ended := gets(rack, "40000")
		rack.OK("hang", "md0", "--app")
		Expect(rack.State("md0")()).To(Equal("app-hung"))
		hung := answers()
		Eventually(answers).Should(BeNumerically(">", hung+20_000), "GETs while the processors hang")
		Expect(rack.Run("nictable", "start").Stderr).To(ContainSubstring("`rdmalab resume md0 --app`"))
		Expect(rack.Run("nictable", "put", "5000", "x", "--patience", "1s")).NotTo(fixture.HaveExited(0))
		rack.OK("resume", "md0", "--app")
		Expect(rack.State("md0")()).To(Equal("up"))
		rack.OK("nictable", "put", "5000", "y")
		Expect(rack.OK("nictable", "get", "5000")).To(ContainSubstring("y"))
		var res fixture.Result
		Eventually(ended).Should(Receive(&res))
		Expect(res).To(fixture.HaveExited(0))
		Expect(res.Stdout).NotTo(ContainSubstring("failed"))
	})
})
