package switch_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// replace is the part of a rack file that makes the switch replace atomics by WRITEs.
const replace = `
switch:
  program: swordbox
  rules:
    - {server: ms0, action: atomics, shards: 2}
`

// queued is replace with a switch that holds a CAS that would fail until it can succeed.
const queued = `
switch:
  program: swordbox
  rules:
    - {server: ms0, action: atomics, shards: 2, misses: "wait:20ms"}
`

var _ = Describe("locks of many clients on few words", func() {
	DescribeTable("are held by one client at a time", func(section string) {
		p := newParty(section)

		By("without faults")
		p.run(8, 25, nil, nil)

		By("while every hop loses, doubles and reorders packets")
		for _, link := range []string{"cn0", "cn1", "ms0"} {
			for _, f := range [][]string{{"loss", "2%"}, {"duplicate", "2%"}, {"reorder", "2%"}} {
				p.rack.OK("inject", f[0], f[1], "--class", "roce", "--link", link, "--dir", "both")
			}
		}
		p.run(8, 20, nil, nil)

		By("while clients are killed at every step")
		steps := []step{before, asked, inside, releasing}
		p.run(8, 20, func(i int, plan *lockPlan) {
			if i < len(steps) {
				plan.Die, plan.DieIn, plan.Rounds = steps[i], 3, 1000
			}
		}, nil)
		p.rack.OK("heal", "--all")

		By("while the NIC of the server is gone for a second")
		before := p.failed
		long := func(_ int, plan *lockPlan) { plan.For = 4 * time.Second }
		p.run(8, 20, long, func() { p.busy(); p.rack.OK("crash", "ms0", "--nic", "--for", "1s") })
		Expect(p.failed).To(BeNumerically(">", before), "no client felt the crash")

		By("while the switch is gone for a second")
		before = p.failed
		p.run(8, 20, long, func() { p.busy(); p.rack.OK("crash", "switch", "--for", "1s") })
		Expect(p.failed).To(BeNumerically(">", before), "no client felt the crash")
		p.check()
	},
		Entry("through plain forwarding", ""),
		Entry("through a switch that tracks connections", fixture.SwitchSection(fixture.Track, false, "ms0")),
		Entry("through a switch that moves requests", fixture.SwitchSection(fixture.Move, false, "ms0")),
		Entry("through a switch that replaces atomics", replace),
		Entry("through a switch in which a CAS that would fail waits", queued),
	)
})
