package fabric

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/swordbox/packetbuffer"
)

// leaves has hosts with two NICs at four leaves, of which ms0 is at leaf2 and ms1 at leaf3.
const leaves = `
fabric: {leaves: 4, spines: 2}
switch: {program: swordbox}
hosts:
  - {name: "cn[0-1]", role: compute, nics: 2}
  - {name: "ms[0-1]", role: memory, memory: 16MiB}
  - {name: md0, role: metadata}
`

// status is the part of `status -o json` about several switches.
type status struct {
	State    string         `json:"state"`
	Switches []fixture.Node `json:"switches"`
	Trunks   []struct {
		Name string `json:"name"`
		Link string `json:"link"`
	} `json:"trunks"`
}

// verified runs a test whose bytes are compared.
func verified(rack *fixture.Rack, from, to string, messages string) {
	GinkgoHelper()
	Expect(rack.OK("perf", "write_bw", "--from", from, "--to", to, "--size", "64KiB", "--iters", messages, "--verify", "-q")).To(ContainSubstring("verified:"))
}

// carried is how many packets of RoCEv2 a switch has received at each port.
func carried(rack *fixture.Rack, name string) map[string]uint64 {
	GinkgoHelper()
	var c struct {
		Ports []struct {
			Host   string `json:"host"`
			RxRoCE uint64 `json:"rxRoce"`
		} `json:"ports"`
	}
	rack.JSON(&c, "counters", name)
	out := make(map[string]uint64)
	for _, p := range c.Ports {
		out[p.Host] = p.RxRoCE
	}
	return out
}

var _ = Describe("a rack with four leaves and two spines", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(leaves) })

	up := func() bool {
		var s status
		rack.JSON(&s, "status")
		for _, c := range s.Trunks {
			if c.Link != "up" {
				return false
			}
		}
		return s.State == "up" && len(s.Switches) == 6 && len(s.Trunks) == 8
	}
	// knows waits until a switch says of a trunk that it works, or does not.
	knows := func(name, trunk string, works bool) {
		GinkgoHelper()
		Eventually(func() string { return rack.OK("logs", name) }).Should(WithTransform(func(log string) bool {
			said := "trunk=" + trunk + " up="
			at := strings.LastIndex(log, said)
			return at >= 0 && strings.HasPrefix(log[at+len(said):], strconv.FormatBool(works))
		}, BeTrue()))
	}

	It("shows its switches and trunks", func() {
		Expect(up()).To(BeTrue())
		Expect(rack.OK("status")).To(And(MatchRegexp("spine1 +switch +up"), ContainSubstring("8 of 8 trunks between switches up")))
	})

	It("carries the packets of all hosts and NICs, over both spines", func() {
		for _, from := range []string{"cn0", "cn1"} {
			for _, to := range []string{"ms0", "ms1"} {
				rack.OK("perf", "verify", "--from", from, "--to", to)
			}
		}
		verified(rack, "cn0/rxe1", "cn1/rxe1", "50")
		// Connections differ in their UDP source ports, so some take each spine.
		rack.OK("perf", "write_bw", "--from", "cn0", "--to", "ms1", "--size", "4KiB", "--iters", "1000", "--qps", "32")
		for _, spine := range []string{"spine0", "spine1"} {
			Expect(carried(rack, spine)["leaf0-"+spine]).To(BeNumerically(">", 50), spine)
		}
	})

	It("goes on without a trunk, and takes it again", func() {
		rack.OK("link", "leaf0-spine0", "down")
		knows("leaf3", "leaf0-spine0", false)
		before := carried(rack, "spine0")["leaf3-spine0"]
		verified(rack, "cn0", "ms1", "100")
		Expect(carried(rack, "spine0")["leaf3-spine0"]).To(Equal(before), "spine0 cannot reach leaf0, so leaf3 sends nothing through it")
		Expect(rack.OK("status")).To(ContainSubstring("leaf0-spine0: down"))
		rack.OK("link", "leaf0-spine0", "up")
		knows("leaf3", "leaf0-spine0", true)
		Eventually(up).Should(BeTrue())
	})

	It("loses nothing while spines crash and hang under a store", func() {
		rack.OK("clover", "start")
		run := make(chan fixture.Result)
		go func() {
			defer GinkgoRecover()
			run <- rack.Run("run", "ycsb", "--store", "clover", "--workload", "A", "--clients", "4", "--keys", "64", "--duration", "6s")
		}()
		rack.OK("crash", "spine1")
		knows("leaf0", "leaf0-spine1", false)
		rack.OK("restart", "spine1")
		knows("leaf0", "leaf0-spine1", true)
		rack.OK("hang", "spine0")
		knows("leaf0", "leaf0-spine0", false)
		rack.OK("resume", "spine0")
		knows("leaf0", "leaf0-spine0", true)
		var res fixture.Result
		Eventually(run).WithTimeout(fixture.Patience).Should(Receive(&res))
		Expect(res).To(fixture.HaveExited(0))
		Eventually(up).Should(BeTrue())
		rack.OK("clover", "stop")
	})

	It("puts faults on trunks, and captures them", func() {
		Expect(rack.OK("inject", "loss", "10%", "--link", "leaf0-spine0,leaf0-spine1")).To(ContainSubstring("leaf0-f1: loss 10% --link leaf0-spine0"))
		file := filepath.Join(GinkgoT().TempDir(), "c.pcapng")
		stop := rack.Start("capture", "leaf0-spine0", "leaf0-spine1", "-w", file)
		verified(rack, "cn0", "ms0", "100")
		Expect(stop()).To(fixture.HaveExited(0))
		Expect(rack.OK("dump", "--commented", file)).To(ContainSubstring("dropped"))
		Expect(rack.OK("faults")).To(ContainSubstring("leaf0-f2"))
		rack.OK("heal", "leaf0-f1")
		Expect(rack.OK("heal")).To(ContainSubstring("healed 1 active fault"))
		Expect(rack.Run("capture", "cn0", "ms0", "-w", file)).To(WithTransform(func(r fixture.Result) string { return r.Stderr }, ContainSubstring("capture the links of one switch at a time")))
	})

	It("ends faults of trunks and partitions by themselves", func() {
		rack.OK("link", "leaf1-spine1", "down", "--for", "1s")
		rack.OK("partition", "cn0", "ms0", "--for", "1s")
		Eventually(up).Should(BeTrue())
		Eventually(func() int { return rack.Run("perf", "verify", "--from", "cn0", "--to", "ms0").Code }).Should(BeZero())
		Expect(rack.OK("faults")).NotTo(ContainSubstring("kept apart"))
	})

	It("controls faults while a switch is crashed", func() {
		rack.OK("inject", "loss", "1%", "--link", "cn0")
		rack.OK("crash", "spine1")
		Expect(rack.OK("faults")).To(ContainSubstring("--link cn0"))
		rack.OK("heal")
		rack.OK("partition", "cn0", "ms0")
		rack.OK("partition", "--mend")
		rack.OK("restart", "spine1")
		Eventually(up).Should(BeTrue())
	})

	It("keeps hosts of several switches apart", func() {
		rack.OK("partition", "cn0", "ms0,ms1")
		res := rack.Run("perf", "write_bw", "--from", "cn0", "--to", "ms1", "--iters", "5", "-q")
		Expect(res.Code).NotTo(BeZero(), res.String())
		rack.OK("perf", "verify", "--from", "cn1", "--to", "ms1")
		rack.OK("partition", "--mend")
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms1")
	})

	It("keeps packets to a slow port in the memory of a server at another leaf, which runs rules itself", func() {
		buffers := func() (list []packetbuffer.Item) {
			GinkgoHelper()
			rack.JSON(&list, "switch", "buffers", "--switch", "leaf2")
			return list
		}
		// The other leaf moves the requests of leaf2, as those of any client.
		rack.OK("switch", "rules", "add", "--switch", "leaf3", "id=moves", "server=ms1", "action=move")
		rack.OK("switch", "rules", "add", "--switch", "leaf2", "id=slow", "server=ms0", "action=buffer", "ring=ms1", "rate=100Mbit", "high=4", "low=2", "entries=4000")
		Eventually(buffers, "30s").Should(ConsistOf(HaveField("Ring", ConsistOf(HaveField("Up", true)))))
		before := carried(rack, "leaf3")
		verified(rack, "cn0", "ms0", "50")
		Eventually(func() []packetbuffer.Item { return buffers() }, "30s").Should(ConsistOf(And(
			HaveField("Stored", BeNumerically(">", 100)), HaveField("Lost", BeZero()), HaveField("Remote", BeZero()), HaveField("Waiting", BeZero()))))
		after := carried(rack, "leaf3") // the frames have crossed a spine and the other leaf
		Expect(after["leaf3-spine0"] + after["leaf3-spine1"]).To(BeNumerically(">", before["leaf3-spine0"]+before["leaf3-spine1"]+100))
		rack.OK("switch", "rules", "remove", "--switch", "leaf2", "slow")
		rack.OK("switch", "rules", "remove", "--switch", "leaf3", "moves")
	})

	It("counts and looks up in the memory of a server at another leaf, and says why it cannot", func() {
		rack.OK("switch", "rules", "add", "--switch", "leaf2", "id=count", "server=ms0", "action=count", "store=ms1")
		// The table is behind the memory of the ring above, whose entries would be damaged slots.
		rack.OK("switch", "rules", "add", "--switch", "leaf2", "id=look", "server=ms0", "action=lookup", "table=ms1", "base=0xc00000", "capacity=1024")
		listed := func(listing string) func() string {
			return func() string { return rack.OK("switch", listing, "--switch", "leaf2") }
		}
		Eventually(listed("counted"), "30s").Should(MatchRegexp(`ms1/0 +up `))
		Eventually(listed("lookup"), "30s").Should(MatchRegexp(`look .* ms1\n`))
		verified(rack, "cn0", "ms0", "20")
		Eventually(listed("counted"), "30s").Should(MatchRegexp(`ms1/0 +up +0 \(0\) +0 \(`)) // all is in the memory
		Expect(listed("lookup")()).NotTo(MatchRegexp(`look +hardened +\d+ +\d+ +\d+ +0 `), "packets were looked up")
		rack.OK("switch", "rules", "remove", "--switch", "leaf2", "look")
		says := func(listing, reason string) {
			GinkgoHelper()
			Eventually(listed(listing), "60s").Should(ContainSubstring(reason), listing)
		}
		rack.OK("crash", "ms1")
		verified(rack, "cn0", "ms0", "20") // what is counted now makes the switch notice
		says("counted", "the server does not answer")
		rack.OK("switch", "rules", "add", "--switch", "leaf2", "id=slow", "server=ms0", "action=buffer", "ring=ms1", "rate=100Mbit", "offset=0x2000")
		// The connection of the rule before may still be there. What the port cannot carry makes the switch notice; it is lost.
		rack.Run("perf", "write_bw", "--from", "cn0", "--to", "ms0", "--size", "64KiB", "--iters", "50", "-q")
		says("buffers", "-ms1 (the server does not answer)")
		rack.OK("restart", "ms1")
		Eventually(listed("buffers"), "30s").Should(MatchRegexp(`slow .* ms1\n`))
		for _, id := range []string{"slow", "count"} {
			rack.OK("switch", "rules", "remove", "--switch", "leaf2", id)
		}
		Expect(rack.OK("status")).To(MatchRegexp(`leaf2 +switch +up +10\.77\.0\.253 +fd00:77::fd `))
		refused := rack.Run("switch", "program", "swordbox", "--switch", "spine0")
		Expect(refused.Code).NotTo(BeZero())
		Expect(refused.Stderr).To(ContainSubstring("spine0 is a spine"))
	})

	It("carries out a rule at the server's own leaf alone", func() {
		res := rack.Run("switch", "rules", "add", "server=ms0", "action=atomics", "--switch", "leaf0")
		Expect(res.Code).NotTo(BeZero())
		Expect(res.Stderr).To(ContainSubstring("--switch leaf2"))
		Expect(rack.Run("switch", "rules").Stderr).To(ContainSubstring("say which, by --switch: leaf0 leaf1"))
		for _, at := range [][2]string{{"ms0", "leaf2"}, {"ms1", "leaf3"}} {
			rack.OK("switch", "rules", "add", "server="+at[0], "action=atomics", "--switch", at[1])
			// The first request may take a connection that a removed rule has left, to a server before its crash.
			Eventually(func() int { return rack.Run("perf", "locks", "--from", "cn0", "--to", at[0], "--duration", "1s").Code }, "30s").Should(BeZero())
			Expect(rack.OK("switch", "connections", "--switch", at[1])).To(ContainSubstring(at[0]))
			rack.OK("perf", "verify", "--from", "cn1", "--to", at[0])
		}
	})

	It("takes and loses a host while it is up", func() {
		// The new host is in front of others, which stay where they are.
		text := strings.Replace(leaves, "  - {name: md0", "  - {name: cn2, role: compute}\n  - {name: md0", 1)
		file := filepath.Join(GinkgoT().TempDir(), "more.yaml")
		Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
		Expect(rack.OK("apply", "-f", file)).To(ContainSubstring("host cn2"))
		rack.OK("perf", "verify", "--from", "cn2", "--to", "ms0")
		Expect(os.WriteFile(file, []byte(leaves), 0o600)).To(Succeed())
		rack.OK("apply", "-f", file)
		rack.OK("perf", "verify", "--from", "cn1", "--to", "ms0")
		Expect(rack.Run("apply", "-f", write(strings.Replace(leaves, "spines: 2", "spines: 3", 1))).Stderr).To(ContainSubstring("4 leaves, 2 spines"))
	})

	It("leaves nothing behind", func() {
		rack.OK("down")
		Expect(filepath.Join("/run/rdmalab", rack.Name)).NotTo(BeADirectory())
	})
})

// write puts text into a file of its own.
func write(text string) string {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "rack.yaml")
	Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
	return file
}

var _ = Describe("the time of a fabric", func() {
	It("is up in seconds, and all switches know all trunks then", func() {
		rack := fixture.New("fabric: {leaves: 8, spines: 4}\nhosts:\n  - {name: \"cn[0-15]\", role: compute}\n  - {name: ms0, role: memory}\n")
		began := time.Now()
		Expect(rack.Up("--no-verify")).To(fixture.HaveExited(0))
		GinkgoWriter.Println("12 switches, 17 hosts:", time.Since(began))
		for _, from := range []string{"cn0", "cn7", "cn15"} {
			rack.OK("perf", "verify", "--from", from, "--to", "ms0")
		}
	})
})
