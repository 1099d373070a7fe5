package smoke

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/softrnic/pathtrace"
)

var _ = Describe("the default rack", Ordered, func() {
	var rack *fixture.Rack
	var before []string
	var up fixture.Result
	BeforeAll(func() {
		before = fixture.Traces()
		rack = fixture.New("")
		up = rack.Up()
	})

	It("comes up and verifies every path from a compute host to a memory server", func() {
		Expect(up).To(fixture.HaveExited(0))
		Expect(up.Stdout).To(ContainSubstring("verified 8 paths by WRITE, READ, CAS and FAA")) // 4 compute hosts, 2 servers
		status := rack.Status()
		Expect(status.Switch.State).To(Equal("up"))
		roles := map[string]int{}
		for _, h := range status.Hosts {
			Expect(h.State).To(Equal("up"), h.Name)
			roles[h.Role]++
		}
		Expect(roles).To(Equal(map[string]int{"compute": 4, "memory": 2, "metadata": 1}))
	})

	It("reports that it is up already", func() {
		again := rack.Up()
		Expect(again).To(fixture.HaveExited(0))
		Expect(again.Stdout + again.Stderr).To(ContainSubstring("up already"))
	})

	It("lists hosts as a table and as JSON", func() {
		table := rack.OK("status")
		for _, name := range []string{"cn0", "cn3", "ms1", "md0", "switch"} {
			Expect(table).To(ContainSubstring(name))
		}
	})

	// Most operations can be followed: the path has no other traffic, and no packet is lost.
	DescribeTable("says where the time of an operation goes", func(test string, flags ...string) {
		args := append([]string{"perf", test, "--from", "cn0", "--to", "ms0", "--iters", "200", "--timeout", "16", "--breakdown"}, flags...)
		Expect(rack.OK(args...)).To(And(ContainSubstring("cn0: post, doorbell, engine"), ContainSubstring("switch to ms0: send call")))
		var res struct {
			Breakdown pathtrace.Breakdown `json:"breakdown"`
		}
		rack.JSON(&res, args...)
		Expect(res.Breakdown.Followed).To(And(BeNumerically(">", 100), BeNumerically("<=", res.Breakdown.Operations)))
		Expect(res.Breakdown.Stages).To(HaveLen(10))
		for _, s := range append(res.Breakdown.Stages, res.Breakdown.Calls...) {
			Expect(s.Median).To(BeNumerically(">", 0), s.Name)
			Expect(s.Median).To(BeNumerically("<=", s.P99), s.Name)
		}
	},
		Entry("write_lat", "write_lat"),
		Entry("read_lat over IPv6", "read_lat", "--ipv6"),
		Entry("atomic_lat", "atomic_lat", "--type", "cas"),
	)

	DescribeTable("measures and verifies", func(test string, flags ...string) {
		// ACK timeout code 16 is 268 ms, times eight retries: no packet is lost here, but a busy
		// machine may delay a daemon.
		out := rack.OK(append([]string{"perf", test, "--from", "cn0", "--to", "ms0", "--iters", "200", "--timeout", "16"}, flags...)...)
		Expect(strings.TrimSpace(out)).NotTo(BeEmpty())
	},
		Entry("write_bw", "write_bw", "--size", "64KiB", "--verify"),
		Entry("read_bw", "read_bw", "--size", "64KiB", "--verify"),
		Entry("send_bw", "send_bw", "--size", "64KiB", "--verify"),
		Entry("atomic_bw", "atomic_bw", "--verify"),
		Entry("atomic_bw cas", "atomic_bw", "--type", "cas", "--verify"),
		Entry("soak over IPv6", "soak", "--ipv6", "--atomics", "200"),
		Entry("write_lat", "write_lat"),
		Entry("read_lat", "read_lat"),
		Entry("send_lat", "send_lat"),
		Entry("atomic_lat", "atomic_lat"),
		Entry("write_bw at path MTU 256", "write_bw", "--mtu", "256", "--size", "10001", "--verify"),
		Entry("read_bw at path MTU 512", "read_bw", "--mtu", "512", "--size", "10001", "--verify"),
		Entry("send_bw at path MTU 1024", "send_bw", "--mtu", "1024", "--size", "10001", "--verify"),
		Entry("write_bw at path MTU 2048", "write_bw", "--mtu", "2048", "--size", "10001", "--verify"),
		Entry("send_bw over UC", "send_bw", "-c", "uc", "--size", "10001", "--verify"),
		Entry("send_bw over UD, four queue pairs, shared receives", "send_bw", "-c", "ud", "--size", "1024", "--qps", "4", "--srq", "--verify"),
		Entry("send_bw over UD and IPv6", "send_bw", "-c", "ud", "--size", "1024", "--ipv6", "--verify"),
		Entry("send_lat over UC with shared receives", "send_lat", "-c", "uc", "--srq", "--verify"),
		Entry("send_lat over UD", "send_lat", "-c", "ud", "--verify"),
		Entry("the raw baseline, rate", "raw_bw"),
		Entry("the raw baseline, round trip", "raw_lat"),
	)

	It("carries the kernels' own traffic: ICMP, and TCP in both directions", func() {
		peer := rack.Host("ms1")
		rack.OK(fixture.PeerCommand("cn2", "ping", peer.IPv4)...)
		for i, ends := range [][2]string{{"cn2", "ms1"}, {"ms1", "cn2"}} {
			addr := fmt.Sprintf("%s:%d", rack.Host(ends[1]).IPv4, 7000+i)
			stop := rack.Start(fixture.PeerCommand(ends[1], "tcp-serve", addr)...)
			Expect(rack.OK(fixture.PeerCommand(ends[0], "tcp-send", addr, "20000000")...)).To(ContainSubstring("20000000 bytes"))
			stop()
		}
	})

	It("carries IPv6 between the kernels", func() {
		peer := rack.Host("ms1")
		Expect(peer.IPv6).NotTo(BeEmpty())
		addr := "[" + peer.IPv6 + "]:7100"
		stop := rack.Start(fixture.PeerCommand("ms1", "tcp-serve", addr)...)
		rack.OK(fixture.PeerCommand("cn3", "tcp-send", addr, "100000")...)
		stop()
	})

	It("runs programs in a host, with its name, its interface and their exit code", func() {
		Expect(strings.TrimSpace(rack.OK("exec", "cn1", "--", "/bin/hostname"))).To(Equal("cn1"))
		Expect(rack.OK("exec", "cn1", "--", "/bin/ls", "/sys/class/net")).To(Equal("lo\nrack0\n"))
		Expect(rack.Run("exec", "cn1", "--", "/bin/sh", "-c", "exit 7")).To(fixture.HaveExited(7))
		Expect(rack.Run("exec", "cn1", "--", "/no/such/program").Code).NotTo(Equal(0))
	})

	It("shows counters, logs and its version", func() {
		Expect(rack.OK("counters", "cn0")).To(ContainSubstring("sent_pkts"))
		Expect(rack.OK("counters", "switch")).NotTo(BeEmpty())
		Expect(rack.Run("logs", "cn0")).To(fixture.HaveExited(0))
		Expect(rack.OK("version")).To(ContainSubstring("rdmalab"))
		Expect(rack.OK("completion", "bash")).To(ContainSubstring("rdmalab"))
	})

	It("is removed without a trace, also by a second down", func() {
		rack.OK("down")
		Expect(fixture.Traces()).To(Equal(before))
		rack.OK("down")
	})
})

var _ = Describe("two racks", func() {
	It("run side by side under different names", func() {
		a, b := fixture.Up(fixture.Small), fixture.Up(fixture.Small)
		a.Perf("write_bw", "--size", "4KiB", "--iters", "100", "--verify")
		b.Perf("write_bw", "--size", "4KiB", "--iters", "100", "--verify")
		a.OK("down")
		b.Perf("read_bw", "--size", "4KiB", "--iters", "100", "--verify")
	})
})

var _ = Describe("a rack of a hundred hosts", func() {
	It("comes up, is verified within the limits of its one memory server, and is removed", func() {
		before := fixture.Traces()
		last := 98
		if fixture.InContainers() {
			last = 18 // an engine starts only a few containers a second
		}
		rack := fixture.New(fmt.Sprintf("hosts:\n  - {name: ms0, role: memory, memory: 1MiB}\n  - {name: \"cn[00-%d]\", role: compute}\n", last))
		up := rack.Up()
		Expect(up).To(fixture.HaveExited(0))
		Expect(up.Stdout).To(ContainSubstring(fmt.Sprintf("verified %d paths", last+1)))
		rack.OK("down")
		Expect(fixture.Traces()).To(Equal(before))
	})
})
