package verbs

import (
	"maps"
	"regexp"
	"slices"

	. "github.com/onsi/ginkgo/v2"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// ways are switches, and links, through which the programs of other packages run besides the plain
// one: those that only matches, all for nil. without names those that cannot run so, with the
// reason.
var ways = []struct {
	what, section string
	loss, shared  bool // packets are lost; the programs share their memory with the daemon
	only          *regexp.Regexp
	without       map[string]string
}{
	{what: "through a switch that tracks connections", section: fixture.SwitchSection(fixture.Track, false, "ms0")},
	// It moves WRITEs and READs of a program's own memory to a queue pair of another protection
	// domain, so that put and get end with a remote access error. UCX carries messages and atomics by
	// SENDs; the requests of the other two go to a host without a rule.
	{
		what: "through a switch that moves requests", section: fixture.SwitchSection(fixture.Move, false, "ms0"),
		only: regexp.MustCompile(`^(UCX, (active|atomics|large)|tgt|QEMU)`),
	},
	{what: "where a packet in a hundred is lost", loss: true, without: map[string]string{
		"libfabric, datagrams": "it sends none again",
		"qperf, RC":            "its connection ends while the other side waits for an acknowledgement",
	}},
	{what: "with memory that they share with the daemon", shared: true},
}

var _ = Describe("unmodified programs of other packages", func() {
	for _, way := range ways {
		It("run "+way.what, func() {
			rack := fixture.Up(fixture.Small + way.section)
			if way.shared {
				GinkgoT().Setenv(uverbs.EnvMemory, uverbs.SharedMemory)
			}
			if way.loss {
				// Not acknowledgements: a program that ends with its last completion answers no
				// retransmission, and its peer fails if the acknowledgement before was lost.
				rack.OK("inject", "loss", "1%", "--link", "cn0", "--opcode", "RC_SEND_*,RC_WRITE_*,RC_READ_*,RC_CMP_SWAP,RC_FETCH_ADD,RC_ATOMIC_ACK,UD_*")
				DeferCleanup(func() { rack.OK("heal") })
			}
			for _, name := range slices.Sorted(maps.Keys(others)) {
				if way.without[name] != "" || way.only != nil && !way.only.MatchString(name) {
					continue
				}
				By(name)
				others[name].run(rack)
			}
		})
	}
})
