package switchd

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/direct"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Bounds of a daemon. Package pipeline has the bounds of tables, package fault those of fault
// rules.
const (
	// MaxDelayed is how many frames faults may delay at a time. Further frames are dropped and
	// counted.
	MaxDelayed = 16384
	// maxDelayedBytes bounds the memory of delayed frames.
	maxDelayedBytes = 128 << 20
	// maxQueueBytes bounds the bytes in an egress queue; Config.Queue bounds its packets.
	maxQueueBytes = 16 << 20
	// keptBytes is how many bytes the switch keeps of each of the last packets (Config.Keep).
	keptBytes = 160
)

// Link describes one port of the switch and the host behind it.
type Link struct {
	// Host names the host, and the link.
	Host string
	// Ifname is the name of the switch's interface.
	Ifname string
	// Guest is true if the link belongs to a guest; such a link may be removed while the switch
	// runs.
	Guest bool
	// GSO is true if the switch sends super-frames to the host whole; Open then makes a port that
	// joins packets into super-frames. If GSO is false, every packet to the host is a frame of its
	// own.
	GSO bool
	// Device is true if Ifname is a network device of the machine, which is not in the namespace of the
	// switches.
	Device bool
	// Far is not its zero value if the link is a trunk to another machine, which has no interface.
	Far Far
}

// Motion is the slow motion of a rack. Factor is that of rackfile.Rack.Slow. Costs, if not nil, make
// the switch and its links to the hosts take the times of this cost model, which are longer by Factor in
// real time. They apply to RoCEv2 packets only; the ports must not join packets.
type Motion struct {
	Factor int
	Costs  *cost.Model
}

// Faults are the fault rules with which a switch begins.
type Faults struct {
	// Rules are those of the rack file. Those of kind tear concern the hosts; the switch ignores them.
	Rules []fault.Rule
	// Kept is the file in which the rules on trunks (of Config.Described) are kept while the switch does
	// not run; "" means that they end with it.
	Kept string
}

// Config describes a switch daemon.
type Config struct {
	// Rack is the name of the rack. Seed decides the random choices of the fault rules. Links are
	// the ports at the start.
	Rack  string
	Seed  uint64
	Links []Link
	// Program is the switch program; no other switch may have used it. Self holds the addresses of
	// the switch itself.
	Program pipeline.Program
	Self    pipeline.Self
	// Load makes a program with rules, which replaces the running one; nil means that the program
	// cannot be replaced.
	Load func(name string, set *rules.Set) (*Loaded, error)
	// Described is the rack's description. Rules name servers by it; nil means that rules can only
	// use addresses.
	Described *rackfile.Rack
	// Describe reads the rack's description again, which may have other hosts than before; nil means
	// that the hosts stay the same. HostLinks lists the links of a description's hosts. Where is how
	// the program sees the hosts.
	Describe  func() (*rackfile.Rack, error)
	HostLinks func(r *rackfile.Rack) []Link
	Where     *apps.Where
	// Queue is the capacity of each egress queue in packets; 0 means 1024. Ports with a rate (Described)
	// have other queues.
	Queue int
	// Spin is how long the loop polls its ports before it blocks.
	Spin   time.Duration
	Faults Faults
	// Open opens the port of link l, which has number i. An error means that the port does not
	// exist yet; the daemon calls Open again later. Several calls may run at a time.
	Open func(i int, l Link) (packetio.Port, error)
	// NewWaiter makes a waiter for ports that Open made.
	NewWaiter func(spin time.Duration, ports []packetio.Port) (packetio.Waiter, error)
	// Motion is the slow motion of the rack; its zero value means full speed.
	Motion Motion
	// Watch is the interval at which the daemon checks missing ports and carriers; 0 means 25 ms.
	Watch time.Duration
	// Keep is how many bytes of memory the switch uses for copies of the last packets, which GET
	// /past returns; 0 means that it keeps no copies.
	Keep int
	// Fabric carries packets of hosts whose NICs run in this process; nil if there are none.
	Fabric *direct.Fabric
	// Log receives messages for the operator; nil means that messages are discarded.
	Log *slog.Logger
}

// homes returns where the addresses of the hosts belong; nil if the rack is not described.
func (c *Config) homes() *pipeline.Homes {
	if c.Where == nil {
		return nil
	}
	return pipeline.NewHomes(c.Where.Places())
}

func (c *Config) validate() error {
	switch {
	case len(c.Links) == 0 || len(c.Links) > pipeline.MaxPorts:
		return fmt.Errorf("switch: %d links: want 1 to %d", len(c.Links), pipeline.MaxPorts)
	case c.Open == nil || c.NewWaiter == nil:
		return errors.New("switch: Open and NewWaiter are required")
	case c.Queue < 0 || c.Spin < 0 || c.Watch < 0:
		return errors.New("switch: a bound is negative")
	}
	seen := make(map[string]bool)
	for _, l := range c.Links {
		if l.Host == "" || seen[l.Host] {
			return fmt.Errorf("switch: host name %q of a link is empty, or two links have it", l.Host)
		}
		seen[l.Host] = true
	}
	return nil
}

// egress returns the description of the queues of ports with a rate; nil: the ports have none.
func (c *Config) egress() *portqueue.Config {
	if c.Described == nil {
		return nil
	}
	return c.Described.Switch.PortQueues(c.Described.Factor())
}

// linker is implemented by a port that knows whether its link has a carrier.
type linker interface{ LinkUp() bool }

// stater is implemented by a port that counts its traffic.
type stater interface{ Stats() packetio.Stats }
