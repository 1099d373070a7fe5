package chaos

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("a NIC that fails as hardware does", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(four) })

	DescribeTable("ends the work on it, and nothing else", func(kind, host, status string) {
		endsBy(rack, status, func() {
			var hit struct{ QPNs []uint32 }
			rack.JSON(&hit, "inject", "nic", host, kind)
			Expect(hit.QPNs).NotTo(BeEmpty())
		})
		alive(rack)
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
	},
		Entry("a queue pair of the client", "qp-error", "cn0", "Work Request Flushed Error"),
		Entry("the completion queues of the client", "cq-overrun", "cn0", "Work Request Flushed Error"),
		Entry("a queue pair of the server", "qp-error", "ms0", retryExceeded),
	)
})
