package switch_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// boxed is a rack whose switch runs the program, with a rule for one of its two servers.
const boxed = `
switch:
  program: swordbox
  rules:
    - {id: locks, server: ms0, action: atomics, shards: 2}
hosts:
  - {name: "cn[0-1]", role: compute}
  - {name: "ms[0-1]", role: memory, memory: 16MiB}
`

// settling is how long a program that is loaded while connections are open does not move their
// requests: the default of conntrack.Config.Settle.
const settling = 30 * time.Second

// report is the part of the switch's report that the specs use.
func report(rack *fixture.Rack) (r swordbox.Report) {
	GinkgoHelper()
	rack.JSON(&r, "switch", "connections")
	return r
}

// moved returns how many requests of established connections were moved.
func moved(rack *fixture.Rack) (n uint64) {
	GinkgoHelper()
	for _, m := range report(rack).Handlers {
		for _, row := range m.Flows {
			n += row.Moved
		}
	}
	return n
}

// endless is a number of iterations that no spec reaches: the client works until the spec ends it.
const endless = "100000000"

// atomics starts a run of atomics that the spec must end. The channel receives the run's result.
func atomics(rack *fixture.Rack, from, to string) <-chan fixture.Result {
	ended := make(chan fixture.Result, 1)
	go func() {
		defer GinkgoRecover()
		ended <- rack.Run("perf", "atomic_lat", "--from", from, "--to", to, "--iters", endless)
	}()
	return ended
}

var _ = Describe("the operator of the switch", func() {
	It("sees connections, words and rewrites, and changes the rules while clients work", func() {
		rack := fixture.Up(boxed)
		Eventually(func() int {
			n := 0
			for _, d := range report(rack).Dialed {
				if d.State == switchconn.Up {
					n++
				}
			}
			return n
		}, fixture.Patience, "50ms").Should(Equal(2), "the switch connects to ms0 by itself, once a shard")

		stop := rack.Start("perf", "atomic_lat", "--from", "cn0", "--to", "ms0", "--iters", endless)
		Eventually(func() uint64 { return moved(rack) }, fixture.Patience, "50ms").Should(BeNumerically(">", 100))
		Expect(rack.OK("switch", "connections")).To(MatchRegexp(`(?m)^cn0 .* ms0 .* shared `))
		Expect(rack.OK("switch", "tables", "words")).To(MatchRegexp(`(?m)^ms0 +0x[0-9a-f]+ +known `))
		trace := rack.OK("switch", "trace", "ms0", "--dir", "down", "--count", "3")
		Expect(strings.Count(trace, "FAA→WRITE")).To(BeNumerically(">=", 1), trace)
		var line struct{ Link, Opcode, Comment string }
		Expect(json.Unmarshal([]byte(rack.OK("switch", "trace", "ms0", "--dir", "down", "--count", "1", "-o", "json")), &line)).To(Succeed())
		Expect(line.Link).To(Equal("ms0"))
		Expect(rack.OK("switch", "tables", "words", "--clear")).To(ContainSubstring("table words is cleared"))

		By("refusing wrong rules with the reason")
		for text, reason := range map[string]string{
			"server=ms7 action=move":              "no host of this rack; hosts: [cn0 cn1 ms0 ms1]",
			"server=ms0 action=move":              "rule locks before it takes all of its requests",
			"server=ms1 action=fly":               "use one of [track move atomics",
			"server=ms1 action=atomics range=1-9": "cuts a word in two",
		} {
			res := rack.Run(append([]string{"switch", "rules", "add"}, strings.Fields(text)...)...)
			Expect(res).To(fixture.HaveExited(2))
			Expect(res.Stderr).To(ContainSubstring(reason))
		}
		By("taking a right one, and moving what it selects")
		before := moved(rack)
		rack.OK("switch", "rules", "add", "id=all", "server=ms1", "action=move")
		Eventually(func() int { return len(report(rack).Dialed) }, fixture.Patience, "50ms").Should(Equal(3))
		rack.OK("perf", "write_lat", "--from", "cn1", "--to", "ms1", "--iters", "200")
		rack.OK("perf", "verify", "--from", "cn1", "--to", "ms1")
		Eventually(func() uint64 { return moved(rack) }, fixture.Patience, "50ms").Should(BeNumerically(">", before))
		rack.OK("switch", "rules", "remove", "all")
		var list []rules.Rule
		rack.JSON(&list, "switch", "rules")
		Expect(list).To(HaveLen(1))
		By("loading those of a rack file, all or none")
		file := filepath.Join(GinkgoT().TempDir(), "rules.yaml")
		Expect(os.WriteFile(file, []byte(strings.Replace(boxed, "shards: 2}", "shards: 2}\n    - {server: ms1, action: track}", 1)), 0o600)).To(Succeed())
		Expect(rack.OK("switch", "rules", "load", file)).To(ContainSubstring("r1"))
		rack.JSON(&list, "switch", "rules")
		Expect(list).To(HaveLen(2))
		Expect(os.WriteFile(file, []byte(strings.Replace(boxed, "atomics", "fly", 1)), 0o600)).To(Succeed())
		Expect(rack.Run("switch", "rules", "load", file).Stderr).To(ContainSubstring("rules.yaml:5:40: action"))
		stop()
		var tables []handler.Table
		rack.JSON(&tables, "switch", "tables")
		for _, t := range tables {
			Expect(t.Used).To(BeNumerically("<=", t.Max), t.Name)
		}
	})

	It("restarts it: clients whose requests were moved get a NAK, rules stay, and all clients can connect again", func() {
		rack := fixture.Up(boxed)
		rack.OK("switch", "rules", "add", "id=kept", "server=ms1", "action=track")
		clients := []<-chan fixture.Result{atomics(rack, "cn0", "ms0"), atomics(rack, "cn1", "ms0")}
		Eventually(func() int {
			n := 0
			for _, m := range report(rack).Handlers {
				n += len(m.Flows)
			}
			return n
		}, fixture.Patience, "50ms").Should(Equal(2))
		rack.OK("restart", "switch")
		for _, ended := range clients {
			var res fixture.Result
			Eventually(ended, fixture.Patience).Should(Receive(&res))
			Expect(res).To(fixture.HaveExited(1))
			// A client that is not silenced for longer than its retries last receives the NAK.
			Expect(res.Stderr).To(Or(ContainSubstring("remote operation error"), ContainSubstring("transport retry counter exceeded")))
		}
		var list []rules.Rule
		rack.JSON(&list, "switch", "rules")
		Expect(list).To(HaveLen(2))
		Eventually(func() fixture.Result { return rack.Run("perf", "verify", "--from", "cn0", "--to", "ms0") }, fixture.Patience, "200ms").Should(fixture.HaveExited(0))
		rack.OK("perf", "atomic_lat", "--from", "cn1", "--to", "ms0", "--iters", "200")
	})

	It("sees only tables while the program is forward, and more after loading another program", func() {
		rack := fixture.Up(fixture.Small)
		Expect(rack.OK("switch", "rules")).To(HavePrefix("no rules"))
		Expect(rack.OK("switch", "budget")).To(ContainSubstring("declares no state"))
		res := rack.Run("switch", "connections")
		Expect(res).To(fixture.HaveExited(1))
		Expect(res.Stderr).To(ContainSubstring("load the program swordbox with `rdmalab switch program swordbox`"))

		By("loading another while a client works")
		ended := atomics(rack, "cn0", "ms0")
		Eventually(func() uint64 { return rack.Counters("ms0")["rcvd_pkts"] }, fixture.Patience, "20ms").Should(BeNumerically(">", 100))
		Expect(rack.OK("switch", "program", "swordbox")).To(MatchRegexp(`program +swordbox`))
		rack.OK("switch", "rules", "add", "id=locks", "server=ms0", "action=atomics")
		Expect(rack.OK("top", "--once")).To(ContainSubstring("up  swordbox"))
		Expect(rack.OK("status", "-o", "json")).To(ContainSubstring(`"program": "swordbox"`))
		Eventually(func() string { return rack.OK("switch", "connections") }, fixture.Patience, "100ms").Should(MatchRegexp(`(?m)^ms0/0 +up `))
		// For half a minute a program that was loaded late does not trust PSNs that it has not
		// seen.
		Eventually(func() (uint64, error) {
			select {
			case res := <-ended:
				return 0, StopTrying("the client has ended by itself").Attach("result", res)
			default:
				return moved(rack), nil
			}
		}, settling+fixture.Patience, "500ms").Should(BeNumerically(">", 0))
		Expect(rack.OK("switch", "trace", "ms0", "--dir", "down", "--count", "1")).To(ContainSubstring("→WRITE"))

		By("refusing to give up what it has done to a connection")
		Expect(rack.Run("switch", "program", "forward")).NotTo(fixture.HaveExited(0))
		rack.OK("crash", "cn0", "--app")
		Eventually(ended, fixture.Patience).Should(Receive())
	})
})
