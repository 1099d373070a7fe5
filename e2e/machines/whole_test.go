package machines

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// many is a rack of 48 hosts.
const many = `
name: mcmany
machines:
  - {name: m1, ssh: ssh://root@10.213.0.1}
  - {name: m2, ssh: ssh://root@10.213.0.2}
  - {name: m3, ssh: ssh://root@10.213.0.3}
hosts:
  - {name: "cn[00-43]", role: compute}
  - {name: "ms[0-2]", role: memory, memory: 64MiB}
  - {name: md0, role: metadata}
`

var _ = Describe("48 hosts on three machines", func() {
	It("are up in seconds, exchange data, and run YCSB on a store", func() {
		l := newLab(3)
		rack := func(args ...string) string {
			GinkgoHelper()
			return l.ok(append([]string{"--rack", "mcmany"}, args...)...)
		}
		file := l.file("many.yaml", many)
		begin := time.Now()
		rack("up", "-f", file, "--no-verify")
		AddReportEntry("48 hosts and all trunks up", time.Since(begin).Round(time.Millisecond).String(), ReportEntryVisibilityAlways) // measured, and no bound
		Expect(rack("status")).To(ContainSubstring("3 of 3 trunks between switches up"))
		for _, to := range []string{"ms0", "ms1", "ms2"} { // cn01 is on m2; ms0 on m3, ms1 on m1, ms2 on m2
			Expect(rack("perf", "verify", "--from", "cn01", "--to", to)).To(MatchRegexp(`FAA +\S+ +ok`))
		}
		Expect(rack("perf", "write_bw", "--from", "cn00", "--to", "ms2", "--size", "64KiB", "--iters", "200", "--verify", "-q")).To(ContainSubstring("verified: 13107200 bytes"))
		rack("inject", "loss", "1%", "--link", "ms0")
		rack("clover", "start")
		Expect(rack("run", "ycsb", "--workload", "a", "--keys", "100", "--ops", "50", "-q")).To(ContainSubstring("operations a second"))
		Expect(rack("heal")).To(ContainSubstring("healed 1"))
		rack("down")
		for _, m := range l.machines {
			Expect(m.left()).To(BeEmpty(), m.name)
		}
	})
})
