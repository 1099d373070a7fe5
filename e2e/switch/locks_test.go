package switch_test

import (
	"math"

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

		By("while every hop loses, doubles and reorders packets, and clients are killed at every step")
		for _, link := range []string{"cn0", "cn1", "ms0"} {
			for _, f := range [][]string{{"loss", "2%"}, {"duplicate", "2%"}, {"reorder", "2%"}} {
				p.rack.OK("inject", f[0], f[1], "--class", "roce", "--link", link, "--dir", "both")
			}
		}
		steps := []step{before, asked, inside, releasing}
		p.run(8, 30, func(i int, plan *lockPlan) {
			if i < len(steps) {
				plan.Die, plan.DieIn, plan.Rounds = steps[i], 15, 1000
			}
		}, nil)
		p.rack.OK("heal", "--all")

		var nic, box int64
		p.run(8, 25, nil, func() {
			By("without faults")
			p.busy(1500)
			By("while the NIC of the server is gone for a second")
			nic = now()
			p.gone(p.rack.State("ms0"), "ms0", "--nic")
			p.busy(500) // those whose queue pairs have failed have others
			By("while the switch is gone for a second")
			box = now()
			p.gone(func() string { return p.rack.Status().Switch.State }, "switch")
		})
		Expect(p.felt(nic, box)).To(BeNumerically(">", 0), "no client felt the crash of the NIC")
		Expect(p.felt(box, math.MaxInt64)).To(BeNumerically(">", 0), "no client felt the crash of the switch")
		p.check()
	},
		Entry("through plain forwarding", ""),
		Entry("through a switch that tracks connections", fixture.SwitchSection(fixture.Track, false, "ms0")),
		Entry("through a switch that moves requests", fixture.SwitchSection(fixture.Move, false, "ms0")),
		Entry("through a switch that replaces atomics", replace),
		Entry("through a switch in which a CAS that would fail waits", queued),
	)
})
