package verbs

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// portMeet is the TCP port at which all of these programs meet.
const portMeet = 18515

// meet runs a program as server on ms0 and as client on cn0, and returns what they print.
func meet(rack *fixture.Rack, program string) (client, server fixture.Result) {
	GinkgoHelper()
	args := strings.Fields(program)
	ended := make(chan fixture.Result, 1)
	go func() {
		defer GinkgoRecover()
		ended <- rack.Run(append([]string{"exec", "ms0", "--", "timeout", "60"}, args...)...)
	}()
	rack.AwaitTCP("ms0", portMeet)
	client = rack.Run(append(append([]string{"exec", "cn0", "--", "timeout", "60"}, args...), rack.Host("ms0").IPv4)...)
	Expect(client).To(fixture.HaveExited(0))
	// The server ends by itself, when the last of its own completions has come.
	Eventually(ended).WithTimeout(70 * time.Second).Should(Receive(&server))
	Expect(server).To(fixture.HaveExited(0))
	return client, server
}

// pingpong checks an example program of libibverbs, which compares what it received where it can.
func pingpong(rack *fixture.Rack, program string) {
	GinkgoHelper()
	client, server := meet(rack, program)
	for _, out := range []string{client.Stdout, server.Stdout} {
		Expect(out).To(ContainSubstring("iters in"))
		Expect(out).NotTo(ContainSubstring("invalid data"))
	}
}

var _ = Describe("unmodified programs over libibverbs", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(fixture.Small) })

	It("find the NIC of their host and describe it", func() {
		Expect(rack.OK("exec", "cn0", "--", "ibv_devices")).To(ContainSubstring("rxe0"))
		out := rack.OK("exec", "cn0", "--", "ibv_devinfo", "-v")
		Expect(out).To(ContainSubstring("PORT_ACTIVE"))
		Expect(out).To(ContainSubstring("::ffff:" + rack.Host("cn0").IPv4 + ", RoCE v2"))
	})

	It("find it by the variables of `env` as well", func() {
		out := rack.OK("env", "cn0")
		Expect(out).To(MatchRegexp(`(?m)^export RDMALAB_VERBS='.*'$`))
		Expect(out).To(MatchRegexp(`(?m)^export LD_PRELOAD='.*'$`))
	})

	It("share registered memory with the daemon if that is asked for", func() {
		Expect(rack.OK("env", "--shared-memory", "cn0")).To(ContainSubstring("\nexport RDMALAB_VERBS_MEMORY='shared'\n"))
		// The program waits for its peer with a region; until exits when the program is gone.
		registered := "ibv_rc_pingpong -g 0 >/dev/null & until grep -q /memfd:rdmalab-share- /proc/$!/maps; do kill -0 $! || exit 1; done; kill $!"
		rack.OK("exec", "--shared-memory", "cn0", "--", "sh", "-c", registered)
	})

	DescribeTable("exchange messages", func(program string) { pingpong(rack, program) },
		Entry("over RC", "ibv_rc_pingpong -g 0 -c -n 100"),
		Entry("over UC", "ibv_uc_pingpong -g 0 -c -n 100"),
		Entry("over UD", "ibv_ud_pingpong -g 0 -c -s 1024 -n 100"),
		Entry("over RC with a shared receive queue", "ibv_srq_pingpong -g 0 -c -n 100"),
		Entry("over RC, woken by events", "ibv_rc_pingpong -g 0 -c -e"),
		Entry("over UC, woken by events", "ibv_uc_pingpong -g 0 -c -e"),
		Entry("over UD, woken by events", "ibv_ud_pingpong -g 0 -c -e -s 1024"),
		Entry("with a shared receive queue, woken by events", "ibv_srq_pingpong -g 0 -c -e"),
		Entry("by IPv6", "ibv_rc_pingpong -g 1 -c -n 100"),
	)

	DescribeTable("measure the path", func(program string) {
		// By itself perftest gives up after half a second without an answer: as long as a process may wait for a processor.
		client, _ := meet(rack, program+" -d rxe0 -x 0 -F -u 18")
		Expect(client.Stdout).To(MatchRegexp(`#bytes`))
	},
		Entry("WRITE bandwidth", "ib_write_bw -n 100"),
		Entry("WRITE bandwidth of 4 queue pairs, both ways", "ib_write_bw -n 100 -q 4 -b -s 4096"),
		Entry("READ bandwidth", "ib_read_bw -n 100"),
		Entry("SEND bandwidth, woken by events", "ib_send_bw -n 100 -e"),
		Entry("atomics", "ib_atomic_bw -n 100"),
		Entry("WRITE latency", "ib_write_lat -n 50"),
		Entry("READ latency", "ib_read_lat -n 50"),
		Entry("SEND latency", "ib_send_lat -n 50"),
		Entry("SEND latency over UD", "ib_send_lat -n 50 -c UD"),
		Entry("atomics' latency", "ib_atomic_lat -n 50"),
		Entry("WRITE bandwidth over UC", "ib_write_bw -n 100 -c UC"),
		Entry("WRITE latency over UC", "ib_write_lat -n 50 -c UC"),
		Entry("SEND bandwidth over UC", "ib_send_bw -n 100 -c UC"),
		Entry("SEND bandwidth over UD of 8 queue pairs", "ib_send_bw -n 100 -c UD -q 8"),
		Entry("SEND bandwidth of all sizes", "ib_send_bw -a -n 5"),
		Entry("READ bandwidth of 8 queue pairs, both ways", "ib_read_bw -n 50 -q 8 -b -s 4096"),
		Entry("SEND bandwidth for 3 seconds", "ib_send_bw -D 3 -s 4096"),
		Entry("SEND latency, woken by events", "ib_send_lat -n 50 -e"),
	)

	// Its acknowledgements are not lost: an end that has all its completions ends at once, and cannot
	// acknowledge a last message again.
	It("lose nothing when a message in a hundred is lost", func() {
		rack.OK("inject", "loss", "1%", "--opcode", "RC_SEND_*", "--link", "cn0")
		DeferCleanup(func() { rack.OK("heal") })
		pingpong(rack, "ibv_rc_pingpong -g 0 -c -e")
	})

	It("leave nothing on the NIC", func() {
		Eventually(func() string { return rack.OK("status") }).ShouldNot(ContainSubstring("ibv_"))
	})
})

// passive are tests whose servers only wait: their memory is written and read, and they end when
// the client says so by TCP. So they run where their data are lost.
var passive = []string{"ib_write_bw -n 100 -s 16384", "ib_read_bw -n 100 -s 16384", "ib_atomic_bw -n 100"}

// wrestle runs tests of perftest, all of which count the completions that they need.
func wrestle(rack *fixture.Rack, programs ...string) {
	GinkgoHelper()
	for _, p := range programs {
		By(p)
		client, _ := meet(rack, p+" -d rxe0 -x 0 -F")
		Expect(client.Stdout).To(ContainSubstring("#bytes"))
	}
}

// rallies runs the examples of libibverbs.
func rallies(rack *fixture.Rack) {
	GinkgoHelper()
	for _, p := range []string{
		"ibv_rc_pingpong -g 0 -c -e -n 100", "ibv_uc_pingpong -g 0 -c -e -n 100", "ibv_ud_pingpong -g 0 -c -e -s 1024 -n 100", "ibv_srq_pingpong -g 0 -c -e -n 100",
	} {
		By(p)
		pingpong(rack, p)
	}
}

var _ = Describe("unmodified programs over libibverbs through a switch", func() {
	It("that tracks connections", func() {
		rack := fixture.Up(fixture.Small + fixture.SwitchSection(fixture.Track, false, "ms0"))
		rallies(rack)
		wrestle(rack, append([]string{"ib_send_bw -n 100", "ib_send_lat -n 50"}, passive...)...)
	})

	// Its rule is for the memory service: WRITEs, READs and atomics on other memory would be moved to
	// its protection domain.
	It("that moves requests", func() {
		rack := fixture.Up(fixture.Small + fixture.SwitchSection(fixture.Move, false, "ms0"))
		rallies(rack)
		wrestle(rack, "ib_send_bw -n 100", "ib_send_lat -n 50")
	})

	It("that loses a packet in a hundred of their data", func() {
		rack := fixture.Up(fixture.Small)
		DeferCleanup(func() { rack.OK("heal") })
		rack.OK("inject", "loss", "1%", "--link", "cn0", "--opcode", "RC_WRITE_*,RC_READ_*,RC_FETCH_ADD,RC_ATOMIC_ACK")
		before := rack.Counters("cn0")["roce_retrans_pkts"]
		wrestle(rack, passive...)
		Expect(rack.Counters("cn0")["roce_retrans_pkts"]).To(BeNumerically(">", before))
	})
})
