package switch_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/swordbox/statestore"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

var _ = Describe("A rule of action count with a store", Ordered, func() {
	var rack *fixture.Rack

	BeforeAll(func() { rack = fixture.Up(boxed) })

	// counter is a counter of the switch's handler.
	counter := func(name string) int { return int(rack.SwitchCounters()["count"][name]) }

	// stored is the sum of the counters in the store's memory, which a host reads by a READ.
	stored := func() (sum int) {
		GinkgoHelper()
		var res hostd.ReadResult
		rack.JSON(&res, "read", "ms1", "--on", "cn1", "--at", "0x1000", "--words", "64")
		for _, w := range res.Words {
			sum += int(w)
		}
		return sum
	}

	It("counts the requests of a host in the memory of a server, also when the memory link loses packets", func() {
		rack.OK("switch", "rules", "add", "id=stored", "server=ms0", "action=count", "store=ms1", "slots=64", "at=0x1000", "depth=4")
		up := func() (list []statestore.Store) {
			rack.JSON(&list, "switch", "counted")
			return list
		}
		Eventually(up, "30s").Should(ContainElement(HaveField("State", "up")))
		rack.OK("inject", "loss", "5%", "--class", "roce", "--link", "ms1", "--dir", "both")
		rack.Perf("atomic_lat", "--iters", "500")
		rack.OK("heal")
		Eventually(func() int { return counter("pending") + counter("in_flight") }, "30s").Should(BeZero())
		amount := counter("amount")
		Expect(amount).To(BeNumerically(">=", 500))
		Expect(counter("uncertain") + counter("dropped")).To(BeZero())
		Expect(counter("applied")).To(Equal(amount))
		Expect(stored()).To(Equal(amount))
		Expect(rack.OK("read", "ms1", "--on", "cn1", "--at", "0x1000")).To(MatchRegexp(`WORD +OFFSET +VALUE\n\d+ +0x1[0-9a-f]{3} +\d+\n`))
		Expect(rack.OK("switch", "slots")).To(MatchRegexp(`stored +\d+ +ms1 +0x1[0-9a-f]{3} +cn0 +ms0 +0x`))
		Expect(rack.OK("switch", "budget")).To(ContainSubstring("adds in flight"))
	})

	It("says after a crash of the switch how much it has lost at most", func() {
		before := stored()
		rack.OK("crash", "switch")
		rack.OK("restart", "switch")
		rack.Perf("read_lat", "--iters", "200")
		Eventually(func() int { return counter("pending") + counter("in_flight") }, "30s").Should(BeZero())
		Expect(counter("amount")).To(BeNumerically(">=", 200))
		Expect(stored()).To(Equal(before + counter("applied")))
		Expect(counter("former")).To(BeZero()) // nothing waited
	})
})
