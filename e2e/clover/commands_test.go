package clover_test

import (
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("the commands of the store", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() {
		rack = fixture.Up(fixture.OneSwitch(rackFile))
		rack.OK("clover", "start")
	})

	It("work, and refuse wrong arguments with the reason", func() {
		rack.OK("clover", "insert", "7", "hello")
		Expect(rack.OK("clover", "get", "7", "--from", "cn3")).To(Equal("hello\n"))
		rack.OK("clover", "put", "7", "world")
		Expect(rack.OK("clover", "get", "7")).To(Equal("world\n"))
		long := strings.Repeat("x", 32<<10-24)
		rack.OK("clover", "put", "7", long)
		Expect(rack.OK("clover", "get", "7")).To(Equal(long + "\n"))
		rack.OK("clover", "delete", "7")
		for want, args := range map[string][]string{
			"no such key":        {"get", "7"},
			"value is too large": {"insert", "8", long + "x"},
		} {
			res := rack.Run(append([]string{"clover"}, args...)...)
			Expect(res).To(fixture.HaveExited(1))
			Expect(res.Stderr).To(ContainSubstring(want))
		}
		res := rack.Run("clover", "get", "seven")
		Expect(res).To(fixture.HaveExited(2))
		Expect(res.Stderr).To(ContainSubstring("want a number"))
		rack.OK("clover", "insert", "9", "a")
		Expect(rack.Run("clover", "insert", "9", "b").Stderr).To(ContainSubstring("key exists"))
		res = rack.Run("sherman", "start", "--fresh") // it would take the memory
		Expect(res).To(fixture.HaveExited(1))
		Expect(res.Stderr).To(ContainSubstring("`rdmalab clover stop` first"))
		Expect(rack.OK("clover", "get", "9")).To(Equal("a\n"))
	})

	It("are read line by line by the shell", func() {
		cmd := exec.Command(fixture.Binary(), "--rack", rack.Name, "clover", "shell")
		cmd.Stdin = strings.NewReader("insert 11 two words\nget 11\nput 11 x\nget 11\ndelete 11\nstat\nhelp\n")
		out, err := cmd.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		Expect(string(out)).To(HavePrefix("two words\nx\n"))
		Expect(string(out)).To(ContainSubstring("held by clients"))
		cmd = exec.Command(fixture.Binary(), "--rack", rack.Name, "clover", "shell")
		cmd.Stdin = strings.NewReader("fly 11\n")
		out, err = cmd.CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(string(out)).To(ContainSubstring(`there is no "fly"`))
	})

	It("load keys and run workloads, with and without steering", func() {
		Expect(rack.OK("clover", "load", "--keys", "200", "--value-size", "104")).To(ContainSubstring("keys 0 to 199 are there"))
		for _, steer := range []string{"none", "write", "both"} {
			var r struct {
				Ops, Failed, Wrong, NotFound uint64
				Steer                        string
				BytesPerOp                   float64
				Latencies                    []struct{ Kind string }
			}
			rack.JSON(&r, "run", "ycsb", "--no-load", "--keys", "200", "--value-size", "104", "--workload", "a", "--clients", "8", "--steer", steer,
				"--warmup", "200ms", "--duration", "2s", "-q")
			Expect(r.Ops).To(BeNumerically(">", 20), steer)
			Expect(r.Failed+r.Wrong+r.NotFound).To(BeZero(), steer)
			Expect(r.BytesPerOp).To(BeNumerically(">", 200), steer)
			Expect(r.Latencies).To(HaveLen(2))
		}
		rack.OK("run", "ycsb", "--no-load", "--keys", "200", "--value-size", "104", "--clients", "8", "--share-qp", "2", "--ops", "10", "--warmup", "0s", "-q")
		rack.OK("run", "ycsb", "--no-load", "--keys", "200", "--value-size", "104", "--clients", "8", "--reporter", "process", "--ops", "10", "--warmup", "0s", "-q")
		for _, flags := range [][]string{{"--share-qp", "2"}, {"--reporter", "process"}} {
			res := rack.Run(append([]string{"run", "ycsb", "--store", "sherman"}, flags...)...)
			Expect(res.Stderr).To(ContainSubstring("use --store clover"))
		}
		Expect(rack.SwitchCounters()["steer"]["nodes"]).To(BeNumerically(">", 0))
		Expect(rack.OK("run", "ycsb", "--no-load", "--keys", "200", "--workload", "f", "--clients", "2", "--ops", "10", "--steer", "none", "--csv", "-q")).
			To(HavePrefix("store,workload,"))
	})

	It("start a metadata server with threads, which answers calls beside a workload, and is crashed and found again", func() {
		rack.OK("clover", "stop")
		rack.OK("clover", "start", "--threads", "2")
		res := rack.Run("clover", "start", "--threads", "3")
		Expect(res).To(fixture.HaveExited(1))
		Expect(res.Stderr).To(ContainSubstring("`rdmalab clover stop`"))
		ran := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			ran <- rack.Run("clover", "check", "--clients", "4", "--rounds", "300")
		}()
		var calls struct {
			Clients        int
			Calls          uint64
			CallsPerSecond float64
		}
		rack.JSON(&calls, "clover", "calls", "--clients", "6", "--duration", "500ms")
		Expect(calls.Clients).To(Equal(6))
		Expect(calls.Calls).To(BeNumerically(">=", 12))
		Expect(calls.CallsPerSecond).To(BeNumerically(">", 0))
		var checked fixture.Result
		Eventually(ran, "60s").Should(Receive(&checked))
		Expect(checked).To(fixture.HaveExited(0))
		rack.OK("clover", "insert", "5000", "kept")
		rack.OK("crash", "md0")
		rack.OK("restart", "md0")
		rack.OK("clover", "start", "--threads", "2")
		Expect(rack.OK("clover", "get", "5000")).To(Equal("kept\n"))
		Expect(rack.Run("clover", "start", "--threads", "99").Stderr).To(ContainSubstring("want 0 to 16"))
	})
})
