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

// The port of a host lives: programs see the link, the MTU and the addresses of its interface, and are
// told of changes as by a kernel.
var _ = Describe("the port of a host", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() {
		for _, program := range []string{"gcc", "ip", "ib_write_bw"} {
			fixture.Need(program, "perftest rdmacm-utils")
		}
		rack = fixture.Up("hosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory}\n")
	})

	It("follows link, MTU and addresses, with events", func() {
		program := compileFile(filepath.Join("testdata", "port.c"))
		out := filepath.Join(GinkgoT().TempDir(), "out")
		stop := rack.Start("exec", "cn0", "--", "sh", "-c", "exec "+program+" 60 >"+out)
		defer stop()
		lines := func() []string {
			b, _ := os.ReadFile(out) // there is none at first
			return strings.Split(strings.TrimSpace(string(b)), "\n")
		}
		const active, speed = "active, mtu 4096", "speed 32 x 1"
		Eventually(lines).WithTimeout(20 * time.Second).Should(ContainElement(And(HavePrefix(active+", "+speed), Not(ContainSubstring("10.77.0.200")))))
		sysfs := func(file string) string {
			return strings.TrimSpace(rack.OK("exec", "cn0", "--", "sh", "-c", "cat $SYSFS_PATH/class/infiniband/rxe0/ports/1/"+file))
		}
		Expect(sysfs("rate")).To(Equal("25 Gb/sec (1X EDR)"))
		for _, c := range []struct {
			what         []string
			event, state string // "" means none
			file, holds  string
		}{
			{[]string{"link", "cn0", "down"}, "event 10 of port 1, state 1: DOWN", "down, ", "phys_state", "2: Polling"},
			{[]string{"link", "cn0", "up"}, "event 9 of port 1, state 4: ACTIVE", active, "state", "4: ACTIVE"},
			{[]string{"exec", "cn0", "--", "ip", "link", "set", "rack0", "down"}, "event 10 of port 1, state 1: DOWN", "down, ", "phys_state", "3: Disabled"},
			{[]string{"exec", "cn0", "--", "ip", "link", "set", "rack0", "up"}, "event 9 of port 1, state 4: ACTIVE", active, "phys_state", "5: LinkUp"},
			{[]string{"exec", "cn0", "--", "ip", "link", "set", "rack0", "mtu", "1500"}, "", "active, mtu 1024", "phys_state", "5: LinkUp"},
			{[]string{"exec", "cn0", "--", "ip", "link", "set", "rack0", "mtu", "4200"}, "", active, "phys_state", "5: LinkUp"},
			{[]string{"exec", "cn0", "--", "ip", "addr", "add", "10.77.0.200/24", "dev", "rack0"}, "event 18 of port 1, state 4: ACTIVE, GID 3 0000:0000:0000:0000:0000:ffff:0a4d:00c8", "3=::ffff:10.77.0.200", "gids/3", "0000:0000:0000:0000:0000:ffff:0a4d:00c8"},
			{[]string{"exec", "cn0", "--", "ip", "addr", "del", "10.77.0.200/24", "dev", "rack0"}, "event 18 of port 1, state 4: ACTIVE, GID 3 0000:0000:0000:0000:0000:0000:0000:0000", active, "gids/3", "0000:0000:0000:0000:0000:0000:0000:0000"},
		} {
			seen := len(lines())
			rack.OK(c.what...)
			now := func() []string { return lines()[seen:] }
			if c.event != "" {
				Eventually(now).WithTimeout(20*time.Second).Should(ContainElement(HavePrefix(c.event)), "%v", c.what)
			}
			Eventually(now).WithTimeout(20*time.Second).Should(ContainElement(ContainSubstring(c.state)), "%v", c.what)
			Eventually(func() string { return sysfs(c.file) }).WithTimeout(20*time.Second).Should(Equal(c.holds), "%v", c.what)
		}
	})

	It("ends a connection whose packets no longer fit, and makes the next one shorter", func() {
		long := fixture.Meeting{Server: "ib_write_bw -R -F -D 30", Client: "ib_write_bw -R -F -D 30 SERVER"}
		ended := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			for range 20 {
				client, _ := long.Attempt(rack, "ms0")
				if !strings.Contains(client.Stdout+client.Stderr, fixture.PerftestTooEarly) {
					ended <- client
					return
				}
			}
		}()
		Eventually(func() uint64 { return rack.Counters("cn0")["sent_pkts"] }).WithTimeout(20 * time.Second).Should(BeNumerically(">", 1000))
		rack.OK("exec", "cn0", "--", "ip", "link", "set", "rack0", "mtu", "1500")
		var r fixture.Result
		Eventually(ended).WithTimeout(60 * time.Second).Should(Receive(&r))
		Expect(r.Code).NotTo(BeZero(), r.String())
		Expect(r.Stdout+r.Stderr).To(ContainSubstring("Failed status 12"), "IBV_WC_RETRY_EXC_ERR")
		Expect(rack.Counters("cn0")["tx_too_long"]).NotTo(BeZero())
		fixture.Meet("ib_write_bw -R -F -n 1000", "ib_write_bw -R -F -n 1000 SERVER", "#bytes").Run(rack, "ms0")
	})
})
