package smoke

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// applied writes a rack file, and applies it to the rack.
func applied(rack *fixture.Rack, yaml string, flags ...string) fixture.Result {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "changed.yaml")
	Expect(os.WriteFile(file, []byte(yaml), 0o600)).To(Succeed())
	return rack.Run(append([]string{"apply", "-f", file}, flags...)...)
}

// lostBetween returns what shows a lost packet on the links of hosts: packets that the NIC has sent and the
// switch has not received, packets that ports have dropped, and those that NICs have missed. A port that was
// closed in between has counted from 0 again, so it shows up, too.
func lostBetween(rack *fixture.Rack, hosts ...string) map[string]int {
	GinkgoHelper()
	var sw struct {
		Ports []struct {
			Host    string         `json:"host"`
			Roce    int            `json:"rxRoce"`
			Ring    int            `json:"rxRingDropped"`
			Dropped map[string]int `json:"dropped"`
		} `json:"ports"`
	}
	rack.JSON(&sw, "counters", "switch")
	lost := map[string]int{}
	for _, host := range hosts {
		c := rack.Counters(host)
		for _, name := range []string{"port_rx_dropped", "port_tx_dropped", "out_of_seq_request", "packet_seq_err", "implied_nak_seq_err"} {
			lost[host+" "+name] = int(c[name])
		}
		for _, p := range sw.Ports {
			if p.Host != host {
				continue
			}
			lost["from "+host] = int(c["sent_pkts"]) - p.Roce
			lost["ring of "+host] = p.Ring
			for reason, n := range p.Dropped {
				lost[host+" "+reason] = n
			}
		}
	}
	for name, n := range lost {
		if n == 0 {
			delete(lost, name)
		}
	}
	return lost
}

// Hosts that are containers cannot be added or removed: apply refuses that.
var _ = fixture.InContainers() || Describe("a rack that is up", func() {
	const more = `
hosts:
  - {name: "cn[0-2]", role: compute}
  - {name: ms0, role: memory, memory: 16MiB}
`

	It("gets a host and loses it again, while a program runs between two others and no packet of it is lost", func() {
		example := filepath.Join(GinkgoT().TempDir(), "example")
		build(example, "", "github.com/rdmalab/rdmalab/softrnic/ipc/example")
		rack := fixture.Up(fixture.Small)
		cn0, ms0 := rack.Host("cn0"), rack.Host("ms0")

		// The program runs until the changes are over, and checks every byte and every atomic.
		over, runs := make(chan struct{}), make(chan int)
		go func() {
			defer GinkgoRecover()
			n := 0
			defer func() { runs <- n }()
			for {
				Expect(rack.OK("exec", "cn0", "--", example, ms0.IPv4, "soak", "100")).To(ContainSubstring("verified"))
				n++
				select {
				case <-over:
					return
				default:
				}
			}
		}()
		for range 3 {
			Expect(applied(rack, more)).To(fixture.HaveExited(0))
			Expect(rack.OK("perf", "write_bw", "--from", "cn2", "--to", "ms0", "--iters", "100", "--timeout", "16", "--verify")).To(ContainSubstring("verified"))
			Expect(applied(rack, fixture.Small)).To(fixture.HaveExited(0))
		}
		close(over)
		Eventually(runs).Should(Receive(BeNumerically(">=", 1)))

		lost := func() map[string]int { return lostBetween(rack, "cn0", "ms0") }
		Eventually(lost).Should(BeEmpty()) // the last acknowledgements may still be in flight
		Expect(rack.Host("cn0")).To(Equal(cn0), "neither its process nor its addresses have changed")
		Expect(rack.Host("ms0")).To(Equal(ms0))
		Expect(rack.Status().Hosts).To(HaveLen(3))
		Expect(fixture.Traces()).NotTo(ContainElement(ContainSubstring(rack.Name + "/cn2")))
	})

	It("shows the difference, carries it out, and then has none", func() {
		const changed = `
switch:
  program: swordbox
  rules:
    - {server: ms0, action: track}
hosts:
  - {name: cn1, role: compute, quota: {qps: 7}}
  - {name: "ms[0-1]", role: memory, memory: 16MiB}
faults:
  - {link: cn1, kind: delay, delay: 1ms, id: slow}
`
		rack := fixture.Up(fixture.Small)
		same := applied(rack, fixture.Small, "--dry-run")
		Expect(same).To(fixture.HaveExited(0))
		Expect(same.Stdout).To(ContainSubstring("nothing to do"))

		ms0 := rack.Host("ms0")
		shown := applied(rack, changed, "--dry-run")
		Expect(shown).To(fixture.HaveExited(1))
		for _, line := range []string{
			"- host cn0  compute", "+ host ms1  memory", "~ host cn1  quota qps default -> 7", "~ switch  program forward -> swordbox",
			"+ rule r1  id=r1 server=ms0 action=track", "+ fault slow  delay 1ms --link cn1",
		} {
			Expect(shown.Stdout).To(ContainSubstring(line))
		}
		Expect(rack.Host("cn0").State).To(Equal("up"), "--dry-run changes nothing")

		Expect(applied(rack, changed)).To(fixture.HaveExited(0))
		again := applied(rack, changed)
		Expect(again).To(fixture.HaveExited(0))
		Expect(again.Stdout).To(ContainSubstring("nothing to do"))
		Expect(rack.Host("ms0")).To(Equal(ms0))
		Expect(rack.OK("switch", "rules")).To(ContainSubstring("ms0"))
		Expect(rack.Faults()).To(HaveLen(1))
		Expect(rack.OK("perf", "write_bw", "--from", "cn1", "--to", "ms1", "--iters", "20", "--timeout", "16", "--verify")).To(ContainSubstring("verified"))
		// What an apply has made is there after crashes.
		rack.OK("crash", "switch")
		rack.OK("restart", "switch")
		rack.OK("crash", "cn1")
		rack.OK("restart", "cn1")
		Expect(rack.OK("perf", "write_bw", "--from", "cn1", "--to", "ms1", "--iters", "20", "--timeout", "16", "--verify")).To(ContainSubstring("verified"))
		Expect(applied(rack, changed).Stdout).To(ContainSubstring("nothing to do"))

		// A fault takes the place of an operator's with its name, and torn copies wait for a host that has crashed.
		rack.OK("inject", "loss", "2%", "--link", "ms1", "--id", "mine")
		rack.OK("crash", "cn1")
		torn := changed + "  - {link: ms1, kind: loss, probability: 1%, id: mine}\n  - {link: cn1, kind: tear, probability: 50%, id: torn}\n"
		Expect(applied(rack, torn)).To(fixture.HaveExited(0))
		Expect(applied(rack, torn).Stdout).To(ContainSubstring("nothing to do"))
		Expect(rack.Faults()).To(HaveLen(2))
		rack.OK("restart", "cn1")
		Expect(rack.OK("faults")).To(And(ContainSubstring("loss 1%"), ContainSubstring("tear")))
	})

	It("gets several hosts whose links are memory, and removes and makes others of the same names", func() {
		const memory = "cable: memory\nswitch: {program: swordbox, rules: [{server: ms0, action: move}]}\n"
		rack := fixture.Up(memory + fixture.Small)
		Expect(applied(rack, memory+"hosts:\n  - {name: \"cn[1-3]\", role: compute}\n  - {name: \"ms[0-1]\", role: memory, memory: 16MiB}\n")).To(fixture.HaveExited(0))
		paths := [][2]string{{"cn1", "ms0"}, {"cn1", "ms1"}, {"cn2", "ms1"}, {"cn3", "ms0"}}
		for _, p := range paths {
			Expect(rack.OK("perf", "atomic_bw", "--from", p[0], "--to", p[1], "--iters", "20", "--timeout", "16", "--verify")).To(ContainSubstring("verified"), "%v", p)
		}
		Expect(applied(rack, memory+fixture.Small)).To(fixture.HaveExited(0))
		Expect(rack.OK("perf", "atomic_bw", "--from", "cn0", "--to", "ms0", "--iters", "20", "--timeout", "16", "--verify")).To(ContainSubstring("verified"))
	})

	It("refuses in one line what cannot change, and does nothing", func() {
		rack := fixture.Up(fixture.Small)
		for _, c := range []struct{ yaml, want string }{
			{"mtu: 1500" + fixture.Small, "mtu (4200 -> 1500) cannot change while the rack is up: run `rdmalab down --rack " + rack.Name + "` and `rdmalab up -f` the file"},
			{strings.Replace(more, "16MiB", "32MiB", 1), "ms0: memory 16MiB -> 32MiB cannot change while the rack is up: add --replace"},
			{strings.Replace(more, "hosts", "hots", 1), "hots"},
		} {
			res := applied(rack, c.yaml)
			Expect(res).To(fixture.HaveExited(2))
			Expect(res.Stderr).To(ContainSubstring(c.want))
			Expect(strings.Count(res.Stderr, "\n")).To(BeNumerically("<=", 2))
		}
		Expect(rack.Status().Hosts).To(HaveLen(3))

		pid := rack.Host("cn0").PID
		Expect(applied(rack, strings.Replace(more, "16MiB", "32MiB", 1), "--replace")).To(fixture.HaveExited(0))
		Expect(rack.OK("status")).To(MatchRegexp(`ms0 .* 32MiB`))
		Expect(rack.Host("cn0").PID).To(Equal(pid))
		Expect(rack.OK("perf", "write_bw", "--from", "cn2", "--to", "ms0", "--iters", "100", "--timeout", "16", "--verify")).To(ContainSubstring("verified"))
	})

	It("says what is done and what is not when a step fails, and a second apply does the rest", func() {
		rack := fixture.Up(fixture.Small)
		// A folder in the place of the new host's socket makes its daemon fail, after its link exists.
		socket := filepath.Join("/run/rdmalab", rack.Name, "sock", "cn2.sock")
		Expect(os.MkdirAll(filepath.Join(socket, "x"), 0o755)).To(Succeed())
		res := applied(rack, more+"faults: [{link: cn2, kind: loss, probability: 1%}]")
		Expect(res).To(fixture.HaveExited(1))
		Expect(res.Stderr).To(And(ContainSubstring("done: nothing"), ContainSubstring("not done: + host cn2, ~ addresses of the hosts, + fault f1"), ContainSubstring("The same apply, repeated, does the rest")))
		Expect(rack.OK("status")).To(ContainSubstring("cn2: an apply has not finished it"))
		Expect(os.RemoveAll(socket)).To(Succeed())
		Expect(applied(rack, more)).To(fixture.HaveExited(0))
		Expect(rack.OK("status")).NotTo(ContainSubstring("not finished"))
		Expect(rack.OK("perf", "write_bw", "--from", "cn2", "--to", "ms0", "--iters", "100", "--timeout", "16", "--verify")).To(ContainSubstring("verified"))
	})
})
