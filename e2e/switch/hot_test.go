package switch_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
)

var _ = Describe("A rule of action count", Ordered, func() {
	var rack *fixture.Rack

	BeforeAll(func() { rack = fixture.Up(boxed) })

	// hottest is the part of `switch hot -o json` that the specs use.
	hottest := func() (list []hotwords.Hot) {
		GinkgoHelper()
		rack.JSON(&list, "switch", "hot")
		return list
	}

	It("counts the words of atomics, while another rule replaces these atomics", func() {
		Expect(hottest()).To(BeEmpty())
		Expect(rack.OK("switch", "hot")).To(ContainSubstring("switch rules add server=ms0 action=count"))
		Expect(rack.OK("switch", "rules", "add", "id=hot", "server=ms0", "action=count", "top=16")).To(ContainSubstring("action=count"))
		before := rack.SwitchCounters()["hardened"]["replaced"]
		rack.Perf("atomic_lat", "--iters", "500")
		Expect(rack.SwitchCounters()["hardened"]["replaced"]).To(BeNumerically(">=", before+400))
		list := hottest()
		Expect(list).NotTo(BeEmpty())
		Expect(list[0].Rule).To(Equal("hot"))
		Expect(list[0].Atomics).To(BeNumerically(">=", 500))
		Expect(list[0].Over).To(BeZero())
		Expect(rack.OK("switch", "hot", "-n", "1")).To(MatchRegexp(`SERVER +ADDRESS.*\nms0 +0x[0-9a-f]+ +8 +[5-9]\d\d `))
		Expect(rack.SwitchCounters()["hot"]["requests"]).To(BeNumerically(">=", 500))
		Expect(rack.OK("switch", "budget")).To(ContainSubstring("hot addresses"))
	})

	It("keeps its counts while other rules change, and begins at 0 after a clear", func() {
		rack.OK("switch", "rules", "add", "id=other", "server=ms1", "action=track")
		count := hottest()[0].Count
		Expect(count).To(BeNumerically(">=", 500))
		Expect(rack.OK("switch", "tables")).To(MatchRegexp(`hot +[1-9]\d* +4096 +yes`))
		Expect(rack.OK("switch", "tables", "hot", "--clear")).To(ContainSubstring("table hot is cleared"))
		Expect(hottest()).To(BeEmpty())
	})
})
