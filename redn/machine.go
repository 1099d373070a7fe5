package redn

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const (
	machineRing = 64 // size of the rings of Main and Second in blocks
	// machineData is the size of the data of a machine in bytes.
	machineData = 4096
	// machinePatience is the longest virtual time that a program may take.
	machinePatience = time.Second
)

// Machine is a NIC in virtual time that executes programs on its own memory. Main is a queue with a
// doorbell, Second is a managed queue unless NewMachine was told otherwise, and the method Add
// makes more managed queues. Each queue is connected to itself. Now is the virtual time, and Out
// takes the frames that the NIC sends.
type Machine struct {
	NIC *engine.Engine
	PD  *engine.PD
	Now clock.Time
	Out packetio.Batch
	// Memory is the memory for the data of programs; it is registered, and Data names it.
	Memory       []byte
	Data         Mem
	Main, Second *Queue
	// queues are all queues of the machine. Those with a doorbell are last, so that the requests of
	// the managed queues are in memory when they start.
	queues []machineQueue
}

// machineQueue is a queue of a machine with its ring.
type machineQueue struct {
	*Queue
	qp   *engine.QP
	ring []byte
}

// NewMachine makes a machine. If managed is false, Second is not managed but has a doorbell, and
// the NIC reads its requests ahead.
func NewMachine(managed bool) (*Machine, error) {
	mac := wire.MAC{2, 0, 0, 0, 0, 1}
	e, err := engine.New(engine.Config{
		Name: "nic", MAC: mac, GIDs: []verbs.GID{verbs.GIDOf(netip.AddrFrom4([4]byte{10, 77, 0, 1}))}, Rand: rand.New(rand.NewPCG(1, 2)),
		Resolve: func(netip.Addr) (wire.MAC, bool) { return mac, true },
	})
	if err != nil {
		return nil, err
	}
	m := &Machine{NIC: e, Memory: make([]byte, machineData)}
	if m.PD, err = e.AllocPD(); err != nil {
		return nil, err
	}
	if m.Data, err = m.Register(m.Memory); err != nil {
		return nil, err
	}
	if m.Main, err = m.add("main", verbs.RingInit{Blocks: machineRing}); err != nil {
		return nil, err
	}
	m.Second, err = m.add("second", verbs.RingInit{Blocks: machineRing, Managed: managed})
	return m, err
}

// Register registers memory with all rights.
func (m *Machine) Register(b []byte) (Mem, error) {
	mr, err := m.NIC.RegMR(m.PD, b, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
	if err != nil {
		return Mem{}, err
	}
	r, err := mr.Region()
	if err != nil {
		return Mem{}, err
	}
	return Mem{Addr: r.Base(), LKey: r.LKey(), RKey: r.RKey(), Len: len(b)}, nil
}

// Add makes a managed queue with a ring of the given number of blocks and with counts of 16 bits,
// as a Loop needs it.
func (m *Machine) Add(name string, blocks int) (*Queue, error) {
	return m.add(name, verbs.RingInit{Blocks: blocks, Managed: true, Counts16: true})
}

func (m *Machine) add(name string, init verbs.RingInit) (*Queue, error) {
	memory := make([]byte, init.Blocks*sendring.BlockSize)
	ring, err := m.Register(memory)
	if err != nil {
		return nil, err
	}
	c, err := m.NIC.CreateCQ(1)
	if err != nil {
		return nil, err
	}
	counted, err := c.Queue()
	if err != nil {
		return nil, err
	}
	counted.IgnoreOverrun()
	q, err := m.NIC.CreateQP(m.PD, c, c, verbs.QPInit{MaxSGE: sendring.MaxSGE})
	if err != nil {
		return nil, err
	}
	init.Addr, init.LKey = ring.Addr, ring.LKey
	if err := q.UseRing(init); err != nil {
		return nil, err
	}
	if err := q.ToInit(verbs.ToInit{Access: verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic}); err != nil {
		return nil, err
	}
	if err := q.ToRTR(m.Now, verbs.ToRTR{DestQPN: q.Num(), DestGID: m.NIC.Config().GIDs[0], PathMTU: verbs.MTU1024}); err != nil {
		return nil, err
	}
	if err := q.ToRTS(m.Now, verbs.ToRTS{Timeout: 14, RetryCount: 7, RNRRetry: 7}); err != nil {
		return nil, err
	}
	to := &Queue{Name: name, QPN: q.Num(), Ring: ring, Managed: init.Managed, Counts16: init.Counts16, Done: &Counter{Number: c.ID()}}
	place := len(m.queues)
	for place > 0 && init.Managed && !m.queues[place-1].Managed {
		place--
	}
	m.queues = slices.Insert(m.queues, place, machineQueue{to, q, memory})
	return to, nil
}

// Run writes the appended requests into the rings, rings the doorbells and lets the NIC work until
// the NIC is idle. It fails if a queue has not executed all requests up to its limit, which its
// doorbell or an ENABLE has set. It does not fail if requests of a managed queue are behind the
// limit: a program that branches leaves requests there on purpose.
func (m *Machine) Run() error {
	if err := m.Load(); err != nil {
		return err
	}
	m.Settle()
	for _, q := range m.queues {
		if state, next, limit, _ := q.qp.RingState(); state != sendring.Idle || next != limit {
			return fmt.Errorf("queue %s: the ring is %v at %d of %d", q.Name, state, next, limit)
		}
	}
	return nil
}

// Load writes the appended requests into the rings and rings the doorbells; it does not run the
// NIC.
func (m *Machine) Load() error {
	for _, q := range m.queues {
		image, limit := q.Take()
		for _, p := range image {
			copy(q.ring[p.Off:], p.Bytes)
		}
		if !q.Managed {
			if err := q.qp.Doorbell(m.Now, limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// Settle lets virtual time pass until the NIC has nothing to do, but at most a second.
func (m *Machine) Settle() {
	for end := m.Now.Add(machinePatience); m.NIC.Deadline() < end; {
		m.Now = max(m.Now, m.NIC.Deadline())
		m.NIC.Tick(m.Now, &m.Out)
	}
}
