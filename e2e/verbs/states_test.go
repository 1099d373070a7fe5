package verbs

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// C programs that say themselves whether states and events are as specified: they print what is not,
// and end with 1. docs/reference/events.md lists the events that they reach.
var _ = Describe("a C program over states and events", Ordered, func() {
	var (
		rack   *fixture.Rack
		states string
	)
	source := func(name string) string {
		GinkgoHelper()
		b, err := os.ReadFile(filepath.Join("testdata", name))
		Expect(err).NotTo(HaveOccurred())
		return string(b)
	}
	BeforeAll(func() {
		fixture.Need("gcc", "gcc")
		if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
			Skip("librdmacm-dev is not installed: apt-get install librdmacm-dev")
		}
		states = compile(source("states.c"))
		rack = fixture.Up("hosts:\n  - {name: cn0, role: compute}\n")
	})

	// IBTA 10.3.1/flush, IBTA 11.4.2, IBTA 11.6.3.1/last-wqe.
	It("sees work requests flushed in the error state, and its events", func() {
		Expect(rack.Run("exec", "cn0", "--", "timeout", "300", states)).To(fixture.HaveExited(0))
	})

	// IBTA 12.9.8.4/time-wait; the numbers are those of a kernel's rdma_cm.
	It("gets the events of the connection manager with their numbers and status", func() {
		Expect(rack.Run("exec", "cn0", "--", "timeout", "100", compile(source("cmevents.c")), rack.Host("cn0").IPv4, "10.77.0.99")).To(fixture.HaveExited(0))
	})

	It("gets the events of faults from outside with their numbers", func() {
		out := filepath.Join(GinkgoT().TempDir(), "out")
		stop := rack.Start("exec", "cn0", "--", "sh", "-c", "timeout 100 "+states+" watch >"+out+"; echo ended $? >>"+out)
		defer stop()
		lines := func() []string {
			b, _ := os.ReadFile(out) // there is none at first
			return strings.Split(string(b), "\n")
		}
		Eventually(lines).WithTimeout(20 * time.Second).Should(ContainElement(HavePrefix("qpn ")))
		qpn := strings.TrimPrefix(lines()[0], "qpn ")
		seen := 0 // lines before the present fault
		for _, f := range []struct {
			fault []string
			event string
		}{
			{[]string{"link", "cn0", "down"}, "event 10"},
			{[]string{"link", "cn0", "up"}, "event 9"},
			{[]string{"inject", "nic", "cn0", "qp-error", "--qpn", qpn}, "event 1"},
			{[]string{"inject", "nic", "cn0", "unplug"}, "event 8"},
		} {
			seen = len(lines()) - 1
			rack.OK(f.fault...)
			Eventually(func() []string { return lines()[seen:] }).WithTimeout(20 * time.Second).Should(ContainElement(f.event))
		}
		Eventually(lines).WithTimeout(20 * time.Second).Should(ContainElement("ended 0"))
	})
})
