package fusee_test

import (
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("the table FUSEE", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(rackFile) })

	It("executes its commands in the published numbers of round trips", func() {
		Expect(rack.OK("fusee", "start", "--fresh", "--replicas", "2", "--index-replicas", "2")).
			To(MatchRegexp(`^made a table on 3 memory servers: \d+ slots, 2 replicas of the index and 2 of objects`))
		rack.OK("fusee", "insert", "7", "hello")
		get := rack.Run("fusee", "get", "7", "-v", "--from", "cn2")
		Expect(get.Stdout).To(Equal("hello\n"))
		Expect(get.Stderr).To(ContainSubstring(" 2 round trips,"), "a client that does not remember the key")
		Expect(rack.Run("fusee", "put", "7", "world", "-v").Stderr).To(ContainSubstring(" 5 round trips,"), "the same")
		Expect(rack.OK("fusee", "get", "7")).To(Equal("world\n"))
		Expect(rack.Run("fusee", "insert", "7", "x").Stderr).To(ContainSubstring("key exists"))
		rack.OK("fusee", "delete", "7")
		Expect(rack.Run("fusee", "get", "7").Stderr).To(ContainSubstring("no such key"))
		Expect(rack.Run("fusee", "insert", "8", strings.Repeat("x", 1<<16)).Stderr).To(ContainSubstring("value is too large"))
		res := rack.Run("sherman", "start", "--fresh") // it would take the memory
		Expect(res).To(fixture.HaveExited(1))
		Expect(res.Stderr).To(ContainSubstring("`rdmalab fusee stop` first"))
	})

	It("runs a workload, and is found again by hosts that forgot it", func() {
		out := rack.OK("run", "ycsb", "--store", "fusee", "--workload", "a", "--keys", "200", "--clients", "6", "--warmup", "0s", "--ops", "40",
			"--duration", "60s", "-q")
		Expect(out).To(ContainSubstring("fusee, workload a"))
		Expect(out).NotTo(ContainSubstring("failed"))
		Expect(check(rack).Table.Keys).To(Equal(200))
		rack.OK("fusee", "stop")
		Expect(rack.Run("fusee", "get", "8").Stderr).To(ContainSubstring("rdmalab fusee start"))
		Expect(rack.OK("fusee", "start")).To(HavePrefix("found a table"))
		rack.OK("fusee", "get", "8")
		Expect(rack.OK("fusee", "stat")).To(MatchRegexp(`keys +200 `))
	})

	It("gives the blocks of commands that have ended to later ones", func() {
		rack.OK("fusee", "start", "--fresh")
		for i := range 12 {
			rack.OK("fusee", "insert", strconv.Itoa(100+i), "hello")
		}
		var st struct {
			Keys, Left int
			Taken      []int
			Owners     map[string]int
		}
		rack.JSON(&st, "fusee", "stat")
		taken := 0
		for _, n := range st.Taken {
			taken += n
		}
		Expect(st.Keys).To(Equal(12))
		Expect(st.Owners).To(BeEmpty())
		Expect(st.Left).To(Equal(taken))
		Expect(taken).To(BeNumerically("<", 4), "each command takes over what the one before has left")
		Expect(rack.OK("fusee", "check", "--recover")).NotTo(ContainSubstring("recovered"), "all have left their blocks")
		check(rack)
	})

	It("goes on when a memory server crashes, if there is a master", func() {
		Expect(rack.OK("fusee", "start", "--fresh", "--replicas", "2", "--index-replicas", "2", "--master", "cn1")).To(HaveSuffix("cn1 runs the master\n"))
		rack.OK("fusee", "insert", "7", "hello")
		crashOneOfAll(rack, "ms0")
		DeferCleanup(func() { rack.OK("fusee", "stop") })
		Expect(rack.OK("fusee", "get", "7")).To(Equal("hello\n"))
		rack.OK("fusee", "put", "7", "world")
		rack.OK("fusee", "insert", "8", "more")
		rack.OK("restart", "ms0") // its memory is empty: the master fills it
		Expect(rack.OK("fusee", "get", "7", "--from", "cn2")).To(Equal("world\n"))
		check(rack, "--clients", "4", "--rounds", "40", "--keys", "6")
	})

	It("fills a memory server that comes back, and goes on when the other one crashes", func() {
		rack.OK("fusee", "start", "--fresh", "--replicas", "2", "--index-replicas", "2", "--master", "cn1")
		DeferCleanup(func() { rack.OK("fusee", "stop") })
		rack.OK("fusee", "insert", "7", "hello")
		for _, server := range []string{"ms1", "ms0"} {
			crashOneOfAll(rack, server)
			rack.OK("fusee", "put", "7", "without "+server)
			Expect(rack.OK("fusee", "stat")).To(MatchRegexp(server + ` +no member`))
			rack.OK("restart", server)
			whole(rack)
			Expect(rack.OK("fusee", "get", "7")).To(Equal("without " + server + "\n"))
		}
		check(rack, "--clients", "4", "--rounds", "40", "--keys", "6")
	})

	It("goes on when the master crashes, if it has a standby", func() {
		Expect(rack.OK("fusee", "start", "--fresh", "--replicas", "2", "--index-replicas", "2", "--master", "cn1", "--standby", "cn2")).
			To(HaveSuffix("cn1 runs the master\ncn2 is its standby\n"))
		DeferCleanup(func() { rack.OK("fusee", "stop") })
		rack.OK("fusee", "insert", "7", "hello", "--from", "cn0")
		Eventually(func() string { return rack.OK("logs", "cn1") }, "10s").Should(ContainSubstring("the master has a standby"))
		Eventually(func() string { return rack.OK("logs", "cn2") }, "10s").Should(ContainSubstring("the master counts this standby"))
		rack.OK("crash", "cn1")
		Eventually(func() string { return rack.OK("logs", "cn2") }, "15s").Should(ContainSubstring("the master of a table is up"))
		crashOneOfAll(rack, "ms1")
		Expect(rack.OK("fusee", "get", "7", "--from", "cn0")).To(Equal("hello\n"))
		rack.OK("fusee", "put", "7", "world", "--from", "cn0")
		rack.OK("restart", "cn1")
		rack.OK("restart", "ms1")
		check(rack, "--clients", "4", "--rounds", "40", "--keys", "6")
	})

	It("starts another master and standby with an empty table", func() {
		DeferCleanup(func() { rack.OK("fusee", "stop") })
		for range 2 { // the second empty table ends the master and the standby of the first one
			Expect(rack.OK("fusee", "start", "--fresh", "--replicas", "2", "--index-replicas", "2", "--master", "cn1", "--standby", "cn2")).
				To(HaveSuffix("cn1 runs the master\ncn2 is its standby\n"))
		}
		Eventually(sinceStandby(rack, "cn2"), "10s").Should(ContainSubstring("the master counts this standby"))
		rack.OK("crash", "cn1")
		Eventually(sinceStandby(rack, "cn2"), "15s").Should(ContainSubstring("the master of a table is up"))
		rack.OK("fusee", "insert", "9", "there", "--from", "cn0")
		rack.OK("restart", "cn1")
		check(rack, "--clients", "4", "--rounds", "40", "--keys", "6")
	})

	It("says which of master and standby a host runs", func() {
		DeferCleanup(func() { rack.OK("fusee", "stop") })
		// The standby has the lease of the master, which is long enough for a busy machine.
		rack.OK("fusee", "start", "--fresh", "--replicas", "2", "--index-replicas", "2", "--master", "cn1", "--lease", "2s")
		By("giving a master that runs already its first standby")
		start := func(master, standby string) fixture.Result {
			return rack.Run("fusee", "start", "--master", master, "--standby", standby)
		}
		Expect(start("cn1", "cn2").Stdout).To(HaveSuffix("cn1 runs the master\ncn2 is its standby\n"))
		refused := rack.Run("fusee", "start", "--master", "cn1", "--standby", "cn2", "--lease", "500ms")
		Expect(refused).To(fixture.HaveExited(1))
		Expect(refused.Stderr).To(ContainSubstring("runs a master or standby with a lease of 2s: give the same --lease or none"))
		refused = start("cn2", "cn1")
		Expect(refused).To(fixture.HaveExited(1))
		Expect(refused.Stderr).To(ContainSubstring("cn2 runs the standby of the master, and takes its place if it is dead: name another host with --master"))
		Eventually(sinceStandby(rack, "cn2"), "10s").Should(ContainSubstring("the master counts this standby"))
		By("replacing a master that hangs, and asking it as soon as it goes on")
		rack.OK("hang", "cn1")
		Eventually(sinceStandby(rack, "cn2"), "60s").Should(ContainSubstring("the master of a table is up"))
		for _, args := range [][]string{{"get", "1", "--from", "cn1"}, {"start", "--master", "cn1"}, {"load", "--keys", "30"}} {
			silent := rack.Run(append([]string{"fusee"}, args...)...)
			Expect(silent).To(fixture.HaveExited(1))
			Expect(silent.Stderr).To(ContainSubstring("cn1 does not answer; see `rdmalab status`"))
		}
		rack.OK("resume", "cn1")
		refused = rack.Run("fusee", "start", "--master", "cn1")
		Expect(refused).To(fixture.HaveExited(1))
		Expect(refused.Stderr).To(ContainSubstring("cn1 runs the standby of the master"))
		Expect(start("cn0", "cn2").Stdout).To(HaveSuffix("cn0 runs the master\ncn2 is its standby\n"), "cn2 was replaced and had a standby")
		for _, threshold := range []string{"0", "-1", "1.5", "NaN"} {
			res := rack.Run("fusee", "start", "--threshold="+threshold)
			Expect(res).To(fixture.HaveExited(1))
			Expect(res.Stderr).To(ContainSubstring("--threshold " + threshold + ": want a share above 0, up to 1"))
		}
	})

	It("gives linearizable answers while links fail and copies are torn", func() {
		rack.OK("fusee", "start", "--fresh", "--replicas", "3", "--index-replicas", "3")
		for _, link := range []string{"cn0", "ms0", "ms1"} {
			for _, f := range [][]string{{"loss", "1%"}, {"duplicate", "2%"}, {"reorder", "2%"}} {
				rack.OK("inject", f[0], f[1], "--class", "roce", "--link", link, "--dir", "both")
			}
		}
		rack.OK("inject", "tear", "20%", "--host", "ms0")
		check(rack, "--clients", "6", "--rounds", "60", "--keys", "6")
		rack.OK("heal", "--all")
		check(rack, "--clients", "8", "--rounds", "60", "--keys", "2", "--from", "cn1")
	})
})

// whole waits until all memory servers are members.
func whole(rack *fixture.Rack) {
	GinkgoHelper()
	Eventually(func() string { return rack.OK("fusee", "stat", "--from", "cn0") }, "30s").ShouldNot(ContainSubstring("no member"))
}

// crashOneOfAll crashes a memory server while all are members. On a busy machine a server may have
// been silent for a lease: then it is no member until the master has filled it, and the store does
// not survive that another one crashes.
func crashOneOfAll(rack *fixture.Rack, server string) {
	GinkgoHelper()
	whole(rack)
	rack.OK("crash", server)
}

// sinceStandby returns the log of a host since the last standby has begun there.
func sinceStandby(rack *fixture.Rack, host string) func() string {
	return func() string {
		log := rack.OK("logs", host)
		return log[max(0, strings.LastIndex(log, "the standby of a table's master is up")):]
	}
}

// verdict is the part of `fusee check -o json` that the specs use.
type verdict struct {
	History *struct {
		Operations   int  `json:"operations"`
		Unknown      int  `json:"unknown"`
		Linearizable bool `json:"linearizable"`
	} `json:"history"`
	Table struct {
		Keys int `json:"keys"`
	} `json:"table"`
	Why string `json:"why"`
}

// check proves the table, and with clients their history.
func check(rack *fixture.Rack, args ...string) (v verdict) {
	GinkgoHelper()
	rack.JSON(&v, append([]string{"fusee", "check"}, args...)...)
	Expect(v.Why).To(BeEmpty())
	if len(args) > 0 {
		Expect(v.History.Linearizable).To(BeTrue())
		AddReportEntry("history", v.History)
	}
	return v
}
