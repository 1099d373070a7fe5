package transport

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// The soaks of the acceptance list. Through another switch than the plain one they are shorter, and on containers, too: they show that it changes
// nothing.
var messages, atomics = func() (int, int) {
	if fixture.Through() == fixture.Forward && !fixture.InContainers() {
		return 2000, 20000
	}
	return 400, 4000
}()

// timeouts are local ACK timeout codes: 14 is 67 ms, perftest's default. 10 % loss costs some thousand of them, so that
// entry takes 34 ms. Shorter ones would be about the machine, where eight of them must outlive whatever else runs.
const usual = "14"

var short = func() string {
	if fixture.Through() == fixture.Forward && !fixture.InContainers() {
		return "13"
	}
	return usual
}()

// atTheSwitch are the counters of the switch that tell what a server's do, when the switch answers in its place.
var atTheSwitch = map[string]string{"duplicate_request": "duplicates", "out_of_seq_request": "gaps"}

// expectSoak says that everything was done, once.
func expectSoak(p fixture.Perf) {
	GinkgoHelper()
	Expect(p.Soak).NotTo(BeNil())
	Expect([]int{p.Soak.Writes, p.Soak.Reads, p.Soak.Sends}).To(Equal([]int{messages, messages, messages}))
	Expect(p.Soak.FetchAdds + p.Soak.CmpSwaps).To(Equal(atomics))
	Expect(p.Soak.Sum).To(Equal(p.Soak.Expected))
	Expect(p.Verified).To(BeNumerically(">=", 3*messages*64<<10))
}

var _ = Describe("2,000 messages each of 64 KiB WRITE, READ and SEND, and 20,000 atomics", func() {
	DescribeTable("arrive whole and once", func(timeout string, rules []string, telling ...string) {
		rack := fixture.Up(fixture.Small)
		for _, rule := range rules {
			rack.OK(append([]string{"inject"}, strings.Fields(rule+" --link cn0 --dir both")...)...)
		}
		before := rack.Counters("ms0")
		p := rack.Perf("soak", "--timeout", timeout, "--size", "64KiB", "--iters", fmt.Sprint(messages), "--atomics", fmt.Sprint(atomics))
		expectSoak(p)
		after := rack.Counters("ms0")
		told := map[string]uint64{}
		var bySwitch map[string]uint64
		if fixture.Through() == fixture.Move {
			bySwitch = rack.SwitchCounters()["hard"]
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
