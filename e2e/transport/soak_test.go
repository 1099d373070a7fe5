package transport

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// long runs the soaks in full length; otherwise they are shorter and check the same.
var long = os.Getenv("RDMALAB_E2E_LONG") != "" && fixture.Through() == fixture.Forward && !fixture.InContainers()

// numbers of messages of 64 KiB, of each kind, and of atomics.
var messages, atomics = func() (int, int) {
	if long {
		return 2000, 20000
	}
	return 120, 1000
}()

// timeouts are local ACK timeout codes: 14 is 67 ms, perftest's default. 10 % loss causes some
// thousand timeouts in a long soak, so that entry takes 34 ms. With shorter timeouts, a delay of
// the machine could last for all eight retries.
const usual = "14"

var short = func() string {
	if long {
		return "13"
	}
	return usual
}()

// lost matches the report of a connection that has ended at its retry limit.
const lost = "transport retry counter exceeded"

// attempts bounds the connections of a soak. At 10 % loss in both directions a request that is
// alone in flight is lost eight times in a row with a probability of 0.19^8 = 1.7e-6; with some
// 3,000 such requests, one soak in 200 reaches the retry limit, as the protocol requires. A busy
// machine adds to it: an answer that needs four processes comes after the timeout, too. At load 12
// three connections of three ended.
const attempts = 10

// soak runs perf soak, which verifies all data. It is repeated on a new connection, a bounded
// number of times, if a connection has ended at its retry limit.
func soak(rack *fixture.Rack, timeout string) (p fixture.Perf) {
	GinkgoHelper()
	args := []string{
		"perf", "soak", "--from", "cn0", "--to", "ms0", "--timeout", timeout, "--size", "64KiB",
		"--iters", fmt.Sprint(messages), "--atomics", fmt.Sprint(atomics), "-o", "json",
	}
	for attempt := 1; ; attempt++ {
		res := rack.Run(args...)
		if attempt < attempts && res.Code == 1 && strings.Contains(res.Stderr, lost) {
			AddReportEntry("ended at the retry limit", res.Stderr)
			continue
		}
		Expect(res.Code).To(Equal(0), "%v", res)
		Expect(json.Unmarshal([]byte(res.Stdout), &p)).To(Succeed(), "%v", res)
		return p
	}
}

// atTheSwitch are the counters of the switch that take the place of the server's, when the switch
// answers on the server's behalf.
var atTheSwitch = map[string]string{"duplicate_request": "duplicates", "out_of_seq_request": "gaps"}

// expectSoak checks that every operation was executed, once.
func expectSoak(p fixture.Perf) {
	GinkgoHelper()
	Expect(p.Soak).NotTo(BeNil())
	Expect([]int{p.Soak.Writes, p.Soak.Reads, p.Soak.Sends}).To(Equal([]int{messages, messages, messages}))
	Expect(p.Soak.FetchAdds + p.Soak.CmpSwaps).To(Equal(atomics))
	Expect(p.Soak.Sum).To(Equal(p.Soak.Expected))
	Expect(p.Verified).To(BeNumerically(">=", 3*messages*64<<10))
}

var _ = Describe(fmt.Sprintf("%d messages each of 64 KiB WRITE, READ and SEND, and %d atomics", messages, atomics), func() {
	DescribeTable("arrive whole and once", func(timeout string, rules []string, telling ...string) {
		rack := fixture.Up(fixture.Small)
		for _, rule := range rules {
			rack.OK(append([]string{"inject"}, strings.Fields(rule+" --link cn0 --dir both")...)...)
		}
		before := rack.Counters("ms0")
		p := soak(rack, timeout)
		expectSoak(p)
		after := rack.Counters("ms0")
		told := map[string]uint64{}
		var bySwitch map[string]uint64
		if fixture.Through() == fixture.Move {
			bySwitch = rack.SwitchCounters()["hardened"]
			Expect(bySwitch["moved"]).To(BeNumerically(">", atomics/2))
		}
		for _, name := range telling {
			told[name] = p.Counters[name] + after[name] - before[name] + bySwitch[atTheSwitch[name]]
			Expect(told[name]).NotTo(BeZero(), "counter %s does not say how it was healed", name)
		}
		AddReportEntry("healed by", fmt.Sprint(told))
		hits := uint64(0)
		for _, r := range rack.Faults() {
			hits += r.Hits
		}
		Expect(hits).To(BeNumerically(">", len(rules)*messages/20))
	},
		Entry("under 10 % loss", short, []string{"loss 10% --seed 1"},
			"roce_retrans_pkts", "packet_seq_err", "local_ack_timeout_err", "duplicate_request", "out_of_seq_request"),
		Entry("under 5 % duplication", usual, []string{"duplicate 5% --seed 2"}, "duplicate_request", "duplicate_ack"),
		Entry("under 2 % reordering", usual, []string{"reorder 2% --seed 3"}, "roce_retrans_pkts", "out_of_seq_request"),
		Entry("under 2 % one-bit corruption", usual, []string{"corrupt 2% --seed 4"}, "roce_retrans_pkts", "rx_icrc_encapsulated"),
		Entry("under all of them", usual, []string{"loss 3% --seed 5", "duplicate 3% --seed 6", "reorder 1% --seed 7", "corrupt 1% --seed 8"},
			"roce_retrans_pkts", "duplicate_request", "out_of_seq_request"),
	)
})
