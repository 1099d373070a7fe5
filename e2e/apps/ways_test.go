package apps

import (
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// hosts is the rack of all programs. ms0 has the memory service that a switch moves requests to.
const hosts = `
hosts:
  - {name: "cn[0-3]", role: compute}
  - {name: ms0, role: memory, memory: 16MiB}
`

// A way is a column of the page: the switch and the links through which programs run.
type way struct {
	name, section    string
	loss, shared     bool // a packet in a hundred is lost; programs share their memory with the daemon
	moves            bool
	provider         string         // "": the default
	few              *regexp.Regexp // programs of a short run; nil: all
	heading, explain string         // of the page
}

// ways are all ways.
var ways = []way{
	{name: "as it is", heading: "plain", explain: "a switch that forwards, and links that lose nothing"},
	{
		name: "where a packet in a hundred is lost", loss: true, heading: "1 % loss",
		explain: "the link of cn0 loses a packet of data in a hundred, in both directions; the number is how many it lost",
	},
	{
		name: "through a switch that moves requests", moves: true, section: fixture.SwitchSection(fixture.Move, false, "ms0"), heading: "moved",
		explain: "the switch moves requests to ms0 to connections of its own; the number is how many it moved",
	},
	{
		name: "through a switch that tracks connections", section: fixture.SwitchSection(fixture.Track, false, "ms0"), heading: "tracked",
		explain: "the switch tracks each connection to ms0",
	},
	{name: "with memory that they share with the daemon", shared: true, heading: "shared memory", explain: "`exec --shared-memory`"},
	{
		name: "with the provider of rdma-core", provider: uverbs.ProviderRXE, few: regexp.MustCompile(`^(UCX: (active|put)|libfabric: (MSG|RDM)$|fio|rcopy)`), heading: "rxe's provider",
		explain: "`exec --provider rxe`; in all other columns [our provider](../explain/provider.md) serves the NIC",
	},
}

// stage is where a program runs: a rack, the host of its server and the one of its client.
type stage struct {
	*fixture.Rack
	server string
	way    *way
}

// address is the IPv4 address of the server's host.
func (s *stage) address() string {
	GinkgoHelper()
	return s.Host(s.server).IPv4
}

// lossy are the packets of which a hundredth is lost. Acknowledgements are not among them: a program
// that ends with its last completion answers no retransmission, and its peer fails if the
// acknowledgement before was lost.
const lossy = "RC_SEND_*,RC_WRITE_*,RC_READ_*,RC_CMP_SWAP,RC_FETCH_ADD,RC_ATOMIC_ACK,UD_*,XRC_SEND_*"

// set makes the rack of a way.
func (w *way) set() *fixture.Rack {
	GinkgoHelper()
	rack := fixture.Up(hosts + w.section)
	if w.loss {
		rack.OK("inject", "loss", "1%", "--link", "cn0", "--opcode", lossy)
		DeferCleanup(func() { rack.OK("heal") })
	}
	return rack
}

// on returns where a program runs in this way.
func (w *way) on(rack *fixture.Rack, a *app) *stage {
	GinkgoHelper()
	s := &stage{rack, "ms0", w}
	if w.shared {
		GinkgoT().Setenv(uverbs.EnvMemory, uverbs.SharedMemory)
	}
	if w.provider != "" {
		GinkgoT().Setenv(uverbs.EnvProvider, w.provider)
	}
	if w.moves && a.apart {
		s.server = "cn2"
		s.load()
	}
	return s
}

// load lets cn1 write to ms0 until the spec ends: these requests the switch moves.
func (s *stage) load() {
	GinkgoHelper()
	before := s.moved()
	s.Start("perf", "write_lat", "--from", "cn1", "--to", "ms0", "--size", "64", "--duration", "10m", "-q")
	Eventually(s.moved).WithTimeout(20 * time.Second).Should(BeNumerically(">", before))
}

// moved is how many requests the switch has moved.
func (s *stage) moved() (n uint64) {
	GinkgoHelper()
	if !s.way.moves {
		return 0 // a switch that forwards has no such counters
	}
	for _, part := range s.SwitchCounters() {
		n += part["moved"]
	}
	return n
}

// lost is how many packets the link has lost.
func (s *stage) lost() (n uint64) {
	GinkgoHelper()
	for _, rule := range s.Faults() {
		n += rule.Hits
	}
	return n
}
