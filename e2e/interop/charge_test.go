package interop_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// chargeTests are test binaries in the guest, and their packages.
var chargeTests = []struct{ name, pkg string }{{"ipc.test", "../../softrnic/ipc"}, {"uverbs.test", "../../softrnic/uverbs"}}

// chargeLimit is how long one of them may take.
const chargeLimit = 3 * time.Minute

// The machine of this suite may have version 1 of cgroups, where the same tests run by `make test`.
// The guest has cgroup2 alone.
var _ = Describe("memory on a machine with cgroup2 alone", func() {
	for _, c := range chargeTests {
		It("is charged to the program and not to the daemon: "+c.name, func() {
			said := linux.do(chargeLimit, "/"+c.name, "-test.v", "-test.run", "ChargedToTheProgram$")
			Expect(said).To(And(ContainSubstring("--- PASS: Test"), Not(ContainSubstring("--- SKIP"))))
		})
	}
})
