package smoke

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("bad input", func() {
	DescribeTable("in a rack file names the line and what to do", func(yaml string, want ...string) {
		before := fixture.Traces()
		res := fixture.New(yaml).Up()
		Expect(res.Code).NotTo(Equal(0))
		for _, w := range want {
			Expect(res.Stderr).To(ContainSubstring(w))
		}
		Expect(fixture.Traces()).To(Equal(before))
	},
		Entry("an unknown key", "hosts:\n  - {name: a, role: memory}\ncolour: red\n", "rack.yaml:3", "colour"),
		Entry("no YAML", "hosts: [", "rack.yaml:"),
		Entry("an unknown role", "hosts:\n  - {name: a, role: wizard}\n", "rack.yaml:2", "compute"),
		Entry("a wrong unit", "hosts:\n  - {name: a, role: memory, memory: 64 parsecs}\n", "rack.yaml:2"),
		Entry("a name twice", "hosts:\n  - {name: \"a[0-1]\", role: memory}\n  - {name: a1, role: compute}\n", "rack.yaml:3", "a1"),
		Entry("a fault on an unknown link", "hosts:\n  - {name: a, role: memory}\nfaults:\n  - {kind: loss, link: b, probability: 10%}\n", "rack.yaml:4", "a"),
		Entry("a probability beyond 1", "hosts:\n  - {name: a, role: memory}\nfaults:\n  - {kind: loss, link: a, probability: 110%}\n", "rack.yaml:4"),
	)

	It("on the command line is refused with a hint", func() {
		rack := fixture.Up(fixture.Small)
		for _, c := range []struct {
			args string
			want string
			code int // 2: a mistake in the command line
		}{
			{"counters cn99", "cn0", 2},
			{"exec cn99 -- true", "cn0", 2},
			{"inject loss 10% --link cn99", "cn0", 2},
			{"inject loss 1000% --link cn0", "%", 2},
			{"inject fog 10% --link cn0", "loss", 2},
			{"inject loss 10% --link cn0 --dir sideways", "both", 2},
			{"perf write_bw --from cn0 --to ms99", "ms0", 2},
			{"perf write_bw --from cn0 --to ms0 --size 64parsecs", "size", 2},
			{"perf fly_bw --from cn0 --to ms0", "write_bw", 2},
			{"perf write_bw --from cn0 --to ms0 --breakdown", "read_lat, write_lat, atomic_lat", 2},
			{"crash cn99", "cn0", 2},
			{"link cn0 sideways", "up", 2},
			{"heal 999", "faults", 2},
		} {
			res := rack.Run(strings.Fields(c.args)...)
			Expect(res.Code).To(Equal(c.code), "%v", res)
			Expect(res.Stderr).To(ContainSubstring(c.want), "%v", res)
			Expect(res.Stderr).NotTo(ContainSubstring("panic"), "%v", res)
		}
	})

	It("for a rack that does not exist names the command to run", func() {
		res := fixture.Run("--rack", "never-made", "status")
		Expect(res.Code).NotTo(Equal(0))
		Expect(res.Stderr).To(ContainSubstring("rdmalab up"))
	})

	It("on the wire is counted and dropped", func() {
		rack := fixture.Up(fixture.Small)
		grown := rack.Grown("ms0", func() {
			rack.OK(fixture.PeerCommand("cn1", "garbage", "rack0", rack.Host("ms0").MAC, "20000")...)
			rack.Perf("write_bw", "--size", "4KiB", "--iters", "200", "--verify")
		})
		Expect(grown["rx_malformed"]+grown["rx_not_mine"]).To(BeNumerically(">", 1000), "%v", grown)
		Expect(rack.Status().State).To(Equal("up"))
	})

	It("as a full disk ends a capture with a clear error", func() {
		rack := fixture.Up(fixture.Small)
		stop := rack.Start("capture", "-w", "/dev/full")
		rack.Perf("write_bw", "--size", "64KiB", "--iters", "500")
		res := stop()
		Expect(res.Code).NotTo(Equal(0))
		Expect(res.Stderr).To(ContainSubstring("disk is full"))

		dir := GinkgoT().TempDir()
		Expect(syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m")).To(Succeed())
		DeferCleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		file := filepath.Join(dir, "full.pcapng")
		stop = rack.Start("capture", "cn0", "-w", file)
		Eventually(func() error { _, err := os.Stat(file); return err }, fixture.Patience, "20ms").Should(Succeed())
		rack.Perf("write_bw", "--size", "64KiB", "--iters", "500")
		res = stop()
		Expect(res).To(fixture.HaveExited(1))
		Expect(res.Stderr).To(ContainSubstring("disk is full"))
		Expect(fixture.Run("dump", file)).To(fixture.HaveExited(0)) // the file ends after a whole packet

		rack.Perf("write_bw", "--size", "4KiB", "--iters", "100", "--verify")
	})
})
