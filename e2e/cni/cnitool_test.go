package cni

import (
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("the CNI plugin under cnitool", Label("cni"), Ordered, func() {
	var n *network
	BeforeAll(func() { n = newNetwork(fixture.Up(fixture.Small), "cnitool") })
	AfterEach(func() {
		// cnitool's GC lists no attachment as valid, so the plugin removes all.
		Expect(n.tool("gc", "/proc/self/ns/net", "").err).NotTo(HaveOccurred())
		Expect(n.names()).To(BeEmpty())
	})
	host := func(name string) string { return "IgnoreUnknown=1;HOST=" + name }

	It("adds, checks and deletes, twice", func() {
		netns := namespace("a")
		r := decode(n.tool("add", netns, host("web")))
		Expect(r.Interfaces).To(HaveLen(2))
		Expect(r.Interfaces[1].Name).To(Equal("rack0"))
		Expect(r.Interfaces[1].Sandbox).To(Equal(netns))
		Expect(r.IPs[0].Address).To(Equal("10.77.0.5/24")) // behind the three hosts of the rack
		Expect(n.tool("check", netns, host("web")).err).NotTo(HaveOccurred())
		g := n.guests()
		Expect(g).To(HaveLen(1))
		Expect(g[0].Name).To(Equal("web"))
		Expect(g[0].Link).To(Equal("up"))
		again := n.tool("add", netns, host("web"))
		Expect(again.err).To(HaveOccurred())
		Expect(again.stdout + again.stderr).To(ContainSubstring("is attached already, as web"))
		Expect(n.tool("check", netns, host("web")).err).NotTo(HaveOccurred(), "the refused one has undone the first")
		for range 2 {
			Expect(n.tool("del", netns, host("web")).err).NotTo(HaveOccurred())
		}
		Expect(n.names()).To(BeEmpty())
		Expect(exec.Command("ip", "-n", filepath.Base(netns), "link", "show", "rack0").Run()).NotTo(Succeed())
	})

	It("lets a guest reach hosts, be reached, and have faults, also after the switch has restarted", func() {
		netns := namespace("b")
		decode(n.tool("add", netns, host("web")))
		ping := func() error { return inside(netns, "ping", "10.77.0.4").err }
		Expect(ping()).To(Succeed())
		Expect(n.rack.Run(fixture.PeerCommand("cn0", "ping", "10.77.0.5")...)).To(fixture.HaveExited(0))
		n.rack.OK("inject", "loss", "100%", "--link", "web")
		Expect(ping()).NotTo(Succeed())
		Expect(n.rack.Faults()).To(HaveLen(1))
		n.rack.OK("heal")
		n.rack.OK("restart", "switch")
		Expect(ping()).To(Succeed())
	})

	It("removes by GC the attachments that a killed runtime left, and no others", func() {
		live, dead, other := namespace("live"), namespace("dead"), namespace("other")
		decode(n.tool("add", live, host("live")))
		decode(n.tool("add", dead, host("dead")))
		foreign := newNetwork(n.rack, "other")
		decode(foreign.tool("add", other, host("other")))
		Expect(exec.Command("ip", "netns", "del", filepath.Base(dead)).Run()).To(Succeed())
		var valid string
		for _, g := range n.guests() {
			if g.Name == "live" {
				valid = g.Container
			}
		}
		gc := n.call("GC", "", "", `{"cniVersion":"1.1.0","name":"`+n.name+`","type":"rdmalab-cni","rack":"`+n.rack.Name+
			`","cni.dev/valid-attachments":[{"containerID":"`+valid+`","ifname":"rack0"}]}`)
		Expect(gc.err).NotTo(HaveOccurred())
		Expect(n.names()).To(ConsistOf("live", "other"))
		Expect(inside(live, "ping", "10.77.0.4").err).To(Succeed())
		Expect(inside(other, "ping", "10.77.0.4").err).To(Succeed())
		Expect(foreign.tool("del", other, "").err).NotTo(HaveOccurred())
	})

	It("reports errors with the codes of the specification", func() {
		netns := namespace("c")
		conf := func(more string) string {
			return `{"cniVersion":"1.1.0","name":"` + n.name + `","type":"rdmalab-cni"` + more + `}`
		}
		mine := `,"rack":"` + n.rack.Name + `"`
		for _, c := range []struct{ what, conf, code, text string }{
			{"no JSON", `{"cniVersion":`, `"code": 6`, "unexpected end"},
			{"no such rack", conf(`,"rack":"nowhere"`), `"code": 11`, "run `rdmalab up` first"},
			{"a bad name of a rack", conf(`,"rack":"../etc"`), `"code": 7`, "key rack"},
			{"addresses by another", conf(mine + `,"ipam":{"type":"host-local"}`), `"code": 7`, "the rack gives the addresses"},
			{"a group's address", conf(mine + `,"runtimeConfig":{"mac":"01:00:5e:00:00:01"}`), `"code": 7`, "group address"},
		} {
			o := n.call("ADD", "abc", netns, c.conf)
			Expect(o.err).To(HaveOccurred(), c.what)
			Expect(o.stdout).To(ContainSubstring(c.code), c.what)
			Expect(o.stdout).To(ContainSubstring(c.text), c.what)
		}
		o := n.tool("add", netns, host("cn0"))
		Expect(o.stdout + o.stderr).To(ContainSubstring("the rack has a host of that name"))
		o = n.call("ADD", "abc", "/nowhere", conf(mine))
		Expect(o.stdout).To(ContainSubstring("no network namespace is pinned at /nowhere"))
		Expect(n.names()).To(BeEmpty())
		// Without the rack the plugin has nothing to delete.
		Expect(n.call("DEL", "abc", netns, conf(`,"rack":"nowhere"`)).err).NotTo(HaveOccurred())
		Expect(n.call("STATUS", "", "", conf(mine)).err).NotTo(HaveOccurred())
		n.rack.OK("crash", "switch")
		o = n.call("STATUS", "", "", conf(mine))
		Expect(o.stdout).To(ContainSubstring(`"code": 50`))
		o = n.call("ADD", "abc", netns, conf(mine))
		Expect(o.stdout).To(ContainSubstring(`"code": 11`))
		Expect(o.stdout).To(ContainSubstring("restart switch"))
		Expect(n.call("DEL", "abc", netns, conf(mine)).err).NotTo(HaveOccurred())
		n.rack.OK("restart", "switch")
		Expect(n.names()).To(BeEmpty())
	})

	It("supports all versions and lists them", func() {
		o := n.call("VERSION", "", "", `{"cniVersion":"1.1.0"}`)
		Expect(o.err).NotTo(HaveOccurred())
		Expect(o.stdout).To(ContainSubstring(`"1.1.0"`))
		Expect(strings.Count(o.stdout, ".")).To(BeNumerically(">", 8))
	})
})
