package transport

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("the retry limits", func() {
	It("end a request on a dead path with the status and in the time that they promise", func() {
		rack := fixture.Up(fixture.Small + "connect: tcp\n") // the dead path must not end the set-up of connections
		rack.OK("inject", "drop", "--class", "roce", "--link", "cn0", "--dir", "up")
		begin := time.Now()
		// ACK timeout code 15 is 134 ms: four transmissions, with a timeout after each.
		res := rack.Run("perf", "write_lat", "--from", "cn0", "--to", "ms0", "--timeout", "15", "--retry", "3")
		took := time.Since(begin)
		Expect(res.Code).To(Equal(1))
		Expect(res.Stderr).To(ContainSubstring("transport retry counter exceeded"))
		Expect(took).To(BeNumerically(">", 4*134*time.Millisecond))
		Expect(took).To(BeNumerically("<", 4*134*time.Millisecond+10*time.Second))
		c := rack.Counters("cn0")
		Expect(c["retry_exceeded_err"]).To(Equal(uint64(1)))
		Expect(c["local_ack_timeout_err"]).To(Equal(uint64(4)))
	})

	It("meet a receiver that is not ready, and wait for it", func() {
		rack := fixture.Up(fixture.Small)
		p := rack.Perf("send_bw", "--size", "4KiB", "--iters", "2000", "--recvs", "4", "--tx-depth", "64", "--verify")
		Expect(p.Counters["rcvd_rnr_err"]).NotTo(BeZero())
		Expect(rack.Counters("ms0")["send_rnr_err"]).NotTo(BeZero())
	})
})

var _ = Describe("a rate", func() {
	It("bounds the bandwidth of a link", func() {
		rack := fixture.Up(fixture.Small)
		rack.OK("inject", "rate", "100Mbit", "--link", "cn0", "--dir", "up")
		p := rack.Perf("write_bw", "--size", "64KiB", "--iters", "200", "--verify")
		// 13.1 MB at 12.5 MB/s take about a second; the burst of the token bucket is a small part
		// of the bytes.
		Expect(p.Elapsed).To(BeNumerically(">", 800*time.Millisecond))
	})

	It("and a delay makes the round trip longer", func() {
		rack := fixture.Up(fixture.Small)
		rack.OK("inject", "delay", "5ms", "--link", "cn0", "--dir", "both")
		p := rack.Perf("read_lat", "--iters", "20")
		Expect(p.Elapsed).To(BeNumerically(">", 20*10*time.Millisecond))
	})
})

var _ = Describe("a rack file", func() {
	It("declares faults and tears of memory copies", func() {
		rack := fixture.Up(fixture.Small + `
seed: 7
faults:
  - {kind: loss, link: cn0, dir: both, probability: 2%}
  - {kind: tear, link: ms0, probability: 20%}
`)
		p := rack.Perf("write_bw", "--size", "64KiB", "--iters", "300", "--verify", "--timeout", "15")
		Expect(p.Counters["roce_retrans_pkts"]).NotTo(BeZero())
		Expect(rack.Counters("ms0")["torn_copies"]).NotTo(BeZero())
	})
})
