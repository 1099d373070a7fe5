package verbs

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// C programs that say themselves whether states and events are as specified: they print what is not,
// and end with 1.
var _ = Describe("a C program over states and events", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() {
		need("gcc")
		if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
			Skip("libibverbs-dev is not installed: apt-get install libibverbs-dev")
		}
		rack = fixture.Up("hosts:\n  - {name: cn0, role: compute}\n")
	})

	// IBTA 10.3.1/flush, IBTA 11.4.2, IBTA 11.6.3.1/last-wqe.
	It("sees work requests flushed in the error state, and their events", func() {
		source, err := os.ReadFile("testdata/states.c")
		Expect(err).NotTo(HaveOccurred())
		Expect(rack.Run("exec", "cn0", "--", "timeout", "100", compile(string(source)))).To(fixture.HaveExited(0))
	})

	// IBTA 12.9.8.4/time-wait; the numbers are those of a kernel's rdma_cm.
	It("gets the events of the connection manager with their numbers and status", func() {
		need("rping") // whose package comes with that of librdmacm's headers
		source, err := os.ReadFile("testdata/cmevents.c")
		Expect(err).NotTo(HaveOccurred())
		Expect(rack.Run("exec", "cn0", "--", "timeout", "100", compile(string(source)), rack.Host("cn0").IPv4, "10.77.0.99")).To(fixture.HaveExited(0))
	})
})
