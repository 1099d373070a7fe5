package verbs

import (
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// A fault at the verbs boundary hits a Go program of the daemon and an unmodified C program alike.
var _ = Describe("faults at the verbs boundary", Ordered, func() {
	var rack *fixture.Rack
	var program string
	BeforeAll(func() {
		needCompiler()
		program = compileFile(filepath.Join("testdata", "boundary.c"))
		rack = fixture.Up("hosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory}\n")
	})
	AfterEach(func() { Expect(rack.Run("heal")).To(fixture.HaveExited(0)) })

	run := func(rule ...string) string {
		GinkgoHelper()
		Expect(rack.Run(append([]string{"inject", "verbs", "cn0"}, rule...)...)).To(fixture.HaveExited(0))
		s := rack.Run("exec", "cn0", "--", "timeout", "60", program)
		Expect(s).To(fixture.HaveExited(0))
		return s.Stdout
	}

	It("give the third completion of a C program a status, and flush what is behind it", func() {
		Expect(run("completion", "RETRY_EXC_ERR", "--nth", "3")).To(Equal("wr 1 status 0\nwr 2 status 0\nwr 3 status 12 vendor_err 0x71\npost 4: 0\nwr 4 status 5 vendor_err 0x61\n"))
		Expect(rack.Run("faults").Stdout).To(MatchRegexp(`verbs-cn0-1 +active +1 +- +- +verbs cn0 completion RETRY_EXC_ERR --nth 3`))
	})

	It("refuse a post of a C program with an errno, and its later posts work", func() {
		Expect(run("post", "ENOMEM", "--nth", "3")).To(Equal("wr 1 status 0\nwr 2 status 0\npost 3: 12\nwr 4 status 0\n"))
		Expect(rack.Run("qps", "cn0").Stdout).To(ContainSubstring("fault verbs-cn0-1"))
	})

	It("bring completions of a C program late", func() {
		Expect(run("late", "300ms", "--nth", "2")).To(MatchRegexp(`^wr 1 status 0( late)?\nwr 2 status 0 late\nwr 3 status 0( late)?\nwr 4 status 0( late)?\n$`))
	})

	It("hit a Go program", func() {
		perf := []string{"perf", "write_lat", "--from", "cn0", "--to", "ms0", "--iters", "100"}
		Expect(rack.Run("inject", "verbs", "cn0", "post", "EBUSY", "--nth", "20", "--once")).To(fixture.HaveExited(0))
		s := rack.Run(perf...)
		Expect(s).To(fixture.HaveExited(1))
		Expect(s.Stderr).To(ContainSubstring("fault verbs-cn0-1"))
		Expect(rack.Run("faults").Stdout).To(ContainSubstring("spent"))
		Expect(rack.Run(perf...)).To(fixture.HaveExited(0))
	})
})
