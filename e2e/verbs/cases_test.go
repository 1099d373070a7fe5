package verbs

import (
	"os/exec"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// The programs of testdata say what is wrong, and end with 0 if nothing is. Each stands for a kind of
// faults that real programs have met: PyTorch RPC (attributes), libfabric (loopback, depth), brpc
// (channels), valkey and targets of NVMe-oF (connections).
var _ = Describe("programs that make what real programs make", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() {
		needCompiler()
		rack = fixture.Up(fixture.Small)
	})

	alone := func(name string, args ...string) {
		GinkgoHelper()
		r := rack.Run(append([]string{"exec", "cn0", "--", "timeout", "200", compileFile("testdata/" + name + ".c")}, args...)...)
		Expect(r).To(fixture.HaveExited(0))
		Expect(r.Stdout).To(ContainSubstring("0 wrong"))
	}

	// Before the other programs, which are refused more.
	It("names the reason of a refusal in status, counters and the log", func() {
		program := compileFile("testdata/over_quota.c")
		Expect(rack.Run("exec", "cn0", "--", "timeout", "200", program)).To(fixture.HaveExited(0))
		const reason = "quota pds: 1 more; this program has 256 of 256 protection domains"
		Expect(rack.OK("status")).To(MatchRegexp(`(?m)^cn0 +over_quota +\d+ +3 +alloc PD: .*%s$`, reason))
		Expect(rack.OK("status")).To(MatchRegexp(`(?m)^cn0 +over_quota +\d+ +1 +create CQ: .*cqe is 4194304; the NIC takes 1 to 4194303$`))
		Expect(rack.OK("status")).To(MatchRegexp(`(?m)^cn0 +pds +256 +0 +\d+ +3$`))
		Expect(rack.OK("counters", "cn0")).To(And(MatchRegexp(`program_quota_refusals +3 `), MatchRegexp(`program_command_refusals +1 `)))
		Expect(strings.Count(rack.OK("logs", "cn0"), reason)).To(Equal(1))
	})

	It("raises and ignores attributes as the manual says", func() { alone("attributes") })
	It("makes completion queues as deep as hardware", func() { alone("depth") })
	It("makes a thousand completion channels", func() { alone("channels") })
	// The programs of academic papers are C++, and so the headers are both.
	It("runs the experimental calls of MLNX_OFED over a header", func() {
		const headers = "-I../../softrnic/uverbs/provider/exp"
		r := rack.Run("exec", "cn0", "--", "timeout", "200", compileFile("testdata/exp.c", headers))
		Expect(r).To(fixture.HaveExited(0))
		Expect(r.Stdout).To(HaveSuffix("0 wrong\n"))
		Expect(r.Stderr).To(ContainSubstring("rdmalab: dynamically connected transport (ibv_exp_create_dct): not supported\n"))
		fixture.Need("g++", "g++")
		check := exec.Command("g++", "-fsyntax-only", "-Wall", "-Werror", headers, "-x", "c++", "-")
		check.Stdin = strings.NewReader("#include <infiniband/verbs.h>\nint main() { return ibv_exp_destroy_dct(0); }\n")
		out, err := check.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
	})
	It("binds and resolves loopback as the kernel", func() {
		own, peer := rack.Host("cn0"), rack.Host("ms0")
		alone("loopback", own.IPv4, own.IPv6, peer.IPv4)
	})

	It("has 1,024 connections of a program", func() {
		const many = 1024
		program := compileFile("testdata/connections.c")
		side := func(host, role string) fixture.Result {
			return rack.Run("exec", host, "--", "timeout", "400", program, role, rack.Host("ms0").IPv4, strconv.Itoa(many))
		}
		served := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			served <- side("ms0", "-s")
		}()
		Eventually(func() int { return rack.Listeners("ms0") }).WithTimeout(30 * time.Second).Should(BeNumerically(">", 0))
		Expect(side("cn0", "-c")).To(fixture.HaveExited(0))
		var server fixture.Result
		Eventually(served).WithTimeout(60 * time.Second).Should(Receive(&server))
		Expect(server).To(fixture.HaveExited(0))
	})
})
