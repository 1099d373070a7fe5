package verbs

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// attachments is how many queue pairs on a host are attached to multicast groups.
func attachments(rack *fixture.Rack, host string) int {
	GinkgoHelper()
	var s struct {
		Hosts []struct {
			Name   string `json:"name"`
			Daemon struct {
				Objects struct {
					Attachments int `json:"attachments"`
				} `json:"objects"`
			} `json:"daemon"`
		} `json:"hosts"`
	}
	rack.JSON(&s, "status")
	for _, h := range s.Hosts {
		if h.Name == host {
			return h.Daemon.Objects.Attachments
		}
	}
	Fail("no host " + host)
	return 0
}

// groupcast runs mckey on ms0 and cn1, which wait for wanted datagrams to a group, and then on cn0,
// which sends them.
func groupcast(rack *fixture.Rack, group string, sends, wanted int) {
	GinkgoHelper()
	run := func(host string, args ...string) fixture.Result {
		return rack.Run(append([]string{"exec", host, "--", "timeout", "60", "mckey", "-m", group}, args...)...)
	}
	members := []string{"ms0", "cn1"}
	ended := make(chan fixture.Result, len(members))
	for _, host := range members {
		Eventually(func() int { return attachments(rack, host) }).WithTimeout(20 * time.Second).Should(BeZero()) // of earlier programs
		before := rack.Counters(host)["rcvd_multicast"]
		defer func() {
			GinkgoHelper()
			Expect(rack.Counters(host)["rcvd_multicast"] - before).To(And(BeNumerically(">=", wanted), BeNumerically("<=", sends)))
		}()
		go func() {
			defer GinkgoRecover()
			ended <- run(host, "-C", strconv.Itoa(wanted))
		}()
		Eventually(func() int { return attachments(rack, host) }).WithTimeout(20 * time.Second).WithPolling(50 * time.Millisecond).Should(Equal(1))
	}
	sender := run("cn0", "-s", "-C", strconv.Itoa(sends))
	Expect(sender).To(fixture.HaveExited(0))
	for range members {
		var member fixture.Result
		Eventually(ended).WithTimeout(70 * time.Second).Should(Receive(&member))
		Expect(member).To(fixture.HaveExited(0))
		Expect(strings.ToLower(member.Stdout)).To(And(ContainSubstring("joined dgid: "), ContainSubstring(group), ContainSubstring("data transfers complete")))
	}
}

const (
	groupIPv4, groupIPv6 = "239.1.2.3", "ff0e::1234"
	// lossySends datagrams are sent where one in a hundred is lost; each member waits for
	// lossyWanted of them. A member loses 10 on average, 3.1 being the standard deviation, and more
	// than 100 with a probability below 10⁻⁶⁰.
	lossySends, lossyWanted = 1000, 900
)

// groups sends to groups of both families.
func groups(rack *fixture.Rack) {
	GinkgoHelper()
	groupcast(rack, groupIPv4, 10, 10)
	groupcast(rack, groupIPv6, 10, 10)
}

// Nothing is sent again to a group: what is lost is lost.
var _ = Describe("mckey sends to multicast groups", func() {
	It("of IPv4 and IPv6, also where a packet in a hundred is lost", func() {
		rack := fixture.Up(fixture.Small)
		groups(rack)
		rack.OK("inject", "loss", "1%", "--class", "roce", "--link", "cn0")
		DeferCleanup(func() { rack.OK("heal") })
		groupcast(rack, groupIPv4, lossySends, lossyWanted)
		groupcast(rack, groupIPv6, lossySends, lossyWanted)
		Expect(rack.OK("faults")).To(MatchRegexp(`active +[1-9]`), "nothing was lost: with 2000 datagrams that has a probability of 2·10⁻⁹")
	})

	It("which the switch sends to their members only", func() {
		rack := fixture.Up(fixture.Small)
		known := func() (s pipeline.Snooping) {
			rack.JSON(&s, "switch", "tables", "groups")
			return s
		}
		Expect(known().Groups).To(BeEmpty())
		stop := rack.Start("exec", "cn1", "--", "timeout", "60", "mckey", "-m", groupIPv4, "-C", "1000")
		defer stop()
		Eventually(known).WithTimeout(30 * time.Second).Should(And(
			HaveField("State", pipeline.SnoopForwarding), HaveField("Groups", ConsistOf(HaveField("Group", netip.MustParseAddr(groupIPv4))))))
		Expect(rack.OK("switch", "tables", "groups")).To(MatchRegexp(`(?m)^239\.1\.2\.3 +cn1 +in 4m`))
		before := rack.Counters("ms0")["rx_not_mine"]
		Expect(rack.Run("exec", "cn0", "--", "timeout", "60", "mckey", "-m", groupIPv4, "-s", "-C", "50")).To(fixture.HaveExited(0))
		Eventually(func() uint64 { return rack.Counters("cn1")["rcvd_multicast"] }).Should(BeNumerically("==", 50))
		Expect(rack.Counters("ms0")["rx_not_mine"]).To(Equal(before), "a host that is no member saw datagrams to the group")
		rack.OK("exec", "cn1", "--", "pkill", "mckey")
		Eventually(func() []pipeline.Group { return known().Groups }).WithTimeout(30 * time.Second).Should(BeEmpty()) // the NIC reports that it has left
	})

	It("through a switch that tracks connections", func() {
		groups(fixture.Up(fixture.Small + fixture.SwitchSection(fixture.Track, false, "ms0")))
	})

	It("through a switch that moves requests", func() {
		groups(fixture.Up(fixture.Small + fixture.SwitchSection(fixture.Move, false, "ms0")))
	})
})
