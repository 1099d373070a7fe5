package verbs

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// Tools that ask the kernel about RDMA devices: what they print is true.
var _ = Describe("tools", Ordered, func() {
	const port = "/sys/class/infiniband/rxe0/ports/1/" // of the first NIC
	var rack *fixture.Rack
	BeforeAll(func() {
		fixture.Need("rdma", "iproute2")
		rack = fixture.Up("hosts:\n  - {name: cn0, role: compute, nics: 2}\n  - {name: ms0, role: memory, nics: [{}, {numa: 1}]}\n")
	})
	rdma := func(args ...string) string {
		GinkgoHelper()
		return rack.OK(append([]string{"exec", "cn0", "--", "rdma"}, args...)...)
	}

	It("list devices and ports by netlink", func() {
		Expect(rdma("link")).To(MatchRegexp(`(?s)^link rxe0/1 state ACTIVE physical_state LINK_UP netdev rack0\s+link rxe1/1 state ACTIVE physical_state LINK_UP netdev rack1\s+$`))
		Expect(rdma("dev")).To(MatchRegexp(`(?s)^0: rxe0: node_type ca .*node_guid [0-9a-f]{4}:.*1: rxe1: node_type ca `))
		Expect(rdma("system")).To(ContainSubstring("copy-on-fork on"))
		refused := rack.Run("exec", "cn0", "--", "rdma", "dev", "set", "rxe0", "name", "mlx5_0")
		Expect(refused).NotTo(fixture.HaveExited(0))
	})

	It("see the carrier of a port go and come", func() {
		rack.OK("link", "cn0/rxe1", "down")
		Eventually(func() string { return rdma("link", "show", "rxe1/1") }).Should(ContainSubstring("state DOWN"))
		Expect(rdma("link", "show", "rxe0/1")).To(ContainSubstring("state ACTIVE"))
		rack.OK("link", "cn0/rxe1", "up")
		Eventually(func() string { return rdma("link", "show", "rxe1/1") }).Should(ContainSubstring("state ACTIVE"))
	})

	// The client asks for its own objects while it runs; the shell's program is another process of the host.
	It("show the objects of a running program, with its process", func() {
		fixture.Need("ib_write_bw", "perftest")
		ended := make(chan fixture.Result, 2)
		start := func(host, program string) {
			go func() {
				defer GinkgoRecover()
				ended <- rack.Run("exec", host, "--", "sh", "-c", program)
			}()
		}
		start("ms0", "timeout 60 ib_write_bw -F -u 18 -d rxe0 -D 4 -q 3 -p 18700")
		rack.AwaitTCP("ms0", 18700)
		start("cn0", "timeout 60 ib_write_bw -F -u 18 -d rxe0 -D 4 -q 3 -p 18700 ms0")
		Eventually(func() int {
			return len(regexp.MustCompile(`(?m)^link rxe0/1 lqpn \d+ rqpn \d+ type RC state RTS .*pid \d+ comm ib_write_bw`).FindAllString(rdma("resource", "show", "qp"), -1))
		}).WithTimeout(20 * time.Second).Should(Equal(3))
		pid := strings.TrimSpace(rack.OK("exec", "cn0", "--", "pgrep", "-x", "ib_write_bw"))
		Expect(rdma("resource", "show", "qp", "link", "rxe0/1")).To(ContainSubstring("pid " + pid + " comm ib_write_bw"))
		Expect(rdma("resource", "show", "mr")).To(MatchRegexp(`dev rxe0 mrn \d+ rkey 0x[0-9a-f]+ lkey 0x[0-9a-f]+ mrlen \d+ .*comm ib_write_bw`))
		Expect(rdma("resource", "show", "cq")).To(MatchRegexp(`dev rxe0 cqn \d+ cqe \d+ users \d+ .*comm ib_write_bw`))
		Expect(rdma("resource", "show", "pd")).To(MatchRegexp(`dev rxe0 pdn \d+ .*users [1-9]\d* .*comm ib_write_bw`))
		Expect(rdma("resource", "show", "rxe0")).To(MatchRegexp(` qp [3-9] .* ctx 1 `))
		Expect(rdma("resource", "show", "qp", "link", "rxe1/1")).NotTo(ContainSubstring("ib_write_bw"))
		for range cap(ended) {
			var r fixture.Result
			Eventually(ended).WithTimeout(70 * time.Second).Should(Receive(&r))
			Expect(r).To(fixture.HaveExited(0))
		}
		Eventually(func() string { return rdma("resource", "show", "qp") }).ShouldNot(ContainSubstring("ib_write_bw"))
		Expect(rdma("statistic", "show", "link", "rxe0/1")).To(ContainSubstring(fmt.Sprintf(" sent_pkts %d ", rack.Counters("cn0")["sent_pkts"])))
	})

	It("show the identifiers of librdmacm", func() {
		fixture.Need("rping", "rdmacm-utils")
		ended := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			ended <- rack.Run("exec", "cn0", "--", "timeout", "60", "rping", "-s", "-a", "10.77.0.2", "-p", "18800")
		}()
		Eventually(func() string { return rdma("resource", "show", "cm_id") }).WithTimeout(20 * time.Second).Should(
			MatchRegexp(`link rxe0/1 .*state LISTEN ps TCP pid \d+ comm rping src-addr 10\.77\.0\.2:18800`))
		rack.OK("exec", "cn0", "--", "pkill", "-x", "rping")
		Eventually(ended).WithTimeout(20 * time.Second).Should(Receive())
	})

	It("read counters in sysfs that rise with the traffic", func() {
		read := func(host, name string) (n uint64) {
			GinkgoHelper()
			n, err := strconv.ParseUint(strings.TrimSpace(rack.OK("exec", host, "--", "cat", port+name)), 10, 64)
			Expect(err).NotTo(HaveOccurred())
			return n
		}
		sent, received := read("cn0", "hw_counters/sent_pkts"), read("ms0", "counters/port_rcv_data")
		rack.OK("perf", "write_bw", "--from", "cn0", "--to", "ms0", "--size", "64KiB", "--iters", "100", "-q")
		now := rack.Counters("cn0")["sent_pkts"]
		Expect(now).To(BeNumerically(">", sent+1000))
		Eventually(func() uint64 { return read("cn0", "hw_counters/sent_pkts") }).WithTimeout(10 * time.Second).Should(BeNumerically(">=", now))
		Eventually(func() uint64 { return read("ms0", "counters/port_rcv_data") }).WithTimeout(10 * time.Second).Should(BeNumerically(">=", received+100*64<<10/4))
	})

	// Programs that the preloaded library does not reach read the files of the host's /sys itself.
	It("read the present state without the preloaded library", func() {
		cat := func(name string) string {
			GinkgoHelper()
			return strings.TrimSpace(rack.OK("exec", "cn0", "--", "env", "LD_PRELOAD=", "cat", name))
		}
		for _, folder := range []string{"/sys/class/infiniband/rxe0/", "/sys/devices/virtual/infiniband/rxe0/", "/sys/class/infiniband_verbs/uverbs0/device/infiniband/rxe0/"} {
			sent := func() int {
				GinkgoHelper()
				n, err := strconv.Atoi(cat(folder + "ports/1/hw_counters/sent_pkts"))
				Expect(err).NotTo(HaveOccurred())
				return n
			}
			for range 2 {
				before := sent()
				rack.OK("perf", "write_bw", "--from", "cn0", "--to", "ms0", "--size", "4KiB", "--iters", "100", "-q")
				Eventually(sent).WithTimeout(10 * time.Second).Should(BeNumerically(">=", before+100))
			}
		}
		state := func() string { return cat(port + "state") }
		Expect(state()).To(Equal("4: ACTIVE"))
		rack.OK("link", "cn0", "down")
		DeferCleanup(func() { rack.OK("link", "cn0", "up") })
		Eventually(state).WithTimeout(10 * time.Second).Should(Equal("1: DOWN"))
		rack.OK("link", "cn0", "up")
		Eventually(state).WithTimeout(10 * time.Second).Should(Equal("4: ACTIVE"))
		Expect(rack.Run("exec", "cn0", "--", "env", "LD_PRELOAD=", "sh", "-c", "echo 1: DOWN >"+port+"state")).NotTo(fixture.HaveExited(0))
		Expect(state()).To(Equal("4: ACTIVE"))
	})

	It("find devices below /sys/devices/virtual, with their interface", func() {
		Expect(rack.OK("exec", "cn0", "--", "realpath", "/sys/class/infiniband/rxe1")).To(Equal("/sys/devices/virtual/infiniband/rxe1\n"))
		Expect(rack.OK("exec", "cn0", "--", "cat", "/sys/class/infiniband/rxe1/parent")).To(Equal("rack1\n"))
		Expect(rack.OK("exec", "cn0", "--", "ls", "/sys/devices/virtual/net")).To(ContainSubstring("rack0"))
		Expect(rack.OK("exec", "cn0", "--", "ls", "/sys/class/infiniband/rxe0/device/infiniband_verbs")).To(Equal("uverbs0\n"))
	})

	It("of InfiniBand and of Prometheus read them", func() {
		fixture.Need("ibstat", "infiniband-diags")
		fixture.Need("prometheus-node-exporter", "prometheus-node-exporter")
		Expect(rack.OK("exec", "cn0", "--", "ibstat")).To(MatchRegexp(`(?s)CA 'rxe0'.*State: Active.*Physical state: LinkUp.*CA 'rxe1'.*State: Active`))
		ended := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			ended <- rack.Run("exec", "cn0", "--", "timeout", "60", "prometheus-node-exporter",
				"--collector.disable-defaults", "--collector.infiniband", "--web.listen-address=10.77.0.2:19100")
		}()
		DeferCleanup(func() {
			rack.Run("exec", "cn0", "--", "pkill", "prometheus-node")
			Eventually(ended).WithTimeout(70 * time.Second).Should(Receive())
		})
		rack.AwaitTCP("cn0", 19100)
		// The exporter is read by the shell alone.
		const script = `exec 3<>/dev/tcp/10.77.0.2/19100; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; cat <&3`
		scrape := func() (out string, sent float64) {
			GinkgoHelper()
			out = rack.OK("exec", "cn0", "--", "timeout", "60", "bash", "-c", script)
			m := regexp.MustCompile(`node_infiniband_port_packets_transmitted_total\{device="rxe0",port="1"\} (\S+)`).FindStringSubmatch(out)
			Expect(m).NotTo(BeNil(), out)
			sent, err := strconv.ParseFloat(m[1], 64)
			Expect(err).NotTo(HaveOccurred())
			return out, sent
		}
		out, sent := scrape()
		Expect(out).To(ContainSubstring(`node_infiniband_state_id{device="rxe1",port="1"} 4`))
		rack.OK("perf", "write_bw", "--from", "cn0", "--to", "ms0", "--size", "4KiB", "--iters", "100", "-q")
		Eventually(func() float64 { _, n := scrape(); return n }).WithTimeout(10 * time.Second).Should(BeNumerically(">=", sent+100))
	})
})
