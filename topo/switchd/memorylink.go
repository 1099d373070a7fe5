package switchd

import (
	"context"
	"errors"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/softrnic/packetio/direct"
	"github.com/rdmalab/rdmalab/softrnic/packetio/memlink"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// links makes the switch's ends of the links through memory: of memory links if there is a listener,
// of direct links if there is a fabric. If there is neither, all frames pass the veth pairs.
type links struct {
	listener *memlink.Listener
	fabric   *direct.Fabric
	oneRMA   bool // the hosts have 1RMA NICs
}

// memoryLinks begins to listen for hosts if the rack has memory links.
func memoryLinks(rack *rackfile.Rack, paths rackfile.Paths, fabric *direct.Fabric) (links, error) {
	if fabric != nil {
		return links{fabric: fabric}, nil
	}
	if rack.Cable != rackfile.CableMemory {
		return links{}, nil
	}
	l, err := memlink.Listen(paths.Links())
	return links{listener: l, oneRMA: rack.OneRMA != nil}, err
}

func (s links) close() error {
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

// beside returns the port of link l, which has the number i: a memory link beside the packet socket
// `wire`. If the rack has no memory links, or l is the link of a guest, the port is `wire` alone.
func (s links) beside(wire *afpacket.Port, i int, l Link) (packetio.Port, error) {
	switch {
	case l.Guest:
		return wire, nil
	case s.fabric != nil:
		return &doubleLink{wire: wire, memory: s.fabric.Link(l.Host).Switch(i, wire.Info().MTU)}, nil
	case s.listener == nil:
		return wire, nil
	}
	m, err := s.listener.Port(l.Host, memlink.Config{Index: i, MTU: wire.Info().MTU, Merge: l.GSO})
	if err != nil {
		return nil, errors.Join(err, wire.Close())
	}
	return &doubleLink{wire: wire, memory: m, oneRMA: s.oneRMA}, nil
}

// wirePort is the switch's end of a veth pair. An afpacket.Port is one.
type wirePort interface {
	packetio.Port
	linker
	stater
}

// memoryPort is the switch's end of a link through memory: a memlink.Port, whose other end is in the
// process of a host, or a direct.Port.
type memoryPort interface {
	packetio.Port
	stater
	SetUp(up bool)
	Attached() bool
}

// doubleLink is a link with two ways. RoCEv2 packets to the host go through shared memory, all
// other frames through the veth pair. Messages of IGMP and MLD take both ways, because the host's
// NIC and its kernel both answer queries. The state of the veth pair applies to both ways: if the
// link is down, or the host has crashed, the pair has no carrier.
type doubleLink struct {
	wire   wirePort
	memory memoryPort
	// wireFirst is true if the next Recv tries the veth pair first. Recv inverts it each time, so
	// that neither way has to wait for the other.
	wireFirst bool
	oneRMA    bool // the host has a 1RMA NIC, whose messages go through shared memory, too
	// toWire and toMemory are the batches of a Send that has frames for both ways.
	toWire, toMemory packetio.Batch
}

var (
	_ wirePort = (*doubleLink)(nil)
	_ wirePort = (*afpacket.Port)(nil)

	_ memoryPort = (*memlink.Port)(nil)
	_ memoryPort = (*direct.Port)(nil)
)

// Recv receives from both ways. The threads of NICs that carry frames over direct links receive from
// the memory alone (see carried).
func (l *doubleLink) Recv(b *packetio.Batch) (int, error) {
	first, second := packetio.Port(l.memory), packetio.Port(l.wire)
	if l.wireFirst {
		first, second = second, first
	}
	l.wireFirst = !l.wireFirst
	if n, err := first.Recv(b); n > 0 || err != nil {
		return n, err
	}
	return second.Recv(b)
}

// Send sends RoCEv2 packets through shared memory, and other frames through the veth pair. Frames
// on the same way keep their order. A frame that may be a message of IGMP or MLD takes both ways;
// it is counted once, by the veth pair.
func (l *doubleLink) Send(b *packetio.Batch) (int, error) {
	same := 0
	for same < len(b.Frames) && l.toNIC(&b.Frames[same]) {
		same++
	}
	if same == len(b.Frames) {
		return l.memory.Send(b)
	}
	both := 0
	for _, f := range b.Frames {
		if l.toNIC(&f) {
			l.toMemory.Frames = append(l.toMemory.Frames, f)
			continue
		}
		l.toWire.Frames = append(l.toWire.Frames, f)
		if wire.MayBeMembership(f.Data) {
			l.toMemory.Frames = append(l.toMemory.Frames, f)
			both++
		}
	}
	defer l.toMemory.Reset()
	defer l.toWire.Reset()
	left, err := l.memory.Send(&l.toMemory)
	n, werr := l.wire.Send(&l.toWire)
	return min(left, len(l.toMemory.Frames)-both) + n, errors.Join(err, werr)
}

// toNIC reports whether a frame is for one of the host's NICs.
func (l *doubleLink) toNIC(f *packetio.Frame) bool {
	return f.Open != nil || wire.IsRoCE(f.Data) || l.oneRMA && onerma.Is(f.Data)
}

// passesOpen reports whether the host at the other end handles packets that are not encoded.
func (l *doubleLink) passesOpen() bool {
	m, ok := l.memory.(*direct.Port)
	return ok && m.PassesOpen()
}

// LinkUp reports whether the veth pair has a carrier. It sets the memory link to the same state.
func (l *doubleLink) LinkUp() bool {
	up := l.wire.LinkUp()
	l.memory.SetUp(up)
	return up
}

func (l *doubleLink) Stats() packetio.Stats {
	s, m := l.wire.Stats(), l.memory.Stats()
	s.RxPackets += m.RxPackets
	s.RxBytes += m.RxBytes
	s.RxDropped += m.RxDropped
	s.TxPackets += m.TxPackets
	s.TxBytes += m.TxBytes
	s.TxDropped += m.TxDropped
	return s
}

func (l *doubleLink) Close() error { return errors.Join(l.memory.Close(), l.wire.Close()) }

// Bounds of the wait for hosts at the start of the switch.
const (
	// hostsWait bounds how long the switch waits for hosts to attach their memory links. It waits
	// only for hosts whose links have a carrier. A host tries to attach at least every 20 ms.
	hostsWait = 500 * time.Millisecond
	// hostsPoll is the interval at which the switch checks whether the memory links are attached.
	hostsPoll = time.Millisecond
)

// awaitHosts waits until the memory links of all hosts are attached. So when the switch answers
// requests of operators, the rack also carries packets. It does not wait for hosts that have
// crashed, and waits only hostsWait for hosts that hang.
func (d *Daemon) awaitHosts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, hostsWait)
	defer cancel()
	for i := range d.ports.list {
		l, ok := d.ports.list[i].io.(*doubleLink)
		for ok && ctx.Err() == nil && l.LinkUp() && !l.memory.Attached() {
			time.Sleep(hostsPoll)
		}
	}
}
