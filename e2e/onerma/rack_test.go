package onerma_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("a rack with 1RMA NICs", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(rackFile) })

	It("moves and compares bytes in both directions, beside RoCEv2", func() {
		Expect(rack.Perf("onerma_write_bw", "--size", "64KiB", "--iters", "300", "--tx-depth", "32", "--verify").Verified).To(Equal(uint64(32 * 64 << 10)))
		p := rack.Perf("onerma_read_bw", "--size", "10000", "--iters", "500", "--tx-depth", "7", "--verify")
		Expect(p.Verified).To(Equal(uint64(500 * 10000)))
		Expect(p.Counters["onerma_ended_ok"]).To(BeNumerically(">=", 1500), "three operations each")
		rack.Perf("onerma_read_lat", "--size", "1", "--iters", "50", "--verify")
		rack.Perf("onerma_write_lat", "--size", "4KiB", "--iters", "50", "--verify")
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
	})

	It("lists the NICs and their counters", func() {
		Expect(rack.OK("status")).To(MatchRegexp(`(?m)^HOST +1RMA NIC +INCARNATION .*\n(cn0|cn1|ms0) +up +1 `))
		Expect(rack.OK("counters", "ms0")).To(MatchRegexp(`onerma_served +\d+ +inbound operations that were accepted`))
		text := rack.OK("perf", "onerma_read_lat", "--from", "cn1", "--to", "ms0", "--iters", "20")
		Expect(text).To(And(ContainSubstring("1RMA READ Latency Test"), ContainSubstring("cn1 -> ms0")))
	})

	It("shows the messages in a capture", func() {
		file := filepath.Join(GinkgoT().TempDir(), "solo.pcapng")
		stop := rack.Start("capture", "cn1", "-w", file)
		Eventually(func() string {
			rack.Perf("onerma_write_bw", "--size", "8KiB", "--iters", "40", "--from", "cn1")
			return fixture.Run("dump", "--all", file).Stdout
		}, fixture.Patience, "100ms").Should(ContainSubstring("ONERMA WRITE done"))
		Expect(stop()).To(fixture.HaveExited(0))
		dump := fixture.Run("dump", "--all", "--verify", file)
		Expect(dump).To(fixture.HaveExited(0))
		for _, kind := range []string{"request", "pull", "data", "done"} {
			Expect(strings.Contains(dump.Stdout, "ONERMA WRITE "+kind)).To(BeTrue(), kind)
		}
	})

	It("tries again what a fault of one kind of message has hit, and leaves RoCEv2 alone", func() {
		for class, dir := range map[string]string{"onerma_request": "up", "onerma_pull": "down", "onerma_data": "up", "onerma_done": "down"} {
			rack.OK("inject", "drop", "--class", class, "--dir", dir, "--once", "--link", "cn0")
			p := rack.Perf("onerma_write_bw", "--size", "4KiB", "--iters", "60", "--verify")
			Expect(p.Counters["onerma_ended_timeout"]).To(BeNumerically(">=", 1), class)
			Expect(rack.Faults()).To(HaveExactElements(HaveField("Hits", uint64(1))), class)
			rack.OK("heal")
		}
		rack.OK("inject", "loss", "100%", "--class", "onerma_read", "--link", "cn0")
		rack.Perf("read_bw", "--iters", "100", "--verify")
		rack.Perf("onerma_write_bw", "--iters", "50")
		res := rack.Run("perf", "onerma_read_bw", "--from", "cn0", "--to", "ms0", "--op-timeout", "300ms")
		Expect(res).To(fixture.HaveExited(1))
		Expect(res.Stderr).To(MatchRegexp(`1RMA READ: TIMEOUT: 0 of 65536 bytes were moved`))
		rack.OK("heal")
	})

	It("is used by programs of their own", func() {
		program := filepath.Join(GinkgoT().TempDir(), "example")
		cmd := exec.Command("go", "build", "-o", program, "github.com/rdmalab/rdmalab/onerma/socket/example")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		text := strings.Repeat("many words ", 1000)
		res := rack.OK("exec", "cn1", "--", program, rack.Host("ms0").IPv4, text)
		Expect(res).To(ContainSubstring(`has "` + text + `"`))
		Eventually(func() string { return rack.OK("status") }).Should(MatchRegexp(`(?m)^cn1 +up +1 +1 +0 +0 +512KiB$`), "what is left behind")
	})

	It("is right under loss, copies, delays and damage", func() {
		faults := [][]string{
			{"loss", "2%"},
			{"duplicate", "20%"},
			{"reorder", "10%", "--delay", "2ms"},
			{"corrupt", "2%", "--class", "onerma_data"}, // a damaged request ends as a wrong key does
		}
		for _, fault := range faults {
			rack.OK(append(append([]string{"inject"}, fault...), "--link", "cn0")...)
		}
		rack.Perf("onerma_write_bw", "--size", "8KiB", "--iters", "100", "--verify")
		p := rack.Perf("onerma_read_bw", "--size", "8KiB", "--iters", "100", "--verify")
		Expect(p.Verified).To(Equal(uint64(100 * 8 << 10)))
		rack.OK("heal")
	})
})

var _ = Describe("failures below a 1RMA NIC", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(rackFile) })

	// running starts a long test of READs, waits until bytes arrive, and returns its end.
	running := func() chan fixture.Result {
		GinkgoHelper()
		before := rack.Counters("cn0")["onerma_ended_ok"]
		ended := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			ended <- rack.Run("perf", "onerma_read_bw", "--from", "cn0", "--to", "ms0", "--size", "4KiB", "--iters", "10000000", "--op-timeout", "2s", "-q")
		}()
		Eventually(func() uint64 { return rack.Counters("cn0")["onerma_ended_ok"] }).Should(BeNumerically(">", before+1000))
		return ended
	}
	// timedOut expects a test to end because no operation was answered.
	timedOut := func(ended chan fixture.Result) {
		GinkgoHelper()
		var res fixture.Result
		Eventually(ended).Should(Receive(&res))
		Expect(res).To(fixture.HaveExited(1))
		Expect(res.Stderr).To(ContainSubstring("1RMA READ: TIMEOUT"))
	}
	works := func() {
		GinkgoHelper()
		rack.Perf("onerma_write_bw", "--size", "4KiB", "--iters", "100", "--verify")
	}

	It("ends as TIMEOUT when the host crashes; the next incarnation has another number", func() {
		before := incarnation(rack, "ms0")()
		ended := running()
		rack.OK("crash", "ms0")
		timedOut(ended)
		rack.OK("restart", "ms0")
		Eventually(incarnation(rack, "ms0")).Should(Equal(before + 1))
		works()
	})

	It("ends as TIMEOUT in a partition, and works again when it is healed", func() {
		ended := running()
		rack.OK("partition", "cn0", "ms0")
		timedOut(ended)
		rack.OK("heal")
		works()
	})

	It("goes on after a hang of the host that is shorter than the patience", func() {
		before := rack.Counters("cn0")["onerma_ended_timeout"]
		ended := running()
		rack.OK("hang", "ms0", "--for", "500ms")
		Eventually(func() uint64 { return rack.Counters("cn0")["onerma_ended_timeout"] }).Should(BeNumerically(">", before))
		ok := rack.Counters("cn0")["onerma_ended_ok"]
		Eventually(func() uint64 { return rack.Counters("cn0")["onerma_ended_ok"] }).Should(BeNumerically(">", ok+1000))
		Expect(ended).NotTo(Receive())
		rack.OK("crash", "cn0", "--app")
		var res fixture.Result
		Eventually(ended).Should(Receive(&res))
		Expect(res.Stderr).To(ContainSubstring("the application was killed"))
		rack.OK("restart", "cn0", "--app")
		works()
	})

	It("serves memory while the programs of its host hang, and not after they have crashed", func() {
		ended := running()
		rack.OK("hang", "ms0", "--app")
		ok := rack.Counters("cn0")["onerma_ended_ok"]
		Eventually(func() uint64 { return rack.Counters("cn0")["onerma_ended_ok"] }).Should(BeNumerically(">", ok+1000))
		rack.OK("resume", "ms0", "--app")
		refused := rack.Counters("cn0")["onerma_ended_remote_authentication_failure"]
		rack.OK("crash", "ms0", "--app")
		var res fixture.Result
		Eventually(ended).Should(Receive(&res))
		Expect(res).To(fixture.HaveExited(1))
		// The lender's region is gone. A READ is tried again until its time is over. On a busy machine the
		// answer to the last attempt may come too late.
		Expect(res.Stderr).To(Or(ContainSubstring("REMOTE_AUTHENTICATION_FAILURE"), ContainSubstring("TIMEOUT")))
		Expect(rack.Counters("cn0")["onerma_ended_remote_authentication_failure"]).To(BeNumerically(">", refused))
		rack.OK("restart", "ms0", "--app")
		works()
	})

	It("ends with its NIC", func() {
		before := incarnation(rack, "ms0")()
		rack.OK("crash", "ms0", "--nic")
		Expect(incarnation(rack, "ms0")()).To(BeZero())
		Expect(rack.Run("perf", "onerma_read_bw", "--from", "cn0", "--to", "ms0")).To(fixture.HaveExited(1))
		rack.OK("restart", "ms0", "--nic")
		Expect(incarnation(rack, "ms0")()).To(Equal(before + 1))
		works()
	})
})

var _ = Describe("1RMA over memory links", func() {
	It("works as over pairs of interfaces", func() {
		rack := fixture.Up(overMemory)
		rack.Perf("onerma_write_bw", "--size", "64KiB", "--iters", "100", "--verify")
		rack.Perf("onerma_read_bw", "--size", "4KiB", "--iters", "1000", "--verify")
		rack.Perf("write_bw", "--iters", "200", "--verify")
	})
})

var _ = Describe("a rack without 1RMA NICs", func() {
	It("says how to get them", func() {
		rack := fixture.Up(hosts)
		res := rack.Run("perf", "onerma_read_bw", "--from", "cn0", "--to", "ms0")
		Expect(res).To(fixture.HaveExited(2))
		Expect(res.Stderr).To(ContainSubstring("put `onerma: {}` into the rack file"))
		Expect(rack.OK("status")).NotTo(ContainSubstring("1RMA"))
		Expect(rack.OK("counters", "cn0", "--all")).NotTo(ContainSubstring("onerma"))
	})
})
