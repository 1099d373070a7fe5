package switchd

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// Bounds of a daemon. Those of tables are in package pipeline, those of rules in package fault.
const (
	// MaxDelayed is how many frames faults may delay at a time; more are dropped and counted.
	MaxDelayed = 16384
	// maxDelayedBytes bounds their memory.
	maxDelayedBytes = 128 << 20
	// maxQueueBytes bounds an egress queue beside its packets.
	maxQueueBytes = 16 << 20
	// keptBytes is how much is remembered of a packet.
	keptBytes = 160
	// maxCommands is how many functions may wait for the loop.
	maxCommands = 256
)

// Link is one port and the host behind it.
type Link struct {
	// Host names the host, and the link.
	Host string
	// Ifname is the interface of the switch's end.
	Ifname string
	// Guest says that the link may be taken away while the switch runs.
	Guest bool
}

// Config describes a switch daemon.
type Config struct {
	Rack  string
	Seed  uint64
	Links []Link
	// Program is the switch program, a fresh one. Self are the addresses that it answers to.
	Program pipeline.Program
	Self    pipeline.Self
	// Load makes another program with rules, to take the place of the running one; nil: that stays.
	Load func(name string, set *rules.Set) (*Loaded, error)
	// Described is the rack's description, for the names of servers in rules; nil: rules have addresses only.
	Described *spec.Rack
	// Queue is the capacity of each egress queue in packets; 0: 1024.
	Queue int
	// Spin is how long the loop polls its ports before it blocks.
	Spin time.Duration
	// Faults are installed at the start; those of kind tear are for the hosts and are passed over.
	Faults []fault.Rule
	// Open opens the port of link l, which has number i. An error means that it is not there (yet); it is asked again.
	// Several may be opened at a time.
	Open func(i int, l Link) (packetio.Port, error)
	// NewWaiter makes a waiter for ports that Open made.
	NewWaiter func(spin time.Duration, ports []packetio.Port) (packetio.Waiter, error)
	// Watch is how often missing ports and carriers are looked for; 0: 25 ms.
	Watch time.Duration
	// Keep is how many bytes of the last packets are remembered for GET /past; 0: none.
	Keep int
	// Log receives what an operator should know; nil: nothing.
	Log *log.Logger
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
			return fmt.Errorf("switch: host %q of a link is empty or there twice", l.Host)
		}
		seen[l.Host] = true
	}
	return nil
}

// linker is implemented by ports that know whether their link has a carrier.
type linker interface{ LinkUp() bool }

// stater is implemented by ports that count.
type stater interface{ Stats() packetio.Stats }
