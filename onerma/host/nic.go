package host

import (
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Driver runs a NIC, and gives goroutines exclusive use of it. A device.SecondDriver is a Driver.
type Driver interface {
	// Enter gives the caller exclusive use of the NIC until Leave, and returns the time. Leave lets
	// the NIC act.
	Enter() clock.Time
	Leave()
	// Await blocks until ready returns true, or the deadline has come (verbs.ErrTimeout), or the
	// driver has ended (verbs.ErrClosed). It calls ready with exclusive use of the NIC.
	Await(ready func() bool, deadline clock.Time) error
	// Now returns the time of the NIC's clock.
	Now() clock.Time
}

// Config describes the NIC of a host.
type Config struct {
	// NIC is the configuration of each incarnation. NIC.Epoch and NIC.Rand are not used: each
	// incarnation gets the next epoch, and random numbers that cannot be predicted.
	NIC nic.Config
	// Executor has the parameters of congestion control.
	Executor executor.Config
	// EpochFile is the file that keeps the number of the last incarnation; required.
	EpochFile string
}

// NIC is the 1RMA NIC of a host, over all incarnations of the NIC. A crash ends an incarnation,
// with its processes and regions.
type NIC struct {
	cfg    Config
	driver Driver
	up     sync.Mutex // guards the epoch file: each incarnation gets its number once

	// The fields below are used only with exclusive use of the NIC: in calls of the driver, or
	// between Enter and Leave.

	epoch    uint32 // number of the present or last incarnation
	last     uint32 // number of the last process of this incarnation
	dead     bool   // the driver has ended, and the NIC cannot be started again
	nic      *nic.NIC
	machine  *executor.Machine // nil while the NIC is down
	seen     uint64            // the machine's Activity when results were last collected
	received clock.Time        // when the machine got its last frame
	table    *mem.Table
	pd       mem.PD
	procs    map[*Process]struct{}
	past     nic.Stats // counters of earlier incarnations
	steps    uint64    // what Activity returns
}

// New makes a NIC that is down. Before Up is called, the driver must have this NIC as its second
// NIC.
func New(cfg Config) (*NIC, error) {
	cfg.NIC.Rand = rand.New(rand.NewPCG(0, 0)) // Validate requires a Rand; start makes another one
	if err := cfg.NIC.Validate(); err != nil {
		return nil, err
	}
	if cfg.EpochFile == "" {
		return nil, errors.New("1RMA: EpochFile is required")
	}
	return &NIC{cfg: cfg, procs: make(map[*Process]struct{})}, nil
}

// Attach sets the driver. It is called once, before any method except those that the driver calls.
func (n *NIC) Attach(d Driver) { n.driver = d }

// exclusive calls f with exclusive use of the NIC.
func (n *NIC) exclusive(f func(now clock.Time)) {
	now := n.driver.Enter()
	defer n.driver.Leave()
	f(now)
}

// Up starts a new incarnation. It does nothing if the NIC is up.
func (n *NIC) Up() error {
	n.up.Lock()
	defer n.up.Unlock()
	up := false
	n.exclusive(func(clock.Time) { up = n.machine != nil })
	if up {
		return nil
	}
	// nextEpoch writes a file, which may take long. So it is called without exclusive use of the NIC.
	epoch, err := nextEpoch(n.cfg.EpochFile)
	if err != nil {
		return err
	}
	n.exclusive(func(clock.Time) { err = n.start(epoch) })
	return err
}

func (n *NIC) start(epoch uint32) error {
	switch {
	case n.dead:
		return verbs.ErrClosed
	case n.machine != nil: // another call has started it meanwhile
		return nil
	}
	cfg := n.cfg.NIC
	cfg.Epoch = epoch
	cfg.Rand = rand.New(rand.NewChaCha8(seed()))
	made, err := nic.New(cfg)
	if err != nil {
		return err
	}
	n.table = mem.New(cfg.Rand, 0)
	if n.pd, err = n.table.AllocPD(); err != nil {
		return err
	}
	n.nic, n.machine, n.epoch, n.last, n.seen = made, executor.NewMachine(made), epoch, 0, 0
	return nil
}

// Crash ends the incarnation. Waiting programs get verbs.ErrClosed. It does nothing if the NIC is
// down.
func (n *NIC) Crash() { n.exclusive(func(clock.Time) { n.end() }) }

// end ends the present incarnation, with its processes and regions.
func (n *NIC) end() {
	if n.machine == nil {
		return
	}
	// Transfers whose data has arrived get their results, even if a receive batch is not complete
	// yet. The executors may issue further commands in this call. These are not sent.
	var unsent packetio.Batch
	n.machine.EndBatch(n.received, &unsent)
	n.collect()
	n.nic.Down()
	stats := n.nic.Stats()
	n.past.Add(&stats)
	for p := range n.procs {
		p.abandon()
	}
	clear(n.procs)
	n.nic, n.machine, n.table = nil, nil, nil
	n.steps++
}

// Takes implements device.Second, as do Frame, EndBatch, Tick, Deadline, Activity and Down.
func (n *NIC) Takes(f *packetio.Frame) bool { return onerma.Is(f.Data) }

func (n *NIC) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	if n.machine != nil {
		n.received = now
		n.machine.Receive(now, port, f, out)
	}
}

func (n *NIC) EndBatch(now clock.Time, out *packetio.Batch) {
	if n.machine != nil {
		n.machine.EndBatch(now, out)
		n.collect()
	}
}

func (n *NIC) Tick(now clock.Time, out *packetio.Batch) {
	if n.machine != nil {
		n.machine.Tick(now, out)
		n.collect()
	}
}

func (n *NIC) Deadline() clock.Time {
	if n.machine == nil {
		return clock.Never
	}
	return n.machine.Deadline()
}

func (n *NIC) Activity() uint64 { return n.steps }

func (n *NIC) Down() {
	n.dead = true
	n.end()
}

// collect passes the results of ended transfers to the calls of the processes.
func (n *NIC) collect() {
	if n.machine.Activity() == n.seen {
		return
	}
	n.seen = n.machine.Activity()
	for p := range n.procs {
		n.steps += uint64(p.collect())
	}
}

// seed returns a seed that cannot be predicted.
func seed() (s [32]byte) {
	_, _ = cryptorand.Read(s[:]) // it never fails
	return s
}

type Status struct {
	Up bool `json:"up"`
	// Incarnation is the number of the present or last incarnation.
	Incarnation uint32 `json:"incarnation"`
	// Processes and Regions are how many are open.
	Processes int `json:"processes"`
	Regions   int `json:"regions"`
	// Requested is the number of bytes that were requested and have not arrived. Window is the
	// solicitation window, their upper bound.
	Requested int `json:"requestedBytes"`
	Window    int `json:"windowBytes"`
	// RTT, DispatchTimeout and Timeout have the values of these fields in nic.Config.
	RTT             time.Duration `json:"rttNs"`
	DispatchTimeout time.Duration `json:"dispatchTimeoutNs"`
	Timeout         time.Duration `json:"timeoutNs"`
}

func (n *NIC) Status() (s Status) {
	n.exclusive(func(clock.Time) {
		s = Status{Up: n.machine != nil, Incarnation: n.epoch, Processes: len(n.procs)}
		if n.machine == nil {
			return
		}
		cfg := n.nic.Config()
		s.RTT, s.DispatchTimeout, s.Timeout = cfg.RTT, cfg.DispatchTimeout, cfg.Timeout
		s.Requested, s.Window = n.nic.Window()
		for p := range n.procs {
			s.Regions += len(p.regions)
		}
	})
	return s
}

// Stats returns the counters of all incarnations together.
func (n *NIC) Stats() (s nic.Stats) {
	n.exclusive(func(clock.Time) {
		s = n.past
		if n.nic != nil {
			now := n.nic.Stats()
			s.Add(&now)
		}
	})
	return s
}

func (n *NIC) Now() clock.Time { return n.driver.Now() }

// Control returns the parameters of congestion control.
func (n *NIC) Control() executor.Config { return n.cfg.Executor }

func (n *NIC) Addr() netip.Addr { return n.cfg.NIC.Addr }

func opError(op string, err error, format string, args ...any) error {
	return &verbs.OpError{Op: "1RMA " + op, Err: err, Detail: fmt.Sprintf(format, args...)}
}
