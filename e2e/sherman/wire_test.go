package sherman_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// Patterns for parts of a line of `rdmalab dump`; the last length is the frame's.
var (
	lineOf = regexp.MustCompile(`^\S+ \[cn1 (?:up|down)\] \S+ > \S+ (RC_\w+) qp=(\S+) psn=(\S+)`)
	lenOf  = regexp.MustCompile(` len=(\d+) icrc=ok`)
)

// etherLen is the number of bytes in a frame before its IP packet.
const etherLen = 14

// onWire returns the packets of cn1's connections in order, without retransmissions, with the
// lengths of the IP packets.
func onWire(dump string) (list []string) {
	GinkgoHelper()
	seen := map[string]bool{}
	for line := range strings.Lines(dump) {
		m := lineOf.FindStringSubmatch(line)
		if m == nil || seen[strings.Join(m[1:], " ")] {
			continue
		}
		seen[strings.Join(m[1:], " ")] = true
		n := lenOf.FindStringSubmatch(line)
		Expect(n).NotTo(BeNil(), line)
		frame, err := strconv.Atoi(n[1])
		Expect(err).NotTo(HaveOccurred())
		list = append(list, m[1]+" "+strconv.Itoa(frame-etherLen))
	}
	return list
}

var _ = Describe("the packets of operations on the tree Sherman", func() {
	It("are the published ones: a search takes 1 round trip, a write 3", func() {
		rack := fixture.Up(fixture.OneSwitch(forest))
		rack.OK("sherman", "start", "--value", "8")
		By("making a few pages")
		maker := employ(rack, "cn0", orders{Do: "insert", Key: 0, N: 200})
		maker.tell()
		Expect(maker.wait()).To(Succeed(), "%s", &maker.stderr)
		for do, cycle := range map[string]string{
			"get": "RC_READ_REQUEST 60, RC_READ_RESPONSE_ONLY 1072",
			"put": "RC_CMP_SWAP 72, RC_ATOMIC_ACK 56, RC_READ_REQUEST 60, RC_READ_RESPONSE_ONLY 1072, " +
				// One doorbell announces both WRITEs. A server that receives the first one before
				// the second was sent acknowledges it as well.
				"RC_WRITE_ONLY 80, (?:RC_ACK 48, )?RC_WRITE_ONLY 68, (?:RC_ACK 48, )?RC_ACK 48",
		} {
			const times = 10
			e := employ(rack, "cn1", orders{Do: do, Key: 77, N: times, Warm: 200})
			file := filepath.Join(GinkgoT().TempDir(), do+".pcapng")
			stop := rack.Start("capture", "-w", file)
			Eventually(func() string { // until it has begun
				rack.OK("perf", "write_lat", "--from", "cn0", "--to", "ms0", "--iters", "3")
				return fixture.Run("dump", file).Stdout
			}, fixture.Patience, "200ms").Should(ContainSubstring("RC_WRITE"))
			e.tell()
			Expect(e.wait()).To(Succeed(), "%s", &e.stderr)
			Expect(stop()).To(fixture.HaveExited(0))
			want := fmt.Sprintf("^(?:%s, ){%d}$", cycle, times)
			Expect(strings.Join(onWire(fixture.Run("dump", file).Stdout), ", ")+", ").To(MatchRegexp(want), do)
		}
	})
})
